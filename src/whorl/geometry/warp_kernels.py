# mypy: ignore-errors
# ruff: noqa: RUF005
# Triton's language is Python to read, not to type-check. Its tuples grow by adding only.
"""Triton kernels behind :mod:`whorl.geometry.warp_gpu`; imported where Triton is.

Planes (one channel of one image each) lie one after the other. An image's pose is six numbers: cos/scale, sin/scale,
the shift to the right and down, whether it is mirrored first, and a factor on the result. A program takes the same
pixels of several planes of an image, for which it works out once where they look.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512
# Colours that one program takes; other images are taken plane by plane.
_MOST_COLOURS = 4


@triton.jit
def _source(column, row, cos, sin, right, down, width, height):
    """Where the output pixel at (column, row) looks at the input. The same operations in both kernels."""
    across = column.to(tl.float32) - (width - 1) * 0.5 - right
    along = row.to(tl.float32) - (height - 1) * 0.5 - down
    return cos * across + sin * along + (width - 1) * 0.5, cos * along - sin * across + (height - 1) * 0.5


@triton.jit
def _pose(poses, image):
    at = poses + image * 6
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4) != 0, tl.load(at + 5)


@triton.jit
def _nothing(count: tl.constexpr, block: tl.constexpr):
    sums = ()
    for _ in tl.static_range(count):
        sums = sums + (tl.zeros((block,), tl.float32),)
    return sums


@triton.jit
def _added(sums, source, at, there, weight, size, count: tl.constexpr):
    """Bring what each plane has at some pixels to its sum."""
    moved = ()
    for k in tl.static_range(count):
        near = tl.load(source + (k * size + at), mask=there, other=0.0).to(tl.float32)
        moved = moved + (sums[k] + near * weight,)
    return moved


@triton.jit
def _warp(x, poses, out, channels, height, width, count: tl.constexpr, block: tl.constexpr):
    plane = tl.program_id(1) * count
    cos, sin, right, down, mirrored, gain = _pose(poses, plane // channels)
    size = height * width
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    live = pixel < size
    u, v = _source(pixel % width, pixel // width, cos, sin, right, down, width, height)
    left, top = tl.floor(u), tl.floor(v)
    first = plane.to(tl.int64) * size
    sums = _nothing(count, block)
    for i in tl.static_range(2):
        for j in tl.static_range(2):
            c, r = left + j, top + i
            there = live & (c >= 0) & (c < width) & (r >= 0) & (r < height)
            # Far away it is not a number of pixels that an integer holds, and is not looked at.
            column = tl.where(there, c, 0.0).to(tl.int32)
            column = tl.where(mirrored, width - 1 - column, column)
            at = tl.where(there, r, 0.0).to(tl.int32) * width + column
            weight = (1.0 - tl.abs(u - c)) * (1.0 - tl.abs(v - r))
            sums = _added(sums, x + first, at, there, weight, size, count)
    for k in tl.static_range(count):
        tl.store(out + (first + k * size) + pixel, (sums[k] * gain).to(out.dtype.element_ty), mask=live)


@triton.jit
def _warp_backward(gradient, poses, out, channels, height, width, count: tl.constexpr, block: tl.constexpr):
    """Every input pixel asks the output pixels that may have looked at it: nothing is added to by two at once."""
    plane = tl.program_id(1) * count
    cos, sin, right, down, mirrored, gain = _pose(poses, plane // channels)
    size = height * width
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    live = pixel < size
    column = tl.where(mirrored, width - 1 - pixel % width, pixel % width).to(tl.float32)
    row = (pixel // width).to(tl.float32)
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
    first = plane.to(tl.int64) * size
    sums = _nothing(count, block)
    for i in range(tl.minimum(steps, height)):
        y = first_row.to(tl.int32) + i
        for j in range(tl.minimum(steps, width)):
            x = first_column.to(tl.int32) + j
            u, v = _source(x, y, cos, sin, right, down, width, height)
            weight = tl.maximum(1.0 - tl.abs(u - column), 0.0) * tl.maximum(1.0 - tl.abs(v - row), 0.0)
            there = live & (x >= 0) & (x < width) & (y >= 0) & (y < height) & (weight > 0)
            sums = _added(sums, gradient + first, y * width + x, there, weight, size, count)
    for k in tl.static_range(count):
        tl.store(out + (first + k * size) + pixel, (sums[k] * gain).to(out.dtype.element_ty), mask=live)


def warp(x: Tensor, poses: Tensor) -> Tensor:
    """(B, C, H, W) dense images, (B, 6) float32 poses to warped images; sums are float32."""
    return _launched(_warp, x, poses)


def warp_backward(gradient: Tensor, poses: Tensor) -> Tensor:
    """The transpose of :func:`warp`."""
    return _launched(_warp_backward, gradient, poses)


def _launched(kernel, x: Tensor, poses: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    out = torch.empty_like(x)
    count = channels if channels <= _MOST_COLOURS else 1
    grid = (triton.cdiv(height * width, _BLOCK), batch * channels // count)
    kernel[grid](x, poses, out, channels, height, width, count=count, block=_BLOCK)
    return out
