# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.models.prepared.pointwise`, value by value; imported where Triton is.

Bias and activation, the activation's gradient, and the blocks of pixels that a stem works on.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from whorl.models.prepared.kernel_parts import ACTS, activated, kernel_jit, let_through, program_place, row_of, tiles


@kernel_jit
def _bias_act(
    x, bias, residual, out, before, pixels, channels, row_x, row_residual, row_out, row_before,
    act: tl.constexpr, has_residual: tl.constexpr, has_before: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr,
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
    if has_before:
        at = pixel[:, None] * row_before + channel[None, :]
        tl.store(before + at, value.to(before.dtype.element_ty), mask=inside)
    value = activated(value, act)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def bias_act(x: Tensor, bias: Tensor, residual: Tensor | None, out: Tensor, act: str, before: Tensor | None) -> None:
    """See :func:`whorl.models.prepared.pointwise.bias_act`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = tiles(x)
    more = out if residual is None else residual
    kept = out if before is None else before
    _bias_act[grid](
        x, bias, more, out, kept, pixels, x.shape[1], row_of(x), row_of(more), row_of(out), row_of(kept),
        act=ACTS.index(act), has_residual=residual is not None, has_before=before is not None,
        block_p=block_p, block_c=block_c,
    )  # fmt: skip


@kernel_jit
def _act_backward(
    gradient, seen, out, sharpness, pixels, channels, row_gradient, row_seen, row_out,
    act: tl.constexpr, smooth: tl.constexpr, block_p: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    deep = tl.cdiv(channels, block_c)
    pixel = (program // deep) * block_p + tl.arange(0, block_p)
    channel = (program % deep) * block_c + tl.arange(0, block_c)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    value = tl.load(gradient + (pixel[:, None] * row_gradient + channel[None, :]), mask=inside, other=0.0)
    if act != 0:
        there = tl.load(seen + (pixel[:, None] * row_seen + channel[None, :]), mask=inside, other=0.0)
        value = let_through(value.to(tl.float32), there.to(tl.float32), sharpness, act, smooth)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def act_backward(gradient: Tensor, seen: Tensor, out: Tensor, act: str, smooth: float | None) -> None:
    """See :func:`whorl.models.prepared.pointwise.act_backward`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = tiles(out)
    _act_backward[grid](
        gradient, seen, out, float(smooth or 0), pixels, out.shape[1], row_of(gradient), row_of(seen), row_of(out),
        act=ACTS.index(act), smooth=smooth is not None, block_p=block_p, block_c=block_c,
    )  # fmt: skip


@kernel_jit
def _unshuffle(
    x, mean, out, channels, height, width, rows, columns, image_x, channel_x, row_x,
    padding: tl.constexpr, packed: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    image, row, column, place = program_place(rows, columns, packed, block_w, packed)
    source = place // 4
    h = 2 * row[:, None] + (place // 2 % 2)[None, :] - padding
    w = 2 * column[:, None] + (place % 2)[None, :] - padding
    real = source < channels
    there = (h >= 0) & (h < height) & (w >= 0) & (w < width) & real[None, :] & (column < columns)[:, None]
    at = image.to(tl.int64)[:, None] * image_x + source[None, :] * channel_x + h * row_x + w
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    # Beyond the image lies what becomes zero by normalisation.
    value = tl.where(there, value - tl.load(mean + source, mask=real, other=0.0)[None, :], 0.0)
    at = ((image * rows + row) * columns + column)[:, None] * packed + place[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=(column < columns)[:, None])


@kernel_jit
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
    """See :func:`whorl.models.prepared.pointwise.unshuffle`; ``out`` is dense, and lines of ``x`` have no gaps."""
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
