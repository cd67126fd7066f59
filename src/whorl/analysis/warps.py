"""Warps of gradients: the inverse of a transform, and what the estimator takes for it.

A transform F moves the point p to s·R(θ)·p + t, so F⁻¹(g) shows at p what g has there: F⁻¹(g)(p) = g(s·R(θ)·p + t).
The estimator moves along the radius instead of scaling: g((|p| + ρ)·R(θ)·p/|p| + t). Points are (right, down) from the
centre.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.analysis.laws import Transforms


def pull_back(g: Tensor, transforms: Transforms) -> Tensor:
    """Apply F⁻¹, bilinear, zeros outside.

    Args:
        g: (B, C, H, W).
        transforms: one for each of the B.

    Returns:
        (B, C, H, W).

    >>> g = torch.zeros(1, 1, 5, 5); g[0, 0, 2, 3] = 1
    >>> one = Transforms(torch.tensor([90.0]), torch.tensor([1.0]), torch.zeros(1, 2))
    >>> pull_back(g, one).round()[0, 0].nonzero().tolist()    # the quarter turn came from above the centre
    [[1, 2]]
    """
    right, down = _centred(g)
    scale = transforms.scale.to(right).view(-1, 1, 1)
    return _sample(g, *_turned(scale * right, scale * down, transforms.angle), transforms.shift)


def pull_back_along_radius(g: Tensor, angle: Tensor, radius: Tensor, shift: Tensor) -> Tensor:
    """Apply what the estimator takes for F⁻¹: every point moves by the same distance along its radius.

    Args:
        g: (B, C, H, W).
        angle: (B,) degrees.
        radius: (B,) pixels outwards. What would come from beyond the centre is 0, as beyond a polar grid's first row.
        shift: (B, 2) pixels, (right, down).

    Returns:
        (B, C, H, W).
    """
    right, down = _centred(g)
    distance = torch.hypot(right, down)
    moved = distance + radius.to(right).view(-1, 1, 1)
    # The centre has no direction of its own; the polar grid reads it at angle 0.
    ratio = moved / distance.clamp_min(1e-12)
    across = torch.where(distance > 0, ratio * right, moved)
    out = _sample(g, *_turned(across, ratio * down, angle), shift)
    return out * (moved >= 0)[:, None].to(out.dtype)


def _centred(g: Tensor) -> tuple[Tensor, Tensor]:
    height, width = g.shape[-2:]
    dtype = torch.promote_types(g.dtype, torch.float32)
    down, right = torch.meshgrid(
        torch.arange(height, dtype=dtype, device=g.device) - (height - 1) / 2,
        torch.arange(width, dtype=dtype, device=g.device) - (width - 1) / 2,
        indexing="ij",
    )
    return right, down


def _turned(right: Tensor, down: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    theta = torch.deg2rad(angle).to(right).view(-1, 1, 1)
    cos, sin = theta.cos(), theta.sin()
    return cos * right - sin * down, sin * right + cos * down


def _sample(g: Tensor, right: Tensor, down: Tensor, shift: Tensor) -> Tensor:
    height, width = g.shape[-2:]
    moved = shift.to(right)
    across = (right + moved[:, 0].view(-1, 1, 1)) * (2 / width)
    along = (down + moved[:, 1].view(-1, 1, 1)) * (2 / height)
    grid = torch.stack((across, along), dim=-1)
    return F.grid_sample(g, grid.to(g.dtype), mode="bilinear", padding_mode="zeros", align_corners=False)
