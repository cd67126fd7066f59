"""Polar coordinates around the image's centre: rotating shifts columns there, and scaling nearly shifts rows."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.errors import WhorlError


class Taps(NamedTuple):
    """A bilinear resampling, ready to apply: each output pixel is a weighted sum of four input pixels."""

    position: Tensor
    """(4, N) int64 positions in the flattened input."""
    weight: Tensor
    """(4, N); a tap that falls outside the input has weight 0."""


class PolarPlan(NamedTuple):
    """Both warps for one image size, device and dtype."""

    forward: Taps
    inverse: Taps


class PolarSteps(NamedTuple):
    """The size of a polar grid's cells, for one image size."""

    radius: float
    """Pixels between rows."""
    angle: float
    """Degrees between columns."""
    typical: float
    """Root mean square distance of a pixel from the centre, in pixels."""


def steps_of(height: int, width: int) -> PolarSteps:
    """Measure the estimator's polar grid.

    >>> [round(part, 3) for part in steps_of(224, 224)]
    [0.707, 1.607, 91.447]
    """
    n = max(height, width)
    longest = math.hypot((height - 1) / 2, (width - 1) / 2)
    return PolarSteps(longest / max(n - 1, 1), 360 / n, math.sqrt((height**2 + width**2 - 2) / 12))


def to_polar(x: Tensor, *, angles: int | None = None) -> Tensor:
    """Resample images onto a polar grid around their centre.

    Args:
        x: (B, C, H, W), float32 or float64.
        angles: how many. None: n = max(H, W), as many as radii.

    Returns:
        (B, C, n, angles): rows are n radii from the centre to the corner pixels' centres, columns angles from 0 (to the
        right) on towards "down". Zero where the grid leaves the image.

    >>> to_polar(torch.ones(1, 3, 32, 48)).shape
    torch.Size([1, 3, 48, 48])
    """
    height, width = _checked(x).shape[-2:]
    n = max(height, width)
    around = n if angles is None else angles
    if around < 1:
        raise WhorlError(f"angles must be a whole number >= 1; got {angles}.")
    if torch.compiler.is_compiling():
        polar: Tensor = _compiled(x, height, width, around, inverse=False)
        return polar
    return resample(x, polar_plan(height, width, x.device, x.dtype, around).forward, (n, around))


