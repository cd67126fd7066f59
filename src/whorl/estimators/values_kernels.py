# mypy: ignore-errors
# ruff: noqa: RUF005
# Triton's language is Python to read, not to type-check. Its tuples grow by adding only.
"""Triton kernels behind :mod:`whorl.estimators.values`: one pass over memory each; imported where Triton is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048
MOST_COLOURS = 8
"""Channels whose values a program holds at once."""


@triton.jit(do_not_specialize=["count", "power"])
def _compress(x, out, count, power, root: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    size = tl.abs(value)
    # Of zero the logarithm is minus infinity, and two to that power is zero.
    size = tl.sqrt(size) if root else tl.exp2(tl.log2(size) * power)
    tl.store(out + at, tl.where(value < 0, -size, size).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pixels", "share"])
def _share(x, out, pixels, share, channels: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < pixels
    first = tl.program_id(1).to(tl.int64) * channels * pixels + at
    total = tl.zeros((block,), tl.float32)
    values = ()
    for c in tl.static_range(channels):
        value = tl.load(x + first + c * pixels, mask=inside, other=0.0).to(tl.float32)
        values = values + (value,)
        total += value
    mean = total / channels
    for c in tl.static_range(channels):
        shared = values[c] + share * (mean - values[c])
        tl.store(out + first + c * pixels, shared.to(out.dtype.element_ty), mask=inside)


def compress(x: Tensor, power: float) -> Tensor:
    """Dense values of any shape, each to a power with its sign kept."""
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), _BLOCK),)
    _compress[grid](x, out, x.numel(), float(power), root=power == 0.5, block=_BLOCK)
    return out


def share(x: Tensor, amount: float) -> Tensor:
    """Dense (B, C, H, W), of at most :data:`MOST_COLOURS` channels: each nearer to their mean by a share."""
    batch, channels, height, width = x.shape
    out = torch.empty_like(x)
    pixels = height * width
    grid = (triton.cdiv(pixels, _BLOCK), batch)
    _share[grid](x, out, pixels, float(amount), channels=channels, block=_BLOCK)
    return out
