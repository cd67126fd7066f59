# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.models.prepared.pointwise`, value by value; imported where Triton is.

Bias and activation, and the activation's gradient.
"""

from __future__ import annotations

import triton.language as tl
from torch import Tensor

from whorl.models.prepared.kernel_parts import ACTS, activated, kernel_jit, let_through, row_of, tiles


@kernel_jit
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
    value = activated(value, act)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def bias_act(x: Tensor, bias: Tensor, residual: Tensor | None, out: Tensor, act: str) -> None:
    """See :func:`whorl.models.prepared.pointwise.bias_act`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = tiles(x)
    more = out if residual is None else residual
    _bias_act[grid](
        x, bias, more, out, pixels, x.shape[1], row_of(x), row_of(more), row_of(out),
        act=ACTS.index(act), has_residual=residual is not None, block_p=block_p, block_c=block_c,
    )  # fmt: skip


@kernel_jit
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
        value = let_through(value.to(tl.float32), seen.to(tl.float32), act)
    tl.store(out + (pixel[:, None] * row_out + channel[None, :]), value.to(out.dtype.element_ty), mask=inside)


def act_backward(gradient: Tensor, result: Tensor, out: Tensor, act: str) -> None:
    """See :func:`whorl.models.prepared.pointwise.act_backward`; pixels follow each other evenly in all of them."""
    pixels, block_p, block_c, grid = tiles(out)
    _act_backward[grid](
        gradient, result, out, pixels, out.shape[1], row_of(gradient), row_of(result), row_of(out),
        act=ACTS.index(act), block_p=block_p, block_c=block_c,
    )  # fmt: skip
