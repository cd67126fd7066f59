"""What images look like to a network: mirrored, in an affine pose, dimmed; all of it in one pass where a GPU can."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from whorl.geometry.affine import warp
from whorl.geometry.warp_gpu import warp_on_gpu


class AffinePose(NamedTuple):
    """Where each image of a batch stands, as :func:`whorl.geometry.affine.warp` takes it."""

    angle: Tensor
    """(B,) degrees."""
    scale: Tensor
    """(B,) factors > 0."""
    shift: Tensor
    """(B, 2) pixels, (right, down)."""


class View(NamedTuple):
    """How each image of a batch is seen, in this order; None where nothing is done."""

    mirrored: Tensor | None = None
    """(B,) bool: whether left and right are swapped."""
    pose: AffinePose | None = None
    gain: Tensor | None = None
    """(B,) factors."""

    def then(self, other: View) -> View | None:
        """This view, and another of what it shows, as one; None if they are none, for it keeps to its order.

        >>> mirror, dim = View(mirrored=torch.ones(1, dtype=torch.bool)), View(gain=torch.ones(1))
        >>> mirror.then(dim) == View(mirror.mirrored, None, dim.gain), dim.then(mirror)
        (True, None)
        """
        mine = [place for place, part in enumerate(self) if part is not None]
        its = [place for place, part in enumerate(other) if part is not None]
        if mine and its and max(mine) >= min(its):
            return None
        return View(
            other.mirrored if self.mirrored is None else self.mirrored,
            other.pose if self.pose is None else self.pose,
            other.gain if self.gain is None else self.gain,
        )


def shown(x: Tensor, view: View) -> Tensor:
    """Show (B, C, H, W) images of any floating dtype; differentiable in them, and never waits for a device.

    >>> x = torch.tensor([[[[1.0, 2.0]]]])
    >>> shown(x, View(mirrored=torch.tensor([True]), gain=torch.tensor([0.5]))).tolist()
    [[[[1.0, 0.5]]]]
    """
    if view.pose is not None:
        fast = warp_on_gpu(x, *view.pose, mirrored=view.mirrored, gain=view.gain)
        if fast is not None:
            return fast
    if view.mirrored is not None:
        x = torch.where(_column(view.mirrored), x.flip(-1), x)
    if view.pose is not None:
        x = warp(x, *view.pose)
    return x if view.gain is None else x * _column(view.gain).to(x.dtype)


def _column(values: Tensor) -> Tensor:
    return values[:, None, None, None]
