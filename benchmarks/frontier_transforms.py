"""Input transforms that were tried for ``ai-best`` and did not pay: several poses, or a disturbed image, a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError
from whorl.randomness import normal, substream, uniform
from whorl.records import Record
from whorl.transforms import InputTransform, plain
from whorl.transforms.spread import planned


@dataclass(frozen=True, kw_only=True, repr=False)
class Blend(Record):
    """The mean of several draws of one transform: one gradient for several poses.

    Attributes:
        part: the transform.
        count: draws in one image.
    """

    part: InputTransform
    count: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise WhorlError(f"count must be a whole number from 1; got {self.count!r}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return torch.stack([self.part(x, substream(keys, i)) for i in range(self.count)]).mean(0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Sometimes(Record):
    """Use one transform with some probability, another one otherwise; drawn for each image.

    Attributes:
        part: with ``probability``.
        otherwise: in the other cases.
        probability: in [0, 1].
    """

    part: InputTransform
    otherwise: InputTransform = plain
    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise WhorlError(f"probability must lie in [0, 1]; got {self.probability}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        chosen = uniform(substream(keys, 0)) < self.probability
        return torch.where(_column(chosen), self.part(x, substream(keys, 1)), self.otherwise(x, substream(keys, 2)))

    def plan(self, table: Tensor) -> InputTransform:
        """Plan those parts that want it; ``table`` is (draws, B) keys."""
        part, otherwise = planned(self.part, substream(table, 1)), planned(self.otherwise, substream(table, 2))
        return self.with_(part=part, otherwise=otherwise)


@dataclass(frozen=True, kw_only=True, repr=False)
class Mosaic(Record):
    """The image several times side by side, each time in a pose of its own: one gradient for tiles² poses.

    Attributes:
        tiles: along a side.
        angle: degrees, drawn from [-angle, angle] for each tile.
        scale: (lowest, highest) size of the image in a tile; at 1 it fits, so that it is 1/tiles of its own size.
        shift: share of the tile, drawn from [-shift, shift] for each axis.

    >>> Mosaic()(torch.rand(2, 3, 32, 48), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 48])
    """

    tiles: int = 2
    angle: float = 30.0
    scale: tuple[float, float] = (1.0, 2.0)
    shift: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.tiles, int) or self.tiles < 1:
            raise WhorlError(f"tiles must be a whole number from 1; got {self.tiles!r}.")
        low, high = self.scale
        if not 0 < low <= high:
            raise WhorlError(f"scale must be (lowest, highest) with 0 < lowest <= highest; got {self.scale}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        height, width = x.shape[-2:]
        dtype = torch.promote_types(x.dtype, torch.float32)
        signed = uniform(keys, (4, self.tiles, self.tiles), -1, 1).to(dtype)
        row, down = _tile(height, self.tiles, x.device, dtype)
        column, right = _tile(width, self.tiles, x.device, dtype)
        angle, size, across, along = signed[:, :, row[:, None], column[None, :]].unbind(1)  # each (B, H, W)
        theta = torch.deg2rad(angle * self.angle)
        low, high = self.scale
        size = (low + high) / 2 + size * ((high - low) / 2)
        # Positions within a tile run from -1 to 1; those of images that are not square turn in pixels.
        right, down = (right - 2 * self.shift * across) * width, (down[:, None] - 2 * self.shift * along) * height
        cos, sin = torch.cos(theta) / size, torch.sin(theta) / size
        grid = torch.stack(((cos * right + sin * down) / width, (cos * down - sin * right) / height), dim=-1)
        out = F.grid_sample(x.to(dtype), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return out.to(x.dtype)


@dataclass(frozen=True, kw_only=True, repr=False)
class BlockShuffle(Record):
    """Cut the image at random into blocks × blocks pieces, and swap rows of pieces and columns of pieces.

    Attributes:
        blocks: along a side.
    """

    blocks: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, int) or self.blocks < 1:
            raise WhorlError(f"blocks must be a whole number from 1; got {self.blocks!r}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        rows = self._order(x.shape[-2], substream(keys, 0))
        columns = self._order(x.shape[-1], substream(keys, 1))
        x = x.gather(2, rows[:, None, :, None].expand(x.shape))
        return x.gather(3, columns[:, None, None, :].expand(x.shape))

    def _order(self, side: int, keys: Tensor) -> Tensor:
        """(B, side) permutations that keep pieces whole."""
        cuts = (uniform(substream(keys, 0), (self.blocks - 1,)) * side).floor().sort(dim=-1).values
        place = torch.arange(side, device=keys.device)
        piece = (place >= cuts[:, :, None]).sum(1)  # (B, side): which piece a position belongs to
        rank = uniform(substream(keys, 1), (self.blocks,)).argsort(-1).gather(1, piece)
        return (rank * side + place).argsort(-1)


@dataclass(frozen=True, kw_only=True, repr=False)
class SelfMix(Record):
    """Add some of the image itself, mirrored and rolled by a random amount, as Admix adds some of other images.

    What is added carries no gradient. Unlike Admix, nothing depends on the batch.

    Attributes:
        strength: of what is added.
    """

    strength: float = 0.2

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        height, width = x.shape[-2:]
        draws = uniform(keys, (2,))
        rows = (torch.arange(height, device=x.device) + (draws[:, :1] * height).floor().long()) % height
        columns = (torch.arange(width, device=x.device) + (draws[:, 1:] * width).floor().long()) % width
        other = x.detach().flip(-1).gather(2, rows[:, None, :, None].expand(x.shape))
        return x + self.strength * other.gather(3, columns[:, None, None, :].expand(x.shape))


@dataclass(frozen=True, kw_only=True, repr=False)
class SpectrumNoise(Record):
    """Disturb an image and the strength of each of its frequencies (spectrum simulation, Long et al., 2022).

    Attributes:
        noise: standard deviation of the noise on the image, in units of the [0, 1] range.
        spread: every cosine coefficient is multiplied by a factor from [1 - spread, 1 + spread].
    """

    noise: float = 16 / 255
    spread: float = 0.5

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        height, width = x.shape[-2:]
        rows, columns = _cosines(height, x.device, x.dtype), _cosines(width, x.device, x.dtype)
        shape = tuple(x.shape[1:])
        noisy = x + self.noise * normal(substream(keys, 0), shape).to(x.dtype)
        factor = uniform(substream(keys, 1), shape, 1 - self.spread, 1 + self.spread).to(x.dtype)
        return rows.mT @ ((rows @ noisy @ columns.mT) * factor) @ columns


@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothWarp(Record):
    """Move every pixel a little, neighbours alike: random shifts on a coarse grid, interpolated in between.

    Attributes:
        reach: longest shift along an axis, a share of the image's side; grid points draw from [-reach, reach].
        points: grid points along a side, at least 4; few give long waves.

    >>> SmoothWarp()(torch.rand(2, 3, 32, 48), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 48])
    """

    reach: float = 0.03
    points: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.reach < 0.5:
            raise WhorlError(f"reach must lie in [0, 0.5), a share of the side; got {self.reach}.")
        if not isinstance(self.points, int) or self.points < 4:
            raise WhorlError(f"points must be a whole number from 4; got {self.points!r}.")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images; zeros outside the image."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        coarse = uniform(keys, (2, self.points, self.points), -1, 1).to(dtype)
        shift = F.interpolate(coarse, x.shape[-2:], mode="bicubic", align_corners=True).clamp(-1, 1) * (2 * self.reach)
        grid = _identity(x.shape[-2], x.shape[-1], x.device, dtype) + shift.permute(0, 2, 3, 1)
        out = F.grid_sample(x.to(dtype), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return out.to(x.dtype)


def _identity(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(H, W, 2) positions of the pixels in [-1, 1] from edge to edge, (right, down), as grid_sample wants them."""
    down = (2 * torch.arange(height, device=device, dtype=dtype) + 1) / height - 1
    right = (2 * torch.arange(width, device=device, dtype=dtype) + 1) / width - 1
    return torch.stack((right.expand(height, width), down[:, None].expand(height, width)), dim=-1)


def _tile(side: int, tiles: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Which tile each position belongs to, and where in it, from -1 to 1: two (side,) tensors."""
    place = (torch.arange(side, device=device, dtype=dtype) + 0.5) * (tiles / side)
    tile = place.floor().clamp(max=tiles - 1)
    return tile.long(), 2 * (place - tile) - 1


@lru_cache(maxsize=16)
def _cosines(side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(side, side) orthonormal cosine transform."""
    with torch.inference_mode(False):
        place = torch.arange(side, dtype=torch.float64)
        waves = torch.cos(math.pi / side * (place + 0.5) * place[:, None]) * math.sqrt(2 / side)
        waves[0] /= math.sqrt(2)
        return waves.to(device, dtype)


def _column(values: Tensor) -> Tensor:
    return values[:, None, None, None]
