"""A bound of the structural similarity: kept after rounding, no tighter than needed, and each image's own."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import random_images
from whorl import WhorlError
from whorl.evaluation import bounded_by_ssim, ssim, to_8_bits


def attacked(count: int = 4, size: float = 0.1, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    clean = to_8_bits(0.2 + 0.6 * random_images(count, height=24, width=20, seed=seed + 1))
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)).sign()
    return clean, (clean + size * noise).clamp(0, 1)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 0.4), st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.integers(0, 1000))
def test_the_bound_holds_of_the_rounded_images(size: float, least: list[float], seed: int) -> None:
    clean, adversarial = attacked(3, size, seed)
    bound = torch.tensor(least, dtype=torch.float64)
    made = bounded_by_ssim(clean, adversarial, bound)
    assert torch.equal(made, to_8_bits(made))
    assert bool((ssim(clean, made) >= bound).all())
    assert bool(((made - clean).abs() <= (adversarial - clean).abs() + 0.5 / 255 + 1e-6).all())


def test_takes_as_much_as_it_may() -> None:
    clean, adversarial = attacked()
    bound = (1 + ssim(clean, adversarial)) / 2
    found = ssim(clean, bounded_by_ssim(clean, adversarial, bound))
    change = adversarial - clean
    factors = [k / 1000 for k in range(1001)]  # literally the largest that keeps the bound
    best = torch.stack([ssim(clean, to_8_bits(clean + f * change)) for f in factors])
    largest = [max(i for i, one in enumerate(best[:, k]) if one >= bound[k]) for k in range(len(clean))]
    for k, place in enumerate(largest):
        assert found[k] <= best[max(place - 20, 0), k]
    assert bool((found >= bound).all())


def test_what_is_similar_enough_is_only_rounded() -> None:
    clean, adversarial = attacked()
    assert torch.equal(bounded_by_ssim(clean, adversarial, -1), to_8_bits(adversarial))
    each = ssim(clean, to_8_bits(adversarial))
    bound = each.clone()
    bound[1] = 0.9
    made = bounded_by_ssim(clean, adversarial, bound)
    assert torch.equal(made[[0, 2, 3]], to_8_bits(adversarial)[[0, 2, 3]])
    assert ssim(clean, made)[1] >= 0.9 > each[1]


def test_nothing_else_than_the_clean_image_has_a_similarity_of_one() -> None:
    clean, adversarial = attacked()
    assert torch.equal(bounded_by_ssim(clean, adversarial, 1), clean)


def test_a_similarity_of_shrunk_images_can_be_bounded() -> None:
    clean = torch.full((2, 3, 48, 48), 128 / 255)
    coarse = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0)).sign()
    adversarial = clean + 0.1 * coarse.repeat_interleave(4, 2).repeat_interleave(4, 3)
    assert bool((ssim(clean, adversarial, shrink=4) < 0.3).all())
    made = bounded_by_ssim(clean, adversarial, 0.9, shrink=4)
    assert bool((ssim(clean, made, shrink=4) >= 0.9).all())
    assert bool(((made - clean).abs() > 0).any())


def test_an_image_does_not_depend_on_its_batch() -> None:
    clean, adversarial = attacked()
    whole = bounded_by_ssim(clean, adversarial, 0.8)
    assert torch.equal(whole[2:3], bounded_by_ssim(clean[2:3], adversarial[2:3], 0.8))


@pytest.mark.parametrize("least", [1.01, math.nan])
def test_a_bound_that_no_image_keeps_is_refused(least: float) -> None:
    with pytest.raises(WhorlError, match=r"least must be a structural similarity, at most 1; got"):
        bounded_by_ssim(*attacked(), least)
