"""Transforms of the frontier's search, against literal versions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import random_images
from transform_checks import check_own_keys
from whorl.errors import WhorlError
from whorl.geometry import affine
from whorl.randomness import substream, uniform
from whorl.transforms import Gain, InputTransform, RandomAffine, SpreadAffine, plain

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
tried = importlib.import_module("frontier_transforms")
sys.path.pop(0)

ALL: list[InputTransform] = [
    tried.Blend(part=RandomAffine(), count=3),
    tried.Sometimes(part=RandomAffine()),
    tried.Mosaic(),
    tried.BlockShuffle(blocks=3),
    tried.SelfMix(),
    tried.SpectrumNoise(),
]


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_every_image_is_transformed_by_its_own_key(transform: InputTransform) -> None:
    check_own_keys(transform)


def test_a_blend_is_the_mean_of_its_draws() -> None:
    x, keys = random_images(2), torch.arange(2)
    draws = [RandomAffine()(x, substream(keys, i)) for i in range(3)]
    torch.testing.assert_close(tried.Blend(part=RandomAffine(), count=3)(x, keys), sum(draws, torch.zeros(1)) / 3)


def test_sometimes_means_as_often_as_it_says() -> None:
    x, keys = torch.ones(400, 1, 4, 4), torch.arange(400)
    darker = tried.Sometimes(part=Gain(lowest=0.5), probability=0.3)(x, keys)[:, 0, 0, 0] < 1
    assert 0.2 < float(darker.float().mean()) < 0.4


def test_a_mosaic_shows_a_pose_in_every_tile() -> None:
    x, keys = random_images(2, 3, 24, 40), torch.arange(2)
    out = tried.Mosaic(tiles=2, angle=20, scale=(1.0, 1.6), shift=0.1)(x, keys)
    signed = uniform(keys, (4, 2, 2), -1, 1).double()
    for b in range(2):
        for i in range(2):
            for j in range(2):
                angle, size, across, along = signed[b, :, i, j].tolist()
                # the image at half its size and the tile's own pose, on a canvas of the whole, its middle in the tile
                shift = ((j - 0.5) * 20 + 0.1 * across * 20, (i - 0.5) * 12 + 0.1 * along * 12)
                seen = affine(x[b : b + 1], angle=20 * angle, scale=(1.3 + 0.3 * size) / 2, shift=shift)
                tile: tuple[slice, slice] = slice(12 * i, 12 * i + 12), slice(20 * j, 20 * j + 20)
                torch.testing.assert_close(out[b][:, *tile], seen[0][:, *tile], rtol=0, atol=1e-4)


def test_blocks_are_moved_whole() -> None:
    x = torch.arange(11 * 13).reshape(1, 1, 11, 13).double()
    seen: set[tuple[float, ...]] = set()
    for key in range(20):
        out = tried.BlockShuffle(blocks=2)(x, torch.tensor([key]))[0, 0]
        assert sorted(out.flatten().tolist()) == list(range(11 * 13))
        # two pieces a side: at most one place where neighbours do not follow each other
        assert int((out[0].diff() != 1).sum()) <= 1
        assert int((out[:, 0].diff() != 13).sum()) <= 1
        seen.add(tuple(out.flatten().tolist()))
    assert len(seen) > 5


def test_what_is_mixed_in_is_the_image_mirrored_and_rolled_without_gradient() -> None:
    x = random_images(1, 1, 6, 8).requires_grad_()
    out = tried.SelfMix(strength=0.5)(x, torch.tensor([9]))
    rolls = [x.flip(-1).roll((i, j), (-2, -1)) for i in range(6) for j in range(8)]
    assert any(torch.allclose(out, x + 0.5 * other, atol=1e-6) for other in rolls)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_spectrum_noise_changes_every_frequency_by_no_more_than_its_spread() -> None:
    x = random_images(2, 1, 12, 16).double()
    out = tried.SpectrumNoise(noise=0.0, spread=0.3)(x, torch.arange(2))
    ratio = cosine_coefficients(out) / cosine_coefficients(x)
    assert 0.7 - 1e-6 <= float(ratio.min()) < 0.75
    assert 1.25 < float(ratio.max()) <= 1.3 + 1e-6
    torch.testing.assert_close(tried.SpectrumNoise(noise=0.0, spread=0.0)(x, torch.arange(2)), x)
    noisy = tried.SpectrumNoise(noise=0.1, spread=0.0)(x, torch.arange(2)) - x
    assert 0.08 < float(noisy.std()) < 0.12


def cosine_coefficients(x: Tensor) -> Tensor:
    """Type-II cosine transform by its definition, unnormalised."""
    for axis in (-1, -2):
        side = x.shape[axis]
        k, n = torch.arange(side).double(), torch.arange(side).double()
        waves = torch.cos(torch.pi / side * (n + 0.5) * k[:, None])
        x = (x.transpose(axis, -1) @ waves.T).transpose(axis, -1)
    return x


def ramps(height: int, width: int, batch: int) -> Tensor:
    """Images whose two channels are the position to the right and down, in pixels: a warp shows where it looks."""
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((right, down)).double().expand(batch, 2, height, width)


def moved(warp: Any, height: int, width: int, batch: int = 6) -> Tensor:
    """(B, 2, H', W') displacement in pixels, away from the border, where bilinear sampling of a ramp is exact."""
    x = ramps(height, width, batch)
    edge = [int(side * warp.reach) + 2 for side in (height, width)]
    inside = (..., slice(edge[0], -edge[0]), slice(edge[1], -edge[1]))
    displaced: Tensor = (warp(x, torch.arange(batch)) - x)[inside]
    return displaced


@pytest.mark.parametrize(("height", "width"), [(40, 40), (30, 64)])
def test_no_pixel_moves_further_than_the_reach(height: int, width: int) -> None:
    shift = moved(tried.SmoothWarp(reach=0.05), height, width)
    for axis, side in enumerate((width, height)):
        assert float(shift[:, axis].abs().max()) <= 0.05 * side + 1e-9
        assert float(shift[:, axis].abs().max()) > 0.02 * side


def test_neighbours_move_alike() -> None:
    shift = moved(tried.SmoothWarp(reach=0.05, points=5), 80, 80)
    step = (shift[..., 1:] - shift[..., :-1]).abs().max()
    # 4 intervals of 20 pixels; from one end of the reach to the other takes an interval or so
    assert float(step) < 3 * (2 * 0.05 * 80) / 20


def test_each_image_moves_in_its_own_way_whatever_the_batch() -> None:
    x, keys = random_images(4, 3, 32, 40), torch.tensor([3, 1, 4, 15])
    whole = tried.SmoothWarp()(x, keys)
    for i in range(4):
        torch.testing.assert_close(
            tried.SmoothWarp()(x[i : i + 1], keys[i : i + 1]), whole[i : i + 1], rtol=0, atol=1e-6
        )
    same = tried.SmoothWarp()(x[:1].expand(2, -1, -1, -1), keys[:2])
    assert float((same[0] - same[1]).abs().max()) > 0.01


def test_no_reach_is_the_identity_and_zero_lies_outside() -> None:
    x = random_images(2, 3, 20, 20)
    torch.testing.assert_close(tried.SmoothWarp(reach=0.0)(x, torch.arange(2)), x, rtol=0, atol=1e-5)
    border = tried.SmoothWarp(reach=0.2)(torch.ones(20, 1, 20, 20), torch.arange(20))[..., 0]
    assert 0 <= float(border.min()) < 0.5
    assert float(border.max()) <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_dtype_comes_back_and_the_gradient_passes(dtype: torch.dtype) -> None:
    x = random_images(2, 3, 16, 16).to(dtype).requires_grad_()
    out = tried.SmoothWarp()(x, torch.arange(2))
    assert out.dtype == dtype
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert 0.7 < float(gradient.float().mean()) <= 1.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tried.SmoothWarp(reach=0.5), "reach must lie in"),
        (lambda: tried.SmoothWarp(points=3), "points must be a whole number"),
    ],
)
def test_warps_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tried.Blend(part=plain, count=0), "count must be"),
        (lambda: tried.Sometimes(part=plain, probability=2), "probability must lie in"),
        (lambda: tried.Mosaic(tiles=0), "tiles must be"),
        (lambda: tried.Mosaic(scale=(2, 1)), "0 < lowest <= highest"),
        (lambda: tried.BlockShuffle(blocks=0), "blocks must be"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


def test_a_choice_plans_its_parts() -> None:
    x, keys = random_images(2), torch.arange(10).reshape(5, 2)
    chosen = tried.Sometimes(part=SpreadAffine(), probability=1.0).plan(keys)
    assert torch.equal(chosen(x, keys[2]), SpreadAffine().plan(substream(keys, 1))(x, substream(keys[2], 1)))
