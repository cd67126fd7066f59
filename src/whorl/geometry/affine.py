"""Rotate, scale and shift images about their centre."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whorl.errors import WhorlError, quoted
from whorl.geometry.projection import centred_axes, composed, project, sampled
from whorl.geometry.warp_gpu import warp_on_gpu
from whorl.records import checked


def affine(
    x: Tensor,
    angle: float | Tensor = 0.0,
    scale: float | Tensor = 1.0,
    shift: tuple[float, float] | Tensor = (0.0, 0.0),
    matrix: Sequence[Sequence[float]] | Tensor | None = None,
) -> Tensor:
    """Rotate and scale about the image's centre, then shift: the paper's ``M_t · M_q`` (Eq. 3).

    With a ``matrix``, that is applied first: what stands at p from the centre comes to
    ``scale · R(angle) · matrix · p + shift``, so that by itself it may be any affine map.

    Axes are (right, down), so a positive angle rotates the image clockwise on screen. Bilinear, zeros outside.
    Differentiable in the images and in every parameter given as a tensor.

    Args:
        x: (B, C, H, W), any floating dtype.
        angle: degrees; a number, or a (B,) tensor with one angle per image.
        scale: factor > 0, above 1 enlarges; a number or a (B,) tensor.
        shift: (right, down) in pixels; a pair, or a (B, 2) tensor.
        matrix: 2 x 2 numbers, or a (2, 2) or (B, 2, 2) tensor, for columns (right, down); invertible. None for none.

    Returns:
        (B, C, H, W), dtype of ``x``.

    Raises:
        WhorlError: a shape that does not fit the images, a scale that is not above 0, or a matrix without an inverse.

    >>> x = torch.zeros(1, 1, 5, 5); x[0, 0, 2, 3] = 1           # one pixel right of the centre
    >>> affine(x, angle=90).round()[0, 0].nonzero().tolist()      # rotates to one pixel below it
    [[3, 2]]
    >>> affine(x, matrix=[[0, 1], [1, 0]]).round()[0, 0].nonzero().tolist()      # mirrors at the diagonal
    [[3, 2]]
    """
    if not isinstance(x, Tensor):
        raise WhorlError(f"images must be a floating (B, C, H, W) tensor; got {type(x).__name__}.")
    if x.dim() != 4 or not x.is_floating_point() or x.is_sparse:
        came = f"{x.dtype} of shape {tuple(x.shape)}" + ", sparse" * x.is_sparse
        raise WhorlError(f"images must be a floating (B, C, H, W) tensor; got {came}.")
    # Half precision places a pixel of a 299-pixel image only to within 0.1 px, so coordinates are at least float32.
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    factor = _per_image(scale, x, dtype, "scale")
    degrees, moved = _per_image(angle, x, dtype, "angle"), _shifts(shift, x, dtype)
    # A tensor on a GPU is not looked at: that would make the host wait for it.
    if factor.device.type == "cpu":
        if not bool((factor > 0).all()):
            raise WhorlError(f"scale must be above 0; got {scale}.")
        if not all(bool(part.isfinite().all()) for part in (factor, degrees, moved)):
            raise WhorlError(f"angle, scale and shift must be finite; got {angle}, {scale} and {shift}.")
    if matrix is None:
        return warp(x, degrees, factor, moved)
    return project(x, composed(_matrices(matrix, x, dtype), rotation(degrees, factor)), moved)


def warp(x: Tensor, angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Do what :func:`affine` does, for parameters that are known to be good; never waits for a device.

    Args:
        x: (B, C, H, W).
        angle: (B,) degrees, float32 or float64.
        scale: (B,) factors > 0.
        shift: (B, 2) pixels, (right, down).

    Returns:
        (B, C, H, W), dtype of ``x``.
    """
    fast = warp_on_gpu(x, angle, scale, shift)
    if fast is not None:
        return fast.to(x.dtype)
    theta = torch.deg2rad(angle)
    right, down = centred_axes(x, angle.dtype)
    # The output pixel p' shows the input at R(-angle) (p' - shift) / scale.
    right = right - shift[:, 0, None, None]
    down = down - shift[:, 1, None, None]
    cos = (torch.cos(theta) / scale)[:, None, None]
    sin = (torch.sin(theta) / scale)[:, None, None]
    return sampled(x, cos * right + sin * down, cos * down - sin * right)


def rotation(angle: Tensor, scale: Tensor) -> Tensor:
    """The matrices ``scale · R(angle)`` of (B,) degrees, clockwise on screen, and (B,) factors: (B, 2, 2)."""
    cos, sin = torch.cos(torch.deg2rad(angle)) * scale, torch.sin(torch.deg2rad(angle)) * scale
    return torch.stack((cos, -sin, sin, cos), dim=1).reshape(-1, 2, 2)


def _per_image(value: float | Tensor, x: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    if isinstance(value, Tensor) and value.dim() > 0:
        if value.shape != x.shape[:1]:
            raise WhorlError(f"{name} must be a number or one per image, ({x.shape[0]},); got {tuple(value.shape)}.")
        return value.to(x.device, dtype)
    if isinstance(value, Tensor):
        return value.to(x.device, dtype).expand(x.shape[0])
    return torch.full(x.shape[:1], checked(name, value, float), dtype=dtype, device=x.device)


def _shifts(shift: tuple[float, float] | Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(shift, Tensor) and shift.dim() == 2:
        if shift.shape != (x.shape[0], 2):
            raise WhorlError(f"shift must be a pair or ({x.shape[0]}, 2); got {tuple(shift.shape)}.")
        return shift.to(x.device, dtype)
    if not isinstance(shift, tuple | list | Tensor) or len(shift) != 2:
        raise WhorlError(f"shift must be a pair (right, down) in pixels; got {quoted(shift)}.")
    right, down = (_per_image(part, x, dtype, "shift") for part in shift)
    return torch.stack((right, down), dim=1)


def _matrices(matrix: Sequence[Sequence[float]] | Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    given = matrix if isinstance(matrix, Tensor) else torch.tensor(matrix, dtype=dtype)
    if given.shape not in ((2, 2), (x.shape[0], 2, 2)):
        raise WhorlError(f"matrix must be 2 x 2 numbers or ({x.shape[0]}, 2, 2); got {tuple(given.shape)}.")
    given = given.to(x.device, dtype)
    # As with the scale: what is on a GPU is not looked at.
    if given.device.type == "cpu" and not bool((torch.linalg.det(given.detach()).abs() > 0).all()):
        raise WhorlError(f"matrix must have an inverse; got {given.tolist()}.")
    return given.expand(x.shape[0], 2, 2)
