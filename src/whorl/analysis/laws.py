"""Laws of small transforms: how far images are rotated, scaled and translated, and which kernel stands for which law.

A kernel of the estimator is a law on a lattice: whole pixels, whole columns of the polar grid (angles) and whole rows
of it (radii). The law that it stands for has the same spread without the lattice and without an end. A radial shift is
no scaling: by how many pixels a scaling moves a point depends on its radius. The two are matched so that the mean
square displacement over the image is the same.

A transform F takes the point p to s·R(θ)·p + t, so F⁻¹(g) shows at p what g has there: F⁻¹(g)(p) = g(s·R(θ)·p + t).
The estimator goes along the radius instead of scaling: g((|p| + ρ)·R(θ)·p/|p| + t). Points are (right, down) from the
centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant
from whorl.geometry.kernels import Kernel, Kind, Weights, odd, spread
from whorl.geometry.polar import steps_of
from whorl.geometry.pose import REFERENCE_SIDE
from whorl.geometry.projection import centred_axes, sampled

EOT_ANGLE, EOT_SCALE, EOT_SHIFT = 30.0, 0.5, 20.0
"""The range that EOT draws from: degrees, factor about 1, and pixels of a 299-pixel image."""
_SMALLEST_SCALE = 0.05  # a bell curve has no end, and an image cannot be flipped inside out


class Transforms(NamedTuple):
    """Drawn transforms, each (N,) float64: rotate by ``angle`` and scale by ``scale``, then move by ``shift``."""

    angle: Tensor
    """Degrees."""
    scale: Tensor
    """Factor."""
    shift: Tensor
    """(N, 2) pixels, (right, down)."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law of transforms: four independent numbers around the identity.

    Attributes:
        label: what to call it.
        kind: ``"gaussian"`` (the spreads are standard deviations) or ``"uniform"`` (half widths).
        angle: spread in degrees.
        scale: spread of the factor about 1.
        shift: spread in pixels, right and down alike.
        estimator: the kernel that stands for it.

    >>> law = law_of_range(0.1, 224, 224)
    >>> round(law.angle, 2), round(law.scale, 3), round(law.shift, 3), law.estimator.kernel_size
    (3.0, 0.05, 1.498, 3)
    """

    label: str
    kind: Kind
    angle: float
    scale: float
    shift: float
    estimator: AffineInvariant

    def transforms(self, u: Tensor) -> Transforms:
        """Turn uniform draws, (N, 4) in (0, 1), into transforms."""
        z = quantile(u.double(), self.kind)
        scale = (1 + z[:, 1] * self.scale).clamp_min(_SMALLEST_SCALE)
        return Transforms(z[:, 0] * self.angle, scale, z[:, 2:] * self.shift)

    def lattice(self, u: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Turn the same draws into those of the finite kernel.

        Args:
            u: (N, 4) in (0, 1).
            height: of the image.
            width: of the image.

        Returns:
            Degrees (N,), radial shifts in pixels (N,), and whole pixels right and down (N, 2).
        """
        steps = steps_of(height, width)
        polar, plain = self.estimator.polar_kernel or _POINT, self.estimator.kernel or _POINT
        angle = _pick(polar.columns, u[:, 0]) * steps.angle
        radius = _pick(polar.rows, u[:, 1]) * steps.radius
        return angle, radius, torch.stack((_pick(plain.columns, u[:, 2]), _pick(plain.rows, u[:, 3])), dim=1)


_POINT = Kernel((1.0,), (1.0,))


def quantile(u: Tensor, kind: Kind) -> Tensor:
    """Map uniform draws in (0, 1) to a standard normal, or to the uniform on (-1, 1).

    >>> quantile(torch.tensor([0.5, 0.975], dtype=torch.float64), "gaussian").round(decimals=2).tolist()
    [0.0, 1.96]
    """
    centred = 2 * u - 1
    return math.sqrt(2) * torch.erfinv(centred) if kind == "gaussian" else centred


