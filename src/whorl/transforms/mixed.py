"""Input transforms made of others, and the small ones that they are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.randomness import substream, uniform
from whorl.records import Part, Record, Share
from whorl.transforms.inputs import TRANSFORMS, InputTransform
from whorl.transforms.spread import Planned


@dataclass(frozen=True, init=False)
class InputChain:
    """Apply several input transforms, the first one first, each with random numbers of its own.

    >>> from whorl.transforms import DiverseInput, RandomAffine
    >>> InputChain(DiverseInput(), RandomAffine())(torch.rand(2, 3, 16, 16), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 16, 16])
    """

    parts: tuple[InputTransform, ...]

    def __init__(self, *parts: InputTransform) -> None:
        object.__setattr__(self, "parts", parts)

    def __repr__(self) -> str:
        return f"InputChain({', '.join(map(repr, self.parts))})"

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        for place, part in enumerate(self.parts):
            x = part(x, substream(keys, place))
        return x

    def plan(self, table: Tensor) -> InputTransform:
        """Plan those parts that want it; ``table`` is (draws, B) keys."""
        return InputChain(*(planned(part, substream(table, place)) for place, part in enumerate(self.parts)))


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Gain(Record):
    """Darken each image by a random factor, as scale-invariant attacks (Lin et al., 2020) do by powers of two.

    Attributes:
        lowest: factor, drawn from [lowest, 1].
    """

    lowest: Part = 0.5

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return x * _column(uniform(keys, (), self.lowest, 1)).to(x.dtype)


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Mirror(Record):
    """Swap left and right.

    Attributes:
        probability: share of draws that are mirrored.
    """

    probability: Share = 0.5

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return torch.where(_column(uniform(keys) < self.probability), x.flip(-1), x)


def planned(part: InputTransform, table: Tensor) -> InputTransform:
    """A transform for the keys of ``table``, (draws, B): its own plan where it plans, else itself."""
    return part.plan(table) if isinstance(part, Planned) else part


def _column(values: Tensor) -> Tensor:
    return values[:, None, None, None]
