"""Pillow's JPEG codec on arrays. As a program, it codes what comes in on its standard input.

Imports nothing of whorl's, so that the program starts at once and in little memory.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEADER = struct.Struct("<5Q")
"""What stands before the pixels on a pipe: images, rows, columns, channels, quality."""


def coded(pixels: Iterable[NDArray[np.uint8]], quality: int) -> NDArray[np.uint8]:
    """Compress and decompress (N, H, W, 3) images.

    >>> coded(np.zeros((2, 8, 16, 3), dtype=np.uint8), 75).shape
    (2, 8, 16, 3)
    """
    decoded = []
    for picture in pixels:
        file = BytesIO()
        Image.fromarray(np.ascontiguousarray(picture)).save(file, format="JPEG", quality=quality)
        decoded.append(np.asarray(Image.open(file, formats=("JPEG",))))
    return np.stack(decoded)


def main() -> None:
    """Answer a header and pixels with pixels, until no more come."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := given.read(HEADER.size):
        *shape, quality = HEADER.unpack(header)
        size = int(np.prod(shape))
        pixels = np.frombuffer(given.read(size), dtype=np.uint8).reshape(shape)
        answers.write(coded(pixels, quality).data)
        answers.flush()


if __name__ == "__main__":
    main()
