"""Finds the modules of Triton kernels."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def kernel_module(name: str) -> Any:
    """A module of Triton kernels by its full name, or None where Triton cannot be imported."""
    try:
        return import_module(name)
    except ImportError:
        return None
