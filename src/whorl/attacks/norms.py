"""The two balls an attack may live in: L∞ and L2. Everything is per image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whorl.errors import Fault, quoted, unknown_name
from whorl.randomness import normal, substream, uniform
from whorl.records import Record

NormName = Literal["linf", "l2"]


@dataclass(frozen=True)
class Norm:
    """Geometry of one norm. ``eps`` is (B, 1, 1, 1) throughout."""

    name: NormName
    steepest: Callable[[Tensor], Tensor]
    """(B, C, H, W) gradient to the step of norm 1 that climbs fastest."""
    ball: Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
    """(images, eps) to a function that brings any image back into the ball around its image, and into [0, 1]."""
    random: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(like, keys, eps) to a perturbation drawn uniformly from the ball."""
    size: Callable[[Tensor], Tensor]
    """(B, C, H, W) perturbation to its (B,) norm."""


def find_norm(name: str) -> Norm:
    """Look a norm up by name."""
    if name not in NORMS:
        raise unknown_name("norm", name, NORMS, hint="A norm is 'linf' or 'l2'.")
    return NORMS[name]


def per_image(reduce: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
    """Reduce each image of a batch, to the same number whether it is alone in it or not.

    Args:
        reduce: (B, C, H, W) to B rows of anything.
        v: (B, C, H, W).

    >>> per_image(lambda v: v.sum(dim=(1, 2, 3)), torch.ones(1, 3, 2, 2))
    tensor([12.])
    """
    if len(v) == 1 and v.device.type == "cpu":
        # Over a single image torch splits a sum among threads, and so rounds differently than over several.
        return reduce(torch.cat((v, v)))[:1]
    return reduce(v)


def radius_faults(eps: object, norm: object) -> list[Fault]:
    """What is wrong with a ball that holds every image: in L∞, a radius above 1, or one of several.

    >>> print(*radius_faults(16, "linf"))
    eps: expected a number in [0, 1], the range of a pixel (did you mean 16/255?), got 16
    """
    given = eps if isinstance(eps, tuple | list) else (eps,)
    largest = max((one for one in given if isinstance(one, int | float)), default=0)
    if norm == "linf" and largest > 1:
        meant = f"{largest:g}/255" if largest <= 255 else "16/255"
        expected = f"a number in [0, 1], the range of a pixel (did you mean {meant}?)"
        return [Fault(("eps",), expected, quoted(eps))]
    return []


class InBall(Record):
    """Mixin for settings of which ``eps`` and ``norm`` make a ball that must hold every image."""

    eps: Any
    norm: Any

    def _faults_between(self, wrong: Sequence[str | int]) -> list[Fault]:
        return [] if {"eps", "norm"} & set(wrong) else radius_faults(self.eps, self.norm)


def l2_size(v: Tensor) -> Tensor:
    """Euclidean length of each image: (B, C, H, W) to (B,)."""
    return per_image(lambda one: torch.linalg.vector_norm(one.flatten(1), dim=1), v)


def mean_size(g: Tensor) -> Tensor:
    """Mean absolute value of each image's gradient, (B, 1, 1, 1), never zero."""
    total = per_image(lambda one: torch.linalg.vector_norm(one, ord=1, dim=(1, 2, 3), keepdim=True), g)
    return (total / g[0].numel()).clamp_min(torch.finfo(g.dtype).tiny)


def column(values: Tensor) -> Tensor:
    """Per-image numbers, (..., B), shaped to multiply images: (..., B, 1, 1, 1)."""
    return values[..., None, None, None]


def unit(v: Tensor) -> Tensor:
    """Each image of (B, C, H, W) scaled to Euclidean length 1; zero stays zero."""
    # A subnormal length would overflow when divided by: treat it as zero.
    return v / column(l2_size(v).clamp_min(torch.finfo(v.dtype).tiny))


def _ball_l2(x: Tensor, eps: Tensor) -> Callable[[Tensor], Tensor]:
    def project(z: Tensor) -> Tensor:
        delta = z - x
        length = column(l2_size(delta)).clamp_min(torch.finfo(x.dtype).tiny)
        # Clipping after shrinking moves every pixel towards the image's own, so it cannot leave the ball again.
        return (x + delta * (eps / length).clamp(max=1)).clamp(0, 1)

    return project


def _ball_linf(x: Tensor, eps: Tensor) -> Callable[[Tensor], Tensor]:
    low, high = (x - eps).clamp_min(0), (x + eps).clamp_max(1)
    return lambda z: torch.clamp(z, low, high)


def _random_l2(like: Tensor, keys: Tensor, eps: Tensor) -> Tensor:
    direction = unit(normal(substream(keys, 0), like.shape[1:]).to(like.dtype))
    radius = uniform(substream(keys, 1)).to(like.dtype) ** (1 / math.prod(like.shape[1:]))
    return direction * column(radius) * eps


NORMS: dict[str, Norm] = {
    "linf": Norm(
        name="linf",
        steepest=torch.sign,
        ball=_ball_linf,
        random=lambda like, keys, eps: uniform(keys, like.shape[1:], -1, 1).to(like.dtype) * eps,
        size=lambda v: v.flatten(1).abs().amax(dim=1),
    ),
    "l2": Norm(name="l2", steepest=unit, ball=_ball_l2, random=_random_l2, size=l2_size),
}
