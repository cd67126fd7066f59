"""A small copy of a photograph with what was found drawn in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.physical.finding import Findings
from whorl.physical.libraries import opencv
from whorl.physical.sheet import CLEAN

Pixels = NDArray[np.uint8]

_CLEAN, _ATTACKED, _MARKER = (26, 142, 84), (207, 34, 46), (30, 110, 220)


def draw_overlay(photo: Pixels, found: Findings, *, side: int = 1200) -> Pixels:
    """Draw outlines of images (green: clean, red: attacked) and of markers, and what each image is.

    Args:
        photo: (H, W, 3) RGB, uint8.
        found: what was found in it.
        side: longest side of the copy, in pixels.
    """
    cv2 = opencv()
    factor = min(1.0, side / max(photo.shape[:2]))
    copy = cv2.resize(photo, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    for cell in found.cells:
        colour = _CLEAN if cell.item.attack == CLEAN else _ATTACKED
        for marker in cell.corners.reshape(4, 4, 2):
            _outline(copy, marker * factor, _MARKER, 1)
        _outline(copy, cell.outline * factor, colour, 2)
        left, top = (cell.outline * factor).min(0)
        words = f"{cell.item.page + 1}-{cell.item.place + 1} {cell.item.attack}"
        place = (int(left) + 4, int(top) + 16)
        cv2.putText(copy, words, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, (255, 255, 255), 3, cv2.LINE_AA)
        cv2.putText(copy, words, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)
    return np.asarray(copy)


def save_overlay(path: Path, photo: Pixels, found: Findings) -> None:
    """Draw an overlay and save it as JPEG."""
    cv2 = opencv()
    encoded = cv2.imencode(".jpg", draw_overlay(photo, found)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    try:
        with atomic_write(path) as file:
            file.write(encoded.tobytes())
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def _outline(image: Pixels, points: NDArray[np.float64], colour: tuple[int, int, int], width: int) -> None:
    cv2 = opencv()
    cv2.polylines(image, [np.rint(points).astype(np.int32)], True, colour, width, cv2.LINE_AA)
