"""The rule against a baseline: how often it fails without cause, and how often it finds a cause."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from whorl import WhorlError
from whorl.evaluation import Outcomes, Pose
from whorl.gate.baseline import Baseline, read_baseline, regression
from whorl.gate.record import GateRecord

SUBJECT = "ai-best, white-box"


def record(recognised: Tensor, *, subjects: tuple[str, ...] = (SUBJECT,), clean: Tensor | None = None) -> GateRecord:
    """A made-up gate: (P, N) bool, the same under every attack."""
    n = recognised.shape[1]
    outcomes = Outcomes(
        ids=tuple(f"image-{i}" for i in range(n)),
        attacks=subjects,
        targets=("network",),
        poses=tuple(Pose(angle=float(angle)) for angle in range(len(recognised))),
        clean=torch.ones_like(recognised)[None] if clean is None else clean[None],
        adversarial=recognised[None].repeat(len(subjects), 1, 1, 1),
    )
    return GateRecord(
        model="shop",
        outcomes=outcomes,
        sha256=tuple(f"{i:064x}" for i in range(n)),
        labels=("bolt",) * n,
        attacks={subject: {"type": "Attack", "eps": 0.06} for subject in subjects},
    )


def fails(now: Tensor, then: Tensor, *, fail_drop: float = 2.0) -> bool:
    found = regression(record(now), Baseline(path=Path("gate.json"), record=record(then)), fail_drop=fail_drop)
    return not all(rule.passed for rule in found.rules)


def most(share: float, trials: int) -> float:
    """A share plus three standard errors of so many trials."""
    return share + 3 * math.sqrt(share * (1 - share) / trials)


def resampled_failures(one: GateRecord, other: GateRecord) -> float:
    """The share of 200 resamples of images, with replacement, in which the rule fails, whichever is the earlier."""
    random, n = np.random.default_rng(0), len(one.sha256)
    failed = 0
    for turn in range(200):
        drawn = torch.from_numpy(random.integers(n, size=n))
        now, then = (
            each.recognised(next(iter(each.attacks)))[:, drawn] for each in (one, other)[:: 1 - 2 * (turn % 2)]
        )
        failed += fails(now, then)
    return failed / 200


@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_two_seeds_of_one_network_fail_in_5_percent_at_most(agreement: float) -> None:
    """200 resamples of images; an image is fooled with a probability of its own, by either seed, alike or not."""
    random, failed = np.random.default_rng(0), 0
    for _ in range(200):
        odds = random.beta(0.5, 0.5, 200)  # most images are always fooled or never, as in practice
        one, other = (random.random((5, 200)) < odds for _ in range(2))
        same = random.random((5, 200)) < agreement
        failed += fails(torch.from_numpy(one), torch.from_numpy(np.where(same, one, other)))
    assert failed / 200 <= most(0.05, 200)


def test_a_planted_regression_is_found() -> None:
    """12% of 200 images newly fooled and 2% newly robust, each image by chance, so that some draws have less."""
    random, found = np.random.default_rng(1), 0
    for _ in range(200):
        then = np.repeat(random.random((1, 200)) < 0.5, 5, axis=0)
        # Of the robust half 24% are newly fooled, of the fooled half 4% newly robust.
        changes = random.random((1, 200)) < np.where(then, 0.24, 0.04)
        found += fails(torch.from_numpy(then ^ changes), torch.from_numpy(then))
    assert found / 200 >= 0.95


def test_a_planted_regression_of_exactly_that_size_is_found() -> None:
    then = torch.arange(200)[None].repeat(5, 1) < 100
    now = then.clone()
    now[:, :24], now[:, 100:104] = False, True
    made = regression(record(now), Baseline(path=Path("gate.json"), record=record(then)), fail_drop=2)
    [rule] = made.rules
    assert not rule.passed
    assert (round(rule.rate, 9), rule.n, rule.limit) == (0.1, 200, 0.02)
    assert made.changed[SUBJECT] == {
        **{f"image-{i}": 5 for i in range(24)},
        **{f"image-{i}": -5 for i in range(100, 104)},
    }
    assert "40.0% recognised under attack, 50.0% in the baseline" in rule.sentence
    assert "-10.0 points" in rule.sentence
    assert "24 fooled in more poses than before, 4 in fewer" in rule.sentence
    # Significant, but within what is allowed; and an improvement is no regression.
    assert not fails(now, then, fail_drop=10)
    assert not fails(then, now)


def test_a_drop_that_is_not_significant_passes() -> None:
    then = torch.ones(5, 40, dtype=torch.bool)
    now = then.clone()
    now[:, :4] = False  # 10 points, of four images
    assert not fails(now, then)


def test_only_shared_images_count() -> None:
    then, now = record(torch.ones(5, 40, dtype=torch.bool)), record(torch.ones(5, 50, dtype=torch.bool))
    made = regression(now, Baseline(path=Path("gate.json"), record=then), fail_drop=2)
    assert made.rules[0].n == 40
    assert made.notes == ("40 of 50 images are in the baseline too, by their pixels",)
    with pytest.raises(WhorlError, match="shares 5 images with this gate"):
        regression(
            now, Baseline(path=Path("gate.json"), record=record(torch.ones(5, 5, dtype=torch.bool))), fail_drop=2
        )


def test_an_attack_that_the_baseline_lacks_is_named() -> None:
    every = torch.ones(5, 40, dtype=torch.bool)
    then = record(every, subjects=("ai-best, white-box",))
    now = record(every, subjects=("ai-best, white-box", "ai-best, transfer from a"))
    made = regression(now, Baseline(path=Path("gate.json"), record=then), fail_drop=2)
    assert [rule.subject for rule in made.rules] == ["ai-best, white-box"]
    assert made.notes == ("the baseline has no 'ai-best, transfer from a', so there nothing is compared",)


def test_what_cannot_be_compared() -> None:
    every = torch.ones(5, 40, dtype=torch.bool)
    now = record(every)

    def against(then: GateRecord) -> None:
        regression(now, Baseline(path=Path("gate.json"), record=then), fail_drop=2)

    with pytest.raises(WhorlError, match=r"none of this gate's attacks: it has 'dim, white-box'"):
        against(record(every, subjects=("dim, white-box",)))
    with pytest.raises(WhorlError, match="in other poses"):
        against(record(every[:3]))
    other = record(every)
    with pytest.raises(WhorlError, match="another 'eps' of ai-best, white-box"):
        against(GateRecord(**{**vars(other), "attacks": {SUBJECT: {"type": "Attack", "eps": 0.03}}}))
    with pytest.raises(WhorlError, match="40 images are of another class"):
        against(GateRecord(**{**vars(other), "labels": ("nut",) * 40}))


def test_several_attacks_are_corrected_for() -> None:
    """Images that one attack alone would call significant are not when it is one of ten."""
    then = torch.ones(5, 60, dtype=torch.bool)
    now = then.clone()
    now[:, :6] = False  # p = 0.031
    many = tuple(f"ai-best, transfer from {i}" for i in range(10))
    alone = regression(record(now), Baseline(path=Path("g"), record=record(then)), fail_drop=2)
    among = regression(
        record(now, subjects=many), Baseline(path=Path("g"), record=record(then, subjects=many)), fail_drop=2
    )
    assert [rule.passed for rule in alone.rules] == [False]
    assert [rule.passed for rule in among.rules] == [True] * 10


def test_a_baseline_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match=r"there is no .*gate.json. Expected the folder that `whorl gate` wrote"):
        read_baseline(tmp_path)
    (tmp_path / "gate.json").write_text('{"format": 1, "images": []}')
    with pytest.raises(WhorlError, match="is damaged, or is not what whorl wrote"):
        read_baseline(tmp_path / "gate.json")
