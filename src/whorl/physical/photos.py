"""Photographs as people hand them in, some of which are something else; and copies that show what was found."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whorl.data.image_files import MAX_PIXELS, Pixels, decode, unreadable
from whorl.errors import WhorlError
from whorl.files import regular, write_file
from whorl.physical.detection import Findings
from whorl.physical.libraries import library, opencv
from whorl.report.gallery import CLEAN

_NOT_PHOTOS = frozenset({".json", ".csv", ".txt", ".md", ".html", ".pdf"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"heif"})
_OVERLAY_SIDE = 1200  # pixels of its longest side at most
_CLEAN, _ATTACKED, _MARKER = (26, 142, 84), (207, 34, 46), (30, 110, 220)


def list_photos(places: Iterable[str | Path]) -> list[Path]:
    """List photographs.

    Args:
        places: files, and folders whose files are all taken, but for hidden ones and those that are plainly text or
            documents.

    Raises:
        WhorlError: a place is not there, or there is nothing in any.
    """
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
            found += [path for path in inside if path.suffix.lower() not in _NOT_PHOTOS]
        elif place.exists():
            found.append(place)
        else:
            raise WhorlError(f"{place}: no such file or folder. Expected photographs, or a folder of them.")
    if not found:
        raise WhorlError("expected at least one photograph; the folders that were given hold none.")
    return found


def read_photo(path: Path) -> Pixels:
    """Read a photograph upright: (H, W, 3) RGB, uint8.

    Args:
        path: whatever ``whorl.load_image`` reads; and HEIC, where the package for it is installed.

    Raises:
        WhorlError: it cannot be read, or is too large.
    """
    try:
        with regular(path).open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise WhorlError(f"{path}: cannot be read ({error}).") from error
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS:
        return _read_heic(path)
    return decode(path, size=None)


def _read_heic(path: Path) -> Pixels:
    heif = library("pillow_heif")
    try:
        image = heif.open_heif(path, convert_hdr_to_8bit=True)
        large = math.prod(image.size) > MAX_PIXELS
        # Pillow's image has had its orientation applied by the decoder.
        pixels = None if large else np.asarray(image.to_pillow().convert("RGB"))
    except (OSError, ValueError, RuntimeError, SyntaxError, EOFError) as error:
        raise unreadable(path, error) from error
    if pixels is None:
        raise WhorlError(f"{path}: too large; expected {MAX_PIXELS:,} pixels at most, got {image.size}.")
    return pixels


def draw_overlay(photo: Pixels, found: Findings) -> Pixels:
    """Draw outlines of images (green: clean, red: attacked) and of markers, and what each image is.

    Args:
        photo: (H, W, 3) RGB, uint8.
        found: what was found in it.
    """
    cv2 = opencv()
    factor = min(1.0, _OVERLAY_SIDE / max(photo.shape[:2]))
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
    write_file(path, encoded.tobytes())


def _outline(image: Pixels, points: NDArray[np.float64], colour: tuple[int, int, int], width: int) -> None:
    cv2 = opencv()
    cv2.polylines(image, [np.rint(points).astype(np.int32)], True, colour, width, cv2.LINE_AA)
