"""Random input transforms used inside attacks: what the network sees instead of the picture itself.

A transform is callable on (images, keys): ``keys`` is one int64 per image (:mod:`whorl.randomness`), and every draw
depends on nothing else. All keep the spatial shape, so that a compiled loop compiles once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.geometry.affine import affine
from whorl.randomness import uniform
from whorl.records import Record

# The paper gives pixel offsets for its 299-pixel pictures; they scale with the picture.
REFERENCE_SIDE = 299


@runtime_checkable
class InputTransform(Protocol):
    """Anything that maps (B, C, H, W) images and their (B,) keys to images of the same shape, differentiably."""

    def __call__(self, x: Tensor, keys: Tensor, /) -> Tensor:
        """Transform."""
        ...


@dataclass(frozen=True, repr=False)
class Plain(Record):
    """Shows the picture as it is."""

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - draws nothing
        """Return ``x``."""
        return x


plain = Plain()


@dataclass(frozen=True, kw_only=True, repr=False)
class DiverseInput(Record):
    """Diverse inputs (Xie et al., 2019): enlarge a little, place at random on a larger canvas, view it at the old size.

    The three nearest-neighbour steps (enlarge by 1 to ``largest``, zero-pad to ``largest``, shrink back) are one
    gather, so the spatial shape never changes.

    Attributes:
        probability: share of draws that are transformed at all.
        largest: side of the canvas, as a multiple of the picture's.

    >>> DiverseInput()(torch.rand(2, 3, 32, 32), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 32])
    """

    probability: float = 0.7
    largest: float = 1.1

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise WhorlError(f"probability must lie in [0, 1]; got {self.probability}.")
        if not 1 <= self.largest < 2:
            raise WhorlError(f"largest must lie in [1, 2); got {self.largest}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        draws = uniform(keys, (4,))
        use = draws[:, 0] < self.probability
        rows, inside_rows = self._source(x.shape[-2], use, draws[:, 1], draws[:, 2])
        columns, inside_columns = self._source(x.shape[-1], use, draws[:, 1], draws[:, 3])
        batch, channels, height, width = x.shape
        x = x.gather(2, rows[:, None, :, None].expand(batch, channels, height, width))
        x = x.gather(3, columns[:, None, None, :].expand(batch, channels, height, width))
        return x * (inside_rows[:, None, :, None] & inside_columns[:, None, None, :])

    def _source(self, side: int, use: Tensor, enlarge: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """For each image, which of ``side`` source positions each output position shows, and whether it shows any."""
        canvas = int(side * self.largest)
        position = torch.arange(side, device=use.device)
        resized = (side + enlarge * (canvas - side + 1)).floor().clamp(max=canvas)
        offset = (place * (canvas - resized + 1)).floor()
        # Nearest as torch means it: floor(position * from / to).
        on_canvas = (position * canvas).div(side, rounding_mode="floor")
        on_resized = on_canvas[None, :] - offset[:, None].long()
        inside = (on_resized >= 0) & (on_resized < resized[:, None])
        source = (on_resized * side).div(resized[:, None].long(), rounding_mode="floor").clamp(0, side - 1)
        keep = ~use[:, None]
        return torch.where(keep, position, source), inside | keep


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomAffine(Record):
    """A random rotation, scaling and shift of each picture, uniform over the stated ranges (Athalye et al., 2018).

    Attributes:
        angle: degrees, drawn from [-angle, angle].
        scale: (lowest, highest) factor.
        shift: pixels of a 299-pixel picture, drawn from [-shift, shift] for each axis; scales with the picture.

    >>> RandomAffine()(torch.rand(2, 3, 32, 32), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 32])
    """

    angle: float = 30.0
    scale: tuple[float, float] = (0.5, 1.5)
    shift: float = 20.0

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high:
            raise WhorlError(f"scale must be (lowest, highest) with 0 < lowest <= highest; got {self.scale}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        draws = uniform(keys, (4,))
        low, high = self.scale
        height, width = x.shape[-2:]
        reach = self.shift / REFERENCE_SIDE
        move = draws[:, 2:] * 2 - 1
        return affine(
            x,
            angle=(draws[:, 0] * 2 - 1) * self.angle,
            scale=low + draws[:, 1] * (high - low),
            shift=torch.stack((move[:, 0] * (reach * width), move[:, 1] * (reach * height)), dim=1),
        )
