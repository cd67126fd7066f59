"""A mild smooth random warp: the image as if printed on rubber."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError
from whorl.randomness import uniform
from whorl.records import Record


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
