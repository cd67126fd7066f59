"""Small estimators that change a gradient's values, not its place: fewer outliers, more agreement of the colours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from whorl.estimators.invariant import ESTIMATORS
from whorl.records import Part, Record, Share


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class CompressedGradient(Record):
    """Raise every value's size to a power, sign kept, so that few large ones do not outvote the rest.

    Attributes:
        power: in (0, 1]; 1 leaves the gradient, towards 0 it becomes its sign.

    >>> import torch
    >>> CompressedGradient(power=0.5)(torch.tensor([[[[-4.0, 9.0]]]])).tolist()
    [[[[-2.0, 3.0]]]]
    """

    power: Part = 0.5

    def __call__(self, gradient: Tensor) -> Tensor:
        """Compress (B, C, H, W)."""
        return gradient.sign() * gradient.abs() ** self.power


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class SharedChannels(Record):
    """Replace part of each colour's gradient by the mean over the colours.

    Attributes:
        share: in [0, 1]; 1 makes all colours alike.

    >>> import torch
    >>> SharedChannels(share=0.5)(torch.tensor([[[[2.0]], [[4.0]]]])).flatten().tolist()
    [2.5, 3.5]
    """

    share: Share = 0.5

    def __call__(self, gradient: Tensor) -> Tensor:
        """Mix (B, C, H, W)."""
        return gradient + self.share * (gradient.mean(dim=1, keepdim=True) - gradient)
