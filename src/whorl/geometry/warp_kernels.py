# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.geometry.warp_gpu`; imported where Triton is.

Planes (one channel of one image each) lie one after the other. An image's pose is four numbers: cos/scale,
sin/scale, and the shift to the right and down.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit
def _source(column, row, cos, sin, right, down, width, height):
    """Where the output pixel at (column, row) looks at the input. The same operations in both kernels."""
    across = column.to(tl.float32) - (width - 1) * 0.5 - right
    along = row.to(tl.float32) - (height - 1) * 0.5 - down
    return cos * across + sin * along + (width - 1) * 0.5, cos * along - sin * across + (height - 1) * 0.5


@triton.jit
def _pose(poses, plane, channels):
    at = poses + (plane // channels) * 4
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit
def _warp(x, poses, out, channels, height, width, block: tl.constexpr):
    plane = tl.program_id(1)
    cos, sin, right, down = _pose(poses, plane, channels)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    live = pixel < height * width
    u, v = _source(pixel % width, pixel // width, cos, sin, right, down, width, height)
    left, top = tl.floor(u), tl.floor(v)
    source = x + plane.to(tl.int64) * (height * width)
    value = tl.zeros((block,), tl.float32)
    for i in tl.static_range(2):
        for j in tl.static_range(2):
            c, r = left + j, top + i
            there = live & (c >= 0) & (c < width) & (r >= 0) & (r < height)
            # Far away it is not a number of pixels that an integer holds, and is not looked at.
            at = tl.where(there, r, 0.0).to(tl.int32) * width + tl.where(there, c, 0.0).to(tl.int32)
            near = tl.load(source + at, mask=there, other=0.0)
            value += near * (1.0 - tl.abs(u - c)) * (1.0 - tl.abs(v - r))
    tl.store(out + plane.to(tl.int64) * (height * width) + pixel, value, mask=live)


@triton.jit
def _warp_backward(gradient, poses, out, channels, height, width, block: tl.constexpr):
    """Every input pixel asks the output pixels that may have looked at it: nothing is added to by two at once."""
    plane = tl.program_id(1)
    cos, sin, right, down = _pose(poses, plane, channels)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    live = pixel < height * width
    column, row = (pixel % width).to(tl.float32), (pixel // width).to(tl.float32)
    # Who looks exactly here; a pixel to either side in the input is ``reach`` in the output.
    per_area = cos * cos + sin * sin
    across, along = column - (width - 1) * 0.5, row - (height - 1) * 0.5
    c = (cos * across - sin * along) / per_area + right + (width - 1) * 0.5
    r = (sin * across + cos * along) / per_area + down + (height - 1) * 0.5
    # A little more, for the rounding of all this.
    reach = (tl.abs(cos) + tl.abs(sin)) / per_area + 0.01
    first_column = tl.ceil(tl.minimum(tl.maximum(c - reach, 0.0), width * 1.0))
    first_row = tl.ceil(tl.minimum(tl.maximum(r - reach, 0.0), height * 1.0))
    steps = (2.0 * reach).to(tl.int32) + 1
    source = gradient + plane.to(tl.int64) * (height * width)
    total = tl.zeros((block,), tl.float32)
    for i in range(tl.minimum(steps, height)):
        y = first_row.to(tl.int32) + i
        for j in range(tl.minimum(steps, width)):
            x = first_column.to(tl.int32) + j
            u, v = _source(x, y, cos, sin, right, down, width, height)
            weight = tl.maximum(1.0 - tl.abs(u - column), 0.0) * tl.maximum(1.0 - tl.abs(v - row), 0.0)
            there = live & (x >= 0) & (x < width) & (y >= 0) & (y < height) & (weight > 0)
            total += tl.load(source + y * width + x, mask=there, other=0.0) * weight
    tl.store(out + plane.to(tl.int64) * (height * width) + pixel, total, mask=live)


def warp(x: Tensor, poses: Tensor) -> Tensor:
    """(B, C, H, W) dense float32 images, (B, 4) float32 poses to warped images."""
    return _launched(_warp, x, poses)


def warp_backward(gradient: Tensor, poses: Tensor) -> Tensor:
    """The transpose of :func:`warp`."""
    return _launched(_warp_backward, gradient, poses)


def _launched(kernel, x: Tensor, poses: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    out = torch.empty_like(x)
    grid = (triton.cdiv(height * width, _BLOCK), batch * channels)
    kernel[grid](x, poses, out, channels, height, width, block=_BLOCK)
    return out
