"""Images cut out of photographs: as seen is ``whorl.affine`` of the original, rectified is the original."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

import whorl
from physical.printed_run import found_in, sheet, shoot, small
from whorl import WhorlError
from whorl.data.image_files import decode, to_tensor
from whorl.geometry.pose import REFERENCE_SIDE
from whorl.physical import PRESETS, Camera, as_seen, measure, rectified, unit
from whorl.physical.extraction import balanced, grey_curves
from whorl.physical.simulation import Photograph

POSES = [(0.0, 1.0), (5.0, 0.9), (15.0, 0.8), (90.0, 0.7), (-30.0, 0.65), (180.0, 1.0)]


def perfect(angle: float = 0.0, scale: float = 1.0, tilt: float = 0.0) -> Photograph:
    """A photograph of twelve megapixels without any degradation."""
    return shoot(Camera.perfect(angle=angle, scale=scale, tilt=tilt, tilt_direction=30.0), dpi=600)


def difference(one: NDArray[np.uint8], other: Tensor) -> float:
    return float((to_tensor(one) - other).abs().mean()) * 255


@pytest.mark.parametrize(("angle", "scale"), POSES[:3], ids=str)
def test_as_seen_is_affine_of_the_original(angle: float, scale: float) -> None:
    check_as_seen(angle, scale, cells=6)


@pytest.mark.slow
@pytest.mark.parametrize(("angle", "scale"), POSES, ids=str)
def test_as_seen_is_affine_of_the_original_in_every_cell(angle: float, scale: float) -> None:
    check_as_seen(angle, scale, cells=18)


def check_as_seen(angle: float, scale: float, cells: int) -> None:
    shot = perfect(angle, scale)
    found = found_in(shot.photo).cells[:cells]
    assert len(found) == cells
    differences = []
    for cell in found:
        original = to_tensor(decode(cell.item.file, size=cell.item.size))[None]
        per_pixel = unit(cell, shot.photo.shape)
        for shift in ((0.0, 0.0), (17.0, -9.0)):
            pixels = tuple(part * 224 / REFERENCE_SIDE for part in shift)
            expected = whorl.affine(original, angle=angle, scale=scale, shift=(pixels[0], pixels[1]))[0]
            differences.append(difference(as_seen(shot.photo, cell, per_pixel, shift), expected))
    assert max(differences) < 2


def test_rectified_is_the_original() -> None:
    shot = perfect(15.0, 0.9, tilt=25.0)
    for cell in found_in(shot.photo).cells[:6]:
        original = to_tensor(decode(cell.item.file, size=cell.item.size))
        assert difference(rectified(shot.photo, cell), original) < 5


@pytest.mark.parametrize(("angle", "scale"), POSES, ids=str)
def test_rotation_and_scale_are_measured(angle: float, scale: float) -> None:
    shot = shoot(small(PRESETS["setting1"]).with_(angle=angle, scale=scale))
    for cell in found_in(shot.photo).cells:
        lies = measure(cell, unit(cell, shot.photo.shape))
        assert abs((lies.pose.angle - angle + 180) % 360 - 180) < 0.3
        assert lies.pose.scale == pytest.approx(scale, rel=0.005)
        assert lies.tilt < 8


@pytest.mark.parametrize("tilt", [20.0, 40.0])
def test_tilt_is_measured(tilt: float) -> None:
    shot = shoot(small(Camera.perfect(tilt=tilt, scale=0.7, field_of_view=20.0)))
    for cell in found_in(shot.photo).cells:
        assert measure(cell, unit(cell, shot.photo.shape)).tilt == pytest.approx(tilt, abs=6)


def test_scale_one_can_be_chosen() -> None:
    shot = shoot(small(Camera.perfect()))
    cell = found_in(shot.photo).cells[0]
    box = sheet().box(cell.item)
    assert unit(cell, shot.photo.shape, "image") == pytest.approx(1500 / 224)
    assert unit(cell, shot.photo.shape, 10.0) == pytest.approx(10 * box.width / 224)
    assert measure(cell, unit(cell, shot.photo.shape)).pose.scale == pytest.approx(1, rel=1e-3)
    for bad in ("sheet", 0.0, float("nan")):
        with pytest.raises(WhorlError, match="scale one"):
            unit(cell, shot.photo.shape, bad)


def test_surroundings() -> None:
    shot = shoot(small(Camera.perfect(scale=0.6)))
    cell = found_in(shot.photo).cells[4]
    per_pixel = unit(cell, shot.photo.shape)
    black, photo = (as_seen(shot.photo, cell, per_pixel, surroundings=kind) for kind in ("black", "photo"))
    inner = slice(50, 174)
    np.testing.assert_array_equal(black[inner, inner], photo[inner, inner])
    assert not black[:20].any()
    assert (photo[112, 30:34] > 200).any()  # the paper beside the image
    with pytest.raises(WhorlError, match="surroundings"):
        as_seen(shot.photo, cell, per_pixel, surroundings="white")


def grey_error(shot: Photograph, *, balance: bool) -> float:
    """How far mean colours of images are from those of the originals, in levels."""
    cells = found_in(shot.photo).cells
    curves = grey_curves(shot.photo, cells) if balance else None
    errors = []
    for cell in (cell for cell in cells if cell.item.attack == "clean"):
        cut = rectified(shot.photo, cell)
        if balance:
            assert curves is not None
            cut = balanced(cut, curves)
        original = decode(cell.item.file, size=cell.item.size)
        errors.append(np.abs(cut.mean((0, 1)) - original.mean((0, 1))).mean())
    return float(np.mean(errors))


def test_the_patch_strip_puts_colours_right() -> None:
    shot = shoot(small(PRESETS["setting2"]).with_(exposure=-0.7, colour_cast=0.25, uneven_light=0.1, vignetting=0.05))
    before, after = grey_error(shot, balance=False), grey_error(shot, balance=True)
    assert before > 25
    assert after < before / 4


def test_a_strip_that_cannot_be_seen() -> None:
    shot = shoot(small(Camera.perfect()))
    middle = np.ascontiguousarray(shot.photo[300:1700])
    assert grey_curves(middle, found_in(middle).cells) is None
    covered = shot.photo.copy()
    covered[:180] = 90
    covered[-180:] = 90
    assert grey_curves(covered, found_in(covered).cells) is None
