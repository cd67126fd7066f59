"""Poses one by one and as a product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import reference
from conftest import random_images
from whorl import WhorlError, affine
from whorl.evaluation import PAPER_POSES, Pose, poses
from whorl.geometry.pose import NUMBERS, posed
from whorl.runs.store import pose_key


def test_the_twelve_poses_are_the_papers() -> None:
    listed = [(p.angle, p.scale, *p.shift) for p in PAPER_POSES]
    assert listed == [
        (-30, 1, 0, 0),
        (-15, 1, 0, 0),
        (0, 1, 0, 0),
        (15, 1, 0, 0),
        (30, 1, 0, 0),
        (30, 0.5, 20, 20),
        (30, 0.7, 20, 20),
        (30, 1.0, 20, 20),
        (30, 1.3, 20, 20),
        (30, 1.5, 20, 20),
        (25, 0.7, 5, 5),
        (25, 0.7, 20, 20),
    ]


def test_shifts_scale_with_the_image() -> None:
    x = random_images(1, 3, 30, 60)
    expected = affine(x, shift=(20 * 60 / 299, 20 * 30 / 299))
    torch.testing.assert_close(Pose(shift=(20, 20)).apply(x), expected)


def test_a_product_holds_every_combination_once() -> None:
    made = poses(angles=(-30, 0, -30), scales=(0.5, 1), shifts=(0, (20, -5)))
    assert [(p.angle, p.scale, p.shift) for p in made] == [
        (angle, scale, shift) for angle in (-30, 0) for scale in (0.5, 1) for shift in ((0, 0), (20, -5))
    ]


def test_what_is_not_given_stays_as_it_is() -> None:
    assert poses() == (Pose(),)
    assert poses(shifts=[3]) == (Pose(shift=(3, 3)),)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"angles": []}, "angles must hold at least one value"),
        ({"scales": [1, 0]}, "scales must be above 0; got 0"),
        ({"angles": [math.nan]}, "must be finite numbers, at most 1,000,000; got nan"),
        ({"shifts": [(0, math.inf)]}, "must be finite numbers, at most 1,000,000; got inf"),
    ],
)
def test_what_is_no_pose_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        poses(**given)


def test_reads_well() -> None:
    assert [str(p) for p in (Pose(), Pose(angle=-15.0), PAPER_POSES[5])] == ["0°", "-15°", "30° ×0.5 (20, 20)"]


FURTHER = [
    Pose(shear=20),
    Pose(stretch=(1.3, 0.8)),
    Pose(tilt=(25, -15)),
    Pose(brightness=-0.2),
    Pose(contrast=0.4),
    Pose(blur=6),
    Pose(angle=20, scale=0.8, shift=(10, -5), shear=10, stretch=(1.1, 0.9), tilt=(5, 9), contrast=2, blur=3),
]


def literally_posed(x: np.ndarray[Any, np.dtype[np.float64]], pose: Pose) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The definition in order: contrast, brightness, one homography through a pinhole camera, zeros outside, blur."""
    height, width = x.shape[-2:]
    toned = np.clip((x - 0.5) * pose.contrast + 0.5 + pose.brightness, 0, 1)
    cos, sin = math.cos(math.radians(pose.angle)), math.sin(math.radians(pose.angle))
    plane = (
        pose.scale
        * np.array([[cos, -sin], [sin, cos]])
        @ np.array([[1, math.tan(math.radians(pose.shear))], [0, 1]])
        @ np.diag(pose.stretch)
    )
    a, b = (math.radians(degrees) for degrees in pose.tilt)
    away = np.array([math.sin(a) * math.cos(b), math.sin(b)]) / (2 * max(height, width))
    view = np.array([[math.cos(a), 0], [-math.sin(a) * math.sin(b), math.cos(b)]])
    homography = np.block([[view @ plane, np.zeros((2, 1))], [(away @ plane)[None], np.ones((1, 1))]])
    moved = np.array([[1, 0, pose.shift[0] * width / 299], [0, 1, pose.shift[1] * height / 299], [0, 0, 1]])
    back = np.linalg.inv(moved @ homography)
    out = np.zeros_like(toned)
    for row in range(height):
        for col in range(width):
            right, down, share = back @ (col - (width - 1) / 2, row - (height - 1) / 2, 1)
            place = np.array((height - 1) / 2 + down / share), np.array((width - 1) / 2 + right / share)
            out[..., row, col] = reference.bilinear(toned, *place)
    for axis, side in ((-1, width), (-2, height)):
        apart = np.subtract.outer(np.arange(side), np.arange(side)) / max(pose.blur * side / 299, 1e-3)
        weight = np.exp(-(apart**2) / 2)
        out = np.moveaxis(np.moveaxis(out, axis, -1) @ (weight / weight.sum(1, keepdims=True)).T, -1, axis)
    return out


