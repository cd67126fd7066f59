"""Many random numbers on a GPU in one pass over memory, where plain torch takes fifteen to thirty-five.

The definition is :mod:`whorl.randomness`. Uniform numbers are the same bit for bit, normal ones but for their rounding.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from whorl.geometry.triton_modules import kernel_module, wrapped

# Normal numbers for each key, below which plain torch does it. Not numbers in all: an image's normal numbers must not
# depend on how many others are drawn beside them, not even in their rounding. Uniform ones are the same bits either
# way, and one launch instead of twenty however few they are.
_LEAST_NORMAL = 1024
# Places are counted in 32 bits.
_MOST = 2**31 - 2**16


kernels = partial(kernel_module, "whorl.randomness.gpu_kernels")
"""Gives the module of Triton kernels, or None where Triton cannot be imported."""


def uniform_on_gpu(keys: Tensor, count: int, low: float, high: float) -> Tensor | None:
    """Draw uniform numbers in [low, high), if that can be done here.

    Args:
        keys: (B,) int64, of any stride.
        count: numbers for each key.
        low: lower end.
        high: upper end.

    Returns:
        (B, count) float32; None where plain torch is to do it.
    """
    if not _fits(keys, count, least=1):
        return None
    with torch.cuda.device_of(keys):
        drawn: Tensor = kernels().uniform(keys, count, low, high)
    return drawn


def normal_on_gpu(keys: Tensor, count: int) -> Tensor | None:
    """Draw standard normal numbers, if that can be done here.

    Args:
        keys: (B,) int64, of any stride.
        count: numbers for each key.

    Returns:
        (B, count) float32; None where plain torch is to do it.
    """
    if not _fits(keys, count, least=_LEAST_NORMAL):
        return None
    with torch.cuda.device_of(keys):
        drawn: Tensor = kernels().normal(keys, count)
    return drawn


def mix_on_gpu(z: Tensor) -> Tensor | None:
    """Scramble int64 tensors of any shape, each bit by all others, if that can be done here; None elsewhere."""
    if z.dtype != torch.int64 or not 0 < z.numel() <= _MOST or not _there(z):
        return None
    with torch.cuda.device_of(z):
        mixed: Tensor = kernels().mix(z.contiguous())
    return mixed


def _fits(keys: Tensor, count: int, *, least: int) -> bool:
    if not least <= count <= _MOST or keys.dim() != 1 or keys.dtype != torch.int64:
        return False
    return len(keys) > 0 and _there(keys)


def _there(keys: Tensor) -> bool:
    """Whether a kernel can read a tensor: one that is only traced has no memory."""
    traced = torch.compiler.is_compiling() or wrapped(keys)
    return type(keys) is Tensor and not traced and kernels() is not None
