"""Cut a printed image out of a photograph: as the camera saw it, or set straight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.geometry.pose import REFERENCE_SIDE
from whorl.physical.finding import Found
from whorl.physical.homography import Matrix, jacobian, move
from whorl.physical.libraries import opencv

Pixels = NDArray[np.uint8]
SCALE_ONE = ("page", "picture")
SURROUNDINGS = ("black", "photo")
_MOST_SAMPLES = 6  # along each side of a printed pixel


@dataclass(frozen=True, kw_only=True)
class Seen:
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
    if scale_one == "picture":
        return printed * min(height, width) / max(box.width, box.height)
    raise WhorlError(f"scale one must be 'page', 'image' or pixels for each millimetre; got {scale_one!r}.")


def measure(found: Found, per_pixel: float, shift: tuple[float, float] = (0.0, 0.0)) -> Seen:
    """Measure rotation, scale and tilt of an image at its centre.

    Args:
        found: the image.
        per_pixel: photograph pixels for each image pixel at scale 1; see ``unit``.
        shift: (right, down) of the image in the window that it is seen through, pixels of a 299-pixel image.
    """
    height, width = found.item.size
    slope = jacobian(found.picture, np.array([(width - 1) / 2, (height - 1) / 2]))
    angle = math.degrees(math.atan2(slope[1, 0] - slope[0, 1], slope[0, 0] + slope[1, 1]))
    longer, shorter = np.linalg.svd(slope, compute_uv=False).tolist()
    density = math.sqrt(longer * shorter)
    tilt = math.degrees(math.acos(min(1.0, shorter / longer)))
    return Seen(pose=Pose(angle=angle, scale=density / per_pixel, shift=shift), tilt=tilt, density=density)


def rectified(photo: Pixels, found: Found) -> Pixels:
    """Set an image straight: what was printed, pixel for pixel.

    Args:
        photo: (H, W, 3) uint8.
        found: the image.

    Returns:
        (h, w, 3) uint8, size of the image as it was printed.
    """
    height, width = found.item.size
    return _rounded(_sample(photo, found.picture, _grid(height, width)))


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
    moved = np.array(shift) * (width / REFERENCE_SIDE, height / REFERENCE_SIDE)
    window = move(found.picture, middle) + per_pixel * (_grid(height, width) - middle - moved)
    back = np.asarray(np.linalg.inv(found.picture), np.float64)
    inside = move(back, window)
    if surroundings == "photo":
        return _rounded(_sample(photo, found.picture, inside))
    # Behind the horizon of a strongly tilted page there is no paper.
    below = window @ back[2, :2] + back[2, 2]
    ahead = below * below[height // 2, width // 2] > 0
    last = np.array([width - 1, height - 1])
    # The ramp by which bilinear sampling fades into the zeros outside.
    cover = (np.clip(inside + 1, 0, 1) * np.clip(last + 1 - inside, 0, 1)).prod(axis=-1) * ahead
    sampled = _sample(photo, found.picture, np.clip(inside, 0, last))
    return _rounded(sampled * cover[..., None])


def _grid(height: int, width: int) -> NDArray[np.float64]:
    down, right = np.mgrid[:height, :width]
    return np.stack((right, down), axis=-1).astype(np.float64)


def _sample(photo: Pixels, picture: Matrix, points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Average the photograph over the area of one printed pixel around each point (image pixels).

    A printer draws a pixel as a square. Its average over a square of the same size, anywhere between pixels, is exactly
    what bilinear interpolation of the original gives there.
    """
    cv2 = opencv()
    height, width = points.shape[:2]
    longer, shorter = np.linalg.svd(jacobian(picture, points[height // 2, width // 2]), compute_uv=False).tolist()
    # A camera's pixel is an average itself, and so is what lies between pixels: a box of a pixel and a triangle of two
    # have three times the variance of the box; with the printer's dots it is four times at most. What is sampled here
    # makes up the rest to one printed pixel.
    side = math.sqrt(max(0.0, 1 - 3.5 / (longer * shorter)))
    count = int(np.clip(math.ceil(1.5 * longer * side), 1, _MOST_SAMPLES))
    steps = side * ((np.arange(count) + 0.5) / count - 0.5)
    # As in ``move``, with the part that all steps share worked out once.
    base = np.einsum("ij,hwj->ihw", picture[:, :2], points) + picture[:, 2, None, None]
    total = np.zeros((height, width, 3), np.float32)
    for down in steps:
        for right in steps:
            x, y, below = base + (picture[:, 0] * right + picture[:, 1] * down)[:, None, None]
            there = (x / below).astype(np.float32), (y / below).astype(np.float32)
            total += cv2.remap(photo, *there, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return total / np.float32(count * count)


def _rounded(levels: NDArray[Any]) -> Pixels:
    return np.asarray(np.clip(np.rint(levels), 0, 255), np.uint8)
