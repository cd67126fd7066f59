"""The simulated printer and camera: the pose by a literal pinhole, ink, presets and sweeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whorl import WhorlError
from whorl.physical import PRESETS, Camera, preset, sweep
from whorl.physical.camera import from_linear, reflectance, to_linear
from whorl.physical.homography import jacobian, project
from whorl.physical.layout import PageLayout


def literal_pinhole(camera: Camera, layout: PageLayout, point: NDArray[np.float64]) -> NDArray[np.float64]:
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
    place = camera.place(PageLayout(), np.random.default_rng(0))
    point = np.array([across, down])
    np.testing.assert_allclose(project(place, point), literal_pinhole(camera, PageLayout(), point), atol=1e-6)


def test_without_tilt_a_page_is_turned_and_scaled_and_nothing_else() -> None:
    place = Camera(angle=30, scale=0.5).place(PageLayout(), np.random.default_rng(0))
    slope = jacobian(place, np.array([20.0, 250.0]))
    density = 0.5 * 4000 / PageLayout().paper[1]
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    np.testing.assert_allclose(slope, density * np.array([[cos, -sin], [sin, cos]]), atol=1e-9)


def test_the_page_fills_the_photograph_at_scale_one() -> None:
    place = Camera().place(PageLayout(), np.random.default_rng(0))
    corners = project(place, np.array([(0, 0), PageLayout().paper]))
    assert corners[1, 1] - corners[0, 1] == pytest.approx(4000)
    assert corners[1, 0] - corners[0, 0] < 3000
    assert Camera().frame(PageLayout(width=297, height=210)) == (4000, 3000)


def test_offsets_stay_within_their_limit() -> None:
    layout = PageLayout()
    still = Camera().place(layout, np.random.default_rng(0))
    for seed in range(20):
        moved = Camera(offset=20).place(layout, np.random.default_rng(seed))
        off = np.abs(project(moved, np.zeros(2)) - project(still, np.zeros(2)))
        assert (off <= 20 / 299 * layout.image * 4000 / layout.paper[1] + 1e-9).all()
        assert off.max() > 0


def test_presets_are_the_settings_of_table_5() -> None:
    poses = {name: (camera.angle, camera.scale, camera.offset) for name, camera in PRESETS.items()}
    assert poses["setting1"] == (0, 1, 20)
    assert poses["setting2"] == (5, 0.9, 20)
    assert poses["setting3"] == (15, 0.8, 20)
    assert preset("Setting 3") == PRESETS["setting3"]
    with pytest.raises(WhorlError, match="setting1"):
        preset("setting4")


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


def test_sweeps_combine_every_value_with_every_other() -> None:
    cameras = sweep({"a": Camera(), "b": Camera(angle=5)}, ["tilt=0,20", "defocus=0,1,2", "mosaic=0"])
    assert len(cameras) == 12
    assert cameras["b-tilt20-defocus2"] == Camera(angle=5, tilt=20, defocus=2, mosaic=False)
    for bad, words in (("tilt", "such as"), ("tlit=1", "tilt"), ("tilt=x", "numbers"), ("tilt=90", r"in \[0, 80\]")):
        with pytest.raises(WhorlError, match=words):
            sweep({"a": Camera()}, [bad])


@pytest.mark.parametrize("change", [{"scale": 0}, {"jpeg": 101}, {"paper": (1, 1)}, {"black": 0.6}, {"tilt": math.nan}])
def test_settings_that_cannot_be(change: dict[str, float]) -> None:
    with pytest.raises(WhorlError):
        Camera(**change)  # type: ignore[arg-type]
