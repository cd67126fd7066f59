"""Round trip: a PDF, rendered at 300 dots an inch, photographed; whole cells are found, and none is mistaken."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from physical.printed_run import corner_errors, found_in, page, sheet, shoot, small
from whorl.physical import PRESETS, Camera, PrintedSheet, photograph, printed
from whorl.physical.layout import PageLayout
from whorl.physical.pdf import render_pages
from whorl.physical.simulation import Photograph

SETTINGS = ("setting1", "setting2", "setting3")
TURNS = (0, 90, 180, 270)
FEW = [
    small(PRESETS["setting1"]),
    small(PRESETS["setting2"]).with_(angle=95),
    small(PRESETS["setting3"]).with_(angle=195),
    small(PRESETS["setting3"]).with_(angle=285, tilt=20),
    small(PRESETS["setting1"]).with_(scale=0.75, tilt=40, tilt_direction=90),
    small(PRESETS["setting2"]).with_(scale=0.75, tilt=40, tilt_direction=200),
    small(PRESETS["setting1"]).with_(covered=0.5),
    small(PRESETS["setting3"]).with_(covered=0.5, tilt=15),
]


def round_trip(cameras: list[Camera]) -> tuple[int, int, int, NDArray[np.float64]]:
    """Photograph the page with each camera: cells visible, of those found, mistaken ones, and errors of corners."""
    visible = found = mistaken = 0
    errors: list[float] = []
    for number, camera in enumerate(cameras):
        shot = shoot(camera, f"photo {number}")
        cells = found_in(shot.photo).cells
        seen = {item.place for item in sheet().prints if shot.shows(sheet().layout.cell(item.place).corners)}
        visible += len(seen)
        found += len(seen & {cell.item.place for cell in cells})
        for cell in cells:
            off = corner_errors(cell, shot.paper)
            # A cell that is taken for another is at least a cell's width off.
            mistaken += max(off) > 50
            errors += off
    return visible, found, mistaken, np.array(errors)


def check(cameras: list[Camera], least: int) -> None:
    visible, found, mistaken, errors = round_trip(cameras)
    assert visible >= least
    assert found >= 0.99 * visible
    assert not mistaken
    assert np.median(errors) < 1
    assert np.percentile(errors, 95) < 2


def test_round_trip() -> None:
    check(FEW, least=100)


@pytest.mark.slow
@pytest.mark.parametrize("pixels", [(1500, 2000), (3000, 4000)], ids=str)
def test_round_trip_of_every_pose(pixels: tuple[int, int]) -> None:
    every = product(SETTINGS, TURNS, (0, 10, 20, 30, 40), (0.0, 0.5))
    cameras = []
    for name, turn, tilt, covered in every:
        camera = PRESETS[name].with_(width=pixels[0], height=pixels[1], tilt=tilt, covered=covered)
        cameras.append(camera.with_(angle=camera.angle + turn, scale=camera.scale * (0.85 if tilt > 20 else 1)))
    check(cameras, least=1000)


def test_orientation_is_that_of_the_page_whatever_the_turn() -> None:
    for turn in TURNS:
        shot = shoot(small(Camera.perfect(angle=turn, scale=0.7)))
        cells = found_in(shot.photo).cells
        assert len(cells) == 18
        assert max(max(corner_errors(cell, shot.paper)) for cell in cells) < 1


def other_sheet() -> PrintedSheet:
    """The same images in another layout: another print."""
    return PrintedSheet(
        PageLayout(image=50), tuple(item for item in sheet().prints if item.place < PageLayout(image=50).places)
    )


def side_by_side(*photos: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.concatenate(photos, axis=1))


def shot_of(made: PrintedSheet, name: str) -> Photograph:
    camera = small(PRESETS["setting2"]).with_(width=1200, height=1600)
    return photograph(printed(next(render_pages(made)), made.layout, camera), made.layout, camera, name=name)


def test_several_sheets_in_one_photograph_are_told_apart() -> None:
    one, other = shot_of(sheet(), "one"), shot_of(other_sheet(), "other")
    both = found_in(side_by_side(one.photo, other.photo), sheet(), other_sheet())
    counts = {made.fingerprint: sum(cell.sheet is made for cell in both.cells) for made in (sheet(), other_sheet())}
    assert counts[sheet().fingerprint] == 18
    assert len(both.cells) == 18 + len(other_sheet().prints)
    for cell in both.cells:
        left = cell.outline[:, 0].max() < one.photo.shape[1]
        assert left == (cell.sheet.fingerprint == sheet().fingerprint)


def test_two_copies_of_a_page_are_two_captures_of_each_cell() -> None:
    one, again = shot_of(sheet(), "one"), shot_of(sheet(), "again")
    cells = found_in(side_by_side(one.photo, again.photo)).cells
    assert len(cells) == 36
    for place in range(18):
        pair = [cell for cell in cells if cell.item.place == place]
        assert len(pair) == 2
        assert abs(pair[0].outline[:, 0].mean() - pair[1].outline[:, 0].mean()) > 500
        assert all(cell.misfit < 1 for cell in pair)


def test_markers_of_another_print_are_strangers() -> None:
    shot = shot_of(other_sheet(), "other")
    found = found_in(shot.photo, sheet())
    assert not found.cells
    assert not found.partly
    assert max(found.strangers, key=lambda name: found.strangers[name]) == other_sheet().fingerprint
    assert found.strangers[other_sheet().fingerprint] >= 3 * len(other_sheet().prints)


def test_part_of_a_sheet_will_do() -> None:
    shot = shoot(small(Camera.perfect(scale=1.0)))
    part = np.ascontiguousarray(shot.photo[900:1500, 100:1100])  # neither the header nor the strips
    cells = found_in(part).cells
    assert cells
    for cell in cells:
        offset = np.array([[1, 0, -100], [0, 1, -900], [0, 0, 1]], float)
        assert max(corner_errors(cell, offset @ shot.paper)) < 1


def test_a_cell_with_a_hidden_corner_does_not_count() -> None:
    shot = shoot(small(Camera.perfect()))
    cells = {cell.item.place: cell for cell in found_in(shot.photo).cells}
    photo = shot.photo.copy()
    left, top = cells[7].corners.min(0).astype(int) - 2
    photo[top : top + 60, left : left + 60] = 128
    found = found_in(photo)
    assert {item.place for item in found.partly} == {7}
    assert {cell.item.place for cell in found.cells} == set(range(18)) - {7}


def test_a_marker_that_no_contour_shows_is_found_by_the_others() -> None:
    shot = shoot(small(Camera.perfect()))
    cells = {cell.item.place: cell for cell in found_in(shot.photo).cells}
    photo = shot.photo.copy()
    # A bright line across the dark border: no longer a closed shape, but still the same marker.
    left, top = cells[7].corners[:4].min(0).astype(int)
    photo[top - 2 : top + 12, left + 15 : left + 18] = 255
    found = found_in(photo)
    assert {cell.item.place for cell in found.cells} == set(range(18))
    again = next(cell for cell in found.cells if cell.item.place == 7)
    assert max(corner_errors(again, shot.paper)) < 0.5


def test_nothing_is_found_where_nothing_is() -> None:
    random = np.random.default_rng(0)
    for photo in (random.integers(0, 256, (600, 800, 3)).astype(np.uint8), np.zeros((40, 30, 3), np.uint8)):
        found = found_in(photo)
        assert not [*found.cells, *found.partly, *found.strangers]


def test_a_mirrored_photograph_shows_nothing() -> None:
    mirrored = np.ascontiguousarray(page()[::2, ::-2])
    found = found_in(mirrored)
    assert not found.cells
    assert not found.partly
