"""Contrast, brightness and blur against their definitions in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import Array
from whorl.geometry import adjust, defocus


def images(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(brightness=st.floats(-1, 1), contrast=st.floats(0, 3), value=st.floats(0, 1))
def test_contrast_goes_about_middle_grey_and_brightness_is_added(
    brightness: float, contrast: float, value: float
) -> None:
    made = adjust(
        torch.full((1, 1, 1, 1), value, dtype=torch.float64),
        torch.tensor([brightness], dtype=torch.float64),
        torch.tensor([contrast], dtype=torch.float64),
    )
    expected = min(max((value - 0.5) * contrast + 0.5 + brightness, 0.0), 1.0)
    assert float(made) == pytest.approx(expected, abs=1e-12)


def literal_blur(x: Array, across: float, along: float) -> Array:
    """Every output pixel: a mean of all pixels, weighted by a bell curve of how far they lie."""
    height, width = x.shape[-2:]
    out = np.zeros_like(x)
    down, right = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    for row in range(height):
        for col in range(width):
            weight = np.exp(-((right - col) ** 2) / (2 * across**2) - ((down - row) ** 2) / (2 * along**2))
            out[..., row, col] = (x * weight).sum((-2, -1)) / weight.sum()
    return out


@pytest.mark.parametrize("sigma", [(0.4, 0.4), (1.0, 2.5), (30.0, 0.7)], ids=str)
@pytest.mark.parametrize("size", [(8, 8), (5, 11), (1, 4)], ids=str)
def test_blur_equals_the_definition(size: tuple[int, int], sigma: tuple[float, float]) -> None:
    x = images(1, 2, *size)
    made = defocus(x, torch.tensor([sigma], dtype=torch.float64))
    np.testing.assert_allclose(made.numpy(), literal_blur(x.numpy(), *sigma), rtol=0, atol=1e-12)


def test_scipy_blurs_alike_away_from_the_border() -> None:
    gaussian_filter1d = pytest.importorskip("scipy.ndimage").gaussian_filter1d
    x = images(1, 1, 60, 60)
    expected = gaussian_filter1d(gaussian_filter1d(x.numpy(), 2.0, axis=-1, truncate=6), 2.0, axis=-2, truncate=6)
    made = defocus(x, torch.full((1, 2), 2.0, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(made[..., 15:-15, 15:-15], expected[..., 15:-15, 15:-15], rtol=0, atol=1e-8)


def test_no_blur_changes_no_bit_and_a_constant_stays_constant() -> None:
    x = images(2, 3, 9, 7).float()
    assert torch.equal(defocus(x, torch.zeros(2, 2)), x)
    torch.testing.assert_close(defocus(torch.full_like(x, 0.3), torch.full((2, 2), 3.0)), torch.full_like(x, 0.3))


def test_each_image_has_its_own_amounts() -> None:
    x, sigma = images(2, 1, 6, 6), torch.tensor([[0.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    made = defocus(x, sigma)
    for i in range(2):
        torch.testing.assert_close(made[i : i + 1], defocus(x[i : i + 1], sigma[i : i + 1]), rtol=0, atol=1e-14)


def test_gradcheck() -> None:
    x = images(2, 1, 3, 4).requires_grad_()
    sigma = torch.tensor([[0.8, 1.1], [2.0, 0.6]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(defocus, (x, sigma))
    brightness = torch.tensor([0.02, -0.03], dtype=torch.float64, requires_grad=True)
    contrast = torch.tensor([0.5, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(adjust, (x, brightness, contrast))
