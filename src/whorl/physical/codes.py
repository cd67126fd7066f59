"""What a marker says: which sheet, which cell, which corner of it, in 49 bits that forgive and detect errors.

A ready-made dictionary has a thousand markers at most, too few to tell the cells of many pages and of several runs
apart. So each marker carries its own message: 17 bits for the sheet, 18 for the cell, 2 for the corner, and 12 check
bits of the BCH(63, 51) code, shortened. Any two words differ in at least 5 bits, so one wrong bit is put right and two
are noticed. A single marker therefore identifies itself, and a photograph of any part of a sheet will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError

SIDE = 7
"""Bits along a side; a dark border of one module surrounds them."""
MODULES = SIDE + 2
SHEET_BITS, CELL_BITS, CORNER_BITS, CHECK_BITS = 17, 18, 2, 12

# The product of the minimal polynomials of a and a^3 over GF(2), a a root of x^6 + x + 1.
_GENERATOR = 0b1010100111001
_BITS = SIDE * SIDE
# Half of its bits are set, at random: without it, small numbers would give nearly blank markers.
_MASK = 0x1A5D36C94E3B1
_BORDER_FAULTS = 6  # of 32 modules


@dataclass(frozen=True, kw_only=True)
class Code:
    """A marker's message.

    Args:
        sheet: fingerprint of the sheet, from 0 to 2^17 - 1.
        cell: the cell's number on that sheet, all pages counted through, from 0 to 2^18 - 1.
        corner: which corner of the cell it stands at: 0 top left, then clockwise.
    """

    sheet: int
    cell: int
    corner: int

    def __post_init__(self) -> None:
        for name, bits in (("sheet", SHEET_BITS), ("cell", CELL_BITS), ("corner", CORNER_BITS)):
            if not 0 <= getattr(self, name) < 1 << bits:
                raise WhorlError(f"a marker's {name} must be from 0 to {(1 << bits) - 1}; got {getattr(self, name)}.")


def modules_of(code: Code) -> NDArray[np.uint8]:
    """Draw a marker: (9, 9), 1 for a light module and 0 for a dark one.

    >>> modules_of(Code(sheet=1, cell=2, corner=3)).shape
    (9, 9)
    """
    message = (code.sheet << CELL_BITS | code.cell) << CORNER_BITS | code.corner
    word = (message << CHECK_BITS | _remainder(message << CHECK_BITS)) ^ _MASK
    drawn = np.zeros((MODULES, MODULES), np.uint8)
    drawn[1:-1, 1:-1] = [
        [word >> (_BITS - 1 - row * SIDE - column) & 1 for column in range(SIDE)] for row in range(SIDE)
    ]
    return drawn


def read_modules(modules: NDArray[np.uint8]) -> list[tuple[Code, int]]:
    """Read a marker that may be rotated, and may have a wrong bit.

    Args:
        modules: (9, 9), 1 for light and 0 for dark.

    Returns:
        Every message that it may carry, with the quarter turns counterclockwise that put it upright. Nearly always
        one or none; a rotated marker is another marker's word now and then, so the caller should know what to expect.

    >>> code = Code(sheet=1, cell=2, corner=3)
    >>> read_modules(np.rot90(modules_of(code), -1))
    [(Code(sheet=1, cell=2, corner=3), 1)]
    """
    if int(modules.sum()) - int(modules[1:-1, 1:-1].sum()) > _BORDER_FAULTS:
        return []
    found = []
    for turns in range(4):
        word = 0
        for bit in np.rot90(modules, turns)[1:-1, 1:-1].ravel().tolist():
            word = word << 1 | bit
        corrected = _correct(word ^ _MASK)
        if corrected is not None:
            message = corrected >> CHECK_BITS
            code = Code(
                sheet=message >> CELL_BITS + CORNER_BITS,
                cell=message >> CORNER_BITS & (1 << CELL_BITS) - 1,
                corner=message & (1 << CORNER_BITS) - 1,
            )
            found.append((code, turns))
    return found


def _remainder(word: int) -> int:
    for place in range(_BITS - 1, CHECK_BITS - 1, -1):
        if word >> place & 1:
            word ^= _GENERATOR << place - CHECK_BITS
    return word


@cache
def _single_faults() -> dict[int, int]:
    """Remainder of each wrong bit, to that bit."""
    return {_remainder(1 << place): 1 << place for place in range(_BITS)}


def _correct(word: int) -> int | None:
    remainder = _remainder(word)
    if not remainder:
        return word
    fault = _single_faults().get(remainder)
    return None if fault is None else word ^ fault
