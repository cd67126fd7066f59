"""Averages over rotations on a GPU: three fused kernels, of which the second goes around each circle.

A bell curve that is narrow is summed tap by tap, as :mod:`whorl.estimators.gpu` does for the other estimators. A wide
one would be hundreds of taps, but only few terms of its Fourier series are felt: about 337 divided by its degrees, in
float32. So a program gathers whole circles, takes those terms by products with small tables of waves, weighs them, and
writes the circles that they make: the values on a circle never go over memory but to be written.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.estimators.gpu import (
    PlaneLayout,
    blur_around,
    blur_image,
    device_of,
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


class Curve(NamedTuple):
    """How a bell curve is summed: by taps, or else by terms of its series."""

    taps: Weights
    terms: int


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
    x = gradient.contiguous()
    out = torch.empty_like(x)
    planes, made = x.flatten(0, 1)[:, None], out.flatten(0, 1)[:, None]
    size = layout_of(x, angles).dtype.itemsize
    with device_of(x):
        for some, into in zip(*(part.split(_AT_ONCE[size] or len(planes)) for part in (planes, made)), strict=True):
            how = layout_of(some, angles)
            images = blur_image(some, how, _STILL, _STILL)
            polar = blur_around(images, how, curve.taps) if curve.taps else _by_series(images, how, sigma, curve.terms)
            leave_polar(polar, how, _STILL, into)
    return out


def summed(sigma: float, angles: int, unfelt: float) -> Curve | None:
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
                return Curve(tuple(bell), 0)
        for most in most_terms:
            if highest < 2 * most:
                return Curve((), most)
    return None


def _by_series(images: Tensor, how: PlaneLayout, sigma: float, terms: int) -> Tensor:
    """Go to polar coordinates, by angle and radius, and blur around the circle."""
    from whorl.estimators import rotations_kernels as kernels

    there, _ = polar_tables(how.height, how.width, how.angles, how.device)
    launch = (_LAUNCHES if how.dtype == torch.float32 else _LAUNCHES_SHORT)[terms]
    out = how.scratch(how.angles * how.n)
    block = max(1, launch.columns // how.lanes)
    kernels.blur_around_by_series[(-(-how.n // block), how.groups)](
        images,
        there,
        waves(how.angles, terms, launch.step, how.device),
        out,
        math.sqrt(2) * math.pi * sigma / how.angles,
        how.n,
        how.angles,
        how.height,
        how.width,
        terms,
        how.lanes,
        block,
        launch.step,
        # What bfloat16 holds, TF32 holds too.
        "tf32" if how.dtype == torch.bfloat16 else "tf32x3",
        num_warps=launch.warps,
        num_stages=1,  # reads ahead of the products would take the room of other programs
    )
    return out


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
        likewise. Rows beyond the quarter, and waves that so few cells cannot tell apart, are 0.

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
