"""What a printer makes of a page: fewer colours, darker middle tones, paper that is not quite white."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from whorl.physical.libraries import opencv

Linear = NDArray[np.uint16]
"""Light in linear units, 65535 for all of it."""

FULL = 65535.0
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@cache
def to_linear() -> NDArray[np.float64]:
    """Linear light, 0 to 1, of each of the 256 levels of sRGB."""
    level = np.arange(256) / 255
    return np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)


@cache
def from_linear() -> NDArray[np.uint8]:
    """Level of sRGB for each of the 65536 levels of linear light."""
    light = np.arange(65536) / FULL
    level = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(255 * level), np.uint8)


def reflectance(
    page: NDArray[np.uint8],
    *,
    dot_gain: float,
    saturation: float,
    black: float,
    paper: tuple[float, float, float],
) -> Linear:
    """Print a page.

    The level of a channel asks for a coverage a with ink, which dot gain g makes a + 4·g·a·(1 - a): Yule and Nielsen's
    effect, in the quadratic form that press standards use. Colours are then drawn towards grey, and the range from full
    ink to bare paper takes the place of the range from nothing to white.

    Args:
        page: (H, W, 3) sRGB, uint8.
        dot_gain: how much half a coverage grows.
        saturation: 1 keeps colours, 0 makes them grey.
        black: reflectance of full ink, 0 to 1.
        paper: reflectance of bare paper in red, green and blue.

    Returns:
        (H, W, 3) linear.

    >>> grey = np.full((1, 1, 3), 128, np.uint8)
    >>> plain = reflectance(grey, dot_gain=0, saturation=1, black=0, paper=(1, 1, 1))
    >>> gained = reflectance(grey, dot_gain=0.15, saturation=1, black=0, paper=(1, 1, 1))
    >>> from_linear()[plain][0, 0, 0], bool(gained[0, 0, 0] < plain[0, 0, 0])
    (np.uint8(128), True)
    """
    cv2 = opencv()
    cover = 1 - to_linear()
    cover = np.clip(cover + 4 * dot_gain * cover * (1 - cover), 0, 1)
    light = cv2.LUT(page, (FULL * (1 - cover)).round().astype(np.uint16))
    mix = saturation * np.eye(3) + (1 - saturation) * np.tile(_LUMINANCE, (3, 1))
    white = np.array(paper)
    matrix = np.column_stack(((white - black)[:, None] * mix, np.full(3, FULL * black)))
    if np.array_equal(matrix, np.eye(3, 4)):
        return np.asarray(light)
    return np.asarray(cv2.transform(light, matrix))
