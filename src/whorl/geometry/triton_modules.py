"""Finds the modules of Triton kernels, and says which tensors are none that a kernel can read."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


@cache
def kernel_module(name: str) -> Any:
    """A module of Triton kernels by its full name, or None where Triton cannot be imported."""
    try:
        return import_module(name)
    except ImportError:
        return None


def wrapped(*tensors: Tensor) -> bool:
    """Whether one stands for many, as inside vmap and its like, which only torch's own operations know."""
    if torch.compiler.is_compiling():
        return False
    return any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)
