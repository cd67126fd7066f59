# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.fast.pointwise`; imported where Triton is.

A program takes a tile of pixels by channels, so that no division by the number of channels is needed for each element,
and sizes are arguments, so that one compiled kernel serves all layers of a network.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from whorl.fast.pointwise import Pool

_TILE = 4096
_FLAT = 2048
# Pools look up and compare a lot for each value, so that a warp takes fewer of them.
_PER_WARP = 256
_LAST = torch.channels_last
_ACTS = ("none", "relu", "relu6")
# Whether these are multiples of sixteen is of no use to a kernel, and not worth compiling it twice.
_SIZES = ("pixels", "height", "width", "rows", "columns", "lines")


def _jit(function: Callable[..., None]) -> Any:
    names = [name for name in inspect.signature(function).parameters if name in _SIZES]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def _activated(value, act: tl.constexpr):
    # Written so that NaN stays NaN.
    if act != 0:
        value = tl.where(value < 0, 0.0, value)
    if act == 2:
        value = tl.where(value > 6, 6.0, value)
    return value


@triton.jit
def _let_through(gradient, result, act: tl.constexpr):
    """The gradient before an activation, from what came out of it; as torch has it, also where that is NaN."""
    if act == 1:
        gradient = tl.where(result <= 0, 0.0, gradient)
    if act == 2:
        gradient = tl.where((result <= 0) | (result >= 6), 0.0, gradient)
    return gradient