def law_of_range(share: float, height: int, width: int) -> Law:
    """The uniform law over a share of EOT's range, and the uniform kernel nearest to it.

    Args:
        share: 1 is [-30°, 30°] x [0.5, 1.5] x [-20, 20] pixels of a 299-pixel image.
        height: of the image.
        width: of the image.
    """
    if not 0 < share <= 1:
        raise WhorlError(f"a range must lie in (0, 1], a share of EOT's; got {share:g}.")
    steps = steps_of(height, width)
    angle, scale = EOT_ANGLE * share, EOT_SCALE * share
    shift = EOT_SHIFT * share * max(height, width) / REFERENCE_SIDE
    estimator = AffineInvariant(
        kind="uniform",
        kernel_size=odd(2 * shift),
        polar_kernel_size=(odd(2 * scale * steps.typical / steps.radius), odd(2 * angle / steps.angle)),
    )
    label = f"range {share:g}"
    return Law(label=label, kind="uniform", angle=angle, scale=scale, shift=shift, estimator=estimator)


def law_of_kernel(estimator: AffineInvariant, height: int, width: int, label: str = "") -> Law:
    """The law that a kernel stands for.

    Args:
        estimator: Gaussian or uniform, with square kernels where Gaussian; no weights of your own.
        height: of the image.
        width: of the image.
        label: what to call it.
    """
    if estimator.weights is not None or estimator.polar_weights is not None:
        raise WhorlError("a kernel of your own weights has no law by name; give kernel_size, sigma and kind instead.")
    steps, kind = steps_of(height, width), estimator.kind
    plain, polar = estimator.kernel or _POINT, estimator.polar_kernel or _POINT
    return Law(
        label=label or f"kernel {estimator!r}",
        kind=kind,
        angle=spread(polar.columns, kind) * steps.angle,
        scale=spread(polar.rows, kind) * steps.radius / steps.typical,
        shift=spread(plain.columns, kind),
        estimator=estimator,
    )


def uniforms(count: int, seed: int) -> Tensor:
    """Draw (count, 4) evenly spread numbers in (0, 1): a scrambled Sobol sequence.

    >>> bool((uniforms(256, 0).mean(0) - 0.5).abs().max() < 0.01)
    True
    """
    drawn = torch.quasirandom.SobolEngine(4, scramble=True, seed=seed).draw(count, dtype=torch.float64)
    # The quantile of 0 or 1 itself is infinite.
    return drawn.clamp(1e-9, 1 - 1e-9)


def _pick(weights: Weights, u: Tensor) -> Tensor:
    """Offsets from the centre, drawn by their weights."""
    ends = torch.tensor(weights, dtype=torch.float64).cumsum(0)
    place = torch.searchsorted(ends / ends[-1], u.double().contiguous()).clamp(max=len(weights) - 1)
    return (place - len(weights) // 2).double()


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
    return _sample(g, *_rotated(scale * right, scale * down, transforms.angle), transforms.shift)


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
    reached = distance + radius.to(right).view(-1, 1, 1)
    # The centre has no direction of its own; the polar grid reads it at angle 0.
    ratio = reached / distance.clamp_min(1e-12)
    across = torch.where(distance > 0, ratio * right, reached)
    out = _sample(g, *_rotated(across, ratio * down, angle), shift)
    return out * (reached >= 0)[:, None].to(out.dtype)


def _centred(g: Tensor) -> tuple[Tensor, Tensor]:
    return centred_axes(g, torch.promote_types(g.dtype, torch.float32))


def _rotated(right: Tensor, down: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    theta = torch.deg2rad(angle).to(right).view(-1, 1, 1)
    cos, sin = theta.cos(), theta.sin()
    return cos * right - sin * down, sin * right + cos * down


def _sample(g: Tensor, right: Tensor, down: Tensor, shift: Tensor) -> Tensor:
    across, along = shift.to(right)[:, :, None, None].unbind(1)
    return sampled(g, right + across, down + along)
