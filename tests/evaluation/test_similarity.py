"""Structural similarity against its definition, window by window, and the laws that follow from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from conftest import random_images
from whorl import WhorlError
from whorl.evaluation import ssim
from whorl.evaluation.similarity import similarity

Array = NDArray[np.float64]


def literal_ssim(x: Array, y: Array) -> float:
    """Wang et al. (2004), equations 12 to 16, of one channel: a window at a time, a pixel at a time."""
    bell = [math.exp(-((i - 5) ** 2) / (2 * 1.5**2)) for i in range(11)]
    total = sum(a * b for a in bell for b in bell)
    weights = {(i, j): bell[i] * bell[j] / total for i in range(11) for j in range(11)}
    c1, c2 = (0.01 * 1) ** 2, (0.03 * 1) ** 2
    found = []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            here = [(w, x[top + i, left + j], y[top + i, left + j]) for (i, j), w in weights.items()]
            mean_x, mean_y = sum(w * a for w, a, _ in here), sum(w * b for w, _, b in here)
            var_x = sum(w * (a - mean_x) ** 2 for w, a, _ in here)
            var_y = sum(w * (b - mean_y) ** 2 for w, _, b in here)
            both = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in here)
            light = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
            found.append(light * (2 * both + c2) / (var_x + var_y + c2))
    return float(np.mean(found))


def noisy(x: Tensor, size: float, seed: int = 2) -> Tensor:
    """The image with noise of ±size, within [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return (x + size * torch.randn(x.shape, generator=generator).sign()).clamp(0, 1)


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        ((3, 3, 13, 15), torch.float64, 1e-12),
        ((2, 1, 11, 11), torch.float64, 1e-12),
        ((1, 4, 11, 17), torch.float32, 1e-5),
    ],
)
def test_is_the_definition(shape: tuple[int, int, int, int], dtype: torch.dtype, error: float) -> None:
    x = random_images(*shape).to(dtype)
    y = torch.cat((noisy(x[:1], 0.1), random_images(*shape, seed=3).to(dtype)[1:]))
    expected = [
        np.mean([literal_ssim(a, b) for a, b in zip(one, other, strict=True)])
        for one, other in zip(x.double().numpy(), y.double().numpy(), strict=True)
    ]
    found = ssim(x, y)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=error)


def test_smooth_bright_images_keep_their_digits() -> None:
    ramp = torch.linspace(0.98, 1, 20).expand(1, 1, 20, 20)  # variances of 1e-5 beside squares of 1
    other = noisy(ramp, 1 / 255)
    expected = literal_ssim(ramp[0, 0].double().numpy(), other[0, 0].double().numpy())
    assert ssim(ramp, other).item() == pytest.approx(expected, abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**31), st.tuples(st.integers(11, 24), st.integers(11, 24)), st.floats(0, 1), st.sampled_from("fd")
)
def test_laws(seed: int, sides: tuple[int, int], size: float, kind: str) -> None:
    x = random_images(2, 3, *sides, seed=seed).to(torch.float32 if kind == "f" else torch.float64)
    y = noisy(x, size, seed)
    found = ssim(x, y)
    assert ssim(x, x).tolist() == [1, 1]
    assert torch.equal(found, ssim(y, x))
    assert bool((found.abs() <= 1 + 1e-6).all())
    rotated = ssim(x.mT.flip(-1), y.mT.flip(-1))  # by 90°
    torch.testing.assert_close(found, rotated, rtol=0, atol=1e-4 if kind == "f" else 1e-10)
    torch.testing.assert_close(found[:1], ssim(x[:1], y[:1]), rtol=0, atol=0)  # whatever it is batched with


def test_shrunk_images_are_means_of_squares() -> None:
    x = random_images(2, 3, 25, 35)
    y = noisy(x, 0.2)
    small = [z[..., :24, :34].unflatten(-2, (12, 2)).unflatten(-1, (17, 2)).mean((-3, -1)) for z in (x, y)]
    torch.testing.assert_close(ssim(x, y, shrink=2), ssim(small[0], small[1]), rtol=0, atol=1e-5)


