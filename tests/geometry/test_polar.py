"""to_polar and from_polar: the grid of DESIGN §4, its inverse, and its cache."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from reference import noise, relative_error
from whorl.geometry import from_polar, to_polar
from whorl.geometry.polar import polar_plan

SIZES = [(224, 224), (97, 131), (131, 97), (32, 32), (33, 33), (7, 20), (3, 2), (2, 2), (1, 6), (6, 1), (1, 1)]
TOLERANCES = [(torch.float32, 1e-5), (torch.float64, 1e-11)]


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_to_polar_equals_the_definition(size: tuple[int, int], dtype: torch.dtype, tolerance: float) -> None:
    x = noise(2, 2, *size, dtype=dtype)
    out = to_polar(x)
    assert out.shape == (2, 2, max(size), max(size))
    assert relative_error(out, reference.to_polar(x.double().numpy())) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_from_polar_equals_the_definition(size: tuple[int, int], dtype: torch.dtype, tolerance: float) -> None:
    p = noise(2, 2, max(size), max(size), dtype=dtype)
    out = from_polar(p, size)
    assert out.shape == (2, 2, *size)
    assert relative_error(out, reference.from_polar(p.double().numpy(), size)) < tolerance


def test_from_polar_is_square_unless_told() -> None:
    p = noise(1, 2, 9, 9)
    assert torch.equal(from_polar(p), from_polar(p, (9, 9)))
    assert torch.equal(from_polar(p), from_polar(p, size=None))


@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 14), width=st.integers(1, 14), seed=st.integers(0, 1000))
def test_both_ways_equal_the_definition_for_any_size(height: int, width: int, seed: int) -> None:
    x = noise(1, 1, height, width, seed=seed)
    np.testing.assert_allclose(to_polar(x).numpy(), reference.to_polar(x.numpy()), rtol=0, atol=1e-10)
    p = noise(1, 1, max(height, width), max(height, width), seed=seed)
    expected = reference.from_polar(p.numpy(), (height, width))
    np.testing.assert_allclose(from_polar(p, (height, width)).numpy(), expected, rtol=0, atol=1e-10)


def test_rows_are_radii_and_columns_are_angles_from_right_to_down() -> None:
    n = 16
    x = noise(1, 1, n, n)
    p = to_polar(x)[0, 0]
    corners = {2: x[0, 0, -1, -1], 6: x[0, 0, -1, 0], 10: x[0, 0, 0, 0], 14: x[0, 0, 0, -1]}
    for column, value in corners.items():  # the last radius, at 45°, 135°, 225° and 315°, is a corner pixel's centre
        assert p[-1, column] == pytest.approx(float(value), abs=1e-10)
    assert torch.allclose(p[0], x[0, 0, 7:9, 7:9].mean(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [8, 12, 32])
def test_a_quarter_turn_rolls_the_angles(n: int) -> None:
    x = noise(2, 2, n, n)
    turned = torch.rot90(x, -1, (2, 3))  # right to down
    assert torch.allclose(to_polar(turned), to_polar(x).roll(n // 4, dims=3), rtol=0, atol=1e-10)
    p = noise(2, 2, n, n)
    assert torch.allclose(
        from_polar(p.roll(n // 4, dims=3)), torch.rot90(from_polar(p), -1, (2, 3)), rtol=0, atol=1e-10
    )


def coordinates(height: int, width: int) -> Tensor:
    """An image that says of every pixel where it stands: (1, 2, H, W), row and column."""
    return torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))[None].double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(224, 224), (299, 299), (97, 131)], ids=str)
def test_there_and_back_leaves_pixels_where_they_were(size: tuple[int, int], dtype: torch.dtype) -> None:
    here = coordinates(*size).to(dtype)
    moved = (from_polar(to_polar(here), size) - here).square().sum(1).sqrt()[0]
    assert moved[2:-2, 2:-2].mean() < 0.02
    # Two neighbouring angles are 4.44 px apart at a corner, so the outermost 3 px still see zeros from outside.
    assert moved[4:-4, 4:-4].mean() < 0.01
    assert moved[4:-4, 4:-4].max() < 0.03


@pytest.mark.parametrize("size", [(224, 224), (299, 299), (97, 131), (40, 23)], ids=str)
def test_constants_stay_constant_away_from_the_border(size: tuple[int, int]) -> None:
    out = from_polar(to_polar(torch.full((1, 1, *size), 3.0, dtype=torch.float64)), size)
    assert torch.allclose(out[..., 4:-4, 4:-4], torch.tensor(3.0, dtype=torch.float64), rtol=0, atol=1e-12)
    assert out[..., 0, :].min() < 2.9  # zero outside, not the edge repeated


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keeps_the_dtype_and_rounds_only_the_result(dtype: torch.dtype) -> None:
    x = noise(1, 2, 50, 61).clamp(-1, 1).to(dtype)
    p = to_polar(x)
    back = from_polar(p, (50, 61))
    assert p.dtype == back.dtype == dtype
    tolerance = 1.01 * torch.finfo(dtype).eps + 1e-5
    assert (p.double() - to_polar(x.double())).abs().max() <= tolerance
    assert (back.double() - from_polar(p.double(), (50, 61))).abs().max() <= tolerance


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(to_polar, noise(2, 1, 4, 5).requires_grad_())
    assert torch.autograd.gradcheck(lambda p: from_polar(p, (4, 5)), noise(2, 1, 5, 5).requires_grad_())


@pytest.mark.parametrize("layout", ["channels_last", "sliced", "expanded"])
def test_memory_layout_does_not_matter(layout: str) -> None:
    x = noise(2, 3, 12, 12)
    same = {
        "channels_last": x.to(memory_format=torch.channels_last),
        "sliced": torch.stack((x, -x), dim=-1)[..., 0],
        "expanded": x[:1].expand(2, -1, -1, -1),
    }[layout]
    assert torch.allclose(to_polar(same), to_polar(same.contiguous()), rtol=0, atol=1e-14)
    assert torch.allclose(from_polar(same), from_polar(same.contiguous()), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grids_are_built_once_per_size(dtype: torch.dtype) -> None:
    x = noise(1, 1, 21, 34, dtype=dtype)
    from_polar(to_polar(x), (21, 34))
    before = polar_plan.cache_info()
    from_polar(to_polar(x + 1), (21, 34))
    after = polar_plan.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


def test_another_size_or_dtype_gets_its_own_grid() -> None:
    polar_plan.cache_clear()
    for size in ((10, 16), (16, 10), (12, 16)):
        for dtype in (torch.float32, torch.float64):
            x = noise(1, 1, *size, dtype=dtype)
            back = from_polar(to_polar(x), size)
            expected = reference.from_polar(reference.to_polar(x.double().numpy()), size)
            assert relative_error(back, expected) < (1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(
    "context",
    [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta")],
    ids=["no_grad", "inference_mode", "autocast", "device"],
)
def test_a_grid_first_built_in_a_special_mode_serves_everywhere(
    context: contextlib.AbstractContextManager[object],
) -> None:
    x = noise(1, 2, 18, 18, dtype=torch.float32)
    polar_plan.cache_clear()
    with context:
        inside = from_polar(to_polar(x))
    expected = reference.from_polar(reference.to_polar(x.double().numpy()), (18, 18))
    assert inside.dtype == torch.float32
    assert relative_error(inside, expected) < 1e-5
    x.requires_grad_()
    out = from_polar(to_polar(x))
    out.sum().backward()
    assert x.grad is not None
    assert relative_error(out.detach(), expected) < 1e-5


def test_a_grid_first_built_inside_a_function_transform_serves_everywhere() -> None:
    x = noise(1, 1, 19, 19)
    weights = noise(1, 1, 19, 19, seed=1)
    polar_plan.cache_clear()

    def total(x: Tensor) -> Tensor:
        return torch.sum(weights * from_polar(to_polar(x)))

    inside = torch.func.grad(total)(x)
    again = x.clone().requires_grad_()
    total(again).backward()
    assert again.grad is not None
    assert torch.allclose(inside, again.grad, rtol=0, atol=1e-12)
