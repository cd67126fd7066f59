"""Estimators one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from whorl.estimators.fast import on_gpu
from whorl.estimators.invariant import _checked, _computable, _Wraps
from whorl.estimators.steps import Estimator, at_step, following, for_eps
from whorl.records import InOrder


class Chain(InOrder[Estimator], _Wraps):
    """Apply several estimators, the first one first.

    >>> import torch
    >>> from whorl.estimators import AffineInvariant, TranslationInvariant
    >>> Chain(TranslationInvariant(), AffineInvariant(translation=False))(torch.rand(1, 3, 16, 16)).shape
    torch.Size([1, 3, 16, 16])
    """

    @property
    def pure(self) -> bool:  # type: ignore[override]  # a chain is what its parts are
        """Whether all parts are functions of tensors alone."""
        return self.all_are("pure")

    def at(self, step: int, steps: int) -> Chain:
        """The parts, each as it is in a step; itself, where none changes."""
        return self._of([at_step(part, step, steps) for part in self.parts])

    def for_eps(self, eps: float) -> Chain:
        """The parts, each as it is in an attack with an ε; itself, where none changes."""
        return self._of([for_eps(part, eps) for part in self.parts])

    def following(self, step: Tensor, steps: int, like: Tensor) -> Chain | None:
        """The parts, each as it is in the step that a tensor holds; None where one of them cannot say."""
        parts = [following(part, step, steps, like) for part in self.parts]
        known = [part for part in parts if part is not None]
        return self._of(known) if len(known) == len(parts) else None

    def _of(self, parts: list[Estimator]) -> Chain:
        return self if all(now is part for now, part in zip(parts, self.parts, strict=True)) else Chain(*parts)

    def __call__(self, gradient: Tensor) -> Tensor:
        """Apply every part in turn."""
        # Parts that are not known to add up in float32 get that.
        kept = on_gpu(_checked(gradient)) and gradient.dtype == torch.bfloat16
        short = kept and self.all_are("short")
        g = gradient if short else _computable(gradient)
        for part in self.parts:
            g = part(g)
        return g.to(gradient.dtype)
