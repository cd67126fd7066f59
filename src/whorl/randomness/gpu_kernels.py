# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""Triton kernels behind :mod:`whorl.randomness.gpu`; imported where Triton is.

A program draws a stretch of one key's numbers: it reads the key, and nothing of a number's making goes over memory but
the number. Integers are unsigned, so that shifts bring in zeros and products wrap around.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_WARPS = 4
# The second axis of a grid of programs.
_MOST_ROWS = 65535

# As in whorl.randomness, but unsigned. Being 2**63 or more, each is taken for 64 bits without a sign.
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _mix(z):
    z = (z ^ (z >> 30)) * _MIX_1
    z = (z ^ (z >> 27)) * _MIX_2
    return z ^ (z >> 31)


@triton.jit
def _unit(key, place):
    """Uniform in [0, 1), in steps of 2**-24: the key's numbers at these places, the first of which is 0."""
    bits = _mix(key + (place + 1).to(tl.uint64) * _GOLDEN)
    return (bits >> 40).to(tl.int32).to(tl.float32) * (1.0 / 2**24)


@triton.jit
def _cosine_of_turns(u):
    """cos(2πu) for u of :func:`_unit`, to 3 units in the last place, near its zeros too."""
    # It is sin(2πt), where t, unlike 2πu, is exact, and |t| <= 1/4, so that a polynomial of five terms will do. They
    # were fitted for the least relative error, which is that of 2π in float32.
    t = tl.abs(u - 0.5) - 0.25
    s = t * t
    series = 40.062336 * s - 76.62532
    series = series * s + 81.604645
    series = series * s - 41.34172
    series = series * s + 6.2831855
    return series * t


@triton.jit
def _key(keys, stride, row):
    return tl.load(keys + row * stride).to(tl.uint64)


@partial(triton.jit, do_not_specialize=["stride"])
def _uniform(keys, out, stride, count, span, low, block: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    drawn = _unit(_key(keys, stride, row), place) * span + low
    tl.store(out + row * count + place, drawn, mask=place < count)


@partial(triton.jit, do_not_specialize=["stride"])
def _normal(keys, out, stride, count, block: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    key = _key(keys, stride, row)
    # The key's substreams 0 and 1. 1 - u is exact and above 0.
    radius = tl.sqrt(-2.0 * tl.log(1.0 - _unit(_mix(key + _GOLDEN), place)))
    drawn = radius * _cosine_of_turns(_unit(_mix(key + _GOLDEN + _GOLDEN), place))
    tl.store(out + row * count + place, drawn, mask=place < count)


@partial(triton.jit, do_not_specialize=["count"])
def _mixed(z, out, count, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    value = tl.load(z + place, mask=inside, other=0).to(tl.uint64)
    tl.store(out + place, _mix(value).to(tl.int64), mask=inside)


def mix(z: Tensor) -> Tensor:
    """Dense int64 of any shape; see ``whorl.randomness.draws._mix``."""
    out = torch.empty_like(z)
    _mixed[(triton.cdiv(z.numel(), _BLOCK),)](z, out, z.numel(), block=_BLOCK, num_warps=_WARPS)
    return out


def uniform(keys: Tensor, count: int, low: float, high: float) -> Tensor:
    """(B,) int64 keys of any stride to (B, count) float32; see :func:`whorl.randomness.uniform`."""
    # Rounded after the product as after the sum, as plain torch does on every device.
    return _launched(_uniform, keys, count, float(high - low), float(low), enable_fp_fusion=False)


def normal(keys: Tensor, count: int) -> Tensor:
    """(B,) int64 keys of any stride to (B, count) float32; see :func:`whorl.randomness.normal`."""
    return _launched(_normal, keys, count, enable_fp_fusion=True)


def _launched(kernel, keys: Tensor, count: int, *numbers: float, enable_fp_fusion: bool) -> Tensor:
    out = torch.empty((len(keys), count), dtype=torch.float32, device=keys.device)
    for some, rows in zip(keys.split(_MOST_ROWS), out.split(_MOST_ROWS), strict=True):
        kernel[triton.cdiv(count, _BLOCK), len(some)](
            some, rows, some.stride(0), count, *numbers,
            block=_BLOCK, num_warps=_WARPS, enable_fp_fusion=enable_fp_fusion,
        )  # fmt: skip
    return out
