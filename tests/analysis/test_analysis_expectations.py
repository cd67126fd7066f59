"""Inner products without noise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from whorl.analysis.expectations import Gram, gram

COUNT, WIDTH = 6, 4000


def made_up(noise: float, *, seed: int = 0) -> tuple[Gram, float]:
    """Two known vectors an image at a known angle, one of them seen through noise."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        return torch.randn(COUNT, 1, 1, WIDTH, generator=generator, dtype=torch.float64)

    a, b = draw(), draw()
    b = 0.6 * a + 0.8 * b
    # Images of very different lengths, as gradients are.
    scale = torch.tensor([10.0**k for k in range(COUNT)]).view(-1, 1, 1, 1)
    halves = [{"a": a * scale, "b": (b + noise * draw()) / scale} for _ in range(2)]
    truth = torch.nn.functional.cosine_similarity(a.flatten(1), b.flatten(1)).mean()
    return gram(halves), float(truth)


@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_the_cosine_is_that_of_the_expectations(noise: float) -> None:
    found, truth = made_up(noise)
    assert found.cosine("a", "b") == pytest.approx(truth, abs=0.002 + 0.03 * noise)
    assert found.cosine("a", "a") == pytest.approx(1)
    assert found.cosine("b", "b") == pytest.approx(1)


def test_the_reliability_tells_the_share_of_noise() -> None:
    for noise in (0.0, 1.0, 3.0):
        # Half the noise's variance is left in the mean of two halves.
        assert made_up(noise)[0].reliability("b") == pytest.approx(1 / (1 + noise**2 / 2), abs=0.03)


def test_the_interval_holds_the_cosine() -> None:
    found, truth = made_up(1.0)
    low, high = found.interval("a", "b")
    assert low <= found.cosine("a", "b") <= high
    assert high - low < 0.2
    assert low - 0.05 < truth < high + 0.05


def test_the_distance_is_relative_to_the_second() -> None:
    a = torch.randn(COUNT, 1, 1, WIDTH, dtype=torch.float64)
    found = gram([{"a": a, "b": 3 * a}] * 2)
    assert found.relative("a", "b") == pytest.approx(2 / 3)
    assert found.relative("b", "a") == pytest.approx(2)


def test_pure_noise_has_no_cosine_or_a_useless_one() -> None:
    generator = torch.Generator().manual_seed(1)
    halves = [{n: torch.randn(2, 1, 1, 50, generator=generator) for n in "ab"} for _ in range(2)]
    found = gram(halves)
    assert math.isnan(found.cosine("a", "b")) or found.reliability("a") < 0.5


def test_batches_join() -> None:
    found, _ = made_up(0.5)
    parts = [
        Gram(names=found.names, products=found.products[part], lengths=found.lengths[part])
        for part in (slice(0, 2), slice(2, None))
    ]
    assert Gram.joined(parts).cosine("a", "b") == found.cosine("a", "b")
