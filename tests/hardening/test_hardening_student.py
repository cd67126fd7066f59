"""What of a network may learn, what is held, and weights between it and its original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hardening_cases import CLASSES, TINY, as_classifier, same, toy, toy_images
from whorl.errors import WhorlError
from whorl.hardening import harden
from whorl.hardening.student import Average, blended, learned, make_student


@pytest.mark.parametrize("norm", ["affine", "frozen", "batch"])
def test_what_is_held_does_not_move(norm: str) -> None:
    original = toy()
    done = harden(original, toy_images(), "pgd-at", norm=norm, **TINY)
    before, after = original.net.state_dict(), done.classifier.net.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    kernels = {"0.weight", "0.bias", "3.weight", "3.bias"}
    scales = {f"{place}.{name}" for place in (1, 4) for name in ("weight", "bias")}
    statistics = {f"{place}.{name}" for place in (1, 4) for name in ("running_mean", "running_var")}
    statistics |= {"1.num_batches_tracked", "4.num_batches_tracked"}
    expected = {"affine": kernels | scales, "frozen": kernels, "batch": kernels | scales | statistics}[norm]
    assert moved == expected
    assert set(done.learned) == expected
    assert not any(parameter.requires_grad for parameter in done.classifier.parameters())
    assert same(original.net.state_dict(), toy().net.state_dict())


def test_the_head_moves_only_if_told_to() -> None:
    done = harden(toy(), toy_images(), "pgd-at", head=True, **TINY)
    assert {"8.weight", "8.bias"} <= set(done.learned)


def test_a_network_that_is_all_head_has_nothing_to_learn() -> None:
    head = as_classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, CLASSES)), "head")
    with pytest.raises(WhorlError, match="nothing to learn"):
        harden(head, toy_images(), "pgd-at", **TINY)


def test_blending_is_a_straight_line() -> None:
    original = toy()
    done = harden(original, toy_images(), "pgd-at", steps=4, batch=12, held_out=0, device="cpu", lr=0.05)
    start, end = original.net.state_dict(), done.learned
    half = blended(original, end, 0.5)
    assert half.keys() == end.keys()
    for name, tensor in half.items():
        torch.testing.assert_close(tensor, (start[name] + end[name]) / 2)
    assert all(torch.equal(tensor, end[name]) for name, tensor in blended(original, end, 1).items())
    assert all(torch.equal(tensor, start[name]) for name, tensor in blended(original, end, 0).items())


def test_the_average_is_the_definition() -> None:
    """θ̄ ← d·θ̄ + (1-d)·θ with d = min(decay, (1+t)/(10+t)), in float64; whole numbers are copied."""
    student, decay = make_student(toy(), norm="batch"), 0.5
    average, source = Average(student, decay), learned(student)
    expected = {name: tensor.double() for name, tensor in source.items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        for tensor in source.values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) if tensor.is_floating_point() else 1)
        average.update(step)
        d = min(decay, (1 + step) / (10 + step))
        for name, tensor in source.items():
            now = d * expected[name] + (1 - d) * tensor.double()
            expected[name] = now if tensor.is_floating_point() else tensor.double()
    assert average.whole  # counts of batches, which have no mean
    for name, tensor in average.state.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)
