"""Poses one by one and as a product."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from conftest import random_images
from whorl import WhorlError, affine
from whorl.evaluation import PAPER_POSES, Pose, poses


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
