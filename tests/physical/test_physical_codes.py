"""Marker codes: every message comes back, one wrong bit is forgiven, two are noticed, whichever way up it is."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whorl import WhorlError
from whorl.physical.codes import CELL_BITS, SHEET_BITS, SIDE, Code, modules_of, read_modules

CODES = st.builds(
    Code, sheet=st.integers(0, 2**SHEET_BITS - 1), cell=st.integers(0, 2**CELL_BITS - 1), corner=st.integers(0, 3)
)
PLACES = [(row + 1, column + 1) for row in range(SIDE) for column in range(SIDE)]


@given(code=CODES, turns=st.integers(0, 3))
def test_a_message_comes_back_whichever_way_up(code: Code, turns: int) -> None:
    assert (code, turns) in read_modules(np.rot90(modules_of(code), -turns))


@given(code=CODES, place=st.sampled_from(PLACES))
def test_one_wrong_bit_is_put_right(code: Code, place: tuple[int, int]) -> None:
    modules = modules_of(code)
    modules[place] ^= 1
    assert (code, 0) in read_modules(modules)


def test_two_wrong_bits_are_never_taken_for_the_message_or_for_another() -> None:
    code = Code(sheet=0x1234, cell=77, corner=2)
    for pair in combinations(PLACES, 2):
        modules = modules_of(code)
        for place in pair:
            modules[place] ^= 1
        assert all(turns for _, turns in read_modules(modules)), pair  # upright it is no word at all


def test_words_differ_in_five_bits_at_least() -> None:
    random = np.random.default_rng(0)
    words = [
        modules_of(Code(sheet=int(s), cell=int(c), corner=int(k))).ravel()
        for s, c, k in zip(
            random.integers(0, 64, 400), random.integers(0, 64, 400), random.integers(0, 4, 400), strict=True
        )
    ]
    words = list({word.tobytes(): word for word in words}.values())
    assert min(int((one != other).sum()) for one, other in combinations(words, 2)) == 5


def test_random_squares_are_seldom_markers_and_never_of_a_known_sheet() -> None:
    random = np.random.default_rng(1)
    read = []
    for _ in range(4000):
        modules = np.zeros((9, 9), np.uint8)
        modules[1:-1, 1:-1] = random.integers(0, 2, (7, 7))
        read += read_modules(modules)
    assert len(read) < 0.08 * 4000  # four ways up, 50 words of 4096 each
    assert not [code for code, _ in read if code.sheet == 0x1234]


def test_a_light_border_is_no_marker() -> None:
    modules = modules_of(Code(sheet=1, cell=1, corner=0))
    modules[0] = 1
    assert read_modules(modules) == []


@pytest.mark.parametrize(
    ("field", "value"), [("sheet", 2**SHEET_BITS), ("cell", 2**CELL_BITS), ("corner", 4), ("cell", -1)]
)
def test_what_does_not_fit_is_refused(field: str, value: int) -> None:
    with pytest.raises(WhorlError, match=field):
        Code(**({"sheet": 0, "cell": 0, "corner": 0} | {field: value}))
