"""Kernels and estimators that several test files use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import reference
from reference import Array
from whorl.estimators import (
    AffineInvariant,
    Chain,
    RotationInvariant,
    TranslationInvariant,
    identity,
)

Size = int | tuple[int, int]
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kernel:
    """The settings that ask for a kernel, and the kernel they should give."""

    label: str
    settings: dict[str, Any]
    weights: Array

    def polar_settings(self) -> dict[str, Any]:
        names = {"kernel_size": "polar_kernel_size", "sigma": "polar_sigma", "weights": "polar_weights"}
        return {names[key]: value for key, value in self.settings.items()}


def gaussian(size: Size, sigma: str | float) -> Kernel:
    label = f"gaussian {size} {sigma if isinstance(sigma, str) else round(sigma, 3)}"
    return Kernel(label, {"kernel_size": size, "sigma": sigma}, reference.gaussian(size, sigma))


def uniform(size: Size) -> Kernel:
    return Kernel(f"uniform {size}", {"kernel_size": size, "kind": "uniform"}, reference.uniform(size))


def own(rows: int, cols: int, *, separable: bool) -> Kernel:
    """Somebody's own lopsided kernel."""
    rng = np.random.default_rng(7)
    p = np.outer(rng.random(rows), rng.random(cols)) if separable else rng.random((rows, cols))
    p = p / p.sum()
    label = f"own {'separable' if separable else 'non-separable'} {rows}x{cols}"
    return Kernel(label, {"weights": torch.from_numpy(p)}, p)


ESTIMATORS: dict[str, Function] = {
    "ti": TranslationInvariant(kernel_size=5, sigma=1.0),
    "ti uniform": TranslationInvariant(kernel_size=(3, 5), kind="uniform"),
    "ai": AffineInvariant(kernel_size=5, sigma="printed"),
    "ai uniform": AffineInvariant(kernel_size=3, kind="uniform"),
    "ai own": AffineInvariant(**own(3, 5, separable=False).settings, **own(5, 3, separable=False).polar_settings()),
    "rotation": AffineInvariant(kernel_size=5, sigma=1.5, translation=False, scaling=False),
    "scaling": AffineInvariant(kernel_size=5, sigma=1.5, translation=False, rotation=False),
    "chain": Chain(TranslationInvariant(kernel_size=3, sigma=1.0), AffineInvariant(kernel_size=3, sigma=0.8)),
    "rotations": RotationInvariant(degrees=20.0),
    "rotations that narrow": RotationInvariant(degrees=(60.0, 5.0)),
    "identity": identity,
}


def worst_relative_error(out: Tensor, expected: Array) -> float:
    """The largest of ‖out - expected‖ / ‖expected‖ over images and channels."""
    difference = np.linalg.norm(out.double().numpy() - expected, axis=(-2, -1))
    return float(np.max(difference / np.linalg.norm(expected, axis=(-2, -1))))


def axes(height: int, width: int) -> tuple[Array, Array]:
    down, right = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    return right, down
