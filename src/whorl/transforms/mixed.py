"""Input transforms made of others, and the small ones that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from whorl.geometry.views import View, shown
from whorl.randomness import substream, uniform
from whorl.records import InOrder, Part, Record, Share
from whorl.transforms.inputs import TRANSFORMS, InputTransform
from whorl.transforms.spread import planned, taken


class InputChain(InOrder[InputTransform]):
    """Apply several input transforms, the first one first, each with random numbers of its own.

    >>> import torch
    >>> from whorl.transforms import DiverseInput, RandomAffine
    >>> InputChain(DiverseInput(), RandomAffine())(torch.rand(2, 3, 16, 16), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 16, 16])
    """

    @property
    def pure(self) -> bool:
        """Whether all parts are functions of tensors alone."""
        return self.all_are("pure")

    @property
    def short(self) -> bool:
        """Whether bfloat16 images are precise enough for all parts."""
        return self.all_are("short")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        seen = View()  # what is still to be shown
        for place, part in enumerate(self.parts):
            own = substream(keys, place)
            view: Callable[[Tensor, Tensor], View | None] | None = getattr(part, "view", None)
            its = None if view is None else view(x, own)
            both = None if its is None else seen.then(its)
            if both is None:
                x, both = shown(x, seen), its
            if both is None:
                x, both = part(x, own), View()
            seen = both
        return shown(x, seen)

    def plan(self, table: Tensor) -> InputTransform:
        """Plan the draws of those parts that plan; ``table`` is (draws, B) int64, the keys of all draws to come."""
        return InputChain(*(planned(part, substream(table, place)) for place, part in enumerate(self.parts)))

    def take(self, other: InputChain) -> None:
        """Take over the plan of another chain of the same parts, for a CUDA graph that reads this one's tensors."""
        for mine, its in zip(self.parts, other.parts, strict=True):
            taken(mine, its)


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Gain(Record):
    """Darken each image by a random factor, as scale-invariant attacks (Lin et al., 2020) do by powers of two.

    Attributes:
        lowest: factor, drawn from [lowest, 1].
    """

    pure: ClassVar[bool] = True
    short: ClassVar[bool] = True
    lowest: Part = 0.5

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return shown(x, self.view(x, keys))

    def view(self, x: Tensor, keys: Tensor) -> View:  # noqa: ARG002 - other transforms' views depend on the images' size
        """What ``keys`` draw, so that several transforms can be computed as one."""
        return View(gain=uniform(keys, (), self.lowest, 1))


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Mirror(Record):
    """Mirror images at random: left and right change places.

    Attributes:
        probability: share of draws that are mirrored.
    """

    pure: ClassVar[bool] = True
    short: ClassVar[bool] = True
    probability: Share = 0.5

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return shown(x, self.view(x, keys))

    def view(self, x: Tensor, keys: Tensor) -> View:  # noqa: ARG002 - as of Gain
        """What ``keys`` draw, so that several transforms can be computed as one."""
        return View(mirrored=uniform(keys) < self.probability)
