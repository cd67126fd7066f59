"""Averages over rotations on a GPU: three fused kernels, of which the second goes around each circle.

A bell curve that is narrow is summed tap by tap, as :mod:`whorl.estimators.gpu` does for the other estimators. A wide
one would be hundreds of taps, but only few terms of its Fourier series are felt: about 337 divided by its degrees, in
float32. So a program gathers whole circles, takes those terms by products with small tables of waves, weighs them, and
writes the circles that they make: the values on a circle never go over memory but to be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whorl.estimators.gpu import (
    PlaneLayout,
    blur_around,
    blur_image,
    launch_around,
    layout_of,
    leave_polar,
    polar_tables,
)
from whorl.geometry.kernels import Weights

# Taps and terms that there are kernels for; a curve takes the first that serves it. Zeros fill up what it lacks.
_TAPS, _TERMS, _MOST_TAPS, _MOST_TERMS = (7, 15, 31), (16, 32, 64), (63,), (128,)
_STILL: Weights = (1.0,)


class SeriesLaunch(NamedTuple):
    """How circles are cut up."""

    columns: int
    """Circles of as many planes in one program."""
    step: int
    """Angles of each quarter at a time."""
    warps: int


# By terms. Read off what the compiler makes of each: as many programs as fit into a processor's registers.
_LAUNCHES = {16: SeriesLaunch(32, 16, 4), 32: SeriesLaunch(32, 16, 8), 64: SeriesLaunch(32, 16, 4)}
_LAUNCHES[128] = SeriesLaunch(32, 16, 8)
_LAUNCHES_SHORT = _LAUNCHES | {32: SeriesLaunch(32, 16, 4), 64: SeriesLaunch(32, 16, 8)}
# Planes at a time, by bytes of a value; 0: all of them.
_AT_ONCE = {4: 0, 2: 0}


class BellCurve(NamedTuple):
    """How a bell curve is summed: by taps, or else by terms of its series."""

    taps: Weights
    terms: int

    @property
    def kind(self) -> int:
        """What the kernels know it by: so many terms, or minus so many taps."""
        return self.terms or -len(self.taps)


def rotations_on_gpu(gradient: Tensor, sigma: float, angles: int, unfelt: float) -> Tensor | None:
    """Do what :func:`whorl.estimators.fast.average_rotations` says.

    Args:
        gradient: (B, C, H, W), float32, bfloat16 or float16; at most 2²² cells of the polar grid.
        sigma: standard deviation of the bell curve, in cells around the circle.
        angles: cells around the circle, a multiple of 4.
        unfelt: taps and terms below this share of the largest are left out.

    Returns:
        (B, C, H, W), dtype of ``gradient``, contiguous; None for a curve that has too many of both.
    """
    curve = summed(sigma, angles, unfelt)
    if curve is None:
        return None

    def around(images: Tensor, how: PlaneLayout) -> Tensor:
        return blur_around(images, how, curve.taps) if curve.taps else _by_series(images, how, sigma, curve.terms)

    return _averaged(gradient, angles, around)


def rotations_of_step(gradient: Tensor, curves: BellCurves, step: Tensor, angles: int) -> Tensor:
    """Do what :func:`whorl.estimators.fast.average_rotations_by_step` says.

    There is a launch for each way in which one of the steps is summed; all but that of the present step end at once.

    Args:
        gradient: as of :func:`rotations_on_gpu`.
        curves: of every step, see :func:`curves_of`.
        step: () int64 on the gradient's device: which one it is; beyond the last, that.
        angles: cells around the circle.
    """

    def around(images: Tensor, how: PlaneLayout) -> Tensor:
        out = how.scratch(how.angles * how.n)
        for kind in curves.kinds:
            _around_of_step(kind, images, how, out, (curves.table, step, *curves.table.shape))
        return out

    return _averaged(gradient, angles, around)


def _averaged(gradient: Tensor, angles: int, around: Callable[[Tensor, PlaneLayout], Tensor]) -> Tensor:
    """Put planes side by side, go around their circles, and come back."""
    x = gradient.contiguous()
    out = torch.empty_like(x)
    planes, made = x.flatten(0, 1)[:, None], out.flatten(0, 1)[:, None]
    size = _AT_ONCE[layout_of(x, angles).dtype.itemsize] or len(planes)
    with torch.cuda.device_of(x):
        for some, into in zip(planes.split(size), made.split(size), strict=True):
            how = layout_of(some, angles)
            leave_polar(around(blur_image(some, how, _STILL, _STILL), how), how, _STILL, into)
    return out


def summed(sigma: float, angles: int, unfelt: float) -> BellCurve | None:
    """Choose how to sum a bell curve around a circle; None where that takes more than there are kernels for.

    >>> summed(0.4, 608, 3e-8).terms, len(summed(0.4, 608, 3e-8).taps)
    (0, 7)
    >>> summed(54.0, 608, 3e-8).terms
    16
    """
    deep = math.sqrt(-2 * math.log(unfelt))
    reach, highest = math.floor(deep * sigma), math.floor(deep * angles / (2 * math.pi * sigma))
    for most_taps, most_terms in ((_TAPS, _TERMS), (_MOST_TAPS, _MOST_TERMS)):
        for most in most_taps:
            if 2 * reach + 1 <= most:
                away, whole = range(-(most // 2), most // 2 + 1), _whole_bell(sigma)
                bell = (math.exp(-(k**2) / (2 * sigma**2)) / whole if abs(k) <= reach else 0.0 for k in away)
                return BellCurve(tuple(bell), 0)
        for most in most_terms:
            if highest < 2 * most:
                return BellCurve((), most)
    return None


class BellCurves(NamedTuple):
    """The bell curves of all steps of an attack."""

    table: Tensor
    """(steps, row) float32: kind, steepness and taps of each, filled up with zeros."""
    kinds: tuple[int, ...]
    """Every kind once."""


# Never forgotten: recorded graphs read from it, and it is a few numbers.
@cache
def curves_of(sigmas: tuple[float, ...], angles: int, unfelt: float, device: torch.device) -> BellCurves | None:
    """Choose how to sum the bell curves of all steps; None where one of them takes more than there are kernels for.

    >>> curves_of((54.0, 12.0, 2.0), 608, 3e-8, torch.device("cpu")).kinds
    (-31, 16, 32)
    """
    found = [summed(sigma, angles, unfelt) for sigma in sigmas]
    curves = [curve for curve in found if curve is not None]
    if len(curves) < len(found):
        return None
    longest = max(len(curve.taps) for curve in curves)
    rows = [
        (curve.kind, _steepness(sigma, angles), *curve.taps, *(0.0,) * (longest - len(curve.taps)))
        for sigma, curve in zip(sigmas, curves, strict=True)
    ]
    with torch.inference_mode(False):  # it outlives the mode it is first needed in
        table = torch.tensor(rows, dtype=torch.float32, device=device)
    return BellCurves(table, tuple(sorted({curve.kind for curve in curves})))


def _by_series(images: Tensor, how: PlaneLayout, sigma: float, terms: int) -> Tensor:
    """Go to polar coordinates, by angle and radius, and blur around the circle."""
    from whorl.estimators import rotations_kernels as kernels

    series = _Series.of(how, terms)
    out, slope = how.scratch(how.angles * how.n), _steepness(sigma, how.angles)
    kernels.blur_around_by_series[series.grid](
        images, *series.tables, out, slope, *series.sizes, num_warps=series.warps, num_stages=1
    )
    return out


def _around_of_step(kind: int, images: Tensor, how: PlaneLayout, out: Tensor, step: tuple[Any, ...]) -> None:
    """Launch one way to sum; ``step`` is the table of curves, which step it is, and the table's shape."""
    from whorl.estimators import rotations_kernels as kernels

    if kind < 0:
        there, _ = polar_tables(how.height, how.width, how.angles, how.device)
        around = launch_around(how, -kind)
        kernels.blur_around_of_step[around.grid](images, there, out, *step, *around.sizes, num_warps=around.warps)
    else:
        series = _Series.of(how, kind)
        kernels.blur_around_by_series_of_step[series.grid](
            images, *series.tables, out, *step, *series.sizes, num_warps=series.warps, num_stages=1
        )