@pytest.mark.parametrize("pose", [*FURTHER, PAPER_POSES[6]], ids=str)
@pytest.mark.parametrize("size", [(24, 24), (15, 28)], ids=str)
def test_a_pose_equals_its_definition(pose: Pose, size: tuple[int, int]) -> None:
    x = random_images(2, 3, *size)
    expected = literally_posed(x.double().numpy(), pose)
    np.testing.assert_allclose(pose.apply(x.double()).numpy(), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(pose.apply(x).numpy(), expected, rtol=0, atol=5e-5)
    assert pose.apply(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("pose", FURTHER, ids=str)
def test_the_gradient_reaches_the_image(pose: Pose) -> None:
    x = random_images(1, 1, 6, 7).double().mul(0.4).add(0.3).requires_grad_()
    assert torch.autograd.gradcheck(pose.apply, (x,))


def test_each_image_in_a_pose_of_its_own_is_as_if_it_were_alone() -> None:
    every = [*FURTHER, *PAPER_POSES]
    x = random_images(len(every), 3, 18, 22)
    numbers = torch.tensor([pose.numbers for pose in every], dtype=torch.float64)
    together = posed(x, numbers, [number.name for number in NUMBERS])
    for i, pose in enumerate(every):
        torch.testing.assert_close(together[i : i + 1], pose.apply(x[i : i + 1]), rtol=0, atol=2e-5)
    alone = posed(x, numbers[-12:].repeat(2, 1)[: len(every)], ["angle"])
    assert torch.equal(alone[1:2], PAPER_POSES[1].apply(x[1:2])), "the paper's are the same bits either way"


def test_every_number_can_be_learned() -> None:
    numbers = torch.tensor([FURTHER[-1].numbers], dtype=torch.float64) + 0.01
    numbers.requires_grad_()
    x = random_images(1, 1, 20, 20).double() * 0.4 + 0.3
    weights = random_images(1, 1, 20, 20, seed=5).double()
    (posed(x, numbers, [number.name for number in NUMBERS]) * weights).sum().backward()
    assert numbers.grad is not None
    assert bool((numbers.grad != 0).all())


def test_a_pose_of_the_papers_has_the_key_repr_and_hash_that_it_had() -> None:
    pose = Pose(angle=30, scale=0.7, shift=(20, 20))
    assert repr(pose) == "Pose(angle=30, scale=0.7, shift=(20, 20))"
    assert repr(Pose(blur=2)) == "Pose(angle=0.0, scale=1.0, shift=(0.0, 0.0), blur=2)"
    assert pose_key(pose) == "30 0.7 20 20"
    assert len({pose_key(one) for one in (*FURTHER, *PAPER_POSES)}) == len(FURTHER) + 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shear": 90}, r"shear must be inside \(-90, 90\) degrees; got 90"),
        ({"tilt": (0, -90)}, "tilt_y must be inside"),
        ({"stretch": (0, 1)}, "stretch_x must be above 0; got 0"),
        ({"contrast": -1}, "contrast must be at least 0; got -1"),
        ({"blur": -0.1}, "blur must be at least 0"),
        ({"brightness": math.nan}, "brightness must be a finite number"),
        ({"scale": 0}, "scale must be above 0"),
    ],
)
def test_a_pose_that_is_none_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        Pose(**settings)


def test_a_grid_holds_every_family() -> None:
    made = poses(
        shears=(-20, 20), stretches=((1.2, 1), 1), tilts=(10,), brightnesses=(0.1,), contrasts=(0.5,), blurs=(0, 2)
    )
    assert len(made) == 8
    assert made[1] == Pose(shear=-20, stretch=(1.2, 1), tilt=(10, 10), brightness=0.1, contrast=0.5, blur=2)
    for given, message in (
        ({"shear": [3]}, "unknown axis of a grid of poses 'shear'"),
        ({"blurs": [(1, 2)]}, "blurs must be finite numbers"),
        ({"tilts": [(1, 2, 3)]}, "tilts must be numbers or pairs"),
        ({"tilts": [95]}, "tilts must be inside"),
    ):
        with pytest.raises(WhorlError, match=message):
            poses(**given)


@pytest.mark.parametrize("pose", FURTHER, ids=str)
def test_autocast_changes_no_pose(pose: Pose) -> None:
    x = random_images(1, 3, 30, 30)
    with torch.autocast("cpu", torch.bfloat16):
        seen = pose.apply(x)
    assert torch.equal(seen, pose.apply(x))
