"""Rules on made-up outcomes, each rate counted literally."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.test_gate_baseline import SUBJECT, record
from whorl.evaluation import AttackedRates, Rule, Verdict, wilson
from whorl.gate.record import GateRecord
from whorl.gate.rules import accuracy, attacked_rates, decided, posed_accuracy
from whorl.gate.settings import GateSettings


def made(seed: int, *, images: int = 40, poses: int = 5) -> GateRecord:
    """A gate of images that are recognised now and then; the first pose leaves them as they are."""
    random = np.random.default_rng(seed)
    clean = random.random((poses, images)) < random.uniform(0.2, 1)
    return record(torch.from_numpy(random.random((poses, images)) < 0.5), clean=torch.from_numpy(clean))


def rates(one: GateRecord, **changed: Any) -> AttackedRates:
    return attacked_rates(one, SUBJECT, **{"attack": "ai-best", "source": "shop", "kind": "white-box", **changed})


def rules(one: GateRecord, **limits: Any) -> list[Rule]:
    return list(decided(GateSettings(model="resnet18", **limits), accuracy(one), (rates(one),)))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_rates_are_what_they_are_called(seed: int) -> None:
    one = made(seed)
    clean, attacked = one.clean.tolist(), one.recognised(SUBJECT).tolist()
    images, found = range(40), rates(one)
    kept = [p for p in range(5) if sum(clean[p]) >= 10] or list(range(5))
    pairs = [(p, i) for p in kept for i in images if clean[p][i]]
    assert found.success.value == pytest.approx(sum(not attacked[p][i] for p, i in pairs) / len(pairs))
    some = [i for i in images if any(clean[p][i] for p in range(5))]
    fooled = [i for i in some if any(clean[p][i] and not attacked[p][i] for p in range(5))]
    assert found.worst_case.value == pytest.approx(len(fooled) / len(some))
    assert found.worst_case.interval == pytest.approx(wilson(len(fooled), len(some)))
    robust = sum(all(attacked[p][i] for p in range(5)) for i in images)
    assert found.robust.value == pytest.approx(robust / 40)
    assert accuracy(one).value == pytest.approx(sum(clean[0]) / 40)
    assert posed_accuracy(one).value == pytest.approx(sum(map(sum, clean)) / 200)


def test_a_limit_itself_passes() -> None:
    half = torch.arange(40)[None].repeat(5, 1) < 20
    one = record(half, clean=torch.ones_like(half))
    for limit, passed in ((50, True), (49.9, False)):
        assert [rule.passed for rule in rules(one, fail_above=limit, worst_case=limit)] == [passed, passed]
    some = record(half, clean=half)
    for limit, passed in ((50, True), (50.1, False)):
        assert [rule.passed for rule in rules(some, min_accuracy=limit)] == [passed]


def test_strict_takes_the_pessimistic_end() -> None:
    half = torch.arange(40)[None].repeat(5, 1) < 20
    one = record(half, clean=torch.ones_like(half))
    (above,) = rules(one, fail_above=60)
    low, high = above.interval
    assert low < 0.5 < high
    for limit, passed in ((100 * high + 0.1, True), (100 * high - 0.1, False)):
        assert [rule.passed for rule in rules(one, fail_above=limit, strict=True)] == [passed]
    some = record(half, clean=half)
    (least,) = rules(some, min_accuracy=30)
    for limit, passed in ((100 * least.interval[0] - 0.1, True), (100 * least.interval[0] + 0.1, False)):
        assert [rule.passed for rule in rules(some, min_accuracy=limit, strict=True)] == [passed]


def test_a_transfer_rate_is_called_so() -> None:
    one = made(0)
    asked = GateSettings(model="resnet18", fail_above=60, worst_case=60)
    transfer = rates(one, kind="transfer")
    above, worst = decided(asked, accuracy(one), (transfer,))
    assert ": transfer rate " in above.sentence
    assert "(transfer)" in worst.sentence
    own, _ = decided(asked, accuracy(one), (rates(one),))
    assert ": success rate " in own.sentence


def test_the_verdict_in_a_line() -> None:
    one = made(0)
    good, bad = rules(one, fail_above=99), rules(one, worst_case=1)
    whole: dict[str, Any] = {
        "model": "shop",
        "images": 40,
        "poses": 5,
        "accuracy": accuracy(one),
        "posed_accuracy": posed_accuracy(one),
    }
    verdicts = [Verdict(**whole, rules=tuple(some)) for some in ([], good, [*good, *bad])]
    assert [verdict.sentence for verdict in verdicts] == [
        "shop: no rule was given, so nothing is decided",
        "shop: passed, 1 rule",
        "shop: failed, 1 of 2 rules",
    ]
    assert [verdict.passed for verdict in verdicts] == [True, True, False]
