"""Where things stand on a printed page, in millimetres from its top left corner: (right, down).

Everything stands on whole dots of a printer of 300 dots an inch, so that nothing is moved when a page is rendered at
300, 600 or 1200.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import floor
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError, unknown_name
from whorl.physical.codes import MODULES
from whorl.records import Limits, Record

Points = NDArray[np.float64]
Length = Annotated[float, Limits(above=0, most=2000), "a length in millimetres, above 0 and at most 2000"]

PAGES = {"a3": (297.0, 420.0), "a4": (210.0, 297.0), "a5": (148.0, 210.0), "letter": (215.9, 279.4)}
"""Width and height in millimetres, upright."""

GREYS = (0, 51, 102, 153, 204, 255)
PATCHES: tuple[tuple[int, int, int], ...] = (
    *((level, level, level) for level in GREYS),
    *((255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 255, 255), (255, 0, 255), (255, 255, 0)),
)
"""Colours of the patch strip from left to right, 8-bit sRGB: greys from black to white, then the purest colours."""

DOT = 25.4 / 300
"""Millimetres of a dot."""
_HEADER, _PATCH, _STRIP, _GAP, _CAPTION = 6.0, 8.0, 5.0, 2.0, 3.0
_MOST_PLACES = 400
_SIZE = re.compile(r"(\d{1,4}(?:\.\d+)?)x(\d{1,4}(?:\.\d+)?)")


def whole_dots(length: float, of: int = 1) -> float:
    """Round a length in millimetres to whole dots.

    Args:
        length: in millimetres.
        of: round to multiples of so many dots.

    >>> round(whole_dots(7.2, of=9), 3)
    6.858
    """
    return round(length / (of * DOT)) * of * DOT


@dataclass(frozen=True)
class Box:
    """A rectangle in millimetres: its top left corner, width and height."""

    left: float
    top: float
    width: float
    height: float

    @property
    def corners(self) -> Points:
        """(4, 2): top left, top right, bottom right, bottom left."""
        right, bottom = self.left + self.width, self.top + self.height
        return np.array([(self.left, self.top), (right, self.top), (right, bottom), (self.left, bottom)])


@dataclass(frozen=True, kw_only=True, repr=False)
class PageLayout(Record):
    """How pages are laid out. All lengths are in millimetres, and rounded to whole dots where they are used.

    Args:
        width: of the page; A4's 210 by default.
        height: of the page; A4's 297 by default.
        image: side of the square that each image fills or fits into.
        marker: side of a marker, its dark border included.
        gap: white space between a marker and its image; at least one square of the marker's pattern, or it is hard to
            find.
        margin: nothing is printed nearer than this to the page's edge, so that printers and scissors can do no harm.

    >>> PageLayout().columns, PageLayout().rows
    (3, 6)
    """

    width: Length = PAGES["a4"][0]
    height: Length = PAGES["a4"][1]
    image: Length = 38.0
    marker: Length = 7.2
    gap: Length = 1.2
    margin: Length = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.marker < MODULES * 2 * DOT:
            raise WhorlError(f"a marker must be at least {MODULES * 2 * DOT:.1f} mm wide; got {self.marker:g} mm.")
        if self.image < 2 * self.marker + self.gap:
            raise WhorlError(
                f"an image must be at least {2 * self.marker + self.gap:g} mm wide, for two markers beside it; got "
                f"{self.image:g} mm. Choose a larger image, or smaller markers."
            )
        if not 1 <= self.places <= _MOST_PLACES:
            raise WhorlError(
                f"a page must hold 1 to {_MOST_PLACES} images; of {self.image:g} mm, with markers, {self.places} "
                f"fit on {self.width:g} x {self.height:g} mm. Choose another image size or page."
            )

    @property
    def columns(self) -> int:
        """Cells in a row: an image and its markers each."""
        return max(0, floor((self.width - 2 * self.margin + _GAP) / self._pitch[0] + 1e-9))

    @property
    def rows(self) -> int:
        """Rows of cells on a page."""
        return max(0, floor((self._bottom - self._top + _GAP) / self._pitch[1] + 1e-9))

    @property
    def places(self) -> int:
        """Cells on a page."""
        return self.columns * self.rows

    @property
    def paper(self) -> tuple[float, float]:
        """Width and height of the page in mm, rounded to whole dots of 1/300 inch."""
        return whole_dots(self.width), whole_dots(self.height)

    @property
    def _image(self) -> float:
        return whole_dots(self.image)

    @property
    def _marker(self) -> float:
        return whole_dots(self.marker, of=MODULES)

    @property
    def _reach(self) -> float:
        """How far a cell reaches beyond its image, left and right."""
        return self._marker + whole_dots(self.gap)

    @property
    def _pitch(self) -> tuple[float, float]:
        return whole_dots(self._image + 2 * self._reach + _GAP), whole_dots(self._image + _CAPTION + _GAP)

    @property
    def _top(self) -> float:
        return whole_dots(self.margin + _HEADER + _STRIP + _GAP)

    @property
    def _bottom(self) -> float:
        return self.height - self.margin - _STRIP - _GAP

    def square(self, place: int) -> Box:
        """Give the square of an image, by the cell's place on its page: row by row, from 0."""
        row, column = divmod(place, self.columns)
        across, down = self._pitch
        left = whole_dots((self.width - self.columns * across + _GAP) / 2) + column * across
        return Box(left + self._reach, self._top + row * down, self._image, self._image)

    def markers(self, place: int) -> tuple[Box, ...]:
        """Give the four markers of a cell, left and right of its image: the top left one, then clockwise."""
        square, side = self.square(place), self._marker
        left, right = square.left - self._reach, square.left + square.width + self._reach - side
        top, bottom = square.top, square.top + square.height - side
        places = ((left, top), (right, top), (right, bottom), (left, bottom))
        return tuple(Box(x, y, side, side) for x, y in places)

    def cell(self, place: int) -> Box:
        """Give the whole cell: image and markers."""
        square, reach = self.square(place), self._reach
        return Box(square.left - reach, square.top, square.width + 2 * reach, square.height)

    def strips(self) -> tuple[tuple[Box, ...], ...]:
        """Give the patches of known colour at the top and at the bottom of a page, from left to right."""
        # A page that is too narrow for the usual patches gets narrower ones.
        wide = whole_dots(min(_PATCH, (self.width - 2 * self.margin) / len(PATCHES)))
        left = whole_dots((self.width - wide * len(PATCHES)) / 2)
        tops = (whole_dots(self.margin + _HEADER), whole_dots(self.height - self.margin - _STRIP))
        return tuple(
            tuple(Box(left + i * wide, top, wide, whole_dots(_STRIP)) for i in range(len(PATCHES))) for top in tops
        )

    def header(self) -> Box:
        """Give the line of text at the top of a page."""
        return Box(self.margin, self.margin, self.width - 2 * self.margin, _HEADER)


def page_size(name: str) -> tuple[float, float]:
    """Read a page's size.

    Args:
        name: a3, a4, a5 or letter, in any case, with ``-landscape`` or not; or ``WIDTHxHEIGHT`` in millimetres.

    >>> page_size("A4-landscape"), page_size("100x150")
    ((297.0, 210.0), (100.0, 150.0))
    """
    plain, _, landscape = name.strip().lower().partition("-")
    if plain in PAGES and landscape in ("", "landscape"):
        width, height = PAGES[plain]
        return (height, width) if landscape else (width, height)
    given = _SIZE.fullmatch(name.strip().lower())
    if given:
        return float(given[1]), float(given[2])
    hint = "Give one of those, with -landscape or not, or WIDTHxHEIGHT in millimetres."
    raise unknown_name("page size", name, PAGES, hint=hint)
