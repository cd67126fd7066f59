"""Estimators that change with an attack's ε or from step to step: what each is in which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from whorl.errors import WhorlError


@runtime_checkable
class Estimator(Protocol):
    """Anything that maps a (B, C, H, W) gradient to another of the same shape."""

    def __call__(self, gradient: Tensor, /) -> Tensor:
        """Make the invariant gradient of ``gradient``, (B, C, H, W), in its shape and dtype."""
        ...


def for_eps(estimator: Estimator, eps: float) -> Estimator:
    """What an estimator is in an attack with an ε in L∞: itself, unless it has a ``for_eps`` that gives another.

    >>> from whorl.estimators import RotationInvariant, identity
    >>> for_eps(RotationInvariant(degrees=8.0, at_eps=0.5), 0.25), for_eps(identity, 0.25)
    (RotationInvariant(degrees=4.0), Identity())
    """
    own = getattr(estimator, "for_eps", None)
    return estimator if own is None else own(eps)


def at_step(estimator: Estimator, step: int, steps: int) -> Estimator:
    """What an estimator is in a step of an attack: itself, unless it has an ``at`` that gives another.

    Args:
        estimator: an attack's.
        step: counted from 0.
        steps: of the attack.

    >>> from whorl.estimators import RotationInvariant, identity
    >>> at_step(RotationInvariant(degrees=(9.0, 1.0)), 1, 3), at_step(identity, 1, 3)
    (RotationInvariant(degrees=3.0), Identity())
    """
    at = getattr(estimator, "at", None)
    return estimator if at is None else at(step, steps)


def following(estimator: Estimator, step: Tensor, steps: int, like: Tensor) -> Estimator | None:
    """What an estimator is in the step that a tensor holds whenever it is called: one for all steps, to be recorded.

    Args:
        estimator: an attack's.
        step: () int64, counted from 0; it is read where it lies.
        steps: of the attack.
        like: (B, C, H, W), of the device and sides of gradients.

    Returns:
        Itself, where it never changes; else what its ``following`` gives; None where there is none.

    >>> import torch
    >>> from whorl.estimators import RotationInvariant, identity
    >>> step, like = torch.tensor(0), torch.rand(1, 3, 8, 8)
    >>> turning = following(RotationInvariant(degrees=(9.0, 1.0)), step, 3, like)
    >>> _ = step.add_(2)
    >>> torch.equal(turning(like), RotationInvariant(degrees=1.0)(like)), following(identity, step, 3, like)
    (True, Identity())
    """
    if at_step(estimator, 0, 1) is estimator:
        return estimator
    own: Callable[[Tensor, int, Tensor], Estimator | None] | None = getattr(estimator, "following", None)
    return None if own is None else own(step, steps, like)


def as_estimator(value: Callable[[Tensor], Tensor]) -> Estimator:
    """Check that ``value`` can be an attack's estimator."""
    if not callable(value):
        raise WhorlError(f"an estimator must be callable on a gradient, like whorl.AffineInvariant(); got {value!r}.")
    return value
