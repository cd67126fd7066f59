"""Planes seen by a camera: any linear map of the image about its centre, tilted, seen in perspective, and shifted."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

VIEWING_DISTANCE = 2.0
"""From the camera to the image's centre, in sides of the image (the longer one): its field of view is 28°."""

# What lies so near the horizon of a tilted plane is more than a million sides away.
_HORIZON = 1e-6


def project(x: Tensor, matrix: Tensor, shift: Tensor, tilt: Tensor | None = None) -> Tensor:
    """Map images by a matrix about their centre, tilt them, and shift what the camera sees.

    What stands at p, (right, down) from the centre in pixels, comes to ``shift + view(matrix · p)``. ``view`` rotates
    the plane about its vertical axis by the first tilt, which moves the right edge away, then about the horizontal one
    by the second, which moves the bottom edge away, and divides by the distance: a camera straight before the centre,
    twice the longer side of the image away. Bilinear, zeros outside. Differentiable in the images and in every
    parameter; never waits for a device.

    Args:
        x: (B, C, H, W), any floating dtype.
        matrix: (B, 2, 2), float32 or float64, invertible.
        shift: (B, 2) pixels, (right, down).
        tilt: (B, 2) degrees, inside (-90, 90); None for a plane that faces the camera.

    Returns:
        (B, C, H, W), dtype of ``x``.

    >>> x = torch.zeros(1, 1, 5, 5); x[0, 0, 2, 3] = 1           # one pixel right of the centre
    >>> stretched = project(x, torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), torch.zeros(1, 2))
    >>> stretched[0, 0, 2].tolist()                               # comes to two pixels right of it
    [0.0, 0.0, 0.0, 0.5, 1.0]
    """
    right, down = centred_axes(x, matrix.dtype)
    right = right - shift[:, 0, None, None]
    down = down - shift[:, 1, None, None]
    seen = None
    if tilt is not None:
        right, down, seen = _plane(right, down, tilt, VIEWING_DISTANCE * max(x.shape[-2:]))
    a, b, c, d = (part[:, None, None] for part in matrix.flatten(1).unbind(1))
    # Not torch.linalg.inv, which makes the host wait for a GPU.
    determinant = a * d - b * c
    right, down = (d * right - b * down) / determinant, (a * down - c * right) / determinant
    return sampled(x, right, down, seen)


def composed(first: Tensor, then: Tensor) -> Tensor:
    """Matrices, (B, 2, 2), that do the one and then the other: ``then · first``."""
    # Not by ``@``, which autocast would round to half precision, and pixels with it.
    return (then[..., None] * first[:, None]).sum(2)


def centred_axes(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """How far right of and below the image's centre each pixel lies, (H, W) each, in pixels."""
    height, width = x.shape[-2:]
    down, right = torch.meshgrid(
        torch.arange(height, dtype=dtype, device=x.device) - (height - 1) / 2,
        torch.arange(width, dtype=dtype, device=x.device) - (width - 1) / 2,
        indexing="ij",
    )
    return right, down


def sampled(x: Tensor, right: Tensor, down: Tensor, seen: Tensor | None = None) -> Tensor:
    """Show at each pixel what the image has at a place given from its centre: bilinear, zeros outside.

    Args:
        x: (B, C, H, W).
        right: (B, H, W) pixels.
        down: the same.
        seen: (B, H, W) bool, false for pixels that show nothing; None if all show something.
    """
    height, width = x.shape[-2:]
    # grid_sample wants [-1, 1] from edge to edge, which unlike centre to centre also serves a side of one pixel.
    grid = torch.stack((right * (2 / width), down * (2 / height)), dim=-1)
    if seen is not None:
        grid = torch.where(seen[..., None], grid, torch.full_like(grid, 4.0))
    out = F.grid_sample(x.to(right.dtype), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return out.to(x.dtype)


def _plane(right: Tensor, down: Tensor, tilt: Tensor, distance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Where the camera's rays meet the tilted plane, and whether they do: the inverse of ``view``."""
    first, second = torch.deg2rad(tilt)[:, :, None, None].unbind(1)
    cos, sin, cos_2, sin_2 = first.cos(), first.sin(), second.cos(), second.sin()
    # view takes (p, q) to (cos p, cos_2 q - sin sin_2 p) / (1 + (sin cos_2 p + sin_2 q) / distance).
    across = right / cos
    along = (down + sin * sin_2 * across) / cos_2
    share = 1 - (sin * cos_2 * across + sin_2 * along) / distance
    seen = share > _HORIZON
    share = torch.where(seen, share, torch.ones_like(share))
    return across / share, along / share, seen
