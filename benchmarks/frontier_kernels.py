"""Kernels by name: ``t0.5s0.3r0.8`` has that σ of translations, scalings and rotations, and 0 is none.

``p`` stands for ``s`` and ``r`` at once. ``@21`` says the size, where it is not 15; ``u`` is for uniform weights;
``x2:4`` for a polar grid of twice the radii and four times the angles; and ``|`` for the mean of several kernels.
``turn32-1.6`` are rotations of σ 32° in the first step and 1.6° in the last, and ``turn5`` of 5° in all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import whorl
from whorl.analysis.kernel_grid import kernel_of_widths, narrowing
from whorl.estimators.polar_grids import on_grid

_WIDTH = r"([0-9.]+)"
_KERNEL = re.compile(rf"t{_WIDTH}(?:p{_WIDTH}|s{_WIDTH}r{_WIDTH})(?:@([0-9]+))?(u?)(?:x([0-9]+):([0-9]+))?")
_TURNS = re.compile(rf"turn{_WIDTH}(?:-{_WIDTH})?")


@dataclass(frozen=True)
class MeanEstimate:
    """The mean of what several estimators make of a gradient."""

    parts: tuple[whorl.Estimator, ...]

    def __call__(self, gradient: Tensor) -> Tensor:
        """Average; (B, C, H, W)."""
        total = self.parts[0](gradient)
        for part in self.parts[1:]:
            total = total + part(gradient)
        return total / len(self.parts)


def kernel_by_name(text: str) -> whorl.Estimator | None:
    """Get the estimator that a name describes; None where it is no name of a kernel.

    >>> kernel_by_name("t0.8p0"), kernel_by_name("ai0.5")
    (AffineInvariant(sigma=0.8, rotation=False, scaling=False), None)
    >>> kernel_by_name("t0s0r3@21x2:2")
    PolarGridInvariant(kernel_size=21, sigma=3.0, polar_sigma=3.0, translation=False, scaling=False, finer=(2, 2))
    >>> kernel_by_name("turn20-2")
    RotationInvariant(degrees=(20.0, 2.0))
    >>> len(kernel_by_name("t0s0r3|t0s0r0.8").parts)
    2
    """
    if _TURNS.fullmatch(text):
        return narrowing(text.removeprefix("turn"))
    found = [_KERNEL.fullmatch(part) for part in text.split("|")]
    kernels = [_estimator(one) for one in found if one]
    if len(kernels) < len(found):
        return None
    return kernels[0] if len(kernels) == 1 else MeanEstimate(tuple(kernels))


def _estimator(found: re.Match[str]) -> whorl.Estimator:
    translation, polar, scaling, rotation, size, uniform, radii, angles = found.groups()
    widths = (float(translation), float(scaling or polar), float(rotation or polar))
    if not any(widths):
        return whorl.identity
    made = kernel_of_widths(*widths, size=int(size or 15))
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in made.items()
    }
    del settings["type"]
    kernel = whorl.AffineInvariant(**settings, kind="uniform" if uniform else "gaussian")
    return on_grid(kernel, finer=(int(radii), int(angles))) if radii else kernel
