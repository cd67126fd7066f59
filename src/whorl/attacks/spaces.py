"""What an attack moves: the pixels themselves, or a point in tanh space whose image they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from whorl.records import Record

Project = Callable[[Tensor], Tensor]

# tanh never reaches ±1, so the image is drawn in by this much before it goes to tanh space.
INSIDE = 1 - 1e-6


@runtime_checkable
class Space(Protocol):
    """A way to write images as points that an attack may move freely."""

    def enter(self, images: Tensor) -> Tensor:
        """The points of images in [0, 1]."""
        ...

    def shown(self, points: Tensor, project: Project) -> Tensor:
        """The images that the target is shown for points; in [0, 1]."""
        ...

    def settled(self, points: Tensor, project: Project) -> Tensor:
        """Points as the next step finds them; what is shown for them lies in the ball."""
        ...


@dataclass(frozen=True, repr=False)
class Pixels(Record):
    """Points are images. A step is projected; a probe beside it may leave the ball by a hair, but not [0, 1]."""

    def enter(self, images: Tensor) -> Tensor:
        """Return ``images``."""
        return images

    def shown(self, points: Tensor, project: Project) -> Tensor:  # noqa: ARG002 - the space's signature
        """Cut to [0, 1]."""
        return points.clamp(0, 1)

    def settled(self, points: Tensor, project: Project) -> Tensor:
        """Project."""
        return project(points)


pixels = Pixels()


def untanh(tanh: Tensor) -> Tensor:
    """The image of a point in tanh space, from the point's tanh."""
    return (tanh / INSIDE + 1) / 2


@dataclass(frozen=True, repr=False)
class Tanh(Record):
    """Points are unbounded; tanh makes images of them, and whatever is shown is projected (Li et al., 2019)."""

    def enter(self, images: Tensor) -> Tensor:
        """Invert tanh."""
        return torch.atanh((2 * images - 1) * INSIDE)

    def shown(self, points: Tensor, project: Project) -> Tensor:
        """Map to pixels and project."""
        return project(untanh(torch.tanh(points)))

    def settled(self, points: Tensor, project: Project) -> Tensor:  # noqa: ARG002 - the space's signature
        """Return ``points``: they have no bound of their own."""
        return points
