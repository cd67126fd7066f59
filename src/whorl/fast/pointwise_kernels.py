# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.fast.pointwise`; imported where Triton is.

A program takes a tile of pixels by channels, so that no division by the number of channels is needed for each element,
and sizes are arguments, so that one compiled kernel serves all layers of a network.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 4096
_MOST_CHANNELS = 128
_FLAT = 2048
_LAST = torch.channels_last


@triton.jit
def _bias_act(
    x, bias, residual, out, pixels, channels, row,
    act: tl.constexpr, has_residual: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_p + tl.arange(0, block_p)
    channel = tl.program_id(1) * block_c + tl.arange(0, block_c)
    known = channel < channels
    inside = (pixel < pixels)[:, None] & known[None, :]
    at = pixel[:, None] * channels + channel[None, :]
    value = tl.load(x + (pixel[:, None] * row + channel[None, :]), mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + channel, mask=known, other=0.0)[None, :]
    if has_residual:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    # Written so that NaN stays NaN.
    if act != 0:
        value = tl.where(value < 0, 0.0, value)
    if act == 2:
        value = tl.where(value > 6, 6.0, value)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


def bias_act(x: Tensor, bias: Tensor, residual: Tensor | None, out: Tensor, act: str) -> None:
    """See :func:`whorl.fast.pointwise.bias_act`; ``x`` has channels-last strides, the others no gaps."""
    channels = x.shape[1]
    pixels, block_p, block_c, grid = _tiles(x)
    _bias_act[grid](
        x, bias, out if residual is None else residual, out, pixels, channels, _row(x),
        act=("none", "relu", "relu6").index(act), has_residual=residual is not None, block_p=block_p, block_c=block_c,
    )  # fmt: skip


@triton.jit
def _max_pool(
    x, out, which, pixels, channels, height, width, rows, columns,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_p + tl.arange(0, block_p)
    channel = tl.program_id(1) * block_c + tl.arange(0, block_c)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    column = pixel % columns
    row = (pixel // columns) % rows
    image = pixel // (columns * rows)
    best = tl.full((block_p, block_c), float("-inf"), tl.float32)
    index = tl.zeros((block_p, block_c), tl.int32)
    for i in tl.static_range(kernel):
        for j in tl.static_range(kernel):
            h = row * stride - padding + i
            w = column * stride - padding + j
            there = (h >= 0) & (h < height) & (w >= 0) & (w < width)
            at = ((image * height + h) * width + w)[:, None] * channels + channel[None, :]
            value = tl.load(x + at, mask=inside & there[:, None], other=float("-inf")).to(tl.float32)
            wins = (value > best) | (value != value)
            best = tl.where(wins, value, best)
            index = tl.where(wins, i * kernel + j, index)
    at = pixel[:, None] * channels + channel[None, :]
    tl.store(out + at, best.to(out.dtype.element_ty), mask=inside)
    tl.store(which + at, index.to(tl.uint8), mask=inside)


@triton.jit
def _max_pool_backward(
    gradient, which, out, pixels, channels, height, width, rows, columns,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * block_p + tl.arange(0, block_p)
    channel = tl.program_id(1) * block_c + tl.arange(0, block_c)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    w = pixel % width
    h = (pixel // width) % height
    image = pixel // (width * height)
    total = tl.zeros((block_p, block_c), tl.float32)
    # The windows that hold this pixel: the last one that starts at or before it, and those that still reach it.
    for i in tl.static_range((kernel + stride - 1) // stride):
        for j in tl.static_range((kernel + stride - 1) // stride):
            row = (h + padding) // stride - i
            column = (w + padding) // stride - j
            tap_h = h + padding - row * stride
            tap_w = w + padding - column * stride
            there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            there = there & (tap_h < kernel) & (tap_w < kernel)
            window = ((image * rows + row) * columns + column)[:, None] * channels + channel[None, :]
            seen = inside & there[:, None]
            index = tl.load(which + window, mask=seen, other=255).to(tl.int32)
            value = tl.load(gradient + window, mask=seen, other=0.0).to(tl.float32)
            total += tl.where(index == (tap_h * kernel + tap_w)[:, None], value, 0.0)
    tl.store(out + pixel[:, None] * channels + channel[None, :], total.to(out.dtype.element_ty), mask=inside)


def max_pool(x: Tensor, kernel: int, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    """Pool a dense channels-last tensor; also say which place of each window won, as a byte."""
    batch, channels, height, width = x.shape
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
    out = torch.empty((batch, channels, rows, columns), dtype=x.dtype, device=x.device, memory_format=_LAST)
    which = torch.empty_like(out, dtype=torch.uint8)
    pixels, block_p, block_c, grid = _tiles(out, _TILE // 4)
    _max_pool[grid](
        x, out, which, pixels, channels, height, width, rows, columns,
        kernel=kernel, stride=stride, padding=padding, block_p=block_p, block_c=block_c,
    )  # fmt: skip
    return out, which


def max_pool_backward(
    gradient: Tensor, which: Tensor, shape: torch.Size, kernel: int, stride: int, padding: int
) -> Tensor:
    """Gradient of :func:`max_pool` with respect to its input of the given shape."""
    _, channels, height, width = shape
    rows, columns = gradient.shape[2:]
    out = torch.empty(shape, dtype=gradient.dtype, device=gradient.device, memory_format=_LAST)
    pixels, block_p, block_c, grid = _tiles(out, _TILE // 4)
    _max_pool_backward[grid](
        gradient, which, out, pixels, channels, height, width, rows, columns,
        kernel=kernel, stride=stride, padding=padding, block_p=block_p, block_c=block_c,
    )  # fmt: skip
    return out


@triton.jit
def _linf_step(
    g, x, eps, alpha, size, momentum, velocity, adv, pixels, has_momentum: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    image = tl.program_id(1)
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < pixels
    at = image.to(tl.int64) * pixels + at
    direction = tl.load(g + at, mask=inside, other=0.0)
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
    """See :func:`whorl.fast.pointwise.linf_step`; all dense float32."""
    pixels = g[0].numel()
    _linf_step[(triton.cdiv(pixels, _FLAT), g.shape[0])](
        g, x, eps, alpha, size, float(momentum), velocity, adv, pixels, has_momentum=momentum != 0, block=_FLAT
    )


def _tiles(x: Tensor, tile: int = _TILE) -> tuple[int, int, int, tuple[int, int]]:
    """Pixels in all, pixels and channels a program, and the grid, for a result of the shape of ``x``."""
    channels = x.shape[1]
    pixels = x.numel() // channels
    block_c = min(triton.next_power_of_2(channels), _MOST_CHANNELS)
    block_p = tile // block_c
    return pixels, block_p, block_c, (triton.cdiv(pixels, block_p), triton.cdiv(channels, block_c))


def _row(x: Tensor) -> int:
    """Elements from one pixel to the next; they follow each other evenly in channels-last memory."""
    batch, channels, height, width = x.shape
    if width > 1:
        return int(x.stride(3))
    if height > 1:
        return int(x.stride(2))
    return int(x.stride(0)) if batch > 1 else channels
