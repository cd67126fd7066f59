"""The simulated camera: the pose by a literal pinhole, each degradation alone, seeds, presets and sweeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physical.printed_run import page, sheet, shoot, small
from whorl import WhorlError
from whorl.physical import PRESETS, Camera, preset, printed, sweep
from whorl.physical.homography import jacobian, move
from whorl.physical.ink import from_linear, reflectance, to_linear
from whorl.physical.layout import Layout

BLANK = np.full((594, 420, 3), 255, np.uint8)
TINY = {"width": 300, "height": 400}


def literal_pinhole(camera: Camera, layout: Layout, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the page in space point by point, then divide by the distance."""
    width, height = layout.paper
    across, down = point - np.array([width, height]) / 2
    turn, lean, tilt = (math.radians(v) for v in (camera.angle, camera.tilt_direction or 0.0, camera.tilt))
    x, y = across * math.cos(turn) - down * math.sin(turn), across * math.sin(turn) + down * math.cos(turn)
    along, beside = x * math.cos(lean) + y * math.sin(lean), -x * math.sin(lean) + y * math.cos(lean)
    along, away = along * math.cos(tilt), along * math.sin(tilt)  # that side of the page moves away
    x, y = along * math.cos(lean) - beside * math.sin(lean), along * math.sin(lean) + beside * math.cos(lean)
    focal = math.hypot(camera.width, camera.height) / 2 / math.tan(math.radians(camera.field_of_view) / 2)
    density = camera.scale * min(camera.height / height, camera.width / width)
    distance = focal / density + away
    middle = np.array([camera.width - 1, camera.height - 1]) / 2
    return np.asarray(middle + focal * np.array([x, y]) / distance)


@settings(max_examples=50, deadline=None)
@given(
    angle=st.floats(-180, 180),
    scale=st.floats(0.3, 2),
    tilt=st.floats(0, 60),
    direction=st.floats(0, 360),
    across=st.floats(0, 210),
    down=st.floats(0, 297),
)
def test_places_are_those_of_a_pinhole(
    angle: float, scale: float, tilt: float, direction: float, across: float, down: float
) -> None:
    camera = Camera(angle=angle, scale=scale, tilt=tilt, tilt_direction=direction)
    place = camera.place(Layout(), np.random.default_rng(0))
    point = np.array([across, down])
    np.testing.assert_allclose(move(place, point), literal_pinhole(camera, Layout(), point), atol=1e-6)


def test_without_tilt_a_page_is_turned_and_scaled_and_nothing_else() -> None:
    place = Camera(angle=30, scale=0.5).place(Layout(), np.random.default_rng(0))
    slope = jacobian(place, np.array([20.0, 250.0]))
    density = 0.5 * 4000 / Layout().paper[1]
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    np.testing.assert_allclose(slope, density * np.array([[cos, -sin], [sin, cos]]), atol=1e-9)


def test_the_page_fills_the_photograph_at_scale_one() -> None:
    place = Camera().place(Layout(), np.random.default_rng(0))
    corners = move(place, np.array([(0, 0), Layout().paper]))
    assert corners[1, 1] - corners[0, 1] == pytest.approx(4000)
    assert corners[1, 0] - corners[0, 0] < 3000
    assert Camera().frame(Layout(width=297, height=210)) == (4000, 3000)


def test_offsets_stay_within_their_limit() -> None:
    layout = Layout()
    still = Camera().place(layout, np.random.default_rng(0))
    for seed in range(20):
        moved = Camera(offset=20).place(layout, np.random.default_rng(seed))
        off = np.abs(move(moved, np.zeros(2)) - move(still, np.zeros(2)))
        assert (off <= 20 / 299 * layout.picture * 4000 / layout.paper[1] + 1e-9).all()
        assert off.max() > 0


def test_presets_are_the_settings_of_table_5() -> None:
    poses = {name: (camera.angle, camera.scale, camera.offset) for name, camera in PRESETS.items()}
    assert poses["setting1"] == (0, 1, 20)
    assert poses["setting2"] == (5, 0.9, 20)
    assert poses["setting3"] == (15, 0.8, 20)
    assert preset("Setting 3") == PRESETS["setting3"]
    with pytest.raises(WhorlError, match="setting1"):
        preset("setting4")


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
    from whorl.physical import photograph

    layout = Layout()
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
    from whorl.physical.camera import _disk, _streak

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


def test_ink() -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    plain = {"dot_gain": 0.0, "saturation": 1.0, "black": 0.0, "paper": (1.0, 1.0, 1.0)}
    np.testing.assert_array_equal(from_linear()[reflectance(ramp, **plain)], ramp)  # type: ignore[arg-type]
    gained = reflectance(ramp, **(plain | {"dot_gain": 0.15}))[0, :, 0] / 65535  # type: ignore[arg-type]
    covered = 1 - to_linear()
    np.testing.assert_allclose(gained, 1 - (covered + 0.6 * covered * (1 - covered)), atol=1e-4)
    paper = reflectance(ramp, **(plain | {"black": 0.03, "paper": (0.9, 0.8, 0.7)}))[0] / 65535  # type: ignore[arg-type]
    np.testing.assert_allclose(paper[0], 0.03, atol=1e-4)
    np.testing.assert_allclose(paper[-1], (0.9, 0.8, 0.7), atol=1e-4)
    red = np.array([[[255, 0, 0]]], np.uint8)
    dull = reflectance(red, **(plain | {"saturation": 0.8}))[0, 0]  # type: ignore[arg-type]
    assert dull[0] < 65535
    assert dull[1] == dull[2] > 0


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_covers_hide_their_share(share: float) -> None:
    hidden = []
    for name in map(str, range(8)):
        shot = shoot(Camera.perfect(width=300, height=400, covered=share), name)
        hidden.append(np.mean([not shot.shows(box.corners) for box in map(sheet().layout.cell, range(18))]))
    assert np.mean(hidden) == pytest.approx(share, abs=0.3)
    assert min(hidden) > 0
    assert max(hidden) < 1 or share == 0.75


def test_sweeps_combine_every_value_with_every_other() -> None:
    cameras = sweep({"a": Camera(), "b": Camera(angle=5)}, ["tilt=0,20", "defocus=0,1,2", "mosaic=0"])
    assert len(cameras) == 12
    assert cameras["b-tilt20-defocus2"] == Camera(angle=5, tilt=20, defocus=2, mosaic=False)
    for bad, words in (("tilt", "such as"), ("tlit=1", "tilt"), ("tilt=x", "numbers"), ("tilt=90", "from 0 to 80")):
        with pytest.raises(WhorlError, match=words):
            sweep({"a": Camera()}, [bad])


@pytest.mark.parametrize("change", [{"scale": 0}, {"jpeg": 101}, {"paper": (1, 1)}, {"black": 0.6}, {"tilt": math.nan}])
def test_settings_that_cannot_be(change: dict[str, float]) -> None:
    with pytest.raises(WhorlError):
        Camera(**change)  # type: ignore[arg-type]