def from_polar(x: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Go back from the polar grid of :func:`to_polar` to the image.

    Args:
        x: (B, C, n, angles) as :func:`to_polar` gives it.
        size: (H, W) of the image, with max(H, W) = n. None: square.

    Returns:
        (B, C, H, W).

    >>> x = torch.rand(1, 3, 32, 48)
    >>> from_polar(to_polar(x), (32, 48)).shape
    torch.Size([1, 3, 32, 48])
    """
    n, around = _checked(x).shape[-2:]
    height, width = (n, n) if size is None else size
    if max(height, width) != n:
        raise WhorlError(
            f"a polar image of {height}x{width} pixels has {max(height, width)} radii; got {tuple(x.shape[-2:])}."
        )
    if torch.compiler.is_compiling():
        image: Tensor = _compiled(x, height, width, around, inverse=True)
        return image
    return resample(x, polar_plan(height, width, x.device, x.dtype, around).inverse, (height, width))


def _checked(x: Tensor) -> Tensor:
    # Weights between whole numbers would all be 0.
    if not isinstance(x, Tensor):
        raise WhorlError(f"images must be a floating (B, C, H, W) tensor; got {type(x).__name__}.")
    if not x.is_floating_point() or x.is_sparse or x.dim() < 2 or 0 in x.shape[-2:]:
        came = f"{x.dtype} of shape {tuple(x.shape)}" + ", sparse" * x.is_sparse
        raise WhorlError(f"images must be a floating (B, C, H, W) tensor; got {came}.")
    return x


@lru_cache(maxsize=32)
def polar_plan(height: int, width: int, device: torch.device, dtype: torch.dtype, angles: int) -> PolarPlan:
    """Build both warps for an image size, once per (size, device, dtype, angles).

    Coordinates and weights are computed in float64 and rounded once: normalised float32 coordinates, as grid_sample
    takes them, would already cost the 1e-5 of accuracy that the estimator promises.
    """
    # A plan outlives the mode it is first needed in.
    with torch.inference_mode(False), torch.device("cpu"):
        return _build(height, width, device, dtype, angles)


def _build(height: int, width: int, device: torch.device, dtype: torch.dtype, angles: int) -> PolarPlan:
    forward = _bilinear(*polar_samples(height, width, angles), height, width)
    inverse = _bilinear(*polar_coordinates(height, width, angles), max(height, width), angles, wrap_columns=True)

    def place(taps: Taps) -> Taps:
        return Taps(taps.position.to(device), taps.weight.to(device, dtype))

    return PolarPlan(place(forward), place(inverse))


def polar_samples(height: int, width: int, angles: int) -> tuple[Tensor, Tensor]:
    """Where a polar image is sampled: rows and columns of the image, (radii, angles) each, float64."""
    n = max(height, width)
    row_centre, column_centre = (height - 1) / 2, (width - 1) / 2
    radius = (torch.arange(n, dtype=torch.float64) * (math.hypot(row_centre, column_centre) / max(n - 1, 1)))[:, None]
    angle = (torch.arange(angles, dtype=torch.float64) * (2 * math.pi / angles))[None, :]
    return row_centre + radius * angle.sin(), column_centre + radius * angle.cos()


def polar_coordinates(height: int, width: int, angles: int) -> tuple[Tensor, Tensor]:
    """Where an image's pixels lie in a polar image: its rows (radii) and columns (angles), (H, W) each, float64."""
    n = max(height, width)
    row_centre, column_centre = (height - 1) / 2, (width - 1) / 2
    longest = math.hypot(row_centre, column_centre)
    down = (torch.arange(height, dtype=torch.float64) - row_centre)[:, None]
    right = (torch.arange(width, dtype=torch.float64) - column_centre)[None, :]
    per_pixel = (n - 1) / longest if longest > 0 else 0.0
    # Rounding must not push a corner past the last radius, where its weight would be lost.
    radius = (torch.hypot(down, right) * per_pixel).clamp(max=n - 1)
    return radius, torch.remainder(torch.atan2(down, right), 2 * math.pi) * (angles / (2 * math.pi))


def resample(x: Tensor, taps: Taps, size: tuple[int, int]) -> Tensor:
    """Apply a resampling to every channel.

    Args:
        x: (B, C, H, W).
        taps: position and weight, each (4, h·w).
        size: (h, w) of the result.

    Returns:
        (B, C, h, w).
    """
    flat = x.reshape(-1, x.shape[-2] * x.shape[-1])
    position, weight = taps
    out = flat.gather(1, position[0].expand(flat.shape[0], -1)).mul_(weight[0])
    for k in range(1, 4):
        out.addcmul_(flat.gather(1, position[k].expand(flat.shape[0], -1)), weight[k])
    return out.reshape(*x.shape[:-2], *size)


# To torch.compile a warp is one opaque operation: traced through, the plan would be rebuilt at every call.
@torch.library.custom_op("whorl::polar_resample", mutates_args=())
def _compiled(x: Tensor, height: int, width: int, angles: int, inverse: bool) -> Tensor:
    plan, n = polar_plan(height, width, x.device, x.dtype, angles), max(height, width)
    return resample(x, plan.inverse, (height, width)) if inverse else resample(x, plan.forward, (n, angles))


@_compiled.register_fake
def _(x: Tensor, height: int, width: int, angles: int, inverse: bool) -> Tensor:
    n = max(height, width)
    return x.new_empty(*x.shape[:-2], *((height, width) if inverse else (n, angles)))


def _bilinear(row: Tensor, column: Tensor, height: int, width: int, *, wrap_columns: bool = False) -> Taps:
    top, left = row.floor(), column.floor()
    position, weight = [], []
    for step_down in (0, 1):
        for step_right in (0, 1):
            r, c = top + step_down, left + step_right
            w = (1 - (row - r).abs()) * (1 - (column - c).abs())
            if wrap_columns:
                c = torch.remainder(c, width)
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            position.append((r.clamp(0, height - 1) * width + c.clamp(0, width - 1)).long().flatten())
            weight.append((w * inside).flatten())
    return Taps(torch.stack(position), torch.stack(weight))
