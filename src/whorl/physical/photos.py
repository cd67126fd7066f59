"""Photographs as people hand them in: any folder of files, some of which turn out to be something else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whorl.data.image_files import MAX_PIXELS, decode
from whorl.errors import WhorlError
from whorl.physical.libraries import heif

Pixels = NDArray[np.uint8]

_NOT_PHOTOS = frozenset({".json", ".csv", ".txt", ".md", ".html", ".pdf"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"heif"})


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
        with path.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise WhorlError(f"{path}: cannot be read ({error}).") from error
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS:
        return _read_heic(path)
    return decode(path, size=None)


def _read_heic(path: Path) -> Pixels:
    library = heif()
    try:
        image = library.open_heif(path, convert_hdr_to_8bit=True)
        large = math.prod(image.size) > MAX_PIXELS
        # Pillow's image has had its orientation applied by the decoder.
        pixels = None if large else np.asarray(image.to_pillow().convert("RGB"))
    except (OSError, ValueError, RuntimeError, SyntaxError, EOFError) as error:
        raise WhorlError(f"{path}: cannot be read as an image ({error}). Repair or remove it.") from error
    if pixels is None:
        raise WhorlError(f"{path}: too large; expected {MAX_PIXELS:,} pixels at most, got {image.size}.")
    return pixels