@_jit
def _bias_act(
    x, bias, residual, out, pixels, channels, row_x, row_residual, row_out,
    act: tl.constexpr, has_residual: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    deep = tl.cdiv(channels, block_c)
    pixel = (program // deep) * block_p + tl.arange(0, block_p)
    channel = (program % deep) * block_c + tl.arange(0, block_c)
    known = channel < channels
    inside = (pixel < pixels)[:, None] & known[None, :]
    value = tl.load(x + (pixel[:, None] * row_x + channel[None, :]), mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + channel, mask=known, other=0.0)[None, :]
    if has_residual:
        at = pixel[:, None] * row_residual + channel[None, :]
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    value = _activated(value, act)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def bias_act(x: Tensor, bias: Tensor, residual: Tensor | None, out: Tensor, act: str) -> None:
    """See :func:`whorl.fast.pointwise.bias_act`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = _tiles(x)
    more = out if residual is None else residual
    _bias_act[grid](
        x, bias, more, out, pixels, x.shape[1], _row(x), _row(more), _row(out),
        act=_ACTS.index(act), has_residual=residual is not None, block_p=block_p, block_c=block_c,
    )  # fmt: skip


@_jit
def _act_backward(
    gradient, result, out, pixels, channels, row_gradient, row_result, row_out,
    act: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    deep = tl.cdiv(channels, block_c)
    pixel = (program // deep) * block_p + tl.arange(0, block_p)
    channel = (program % deep) * block_c + tl.arange(0, block_c)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    value = tl.load(gradient + (pixel[:, None] * row_gradient + channel[None, :]), mask=inside, other=0.0)
    if act != 0:
        seen = tl.load(result + (pixel[:, None] * row_result + channel[None, :]), mask=inside, other=0.0)
        value = _let_through(value.to(tl.float32), seen.to(tl.float32), act)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def act_backward(gradient: Tensor, result: Tensor, out: Tensor, act: str) -> None:
    """See :func:`whorl.fast.pointwise.act_backward`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = _tiles(out)
    _act_backward[grid](
        gradient, result, out, pixels, out.shape[1], _row(gradient), _row(result), _row(out),
        act=_ACTS.index(act), block_p=block_p, block_c=block_c,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Pooling. A program takes some pixels of one line, so that all that has to do with lines is worked out once for it.


@triton.jit
def _place(lines, columns, channels, block_w: tl.constexpr, block_c: tl.constexpr):
    """Of a program: image and line, the same for all its pixels; places in the line; channels, first as in memory."""
    program = tl.program_id(0)
    deep = tl.cdiv(channels, block_c)
    across = tl.cdiv(columns, block_w)
    channel = (program % deep) * block_c + tl.arange(0, block_c)
    column = ((program // deep) % across) * block_w + tl.arange(0, block_w)
    line = program // (deep * across)
    same = tl.zeros((block_w,), tl.int32)
    return line // lines + same, line % lines + same, column, channel


@triton.jit
def _members(
    top, left, height, width,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, padding_h: tl.constexpr, padding_w: tl.constexpr,
    counted: tl.constexpr,
):  # fmt: skip
    """By what a window's sum is divided: its pixels, of which those far outside never count, and padding may."""
    bottom = tl.minimum(top + kernel_h, height + padding_h)
    right = tl.minimum(left + kernel_w, width + padding_w)
    if not counted:
        top = tl.maximum(top, 0)
        left = tl.maximum(left, 0)
        bottom = tl.minimum(bottom, height)
        right = tl.minimum(right, width)
    return ((bottom - top) * (right - left)).to(tl.float32)


@_jit
def _average_pool(
    x, bias, out, channels, height, width, rows, columns, row_x, row_out,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    padding_h: tl.constexpr, padding_w: tl.constexpr, counted: tl.constexpr, divisor: tl.constexpr,
    has_bias: tl.constexpr, act: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, row, column, channel = _place(rows, columns, channels, block_w, block_c)
    known = channel < channels
    inside = (column < columns)[:, None] & known[None, :]
    top = row * stride_h - padding_h
    left = column * stride_w - padding_w
    total = tl.zeros((block_w, block_c), tl.float32)
    for i in tl.static_range(kernel_h):
        for j in tl.static_range(kernel_w):
            h = top + i
            w = left + j
            there = (h >= 0) & (h < height) & (w >= 0) & (w < width)
            at = ((image * height + h) * width + w)[:, None] * row_x + channel[None, :]
            total += tl.load(x + at, mask=inside & there[:, None], other=0.0).to(tl.float32)
    if divisor != 0:
        total = total / divisor
    else:
        members = _members(top, left, height, width, kernel_h, kernel_w, padding_h, padding_w, counted)
        total = total / tl.where(column < columns, members, 1.0)[:, None]
    if has_bias:
        total += tl.load(bias + channel, mask=known, other=0.0)[None, :]
    at = ((image * rows + row) * columns + column)[:, None] * row_out + channel[None, :]
    tl.store(out + at, _activated(total, act).to(out.dtype.element_ty), mask=inside)


@_jit
def _average_pool_backward(
    gradient, result, out, channels, height, width, rows, columns, row_gradient, row_result, row_out,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    padding_h: tl.constexpr, padding_w: tl.constexpr, counted: tl.constexpr, divisor: tl.constexpr,
    act: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, h, w, channel = _place(height, width, channels, block_w, block_c)
    inside = (w < width)[:, None] & (channel < channels)[None, :]
    total = tl.zeros((block_w, block_c), tl.float32)
    # The windows that hold this pixel: the last one that starts at or before it, and those that still reach it.
    for i in tl.static_range((kernel_h + stride_h - 1) // stride_h):
        for j in tl.static_range((kernel_w + stride_w - 1) // stride_w):
            row = (h + padding_h) // stride_h - i
            column = (w + padding_w) // stride_w - j
            there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            there = there & (h + padding_h - row * stride_h < kernel_h) & (w + padding_w - column * stride_w < kernel_w)
            seen = inside & there[:, None]
            window = ((image * rows + row) * columns + column)[:, None]
            value = tl.load(gradient + (window * row_gradient + channel[None, :]), mask=seen, other=0.0).to(tl.float32)
            if act != 0:
                answer = tl.load(result + (window * row_result + channel[None, :]), mask=seen, other=0.0)
                value = _let_through(value, answer.to(tl.float32), act)
            if divisor == 0:
                top = row * stride_h - padding_h
                left = column * stride_w - padding_w
                members = _members(top, left, height, width, kernel_h, kernel_w, padding_h, padding_w, counted)
                value = value / tl.where(there, members, 1.0)[:, None]
            total += value
    if divisor != 0:
        total = total / divisor
    at = ((image * height + h) * width + w)[:, None] * row_out + channel[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def average_pool(x: Tensor, pool: Pool, bias: Tensor | None, out: Tensor, act: str) -> None:
    """See :func:`whorl.fast.pointwise.average_pool`; pixels follow each other evenly in ``x`` and ``out``."""
    _, channels, height, width = x.shape
    rows, columns = out.shape[2:]
    block_w, block_c, warps, grid = _line_tiles(out)
    _average_pool[grid](
        x, out if bias is None else bias, out, channels, height, width, rows, columns, _row(x), _row(out),
        *pool.kernel, *pool.stride, *pool.padding, pool.counted, pool.always,
        has_bias=bias is not None, act=_ACTS.index(act), block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip


def average_pool_backward(gradient: Tensor, result: Tensor, pool: Pool, out: Tensor, act: str) -> None:
    """See :func:`whorl.fast.pointwise.average_pool_backward`; all of them even."""
    _, channels, height, width = out.shape
    rows, columns = gradient.shape[2:]
    block_w, block_c, warps, grid = _line_tiles(out)
    _average_pool_backward[grid](
        gradient, result, out, channels, height, width, rows, columns, _row(gradient), _row(result), _row(out),
        *pool.kernel, *pool.stride, *pool.padding, pool.counted, pool.always,
        act=_ACTS.index(act), block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip


@_jit
def _max_pool(
    x, out, which, channels, height, width, rows, columns, row_x, row_out,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, row, column, channel = _place(rows, columns, channels, block_w, block_c)
    inside = (column < columns)[:, None] & (channel < channels)[None, :]
    best = tl.full((block_w, block_c), float("-inf"), tl.float32)
    index = tl.zeros((block_w, block_c), tl.int32)
    for i in tl.static_range(kernel):
        for j in tl.static_range(kernel):
            h = row * stride - padding + i
            w = column * stride - padding + j
            there = (h >= 0) & (h < height) & (w >= 0) & (w < width)
            at = ((image * height + h) * width + w)[:, None] * row_x + channel[None, :]
            value = tl.load(x + at, mask=inside & there[:, None], other=float("-inf")).to(tl.float32)
            wins = (value > best) | (value != value)
            best = tl.where(wins, value, best)
            index = tl.where(wins, i * kernel + j, index)
    pixel = ((image * rows + row) * columns + column)[:, None]
    tl.store(out + (pixel * row_out + channel[None, :]), best.to(out.dtype.element_ty), mask=inside)
    tl.store(which + (pixel * channels + channel[None, :]), index.to(tl.uint8), mask=inside)


@_jit
def _max_pool_backward(
    gradient, which, out, channels, height, width, rows, columns, row_gradient,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, h, w, channel = _place(height, width, channels, block_w, block_c)
    inside = (w < width)[:, None] & (channel < channels)[None, :]
    total = tl.zeros((block_w, block_c), tl.float32)
    for i in tl.static_range((kernel + stride - 1) // stride):
        for j in tl.static_range((kernel + stride - 1) // stride):
            row = (h + padding) // stride - i
            column = (w + padding) // stride - j
            tap_h = h + padding - row * stride
            tap_w = w + padding - column * stride
            there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            there = there & (tap_h < kernel) & (tap_w < kernel)
            window = ((image * rows + row) * columns + column)[:, None]
            seen = inside & there[:, None]
            index = tl.load(which + (window * channels + channel[None, :]), mask=seen, other=255).to(tl.int32)
            value = tl.load(gradient + (window * row_gradient + channel[None, :]), mask=seen, other=0.0).to(tl.float32)
            total += tl.where(index == (tap_h * kernel + tap_w)[:, None], value, 0.0)
    at = ((image * height + h) * width + w)[:, None] * channels + channel[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def max_pool(x: Tensor, out: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Pool into ``out``, both even; say which place of each window won, as a byte."""
    _, channels, height, width = x.shape
    rows, columns = out.shape[2:]
    which = torch.empty(out.shape, dtype=torch.uint8, device=x.device, memory_format=_LAST)
    block_w, block_c, warps, grid = _line_tiles(out)
    _max_pool[grid](
        x, out, which, channels, height, width, rows, columns, _row(x), _row(out),
        kernel=kernel, stride=stride, padding=padding, block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip
    return which


def max_pool_backward(
    gradient: Tensor, which: Tensor, shape: torch.Size, kernel: int, stride: int, padding: int
) -> Tensor:
    """Gradient of :func:`max_pool` with respect to its input of the given shape; ``gradient`` is even."""
    _, channels, height, width = shape
    rows, columns = gradient.shape[2:]
    out = torch.empty(shape, dtype=gradient.dtype, device=gradient.device, memory_format=_LAST)
    block_w, block_c, warps, grid = _line_tiles(out)
    _max_pool_backward[grid](
        gradient, which, out, channels, height, width, rows, columns, _row(gradient),
        kernel=kernel, stride=stride, padding=padding, block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip
    return out


# ---------------------------------------------------------------------------------------------------------------------
# The first layer: 2×2 blocks of a picture as channels of one pixel.


@_jit
def _unshuffle(
    x, mean, out, channels, height, width, rows, columns, image_x, channel_x, row_x,
    padding: tl.constexpr, packed: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    image, row, column, place = _place(rows, columns, packed, block_w, packed)
    source = place // 4
    h = 2 * row[:, None] + (place // 2 % 2)[None, :] - padding
    w = 2 * column[:, None] + (place % 2)[None, :] - padding
    real = source < channels
    there = (h >= 0) & (h < height) & (w >= 0) & (w < width) & real[None, :] & (column < columns)[:, None]
    at = image.to(tl.int64)[:, None] * image_x + source[None, :] * channel_x + h * row_x + w
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    # Beyond the picture lies what becomes zero by normalisation.
    value = tl.where(there, value - tl.load(mean + source, mask=real, other=0.0)[None, :], 0.0)
    at = ((image * rows + row) * columns + column)[:, None] * packed + place[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=(column < columns)[:, None])


@_jit
def _unshuffle_backward(
    gradient, out, height, width, rows, columns, lines,
    channels: tl.constexpr, padding: tl.constexpr, packed: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    w = tl.program_id(1) * block + tl.arange(0, block)
    same = tl.zeros((block,), tl.int32)
    image = program // lines + same
    row = program % lines + same
    column = (w + padding) // 2
    pixel = ((image * rows + row) * columns + column) * packed + (w + padding) % 2
    reached = (row < rows) & (column < columns)
    # All that the packed pixels have, one line after the other, while they are at hand.
    for channel in tl.static_range(channels):
        for down in tl.static_range(2):
            h = 2 * row + down - padding
            inside = (w < width) & (h >= 0) & (h < height)
            # Zero where the kernel never reaches.
            value = tl.load(gradient + (pixel + (4 * channel + 2 * down)), mask=inside & reached, other=0.0)
            at = ((image * channels + channel) * height + h) * width + w
            tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


def unshuffle(x: Tensor, mean: Tensor, out: Tensor, padding: int) -> None:
    """See :func:`whorl.fast.pointwise.unshuffle`; ``out`` is dense, and lines of ``x`` have no gaps."""
    _, channels, height, width = x.shape
    batch, packed, rows, columns = out.shape
    block = min(triton.next_power_of_2(columns), 64)
    _unshuffle[(batch * rows * triton.cdiv(columns, block),)](
        x, mean, out, channels, height, width, rows, columns, x.stride(0), x.stride(1), x.stride(2),
        padding=padding, packed=packed, block_w=block, num_warps=4,
    )  # fmt: skip


def unshuffle_backward(gradient: Tensor, out: Tensor, padding: int) -> None:
    """From the dense gradient of :func:`unshuffle`'s result to that of its input, in plain memory."""
    _, packed, rows, columns = gradient.shape
    batch, channels, height, width = out.shape
    block = min(triton.next_power_of_2(width), 512)
    lines = (height + padding + 1) // 2
    _unshuffle_backward[(batch * lines, triton.cdiv(width, block))](
        gradient, out, height, width, rows, columns, lines,
        channels=channels, padding=padding, packed=packed, block=block,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# The attack's step


@triton.jit
def _linf_step(
    g, x, eps, alpha, size, momentum, velocity, adv, pixels, has_momentum: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    image = tl.program_id(1)
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < pixels
    at = image.to(tl.int64) * pixels + at
    direction = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    if has_momentum:
        before = tl.load(velocity + at, mask=inside, other=0.0)
        direction = momentum * before + direction / tl.load(size + image)
        tl.store(velocity + at, direction, mask=inside)
    sign = tl.where(direction > 0, 1.0, 0.0) - tl.where(direction < 0, 1.0, 0.0)
    radius = tl.load(eps + image)
    clean = tl.load(x + at, mask=inside, other=0.0)
    moved = tl.load(adv + at, mask=inside, other=0.0) + tl.load(alpha + image) * sign
    low = tl.maximum(clean - radius, 0.0)
    high = tl.minimum(clean + radius, 1.0)
    tl.store(adv + at, tl.minimum(tl.maximum(moved, low), high), mask=inside)


def linf_step(
    g: Tensor, x: Tensor, eps: Tensor, alpha: Tensor, size: Tensor, momentum: float, velocity: Tensor, adv: Tensor
) -> None:
    """See :func:`whorl.fast.pointwise.linf_step`; all dense, float32 but for the gradient, which may be shorter."""
    pixels = g[0].numel()
    _linf_step[(triton.cdiv(pixels, _FLAT), g.shape[0])](
        g, x, eps, alpha, size, float(momentum), velocity, adv, pixels, has_momentum=momentum != 0, block=_FLAT
    )


def _tiles(x: Tensor) -> tuple[int, int, int, tuple[int]]:
    """Pixels in all, pixels and channels a program, and the grid, for a result of the shape of ``x``."""
    channels = x.shape[1]
    pixels = x.numel() // channels
    block_c = _channels_each(channels)
    block_p = _TILE // block_c
    return pixels, block_p, block_c, (triton.cdiv(pixels, block_p) * triton.cdiv(channels, block_c),)


def _line_tiles(x: Tensor) -> tuple[int, int, int, tuple[int]]:
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


def _row(x: Tensor) -> int:
    """Elements from one pixel to the next; they follow each other evenly in channels-last memory."""
    batch, channels, height, width = x.shape
    if width > 1:
        return int(x.stride(3))
    if height > 1:
        return int(x.stride(2))
    return int(x.stride(0)) if batch > 1 else channels
