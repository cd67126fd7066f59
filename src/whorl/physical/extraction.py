"""Cut printed images out of a photograph: as the camera saw them, or set straight; with colours put right, or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whorl.data.image_files import Pixels
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.geometry.pose import REFERENCE_SIDE
from whorl.physical.detection import Found, marker_points
from whorl.physical.homography import Matrix, fit, jacobian, project, within
from whorl.physical.layout import GREYS, Box
from whorl.physical.libraries import opencv

Curves = NDArray[np.uint8]
"""(256, 3): what a level of each channel is to become."""

SURROUNDINGS = ("black", "photo")
_MOST_SAMPLES = 6  # along each side of a printed pixel
_PATCH_SAMPLES = 9  # along each side of a patch
_INNER = 0.5  # share of a patch's sides that is read: its middle
_STEP = 4.0  # levels by which each grey must be lighter than the one before
_ROUGH = 12.0  # standard deviation of levels within a patch, from which on it is not a patch


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """How an image lies in a photograph.

    Attributes:
        pose: rotation, scale and shift in the terms of ``whorl.affine``; the scale is relative to ``scale one``.
        tilt: degrees between the paper and the plane of the camera, from how much shorter one direction appears.
        density: photograph pixels for each printed pixel.
    """

    pose: Pose
    tilt: float
    density: float


def unit(found: Found, shape: tuple[int, ...], scale_one: str | float = "page") -> float:
    """Say how many photograph pixels make an image pixel at scale 1.

    Args:
        found: the image.
        shape: (H, W, ...) of the photograph.
        scale_one: what counts as scale 1: "page", the page just fills the photograph; "image", the image's longer
            side is as long as the photograph's shorter side, as where each image is photographed alone; or a number
            of photograph pixels for each millimetre of paper.
    """
    layout, (height, width) = found.sheet.layout, shape[:2]
    box = found.sheet.box(found.item)
    printed = box.width / found.item.size[1]  # millimetres of a pixel
    if isinstance(scale_one, int | float):
        if not (math.isfinite(scale_one) and scale_one > 0):
            raise WhorlError(f"scale one must be above 0 photograph pixels for each millimetre; got {scale_one}.")
        return float(scale_one) * printed
    if scale_one == "page":
        long, short = max(layout.width, layout.height), min(layout.width, layout.height)
        return printed * min(max(height, width) / long, min(height, width) / short)
    if scale_one == "image":
        return printed * min(height, width) / max(box.width, box.height)
    raise WhorlError(f"scale one must be 'page', 'image' or pixels for each millimetre; got {scale_one!r}.")


def measure(found: Found, per_pixel: float, shift: tuple[float, float] = (0.0, 0.0)) -> Appearance:
    """Measure rotation, scale and tilt of an image at its centre.

    Args:
        found: the image.
        per_pixel: photograph pixels for each image pixel at scale 1; see ``unit``.
        shift: (right, down) of the image in the window that it is seen through, pixels of a 299-pixel image.
    """
    height, width = found.item.size
    slope = jacobian(found.image, np.array([(width - 1) / 2, (height - 1) / 2]))
    angle = math.degrees(math.atan2(slope[1, 0] - slope[0, 1], slope[0, 0] + slope[1, 1]))
    longer, shorter = np.linalg.svd(slope, compute_uv=False).tolist()
    density = math.sqrt(longer * shorter)
    tilt = math.degrees(math.acos(min(1.0, shorter / longer)))
    return Appearance(pose=Pose(angle=angle, scale=density / per_pixel, shift=shift), tilt=tilt, density=density)


def rectified(photo: Pixels, found: Found) -> Pixels:
    """Set an image straight: what was printed, pixel for pixel.

    Args:
        photo: (H, W, 3) uint8.
        found: the image.

    Returns:
        (h, w, 3) uint8, size of the image as it was printed.
    """
    height, width = found.item.size
    return _rounded(_sample(photo, found.image, _grid(height, width)))


def as_seen(
    photo: Pixels,
    found: Found,
    per_pixel: float,
    shift: tuple[float, float] = (0.0, 0.0),
    *,
    surroundings: str = "black",
) -> Pixels:
    """Cut an image out as the camera saw it: rotation, scale and perspective stay.

    The window is upright in the photograph, and as large as the image is at scale 1. Beyond the image's edge it is
    black, as ``whorl.affine`` has it: without tilt and whatever cameras do to colours, the result *is* ``whorl.affine``
    of the original.

    Args:
        photo: (H, W, 3) uint8.
        found: the image.
        per_pixel: photograph pixels for each image pixel at scale 1; see ``unit``.
        shift: (right, down) by which the image lies off the window's middle, in pixels of a 299-pixel image.
        surroundings: "black", or "photo" to see paper, markers and neighbours where the window goes beyond the image.

    Returns:
        (h, w, 3) uint8, size of the image as it was printed.
    """
    if surroundings not in SURROUNDINGS:
        raise WhorlError(f"surroundings must be {' or '.join(SURROUNDINGS)}; got {surroundings!r}.")
    height, width = found.item.size
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    off = np.array(shift) * (width / REFERENCE_SIDE, height / REFERENCE_SIDE)
    window = project(found.image, middle) + per_pixel * (_grid(height, width) - middle - off)
    back = np.asarray(np.linalg.inv(found.image), np.float64)
    inside = project(back, window)
    if surroundings == "photo":
        return _rounded(_sample(photo, found.image, inside))
    # Behind the horizon of a strongly tilted page there is no paper.
    below = window @ back[2, :2] + back[2, 2]
    ahead = below * below[height // 2, width // 2] > 0
    last = np.array([width - 1, height - 1])
    # The ramp by which bilinear sampling fades into the zeros outside.
    cover = (np.clip(inside + 1, 0, 1) * np.clip(last + 1 - inside, 0, 1)).prod(axis=-1) * ahead
    sampled = _sample(photo, found.image, np.clip(inside, 0, last))
    return _rounded(sampled * cover[..., None])


def page_homography(cells: Sequence[Found]) -> Matrix | None:
    """Fit one plane to all markers of a page: millimetres to photograph pixels.

    Args:
        cells: of one page.

    Returns:
        (3, 3), or None if they do not lie in one plane, as where a page is bent or seen twice.
    """
    points, there = marker_points(cells)
    # Two millimetres of slack: a page is never quite flat, and patches are wide.
    density = np.sqrt(abs(np.linalg.det(cells[0].paper[:2, :2])))
    matrix = fit(points, there, outliers=2 * density)
    if matrix is None:
        return None
    off = np.linalg.norm(project(matrix, points) - there, axis=1)
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


def _grid(height: int, width: int) -> NDArray[np.float64]:
    down, right = np.mgrid[:height, :width]
    return np.stack((right, down), axis=-1).astype(np.float64)


def _sample(photo: Pixels, image: Matrix, points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Average the photograph over the area of one printed pixel around each point (image pixels).

    A printer draws a pixel as a square. Its average over a square of the same size, anywhere between pixels, is exactly
    what bilinear interpolation of the original gives there.
    """
    cv2 = opencv()
    height, width = points.shape[:2]
    longer, shorter = np.linalg.svd(jacobian(image, points[height // 2, width // 2]), compute_uv=False).tolist()
    # A camera's pixel is an average itself, and so is what lies between pixels: a box of a pixel and a triangle of two
    # have three times the variance of the box; with the printer's dots it is four times at most. What is sampled here
    # makes up the rest to one printed pixel.
    side = math.sqrt(max(0.0, 1 - 3.5 / (longer * shorter)))
    count = int(np.clip(math.ceil(1.5 * longer * side), 1, _MOST_SAMPLES))
    steps = side * ((np.arange(count) + 0.5) / count - 0.5)
    # As in ``project``, with the part that all steps share worked out once.
    base = np.einsum("ij,hwj->ihw", image[:, :2], points) + image[:, 2, None, None]
    total = np.zeros((height, width, 3), np.float32)
    for down in steps:
        for right in steps:
            x, y, below = base + (image[:, 0] * right + image[:, 1] * down)[:, None, None]
            there = (x / below).astype(np.float32), (y / below).astype(np.float32)
            total += cv2.remap(photo, *there, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return total / np.float32(count * count)


def _rounded(levels: NDArray[Any]) -> Pixels:
    return np.asarray(np.clip(np.rint(levels), 0, 255), np.uint8)


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
    steps = (np.linspace(0, 1, _PATCH_SAMPLES) - 0.5) * _INNER + 0.5
    means = []
    for box in patches:
        right, down = np.meshgrid(box.left + steps * box.width, box.top + steps * box.height)
        there = project(paper, np.stack((right, down), axis=-1)).astype(np.float32)
        if not within(there, photo.shape):
            return None
        colours = cv2.remap(photo, there[..., 0], there[..., 1], cv2.INTER_LINEAR).astype(np.float64)
        if colours.std(axis=(0, 1)).max() > _ROUGH:
            return None
        means.append(colours.mean(axis=(0, 1)))
    levels = np.array(means)
    return levels if (np.diff(levels, axis=0) > _STEP).all() else None