class _Series(NamedTuple):
    """How a sum by terms is launched. In one stage: reads ahead of the products would take other programs' room."""

    grid: tuple[int, int]
    tables: tuple[Tensor, Tensor]
    sizes: tuple[Any, ...]
    """Of the kernel, from ``n`` on."""
    warps: int

    @classmethod
    def of(cls, how: PlaneLayout, terms: int) -> _Series:
        launch = (_LAUNCHES if how.dtype == torch.float32 else _LAUNCHES_SHORT)[terms]
        block = max(1, launch.columns // how.lanes)
        # What bfloat16 holds, TF32 holds too.
        precision = "tf32" if how.dtype == torch.bfloat16 else "tf32x3"
        there, _ = polar_tables(how.height, how.width, how.angles, how.device)
        return cls(
            grid=(-(-how.n // block), how.groups),
            tables=(there, waves(how.angles, terms, launch.step, how.device)),
            sizes=(how.n, how.angles, how.height, how.width, terms, how.lanes, block, launch.step, precision),
            warps=launch.warps,
        )


def _steepness(sigma: float, angles: int) -> float:
    """By which the response to k waves around the circle falls: exp(-(k · steepness)²)."""
    return math.sqrt(2) * math.pi * sigma / angles


# Never forgotten: recorded graphs read from it, and there are four for an image size at most.
@cache
def waves(angles: int, terms: int, step: int, device: torch.device) -> Tensor:
    """Cosines and sines over the first quarter of a circle; over the others they are the same but for signs.

    Args:
        angles: cells around the circle, a multiple of 4.
        terms: of each of the four.
        step: rows come in multiples of this.
        device: where they are used.

    Returns:
        (4, rows, terms): cosines that go around an even number of times (0, 2, ...), an odd number (1, 3, ...); sines
        likewise. Rows beyond the quarter, and waves that so few cells cannot distinguish, are 0.

    >>> waves(16, 16, 8, torch.device("cpu")).shape
    torch.Size([4, 8, 16])
    """
    with torch.inference_mode(False), torch.device("cpu"):
        quarter = angles // 4
        at = torch.arange((quarter // step + 1) * step)[:, None]
        made = []
        for shape in (torch.cos, torch.sin):
            for odd in (0, 1):
                times = 2 * torch.arange(terms) + odd
                wave = shape(2 * math.pi / angles * (at * times % angles).double())
                made.append(torch.where((at <= quarter) & (times < angles // 2), wave, 0.0))
        return torch.stack(made).float().to(device)


def _whole_bell(sigma: float) -> float:
    """Sum exp(-k²/2σ²) over all whole numbers k.

    >>> round(_whole_bell(0.4), 6), round(_whole_bell(2.0), 6)
    (1.087881, 5.013257)
    """
    if sigma >= 1:  # Poisson's summation: what is left out is below 1e-8
        return sigma * math.sqrt(2 * math.pi) * (1 + 2 * math.exp(-2 * (math.pi * sigma) ** 2))
    return 1 + 2 * sum(math.exp(-(k**2) / (2 * sigma**2)) for k in range(1, 10))
