"""Distances against image by image, value by value."""

from __future__ import annotations

import math

import pytest
import torch

from conftest import random_images
from whorl import WhorlError
from whorl.evaluation import Distance, ssim


def test_is_the_definition_and_adds_up() -> None:
    clean, adversarial = random_images(5, 3, 4, 6), random_images(5, 3, 4, 6, seed=2)
    changes = [(b - a).flatten().tolist() for a, b in zip(clean, adversarial, strict=True)]
    linf = [max(map(abs, change)) for change in changes]
    l2 = [math.sqrt(sum(value * value for value in change)) for change in changes]
    whole = Distance.of(clean, adversarial)
    pooled = Distance.of(clean[:2], adversarial[:2]) + Distance.of(clean[2:], adversarial[2:])
    for distance in (whole, pooled):
        assert distance.n == 5
        assert (distance.linf_max, distance.linf_mean) == pytest.approx((max(linf), sum(linf) / 5))
        assert (distance.l2_max, distance.l2_mean) == pytest.approx((max(l2), sum(l2) / 5))


def test_nothing_adds_nothing() -> None:
    none = Distance.of(torch.zeros(0, 3, 4, 4), torch.zeros(0, 3, 4, 4))
    some = Distance.of(torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4))
    assert none == Distance()
    assert none + some == some
    assert math.isnan(none.linf_mean)
    assert math.isnan(none.l2_mean)
    assert math.isnan(none.ssim_mean)
    known = Distance.of(torch.zeros(1, 3, 11, 11), torch.ones(1, 3, 11, 11))
    assert none + known == known + none == known


def test_structural_similarity_adds_up() -> None:
    clean = random_images(5, 3, 12, 14)
    adversarial = (clean + 0.2 * random_images(5, 3, 12, 14, seed=2)).clamp(0, 1)
    each = ssim(clean, adversarial)
    whole = Distance.of(clean, adversarial)
    pooled = Distance.of(clean[:2], adversarial[:2]) + Distance.of(clean[2:], adversarial[2:])
    for distance in (whole, pooled):
        assert (distance.ssim_mean, distance.ssim_min) == pytest.approx((each.mean().item(), each.min().item()))


@pytest.mark.parametrize("unknown", ["images too small", "stored before it was measured"])
def test_a_similarity_that_one_image_lacks_is_that_of_none(unknown: str) -> None:
    known = Distance.of(torch.zeros(1, 3, 11, 11), torch.full((1, 3, 11, 11), 0.5))
    small = Distance.of(torch.zeros(1, 3, 10, 20), torch.ones(1, 3, 10, 20))
    other = small if unknown == "images too small" else Distance(n=1, linf_sum=1, linf_max=1, l2_sum=3, l2_max=3)
    for pooled in (other, other + known, known + other, known + other + known):
        assert pooled.ssim_min is None
        assert math.isnan(pooled.ssim_mean)
    assert (known + other).linf_mean == 0.75


def test_shapes_must_agree() -> None:
    with pytest.raises(WhorlError, match=r"of one shape; got \(2, 3, 4, 4\) and \(1, 3, 4, 4\)"):
        Distance.of(torch.zeros(2, 3, 4, 4), torch.zeros(1, 3, 4, 4))
