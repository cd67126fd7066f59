"""Colours put right by the patch strips: how a photograph shows greys that are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whorl.physical.finding import Found
from whorl.physical.homography import Matrix, fit, move
from whorl.physical.layout import GREYS, Box
from whorl.physical.libraries import opencv

Pixels = NDArray[np.uint8]
Curves = NDArray[np.uint8]
"""(256, 3): what a level of each channel is to become."""

_SAMPLES = 9
_INNER = 0.5  # share of a patch's sides that is looked at: its middle
_STEP = 4.0  # levels by which each grey must be lighter than the one before
_ROUGH = 12.0  # standard deviation of levels within a patch, from which on it is not a patch


def page_homography(cells: Sequence[Found]) -> Matrix | None:
    """Fit one plane to all markers of a page: millimetres to photograph pixels.

    Args:
        cells: of one page.

    Returns:
        (3, 3), or None if they do not lie in one plane, as where a page is bent or seen twice.
    """
    points = np.concatenate([box.corners for cell in cells for box in cell.sheet.layout.markers(cell.item.place)])
    there = np.concatenate([cell.corners for cell in cells])
    # Two millimetres of slack: a page is never quite flat, and patches are wide.
    density = np.sqrt(abs(np.linalg.det(cells[0].paper[:2, :2])))
    matrix = fit(points, there, outliers=2 * density)
    if matrix is None:
        return None
    off = np.linalg.norm(move(matrix, points) - there, axis=1)
    return matrix if float(np.median(off)) < 2 * density else None


def grey_curves(photo: Pixels, cells: Sequence[Found]) -> Curves | None:
    """Read the grey patches of a page, and make curves that give them the levels that they were printed with.

    Args:
        photo: (H, W, 3) uint8.
        cells: of one page, at least one.

    Returns:
        (256, 3) uint8, to be applied with ``balanced``; None if no strip can be seen.
    """
    paper = page_homography(cells)
    if paper is None:
        return None
    layout = cells[0].sheet.layout
    read = [_greys(photo, paper, strip[: len(GREYS)]) for strip in layout.strips()]
    seen = [levels for levels in read if levels is not None]
    if not seen:
        return None
    levels = np.mean(seen, axis=0)
    every = np.arange(256)
    curves = np.stack([_curve(every, levels[:, channel]) for channel in range(3)], axis=1)
    return np.clip(np.rint(curves), 0, 255).astype(np.uint8)


def balanced(pixels: Pixels, curves: Curves) -> Pixels:
    """Apply curves to (H, W, 3) uint8."""
    return np.asarray(opencv().LUT(pixels, curves.reshape(1, 256, 3)))


def _curve(levels: NDArray[np.int_], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Straight lines between the patches, and on with the last slope beyond them."""
    greys = np.array(GREYS, np.float64)
    inside = np.interp(levels, measured, greys)
    first, last = np.diff(greys)[[0, -1]] / np.diff(measured)[[0, -1]]
    below, above = levels < measured[0], levels > measured[-1]
    inside = np.where(below, greys[0] + first * (levels - measured[0]), inside)
    return np.where(above, greys[-1] + last * (levels - measured[-1]), inside)


def _greys(photo: Pixels, paper: Matrix, patches: Sequence[Box]) -> NDArray[np.float64] | None:
    """Mean colours of grey patches, (6, 3), or None if that is not what is to be seen there."""
    cv2 = opencv()
    height, width = photo.shape[:2]
    steps = (np.linspace(0, 1, _SAMPLES) - 0.5) * _INNER + 0.5
    means = []
    for box in patches:
        right, down = np.meshgrid(box.left + steps * box.width, box.top + steps * box.height)
        there = move(paper, np.stack((right, down), axis=-1)).astype(np.float32)
        if there.min() < 0 or there[..., 0].max() > width - 1 or there[..., 1].max() > height - 1:
            return None
        colours = cv2.remap(photo, there[..., 0], there[..., 1], cv2.INTER_LINEAR).astype(np.float64)
        if colours.std(axis=(0, 1)).max() > _ROUGH:
            return None
        means.append(colours.mean(axis=(0, 1)))
    levels = np.array(means)
    return levels if (np.diff(levels, axis=0) > _STEP).all() else None
