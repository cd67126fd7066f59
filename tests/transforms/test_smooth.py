"""The smooth warp moves pixels by little, neighbours alike, and by the image's key alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conftest import pictures
from whorl.errors import WhorlError
from whorl.transforms.smooth import SmoothWarp


def ramps(height: int, width: int, batch: int) -> Tensor:
    """Images whose two channels are the position to the right and down, in pixels: a warp shows where it looks."""
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((right, down)).double().expand(batch, 2, height, width)


def moved(warp: SmoothWarp, height: int, width: int, batch: int = 6) -> Tensor:
    """(B, 2, H', W') displacement in pixels, away from the border, where bilinear sampling of a ramp is exact."""
    x = ramps(height, width, batch)
    edge = [int(side * warp.reach) + 2 for side in (height, width)]
    inside = (..., slice(edge[0], -edge[0]), slice(edge[1], -edge[1]))
    return (warp(x, torch.arange(batch)) - x)[inside]


@pytest.mark.parametrize(("height", "width"), [(40, 40), (30, 64)])
def test_no_pixel_moves_further_than_the_reach(height: int, width: int) -> None:
    shift = moved(SmoothWarp(reach=0.05), height, width)
    for axis, side in enumerate((width, height)):
        assert float(shift[:, axis].abs().max()) <= 0.05 * side + 1e-9
        assert float(shift[:, axis].abs().max()) > 0.02 * side


def test_neighbours_move_alike() -> None:
    shift = moved(SmoothWarp(reach=0.05, points=5), 80, 80)
    step = (shift[..., 1:] - shift[..., :-1]).abs().max()
    # 4 intervals of 20 pixels; from one end of the reach to the other takes an interval or so
    assert float(step) < 3 * (2 * 0.05 * 80) / 20


def test_each_picture_moves_in_its_own_way_whatever_the_batch() -> None:
    x, keys = pictures(4, 3, 32, 40), torch.tensor([3, 1, 4, 15])
    whole = SmoothWarp()(x, keys)
    for i in range(4):
        torch.testing.assert_close(SmoothWarp()(x[i : i + 1], keys[i : i + 1]), whole[i : i + 1], rtol=0, atol=1e-6)
    same = SmoothWarp()(x[:1].expand(2, -1, -1, -1), keys[:2])
    assert float((same[0] - same[1]).abs().max()) > 0.01


def test_no_reach_is_the_identity_and_zero_lies_outside() -> None:
    x = pictures(2, 3, 20, 20)
    torch.testing.assert_close(SmoothWarp(reach=0.0)(x, torch.arange(2)), x, rtol=0, atol=1e-5)
    border = SmoothWarp(reach=0.2)(torch.ones(20, 1, 20, 20), torch.arange(20))[..., 0]
    assert 0 <= float(border.min()) < 0.5
    assert float(border.max()) <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_dtype_comes_back_and_the_gradient_passes(dtype: torch.dtype) -> None:
    x = pictures(2, 3, 16, 16).to(dtype).requires_grad_()
    out = SmoothWarp()(x, torch.arange(2))
    assert out.dtype == dtype
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert 0.7 < float(gradient.float().mean()) <= 1.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothWarp(reach=0.5), "reach must lie in"),
        (lambda: SmoothWarp(points=3), "points must be a whole number"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()
