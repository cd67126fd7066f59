"""The estimator on other polar grids: finer ones, and a logarithmic one, on which scaling is a shift exactly.

The estimator's own grid has as many angles as the image has columns. At the rim of a 224-pixel image they are 4.4
pixels apart, so fine structure is lost there between the two warps. A finer grid loses less and costs more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError
from whorl.estimators.invariant import ESTIMATORS, AffineInvariant, _computable, _Wraps
from whorl.geometry.kernels import (
    Kernel,
    Kind,
    Sigma,
    Size,
    blur,
    factor,
    gaussian_kernel,
    odd,
    spread,
    uniform_kernel,
)
from whorl.geometry.polar import steps_of
from whorl.records import Limits, Record

Spacing = Literal["linear", "log"]
Finer = Annotated[int, Limits(least=1, most=64)]
# What the two have in common.
_KERNEL = ("kernel_size", "sigma", "kind", "polar_kernel_size", "polar_sigma", "translation", "rotation", "scaling")
_INNERMOST = 0.5  # pixels: within that of the centre a logarithmic grid has no rows


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class PolarGridInvariant(_Wraps, Record):
    """:class:`whorl.AffineInvariant` with a choice of polar grid. On the default grid the two are the same.

    Kernels are given as for the default grid, so that settings which differ in the grid alone average over the same
    rotations and scalings. On a logarithmic grid, whose rows are scale factors, the radial kernel has the width that
    displaces the image's pixels by as much in the mean square.

    Attributes:
        kernel_size: odd number of pixels, or (rows, columns), of the translation kernel.
        sigma: standard deviation in pixels, ``"reference"`` or ``"printed"``.
        kind: ``"gaussian"`` or ``"uniform"``.
        polar_kernel_size: as ``kernel_size``, for the polar kernel, (radii, angles), in cells of the default grid.
        polar_sigma: as ``sigma``, likewise.
        translation: whether to average over translations.
        rotation: whether to average over rotations.
        scaling: whether to average over scalings.
        spacing: of the radii, ``"linear"`` or ``"log"``.
        finer: how many times as many radii and angles as the default grid has; a pair is (radii, angles). A logarithmic
            grid is as fine as the linear one at the rim, and finer inside.

    >>> PolarGridInvariant(spacing="log", kernel_size=7)(torch.rand(2, 3, 32, 48)).shape
    torch.Size([2, 3, 32, 48])
    """

    _always_shown: ClassVar[tuple[str, ...]] = ("sigma",)
    kernel_size: Size = 15
    sigma: Sigma = "reference"
    kind: Kind = "gaussian"
    polar_kernel_size: Size | None = None
    polar_sigma: Sigma | None = None
    translation: bool = True
    rotation: bool = True
    scaling: bool = True
    spacing: Spacing = "linear"
    finer: Finer | tuple[Finer, Finer] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.plain

    @property
    def _finer(self) -> tuple[int, int]:
        return self.finer if isinstance(self.finer, tuple) else (self.finer, self.finer)

    @cached_property
    def plain(self) -> AffineInvariant:
        """The same kernels on the default grid, built once."""
        return AffineInvariant(**{name: getattr(self, name) for name in _KERNEL})

    def __call__(self, gradient: Tensor) -> Tensor:
        """Estimate from ``gradient``, (B, C, H, W)."""
        own, size = self.plain, (gradient.shape[-2], gradient.shape[-1])
        g = _computable(gradient)
        if own.kernel is not None:
            g = blur(g, own.kernel)
        if own.polar_kernel is not None:
            radii, angles = self._finer
            grid = grid_of(*size, self.spacing, radii, angles, g.device, g.dtype)
            kernel = _on_grid(own.polar_kernel, self.kind, grid.per_row, grid.per_column)
            g = _average(g, grid, kernel, inner=self.spacing == "log")
        return g.to(gradient.dtype)


def on_grid(estimator: AffineInvariant, **grid: Any) -> PolarGridInvariant:
    """The same kernels on another polar grid.

    >>> on_grid(AffineInvariant(sigma=0.7), spacing="log")
    PolarGridInvariant(sigma=0.7, spacing='log')
    """
    return PolarGridInvariant(**{name: getattr(estimator, name) for name in _KERNEL}, **grid)


class PolarGrid(NamedTuple):
    """Sampling points of both warps, and how many cells one cell of the estimator's grid makes."""

    forward: Tensor
    """(1, rows, columns, 2) places in the image."""
    inverse: Tensor
    """(1, H, W, 2) places in the polar image, with a column more on either side."""
    per_row: float
    """Rows for each row of the estimator's grid; on a logarithmic grid, at the typical radius."""
    per_column: float