def test_what_is_fine_is_not_seen_from_afar() -> None:
    x = torch.full((1, 3, 64, 64), 0.5)
    fine = torch.ones(64, 64)
    fine[::2, ::2] = fine[1::2, 1::2] = -1  # a chequerboard, and one whose squares have 8 pixels
    coarse = fine[:8, :8].repeat_interleave(8, 0).repeat_interleave(8, 1)
    fine_near, coarse_near = (ssim(x, x + 0.05 * one).item() for one in (fine, coarse))
    fine_far, coarse_far = (ssim(x, x + 0.05 * one, shrink=4).item() for one in (fine, coarse))
    assert fine_near < coarse_near
    assert coarse_far < 0.6
    assert fine_far == pytest.approx(1, abs=1e-5)


def test_falls_with_the_noise() -> None:
    x = 0.25 + 0.5 * random_images(2, 3, 32, 32)
    found = torch.stack([ssim(x, noisy(x, size / 255)) for size in (0, 1, 2, 4, 8, 16, 32, 64)])
    assert bool((found.diff(dim=0) < 0).all())


def test_light_alone() -> None:
    """Of two images without structure only the first factor is left."""
    x, y = torch.full((1, 3, 16, 16), 0.3, dtype=torch.float64), torch.full((1, 3, 16, 16), 0.5, dtype=torch.float64)
    assert ssim(x, y).item() == pytest.approx((2 * 0.15 + 1e-4) / (0.09 + 0.25 + 1e-4))


def test_an_inverted_image_is_dissimilar() -> None:
    x = random_images(1, 3, 32, 32)
    assert ssim(x, 1 - x).item() < -0.5


def test_half_precision_is_computed_in_float32() -> None:
    x, y = random_images(2).half(), random_images(2, seed=2).half()
    assert torch.equal(ssim(x, y), ssim(x.float(), y.float()))


def test_no_images_have_none() -> None:
    assert ssim(torch.zeros(0, 3, 16, 16), torch.zeros(0, 3, 16, 16)).shape == (0,)


def test_nothing_reads_what_a_device_holds() -> None:
    x = torch.zeros(3, 3, 16, 16, device="meta")
    assert similarity(x, x).shape == (3,)


def nan() -> Tensor:
    x = torch.zeros(2, 3, 16, 16)
    x[1, 2, 3, 4] = math.nan
    return x


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (torch.zeros(2, 3, 16, 16), nan(), r"must lie in \[0, 1\]; got NaN"),
        (nan(), torch.zeros(2, 3, 16, 16), r"must lie in \[0, 1\]; got NaN"),
        (torch.zeros(2, 3, 16, 16), torch.full((2, 3, 16, 16), 255.0), r"must lie in \[0, 1\]"),
        (torch.zeros(2, 3, 16, 16), torch.zeros(1, 3, 16, 16), r"one shape; got \(2, 3, 16, 16\) and \(1, 3, 16, 16\)"),
        (torch.zeros(2, 3, 10, 16), torch.zeros(2, 3, 10, 16), r"at least 11×11 pixels; got \(10, 16\)"),
        (torch.zeros(3, 16, 16), torch.zeros(3, 16, 16), r"\(B, C, H, W\)"),
    ],
)
def test_what_has_no_similarity_is_refused(x: Tensor, y: Tensor, said: str) -> None:
    with pytest.raises(WhorlError, match=said):
        ssim(x, y)


@pytest.mark.parametrize(
    ("shrink", "said"),
    [
        (0, "shrink must be a whole number >= 1; got 0"),
        (1.5, "got 1.5"),
        (True, "got True"),
        (2, r"at least 11×11 pixels; got \(8, 8\), shrunk to 1/2"),
        (99, "at least 11×11"),
    ],
)
def test_a_shrink_that_leaves_no_window_is_refused(shrink: Any, said: str) -> None:
    with pytest.raises(WhorlError, match=said):
        ssim(torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 16, 16), shrink=shrink)
