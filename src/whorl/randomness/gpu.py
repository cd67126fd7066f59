"""Many random numbers on a GPU in one pass over memory, where plain torch takes fifteen to thirty-five.

The definition is :mod:`whorl.randomness`. Uniform numbers are the same bit for bit, normal ones but for their rounding.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from whorl.geometry.triton_modules import kernel_module

# Numbers for each key, below which plain torch is as good. Not numbers in all: an image's normal numbers must not
# depend on how many others are drawn beside them, not even in their rounding.
_LEAST = 1024
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
    if not _fits(keys, count):
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
    if not _fits(keys, count):
        return None
    with torch.cuda.device_of(keys):
        drawn: Tensor = kernels().normal(keys, count)
    return drawn


def _fits(keys: Tensor, count: int) -> bool:
    if not _LEAST <= count <= _MOST or keys.dim() != 1 or keys.dtype != torch.int64:
        return False
    # Tensors that are only traced have no memory for a kernel to read.
    traced = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(keys)
    return type(keys) is Tensor and not traced and len(keys) > 0 and kernels() is not None
