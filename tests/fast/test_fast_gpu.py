"""The attack loop on a GPU. Run by hand: ``pytest -m gpu tests/fast``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.evaluation import success_rates
from whorl.fast import network
from whorl.models.architectures import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIDE = 96


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    network.forget()
    yield
    network.forget()


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    torch.manual_seed(0)
    net, given = build("torchvision:resnet18", num_classes=10)
    return whorl.Classifier.from_module(net, size=SIDE, mean=given.mean, std=given.std).cuda()


def batch(clf: whorl.Classifier, count: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).cuda()
    with torch.no_grad():
        return x, (clf(x).argmax(1) + 1) % 10


CASES: list[tuple[str, dict[str, Any]]] = [
    ("mim", {}),
    ("ai-dim", {}),
    ("ai-ram", {}),
    ("pgd", {"norm": "l2", "eps": 4.0}),
    ("eot", {"samples": 4, "steps": 3}),
    ("mim", {"optimizer": "adam"}),
    ("ti-dim", {"fast": True}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_it_raises_the_loss_as_far_as_the_plain_loop(
    name: str, settings: dict[str, Any], clf: whorl.Classifier
) -> None:
    x, y = batch(clf)
    fast = whorl.attack(name, **{"fast": None, **settings})(clf, x, y)
    slow = whorl.attack(name, **{**settings, "fast": False})(clf, x, y)
    with torch.no_grad():
        before, quick, plain = (torch.nn.functional.cross_entropy(clf(v), y).item() for v in (x, fast, slow))
    # Without momentum every step's rounding decides anew, so there is more between them.
    assert quick - before > (0.95 if name != "eot" else 0.9) * (plain - before) > 0
    if settings.get("norm") != "l2":
        assert float((fast - x).abs().max()) <= 16 / 255 + 1e-6


def test_the_same_again_and_in_a_short_batch(clf: whorl.Classifier) -> None:
    x, y = batch(clf)
    attack = whorl.attack("ai-dim", fast=None)
    whole = attack(clf, x, y)
    assert torch.equal(attack(clf, x, y), whole)
    # 30 are padded to 32, so the same kernels see them
    assert torch.equal(attack(clf, x[:30], y[:30]), whole[:30])


def test_nothing_waits_inside_the_loop(clf: whorl.Classifier) -> None:
    x, y = batch(clf)

    def waits(steps: int) -> int:
        attack = whorl.attack("ai-dim", steps=steps, fast=None)
        attack(clf, x, y)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                attack(clf, x, y)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(w.message) for w in caught)

    assert waits(2) == waits(9)


def test_memory_does_not_grow_and_stays_below_the_plain_loop(clf: whorl.Classifier) -> None:
    x, y = batch(clf, 64)

    def peak(**settings: Any) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        whorl.attack("ai-dim", **settings)(clf, x, y)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    fast = peak(fast=None)
    whorl.attack("ai-dim", fast=None)(clf, x, y)  # what a replay takes beside the recording
    held = torch.cuda.memory_reserved()
    for seed in range(5):
        whorl.attack("ai-dim", eps=0.01 * (seed + 1), fast=None)(clf, x, y, seed=seed)
    assert torch.cuda.memory_reserved() <= held
    network.forget()
    assert fast <= 1.05 * peak(fast=False)


def test_evaluation_in_bf16_counts_nearly_the_same(clf: whorl.Classifier) -> None:
    x, y = batch(clf, 64)
    adv = {"mim": whorl.attack("mim")(clf, x, y)}
    full, half = (success_rates({"it": clf}, x, adv, y, precision=p) for p in ("full", "bf16"))
    assert all(abs(full[key].n_adversarial_correct - half[key].n_adversarial_correct) <= 6 for key in full)
