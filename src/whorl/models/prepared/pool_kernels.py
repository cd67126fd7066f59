# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels of the average and max pools in :mod:`whorl.models.prepared.pointwise`; imported where Triton is.

A program takes some pixels of one line, so that all that has to do with lines is worked out once for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from whorl.models.prepared.kernel_parts import (
    ACTS,
    activated,
    kernel_jit,
    let_through,
    line_tiles,
    program_place,
    row_of,
)

if TYPE_CHECKING:
    from whorl.models.prepared.pointwise import Pool

_LAST = torch.channels_last


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


@kernel_jit
def _average_pool(
    x, bias, out, before, channels, height, width, rows, columns, row_x, row_out, row_before,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    padding_h: tl.constexpr, padding_w: tl.constexpr, counted: tl.constexpr, divisor: tl.constexpr,
    has_bias: tl.constexpr, has_before: tl.constexpr, act: tl.constexpr,
    block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, row, column, channel = program_place(rows, columns, channels, block_w, block_c)
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
    pixel = ((image * rows + row) * columns + column)[:, None]
    if has_before:
        tl.store(before + (pixel * row_before + channel[None, :]), total.to(before.dtype.element_ty), mask=inside)
    at = pixel * row_out + channel[None, :]
    tl.store(out + at, activated(total, act).to(out.dtype.element_ty), mask=inside)


@kernel_jit
def _average_pool_backward(
    gradient, seen, out, sharpness, channels, height, width, rows, columns, row_gradient, row_seen, row_out,
    kernel_h: tl.constexpr, kernel_w: tl.constexpr, stride_h: tl.constexpr, stride_w: tl.constexpr,
    padding_h: tl.constexpr, padding_w: tl.constexpr, counted: tl.constexpr, divisor: tl.constexpr,
    act: tl.constexpr, smooth: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, h, w, channel = program_place(height, width, channels, block_w, block_c)
    inside = (w < width)[:, None] & (channel < channels)[None, :]
    total = tl.zeros((block_w, block_c), tl.float32)
    # The windows that hold this pixel: the last one that starts at or before it, and those that still reach it.
    for i in tl.static_range((kernel_h + stride_h - 1) // stride_h):
        for j in tl.static_range((kernel_w + stride_w - 1) // stride_w):
            row = (h + padding_h) // stride_h - i
            column = (w + padding_w) // stride_w - j
            there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            there = there & (h + padding_h - row * stride_h < kernel_h) & (w + padding_w - column * stride_w < kernel_w)
            held = inside & there[:, None]
            window = ((image * rows + row) * columns + column)[:, None]
            value = tl.load(gradient + (window * row_gradient + channel[None, :]), mask=held, other=0.0).to(tl.float32)
            if act != 0:
                answer = tl.load(seen + (window * row_seen + channel[None, :]), mask=held, other=0.0)
                value = let_through(value, answer.to(tl.float32), sharpness, act, smooth)
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


def average_pool(x: Tensor, pool: Pool, bias: Tensor | None, out: Tensor, act: str, before: Tensor | None) -> None:
    """See :func:`whorl.models.prepared.pointwise.average_pool`; pixels are evenly spaced in ``x`` and ``out``."""
    _, channels, height, width = x.shape
    rows, columns = out.shape[2:]
    block_w, block_c, warps, grid = line_tiles(out)
    kept = out if before is None else before
    _average_pool[grid](
        x, out if bias is None else bias, out, kept, channels, height, width, rows, columns,
        row_of(x), row_of(out), row_of(kept), *pool.kernel, *pool.stride, *pool.padding, pool.counted, pool.always,
        has_bias=bias is not None, has_before=before is not None, act=ACTS.index(act),
        block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip


def average_pool_backward(
    gradient: Tensor, seen: Tensor, pool: Pool, out: Tensor, act: str, smooth: float | None
) -> None:
    """See :func:`whorl.models.prepared.pointwise.average_pool_backward`; all of them even."""
    _, channels, height, width = out.shape
    rows, columns = gradient.shape[2:]
    block_w, block_c, warps, grid = line_tiles(out)
    _average_pool_backward[grid](
        gradient, seen, out, float(smooth or 0), channels, height, width, rows, columns,
        row_of(gradient), row_of(seen), row_of(out),
        *pool.kernel, *pool.stride, *pool.padding, pool.counted, pool.always,
        act=ACTS.index(act), smooth=smooth is not None, block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip


@kernel_jit
def _max_pool(
    x, out, which, channels, height, width, rows, columns, row_x, row_out,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, row, column, channel = program_place(rows, columns, channels, block_w, block_c)
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


@kernel_jit
def _max_pool_backward(
    gradient, which, out, share, channels, height, width, rows, columns, row_gradient,
    kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, shared: tl.constexpr,
    block_w: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    image, h, w, channel = program_place(height, width, channels, block_w, block_c)
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
            won = tl.where(index == (tap_h * kernel + tap_w)[:, None], value, 0.0)
            if shared:
                won = (1.0 - share) * won + share / (kernel * kernel) * value
            total += won
    at = ((image * height + h) * width + w)[:, None] * channels + channel[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def max_pool(x: Tensor, out: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Pool into ``out``, both even; say which place of each window won, as a byte."""
    _, channels, height, width = x.shape
    rows, columns = out.shape[2:]
    which = torch.empty(out.shape, dtype=torch.uint8, device=x.device, memory_format=_LAST)
    block_w, block_c, warps, grid = line_tiles(out)
    _max_pool[grid](
        x, out, which, channels, height, width, rows, columns, row_of(x), row_of(out),
        kernel=kernel, stride=stride, padding=padding, block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip
    return which


def max_pool_backward(
    gradient: Tensor, which: Tensor, shape: torch.Size, kernel: int, stride: int, padding: int, share: float
) -> Tensor:
    """Gradient of :func:`max_pool` with respect to its input of the given shape; ``gradient`` is even.

    A share of it goes to all pixels of a window alike.
    """
    _, channels, height, width = shape
    rows, columns = gradient.shape[2:]
    out = torch.empty(shape, dtype=gradient.dtype, device=gradient.device, memory_format=_LAST)
    block_w, block_c, warps, grid = line_tiles(out)
    _max_pool_backward[grid](
        gradient, which, out, float(share), channels, height, width, rows, columns, row_of(gradient),
        kernel=kernel, stride=stride, padding=padding, shared=share > 0,
        block_w=block_w, block_c=block_c, num_warps=warps,
    )  # fmt: skip
    return out
