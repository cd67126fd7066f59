"""Places on a page: nothing overlaps, nothing enters the margin, everything is on a printer's dot."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from whorl import WhorlError
from whorl.physical.layout import DOT, PATCHES, Box, PageLayout, page_size

LAYOUTS = [
    PageLayout(),
    PageLayout(width=297, height=210),
    PageLayout(width=215.9, height=279.4, image=60, marker=10),
    PageLayout(width=148, height=210, image=30, marker=5),
]


def overlap(one: Box, other: Box) -> bool:
    apart = one.left + one.width <= other.left + 1e-6 or other.left + other.width <= one.left + 1e-6
    return not (apart or one.top + one.height <= other.top + 1e-6 or other.top + other.height <= one.top + 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_boxes_are_apart_in_the_margins_and_on_dots(layout: PageLayout) -> None:
    boxes = [box for strip in layout.strips() for box in strip]
    for place in range(layout.places):
        boxes += [layout.square(place), *layout.markers(place)]
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    for box in boxes:
        inside = box.left >= layout.margin - DOT and box.left + box.width <= layout.width - layout.margin + DOT
        assert inside
        assert box.top >= layout.margin - DOT
        assert box.top + box.height <= layout.height - layout.margin + DOT
        dots = np.array([box.left, box.top, box.width, box.height]) / DOT
        np.testing.assert_allclose(dots, dots.round(), atol=1e-6)
    assert all(len(strip) == len(PATCHES) for strip in layout.strips())


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_a_cell_is_the_hull_of_its_markers(layout: PageLayout) -> None:
    for place in (0, layout.places - 1):
        corners = np.concatenate([box.corners for box in layout.markers(place)])
        cell = layout.cell(place).corners
        np.testing.assert_allclose(corners.min(0), cell.min(0))
        np.testing.assert_allclose(corners.max(0), cell.max(0))


def test_markers_have_quiet_space_around_them() -> None:
    layout = PageLayout()
    module = layout.markers(0)[0].width / 9
    left, right = layout.markers(0)[1], layout.markers(1)[0]  # of neighbours
    assert right.left - left.left - left.width >= module
    assert layout.square(0).left - layout.markers(0)[0].left - layout.markers(0)[0].width >= module


@pytest.mark.parametrize(
    ("name", "size"),
    [("A4", (210, 297)), (" letter ", (215.9, 279.4)), ("a3-landscape", (420, 297)), ("100x150.5", (100, 150.5))],
)
def test_page_sizes(name: str, size: tuple[float, float]) -> None:
    assert page_size(name) == size


@pytest.mark.parametrize("name", ["A44", "A4-portrait", "10", "x"])
def test_unknown_page_sizes(name: str) -> None:
    with pytest.raises(WhorlError, match="page size"):
        page_size(name)


@pytest.mark.parametrize(
    "settings",
    [{"image": 300}, {"image": 8}, {"marker": 1}, {"width": -1}, {"margin": float("nan")}, {"image": 0}],
)
def test_layouts_that_cannot_be(settings: dict[str, float]) -> None:
    with pytest.raises(WhorlError):
        PageLayout(**settings)
