"""What all defences ask of their input and settings, and the gradient that some of them borrow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whorl.errors import WhorlError


def require_images(x: Tensor) -> None:
    """Refuse what is not a floating (B, 3, H, W) tensor. Looks at no values, so it never waits for the device."""
    if x.ndim != 4 or x.shape[1] != 3 or not x.is_floating_point():
        raise WhorlError(f"expected floating images of shape (B, 3, H, W), got {x.dtype} of shape {tuple(x.shape)}.")


def require_whole(name: str, value: object, low: int | None = None, high: int | None = None) -> None:
    """Refuse a setting that is not a whole number from ``low`` to ``high``."""
    if isinstance(value, int) and not isinstance(value, bool):
        above = low is None or value >= low
        below = high is None or value <= high
        if above and below:
            return
    span = (f" from {low}" if low is not None else "") + (f" to {high}" if high is not None else "")
    raise WhorlError(f"{name} must be a whole number{span}; got {value!r}.")


def require_number(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Refuse a setting that is not a finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WhorlError(f"{name} must be a finite number; got {value!r}.")
    if not low <= value <= high:
        span = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise WhorlError(f"{name} must be {span}; got {value!r}.")


def at_least_single(x: Tensor) -> Tensor:
    """Return half-precision images in float32, whose 8-bit levels and squared distances are exact enough."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def straight_through(value: Tensor, x: Tensor) -> Tensor:
    """Return ``value`` exactly, with the gradient of ``x``.

    >>> x = torch.tensor([0.2, 0.7], requires_grad=True)
    >>> straight_through(x.round(), x)
    tensor([0., 1.], grad_fn=<AddBackward0>)
    """
    # Not x + (value - x): its rounding errors would change the value.
    return value.detach() + (x - x.detach())