@lru_cache(maxsize=16)
def grid_of(
    height: int, width: int, spacing: Spacing, radii: int, angles: int, device: torch.device, dtype: torch.dtype
) -> PolarGrid:
    """Lay a polar grid over images of one size, once per size, grid, device and dtype.

    Args:
        height: of the image.
        width: of the image.
        spacing: of the radii.
        radii: times as many as the estimator's grid has.
        angles: likewise.
        device: where it is used.
        dtype: of the gradients.
    """
    # A grid outlives the mode it is first needed in.
    with torch.inference_mode(False), torch.device("cpu"):
        grid = _laid(height, width, spacing, radii, angles)
        there, back = (places.to(device, dtype) for places in (grid.forward, grid.inverse))
    return PolarGrid(there, back, grid.per_row, grid.per_column)


def _laid(height: int, width: int, spacing: Spacing, radii: int, angles: int) -> PolarGrid:
    steps, n = steps_of(height, width), max(height, width)
    row_centre, column_centre = (height - 1) / 2, (width - 1) / 2
    longest, columns = math.hypot(row_centre, column_centre), n * angles
    down = torch.arange(height, dtype=torch.float64)[:, None] - row_centre
    right = torch.arange(width, dtype=torch.float64)[None, :] - column_centre
    distance = torch.hypot(down, right)
    if spacing == "log":
        # As fine at the rim as the linear grid: a row outwards is a factor.
        step = steps.radius / radii / max(longest, 1.0)
        rows = math.ceil(math.log(max(longest / _INNERMOST, 1.0)) / step) + 1
        radius = longest * torch.exp(-step * torch.arange(rows - 1, -1, -1, dtype=torch.float64))
        row = (rows - 1 + torch.log(distance.clamp_min(_INNERMOST / 2) / max(longest, 1e-9)) / step).clamp(0, rows - 1)
        per_row = steps.radius / steps.typical / step if steps.typical else 1.0
    else:
        rows, per_row = (n - 1) * radii + 1, float(radii)
        step = steps.radius / radii
        radius = step * torch.arange(rows, dtype=torch.float64)
        row = (distance / step).clamp(0, rows - 1) if step else torch.zeros_like(distance)
    angle = torch.arange(columns, dtype=torch.float64) * (2 * math.pi / columns)
    column = torch.remainder(torch.atan2(down, right), 2 * math.pi) * (columns / (2 * math.pi))
    forward = _places(
        row_centre + radius[:, None] * angle.sin(), column_centre + radius[:, None] * angle.cos(), height, width
    )
    # One column is repeated at either end, so that angles wrap.
    inverse = _places(row, column + 1, rows, columns + 2)
    return PolarGrid(forward, inverse, per_row, float(angles))


def _average(g: Tensor, grid: PolarGrid, kernel: Kernel, *, inner: bool) -> Tensor:
    batch, options = g.shape[0], {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False}
    polar = F.grid_sample(g, grid.forward.expand(batch, -1, -1, -1), **options)  # type: ignore[arg-type]  # a plain table
    # A logarithmic grid never reaches the centre, and the image goes on beyond its first row.
    pad = len(kernel.rows) // 2 if inner else 0
    if pad:
        polar = torch.cat((polar[..., :1, :].expand(-1, -1, pad, -1), polar), dim=-2)
    polar = blur(polar, kernel, circular=True)[..., pad:, :]
    polar = torch.cat((polar[..., -1:], polar, polar[..., :1]), dim=-1)
    return F.grid_sample(polar, grid.inverse.expand(batch, -1, -1, -1), **options)  # type: ignore[arg-type]  # as above


@lru_cache(maxsize=64)
def _on_grid(kernel: Kernel, kind: Kind, per_row: float, per_column: float) -> Kernel:
    """Stretch a kernel of the estimator's grid to another, so that it covers the same angles and radii."""
    if kernel.matrix is not None:
        raise WhorlError("a polar kernel on another grid must be separable; give kernel_size, sigma and kind.")
    return Kernel(_stretched(kernel.rows, kind, per_row), _stretched(kernel.columns, kind, per_column))


def _stretched(weights: tuple[float, ...], kind: Kind, times: float) -> tuple[float, ...]:
    if times == 1 or len(weights) == 1:
        return weights
    if kind == "uniform":
        return factor(uniform_kernel((1, odd(len(weights) * times)))).columns
    reach = 2 * round((len(weights) // 2) * times) + 1
    return factor(gaussian_kernel((1, reach), spread(weights, kind) * times)).columns


def _places(row: Tensor, column: Tensor, height: int, width: int) -> Tensor:
    """Write pixel positions as grid_sample takes them."""
    return torch.stack(((2 * column + 1) / width - 1, (2 * row + 1) / height - 1), dim=-1)[None]
