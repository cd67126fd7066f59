"""The estimator on a CPU: every step is a weighted sum of rows, and a row holds one pixel of many planes.

A plane is one channel of one image. With planes side by side in memory, all of them are read from the same place with
the same weight, so that a step is one pass of torch's ``embedding_bag``: it walks over the rows, keeps the sum in
registers and writes it once. Tables of places and weights are built once per size and kernel.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from whorl.geometry.kernels import Weights, ring
from whorl.geometry.polar import Taps, polar_plan
from whorl.geometry.sums import Sums

# Planes at a time: a row of two cache lines, and steps whose input and output stay in a cache of a few megabytes.
_GROUP = 32
# With the series of their circles.
_GROUP_OF_CIRCLES = 12


def estimate_on_cpu(gradient: Tensor, rows: Weights, columns: Weights, radii: Weights, angles: Weights) -> Tensor:
    """Do what :func:`whorl.estimators.fast.estimate` says.

    Args:
        gradient: (B, C, H, W), float32 or half precision, without a graph.
        rows: weights of shifts along the rows' axis; an odd number of them, as of the others.
        columns: weights along the columns.
        radii: weights along the radius. Empty: no polar part.
        angles: weights around the circle.

    Returns:
        (B, C, H, W), dtype of ``gradient``.

    >>> from whorl.estimators import AffineInvariant
    >>> est, g = AffineInvariant(kernel_size=3, sigma=1.0), torch.rand(2, 3, 12, 16)
    >>> k, q = est.kernel, est.polar_kernel
    >>> fast = estimate_on_cpu(g, k.rows, k.columns, q.rows, q.columns)
    >>> bool((fast - est(g.double())).abs().max() < 1e-6)
    True
    """
    height, width = gradient.shape[-2:]
    steps = tables(height, width, rows, columns, radii, angles)
    planes = gradient.float().reshape(-1, height * width)
    with torch.no_grad():
        if len(planes) <= _GROUP:
            return _sum_rows(planes, steps).contiguous().view(gradient.shape).to(gradient.dtype)
        out = torch.empty_like(planes)
        for first in range(0, len(planes), _GROUP):
            out[first : first + _GROUP].copy_(_sum_rows(planes[first : first + _GROUP], steps))
    return out.view(gradient.shape).to(gradient.dtype)


def rotations_on_cpu(gradient: Tensor, sigma: float, angles: int) -> Tensor:
    """Do what :func:`whorl.estimators.fast.average_rotations` says."""
    height, width = gradient.shape[-2:]
    there, back = polar_sums(height, width, angles)
    response = torch.fft.rfft(ring(sigma, angles)).real.float()
    planes = gradient.float().reshape(-1, height * width)
    out = torch.empty_like(planes)
    with torch.no_grad():
        for first in range(0, len(planes), _GROUP_OF_CIRCLES):
            group = slice(first, first + _GROUP_OF_CIRCLES)
            polar = there.of(planes[group].T.contiguous())
            series = torch.fft.rfft(polar.T.reshape(polar.shape[1], -1, angles)).mul_(response)
            rotated = torch.fft.irfft(series, n=angles)
            out[group] = back.of(rotated.flatten(1).T.contiguous()).T
    return out.view(gradient.shape).to(gradient.dtype)


def tables(
    height: int, width: int, rows: Weights, columns: Weights, radii: Weights, angles: Weights
) -> tuple[Sums, ...]:
    """Give the steps for images of a size, built once; the arguments are those of :func:`estimate_on_cpu`."""
    steps = [_across_lines(height, rows), _along_lines(height, width, columns, circular=False)]
    if radii:
        n = max(height, width)
        there, back = polar_sums(height, width, n)
        steps += [there, _along_lines(n, n, angles, circular=True), _across_lines(n, radii), back]
    return tuple(step for step in steps if step is not None)


def _sum_rows(planes: Tensor, steps: tuple[Sums, ...]) -> Tensor:
    """Take (planes, pixels) through all steps; gives a view of (pixels, planes)."""
    # Flat, because a single plane would else keep a stride that embedding_bag has only a slow way for.
    x = planes.T.contiguous().flatten()
    for step in steps:
        # A step over whole lines has as many rows as lines, one over pixels as many as pixels.
        x = step.of(x.view(step.rows, -1))
    return x.view(-1, len(planes)).T


@lru_cache(maxsize=16)
def _across_lines(count: int, weights: Weights) -> Sums | None:
    """Blur across lines: a line is a row, whatever it holds. None where nothing moves."""
    if weights == (1.0,):
        return None
    place = torch.arange(count, device="cpu")[:, None] + _shifts(weights)
    return _sums(place, (place >= 0) & (place < count), weights, count)


@lru_cache(maxsize=16)
def _along_lines(height: int, width: int, weights: Weights, *, circular: bool) -> Sums | None:
    """Blur within lines: a pixel is a row. None where nothing moves."""
    if weights == (1.0,):
        return None
    place = torch.arange(width, device="cpu")[:, None] + _shifts(weights)
    there = torch.full_like(place, fill_value=True, dtype=torch.bool) if circular else (place >= 0) & (place < width)
    line = (torch.arange(height, device="cpu") * width)[:, None, None]
    everywhere = (line + place % width).reshape(-1, len(weights))
    return _sums(everywhere, there.expand(height, -1, -1).reshape(-1, len(weights)), weights, height * width)


@lru_cache(maxsize=16)
def polar_sums(height: int, width: int, angles: int) -> tuple[Sums, Sums]:
    """Give both warps for images of a size, built once: pixels to cells by radius and angle, and back."""
    plan = polar_plan(height, width, torch.device("cpu"), torch.float32, angles)

    def sums(taps: Taps, rows: int) -> Sums:
        weight = taps.weight.T
        return _pack(taps.position.T, weight != 0, weight, rows)

    return sums(plan.forward, height * width), sums(plan.inverse, max(height, width) * angles)


def _shifts(weights: Weights) -> Tensor:
    return torch.arange(len(weights), device="cpu") - len(weights) // 2


def _sums(place: Tensor, there: Tensor, weights: Weights, rows: int) -> Sums:
    weight = torch.tensor(weights, dtype=torch.float32, device="cpu").expand(place.shape)
    return _pack(place, there & (weight != 0), weight, rows)


def _pack(place: Tensor, there: Tensor, weight: Tensor, rows: int) -> Sums:
    ends = there.sum(dim=1).cumsum(0)
    start = torch.cat((ends.new_zeros(1), ends[:-1]))
    return Sums(place[there].int(), weight[there].contiguous(), start.int(), rows)
