"""McNemar's test against enumerating every way the images could have fallen."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl import WhorlError
from whorl.evaluation import Comparison, compare


@pytest.mark.parametrize(("b", "c"), [(b, c) for b in range(6) for c in range(6)])
def test_the_p_value_is_the_share_of_splits_at_least_as_uneven(b: int, c: int) -> None:
    splits = [abs(2 * sum(coins) - (b + c)) for coins in product((0, 1), repeat=b + c)]
    expected = sum(uneven >= abs(b - c) for uneven in splits) / len(splits)
    assert Comparison(n=20, b=b, c=c).p_value == pytest.approx(expected, abs=1e-15)


def test_many_images_are_no_trouble() -> None:
    assert Comparison(n=50_000, b=10_000, c=10_000).p_value == 1
    assert 0 < Comparison(n=50_000, b=9_600, c=10_000).p_value < 0.01
    assert Comparison(n=50_000, b=20_000, c=0).p_value == 0  # below the smallest float


def test_differs_at_a_level() -> None:
    comparison = Comparison(n=9, b=6, c=0)  # p = 2 / 64
    assert comparison.differs()
    assert not comparison.differs(alpha=0.03)


rows = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=30)


@given(rows)
def test_only_clean_correct_images_count(rows: list[tuple[bool, bool, bool]]) -> None:
    clean, one, other = (torch.tensor(column) for column in zip(*rows, strict=True))
    found = compare(clean, one, other)
    asked = [(not first, not second) for right, first, second in rows if right]
    assert found.n == len(asked)
    assert found.b == sum(first and not second for first, second in asked)
    assert found.c == sum(second and not first for first, second in asked)


@given(st.integers(1, 4), st.data())
def test_an_image_has_one_vote_however_many_the_poses(poses: int, data: st.DataObject) -> None:
    cells = data.draw(st.lists(st.lists(st.tuples(*[st.booleans()] * 3), min_size=7, max_size=7), min_size=poses))
    clean, one, other = torch.tensor(cells).unbind(-1)
    found = compare(clean, one, other)
    votes = []
    for image in zip(*cells, strict=True):
        first = sum(right and not answer for right, answer, _ in image)
        second = sum(right and not answer for right, _, answer in image)
        votes.append(first - second)
    assert (found.b, found.c) == (sum(vote > 0 for vote in votes), sum(vote < 0 for vote in votes))
    assert found.b + found.c <= found.n <= 7


def test_other_images_are_refused() -> None:
    right = torch.tensor([True, True])
    with pytest.raises(WhorlError, match="only on the same images, target and poses"):
        compare(right, right[None], right)
    with pytest.raises(WhorlError, match=r"of one shape; got \(2,\), \(2,\) and \(1,\)"):
        compare(right, right, right[:1])
