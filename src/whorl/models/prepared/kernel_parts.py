# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""What the kernels of a network's layers share: how they are compiled, activations, and how work is cut into tiles.

A program takes a tile of pixels by channels, so that no division by the number of channels is needed for each element,
and sizes are arguments, so that one compiled kernel serves all layers of a network. Imported where Triton is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

ACTS = ("none", "relu", "relu6")
"""Activations by the number that kernels know them by."""

_TILE = 4096
# Pools look up and compare a lot for each value, so that a warp takes fewer of them.
_PER_WARP = 256
# Whether these are multiples of sixteen is of no use to a kernel, and not worth compiling it twice.
_SIZES = ("pixels", "height", "width", "rows", "columns", "lines")


def kernel_jit(function: Callable[..., None]) -> Any:
    """Compile a kernel once for all values of the arguments that are sizes."""
    names = [name for name in inspect.signature(function).parameters if name in _SIZES]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def activated(value, act: tl.constexpr):
    """A value after the activation of that number in :data:`ACTS`; written so that NaN stays NaN."""
    if act != 0:
        value = tl.where(value < 0, 0.0, value)
    if act == 2:
        value = tl.where(value > 6, 6.0, value)
    return value


@triton.jit
def _soft_step(value, sharpness):
    """Derivative of x·sigmoid(βx)."""
    z = value * sharpness
    gate = 1.0 / (1.0 + tl.exp(-z))
    return gate * (1.0 + z * (1.0 - gate))


@triton.jit
def let_through(gradient, seen, sharpness, act: tl.constexpr, smooth: tl.constexpr):
    """The gradient before an activation.

    From what came out of it; as torch has it, also where that is NaN. If ``smooth``, from what went into it, by the
    derivative of a smooth rectifier of that sharpness at every bend.
    """
    if smooth:
        gradient = gradient * _soft_step(seen, sharpness)
        if act == 2:
            gradient = gradient * _soft_step(6.0 - seen, sharpness)
    elif act == 1:
        gradient = tl.where(seen <= 0, 0.0, gradient)
    elif act == 2:
        gradient = tl.where((seen <= 0) | (seen >= 6), 0.0, gradient)
    return gradient


@triton.jit
def program_place(lines, columns, channels, block_w: tl.constexpr, block_c: tl.constexpr):
    """Of a program: image and line, the same for all its pixels; places in the line; channels, first as in memory."""
    program = tl.program_id(0)
    deep = tl.cdiv(channels, block_c)
    across = tl.cdiv(columns, block_w)
    channel = (program % deep) * block_c + tl.arange(0, block_c)
    column = ((program // deep) % across) * block_w + tl.arange(0, block_w)
    line = program // (deep * across)
    same = tl.zeros((block_w,), tl.int32)
    return line // lines + same, line % lines + same, column, channel


def tiles(x: Tensor) -> tuple[int, int, int, tuple[int]]:
    """Pixels in all, pixels and channels a program, and the grid, for a result of the shape of ``x``."""
    channels = x.shape[1]
    pixels = x.numel() // channels
    block_c = _channels_each(channels)
    block_p = _TILE // block_c
    return pixels, block_p, block_c, (triton.cdiv(pixels, block_p) * triton.cdiv(channels, block_c),)


def line_tiles(x: Tensor) -> tuple[int, int, int, tuple[int]]:
    """Pixels of a line and channels a program, warps, and the grid, for a result of the shape of ``x``."""
    batch, channels, height, width = x.shape
    block_c = _channels_each(channels)
    block_w = _fitting(width, (16, 8, 4)) if block_c <= 64 else _fitting(width, (8, 4))
    warps = max(block_w * block_c // _PER_WARP, 1)
    return block_w, block_c, warps, (batch * height * triton.cdiv(width, block_w) * triton.cdiv(channels, block_c),)


def _channels_each(channels: int) -> int:
    """How many channels a program takes: at least two sectors of memory, where there are as many."""
    return _fitting(channels, (128, 64, 32)) if channels >= 32 else triton.next_power_of_2(channels)


@cache
def _fitting(length: int, sizes: tuple[int, ...]) -> int:
    """The first of some sizes, largest first, that leaves little over in its last piece; or which leaves least.

    >>> [_fitting(length, (128, 64, 32)) for length in (48, 80, 192, 288, 448)]
    [64, 32, 64, 64, 128]
    """
    left = {size: -length % size / length for size in sizes}
    return next((size for size, over in left.items() if over <= 1 / 6), min(left, key=lambda size: left[size]))


def row_of(x: Tensor) -> int:
    """Elements from one pixel to the next; they follow each other evenly in channels-last memory."""
    batch, channels, height, width = x.shape
    if width > 1:
        return int(x.stride(3))
    if height > 1:
        return int(x.stride(2))
    return int(x.stride(0)) if batch > 1 else channels
