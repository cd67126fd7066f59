"""Random resized crops and flips, on the device and keyed by image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.randomness import uniform


def random_crops(
    x: Tensor,
    keys: Tensor,
    size: tuple[int, int],
    *,
    area: tuple[float, float] = (0.35, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Cut a random rectangle out of each image, resize it, and mirror every other one.

    One bilinear warp an image. The rectangle always lies inside.

    Args:
        x: (B, C, H, W) floating.
        keys: (B,) int64, one an image (:mod:`whorl.randomness`).
        size: (height, width) of the crops, in pixels.
        area: lowest and highest share of the image that is kept.
        ratio: lowest and highest width divided by height; drawn evenly in its logarithm.

    Returns:
        (B, C, height, width), dtype of ``x``.

    >>> random_crops(torch.rand(2, 3, 20, 20), torch.tensor([1, 2]), (8, 8)).shape
    torch.Size([2, 3, 8, 8])
    """
    draws = uniform(keys, (5,)).to(torch.promote_types(x.dtype, torch.float32))
    share = area[0] + (area[1] - area[0]) * draws[:, 0]
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * draws[:, 1])
    # Sides as shares of the image's own; one that would be longer than the image is cut to it.
    width = (share * aspect).sqrt().clamp(max=1)
    height = (share / aspect).sqrt().clamp(max=1)
    across = (1 - width) * (2 * draws[:, 2] - 1)
    along = (1 - height) * (2 * draws[:, 3] - 1)
    mirror = torch.where(draws[:, 4] < 0.5, -1.0, 1.0).to(draws.dtype)
    zero = torch.zeros_like(width)
    rows = torch.stack((mirror * width, zero, across, zero, height, along), dim=1).view(-1, 2, 3)
    grid = F.affine_grid(rows, [len(x), x.shape[1], *size], align_corners=False)
    # The border pixel continues outwards: a sample between the last pixel's centre and the edge is no black seam.
    out = F.grid_sample(x.to(rows.dtype), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return out.to(x.dtype)
