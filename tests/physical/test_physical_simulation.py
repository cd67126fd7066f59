"""Simulated photographs: each degradation alone, seeds, files, and what hides a part of the page."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from physical.printed_run import page, sheet, shoot, small
from whorl.physical import PRESETS, Camera, PageLayout, photograph, printed
from whorl.physical.camera import to_linear
from whorl.physical.simulation import _disk, _streak

BLANK = np.full((594, 420, 3), 255, np.uint8)
TINY = {"width": 300, "height": 400}


def test_the_same_seed_and_name_give_the_same_file() -> None:
    camera = small(PRESETS["setting3"]).with_(width=600, height=800)
    one, again, other = shoot(camera, "a"), shoot(camera, "a"), shoot(camera, "b")
    assert one.file == again.file
    assert one.file != other.file
    np.testing.assert_array_equal(one.photo, again.photo)


def test_a_perfect_camera_changes_nothing() -> None:
    camera = Camera.perfect(width=2480, height=3508)
    photo = shoot(camera).photo
    # The page is as long as the photograph, so pixels meet dots, and the rest is desk.
    assert photo.shape == (3508, 2480, 3)
    assert np.abs(photo.astype(int) - page()).mean() < 0.1


def grey_photo(camera: Camera) -> NDArray[np.float64]:
    """A blank page, without its surroundings."""
    layout = PageLayout()
    photo = photograph(printed(BLANK, layout, camera), layout, camera, name="blank").photo
    return photo[40:360, 40:260].astype(float)


@pytest.mark.parametrize(
    ("change", "effect"),
    [
        ({"exposure": -1.0}, lambda photo: photo.mean() < 200),
        ({"paper": (0.8, 0.8, 0.6)}, lambda photo: photo[..., 2].mean() < photo[..., 0].mean() - 15),
        ({"uneven_light": 0.5}, lambda photo: np.ptp(photo[..., 1]) > 25),
        ({"vignetting": 0.5}, lambda photo: photo[150:170, 100:120].mean() > photo[:10, :10].mean() + 15),
        ({"colour_cast": 0.3, "exposure": -1.0}, lambda photo: np.ptp(photo.mean((0, 1))) > 5),
        ({"electrons": 500.0, "exposure": -0.5}, lambda photo: photo.std() > 2),
    ],
    ids=["exposure", "paper", "uneven", "vignetting", "cast", "noise"],
)
def test_each_degradation_does_its_part(change: dict[str, float], effect: object) -> None:
    assert callable(effect)
    perfect = grey_photo(Camera.perfect(**TINY))
    assert (perfect == 255).all()
    assert effect(grey_photo(Camera.perfect(**TINY, **change)))


def test_photon_noise_follows_the_square_root_of_light() -> None:
    spread = {}
    for stops in (-2, -4):
        photo = grey_photo(Camera.perfect(**TINY, electrons=2000.0, exposure=stops))
        spread[stops] = (to_linear()[photo.astype(int)]).std()
    # A quarter of the light: half the noise.
    assert spread[-4] / spread[-2] == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("change", [{"defocus": 3.0}, {"motion": 8.0}, {"ink_blur": 0.6}], ids=str)
def test_blurs_keep_the_light_and_lose_detail(change: dict[str, float]) -> None:
    sharp, soft = (shoot(Camera.perfect(width=750, height=1000, **part)).photo.astype(float) for part in ({}, change))
    assert np.abs(np.diff(soft, axis=0)).mean() < 0.8 * np.abs(np.diff(sharp, axis=0)).mean()
    light = [to_linear()[photo.astype(int)].mean() for photo in (sharp, soft)]
    assert light[0] == pytest.approx(light[1], rel=0.01)


def test_motion_blurs_in_one_direction() -> None:
    streak = _streak(9, 0.0)
    assert streak.sum() == pytest.approx(1)
    assert (streak.sum(1) > 1e-6).sum() == 1
    assert (streak.sum(0) > 1e-6).sum() in (9, 10, 11)
    disk = _disk(2.5)
    np.testing.assert_allclose(disk, disk.T)
    assert disk.sum() == pytest.approx(1)


def test_a_mosaic_keeps_flat_colours() -> None:
    photos = [grey_photo(Camera.perfect(**TINY, exposure=-1.0, mosaic=mosaic)) for mosaic in (False, True)]
    np.testing.assert_allclose(photos[0], photos[1], atol=1)


def test_jpeg_quality_shows_in_the_file() -> None:
    sizes = [len(shoot(Camera.perfect(width=600, height=800, jpeg=quality)).file) for quality in (30, 90)]
    assert sizes[0] < sizes[1] / 2
    assert shoot(Camera.perfect(width=600, height=800)).suffix == ".png"


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_covers_hide_their_share(share: float) -> None:
    hidden = []
    for name in map(str, range(8)):
        shot = shoot(Camera.perfect(width=300, height=400, covered=share), name)
        hidden.append(np.mean([not shot.shows(box.corners) for box in map(sheet().layout.cell, range(18))]))
    assert np.mean(hidden) == pytest.approx(share, abs=0.3)
    assert min(hidden) > 0
    assert max(hidden) < 1 or share == 0.75
