"""Planned poses cover their ranges evenly over the draws of one image, and each alone is still uniform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import random_images
from whorl.errors import WhorlError
from whorl.randomness import image_keys, substream, uniform
from whorl.transforms import Gain, InputChain, RandomAffine, SpreadAffine
from whorl.transforms.spread import antithetic, latin, lattice

DESIGNS = {"latin": latin, "lattice": lattice, "antithetic": antithetic}


def table(draws: int, batch: int, seed: int = 0) -> Tensor:
    keys = image_keys(random_images(batch), seed)
    return substream(keys[None, :], torch.arange(draws)[:, None])


def largest_gap(points: Tensor) -> Tensor:
    """Of (draws, B, 4) points: the widest stretch of each range without any, (B, 4)."""
    ends = torch.zeros_like(points[:1])
    ordered = torch.cat((ends, points.sort(dim=0).values, ends + 1))
    return (ordered[1:] - ordered[:-1]).amax(0)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_draw_alone_is_uniform(design: str) -> None:
    points = torch.cat([DESIGNS[design](table(7, 8, seed)) for seed in range(60)], dim=1)  # (7, 480, 4)
    assert points.shape == (7, 480, 4)
    assert float(points.min()) >= 0
    assert float(points.max()) < 1
    assert float((points.mean(1) - 0.5).abs().max()) < 5 / (12 * 480) ** 0.5
    assert float((points.var(1) - 1 / 12).abs().max()) < 0.02


@pytest.mark.parametrize("draws", [1, 2, 10, 50])
def test_latin_meets_every_part_of_every_range_once(draws: int) -> None:
    points = latin(table(draws, 8))
    parts = (points.double() * draws).floor().long().sort(dim=0).values
    assert torch.equal(parts, torch.arange(draws)[:, None, None].expand_as(parts))


@pytest.mark.parametrize("design", ["latin", "lattice"])
def test_the_gaps_are_narrower_than_by_chance(design: str) -> None:
    keys = table(10, 8)
    drawn = torch.stack([uniform(row, (4,)) for row in keys])
    assert float(largest_gap(DESIGNS[design](keys)).mean()) < 0.75 * float(largest_gap(drawn).mean())


def test_antithetic_mirrors_every_second_draw() -> None:
    points = antithetic(table(7, 3))
    torch.testing.assert_close(points[1::2], 1 - points[:6:2], rtol=0, atol=1e-6)
    assert len({round(value, 5) for value in points[::2, 0, 0].tolist()}) == 4


@pytest.mark.parametrize("design", DESIGNS)
def test_a_plan_shows_the_points_of_its_design_under_their_keys(design: str) -> None:
    x, keys = random_images(3, 3, 20, 26), table(5, 3)
    affine = SpreadAffine(angle=10, scale=(0.8, 1.2), shift=15, design=design)  # type: ignore[arg-type]  # from a table
    planned, points = affine.plan(keys), DESIGNS[design](keys)
    for draw in (4, 0, 2):  # in any order
        expected = affine.pose(x, points[draw])
        torch.testing.assert_close(planned(x, keys[draw]), expected, rtol=0, atol=1e-6)
    mixed = planned(x[[2, 0]], torch.stack((keys[1, 2], keys[3, 0])))
    torch.testing.assert_close(mixed[1:], affine.pose(x[:1], points[3, :1]), rtol=0, atol=1e-6)


def test_a_images_plan_does_not_depend_on_the_batch() -> None:
    keys = table(10, 8)
    for design in DESIGNS.values():
        assert torch.equal(design(keys[:, 3:4]), design(keys)[:, 3:4])


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("more", [{}, {"tilt": 20.0, "blur": 3.0, "contrast": (0.5, 1.0)}], ids=["affine", "all"])
def test_near_draws_show_the_image_as_it_is(design: str, more: dict[str, Any]) -> None:
    x, keys = random_images(3, 3, 20, 26).double(), table(10, 3)
    affine = SpreadAffine(scale=(0.5, 1.2), design=design, **more)  # type: ignore[arg-type]  # from a table
    plan, others = replace(affine, near=0.2).plan(keys), [0, 1, 2, 3, 5, 6, 7, 8]
    points = DESIGNS[design](keys[others], affine.dimensions)
    for draw in (4, 9):
        torch.testing.assert_close(plan(x, keys[draw]), x, rtol=0, atol=1e-4)
    for place, draw in enumerate(others):
        torch.testing.assert_close(plan(x, keys[draw]), affine.pose(x, points[place]), rtol=0, atol=1e-6)
    alone = replace(affine, near=0.2).plan(keys[:, 1:2])
    torch.testing.assert_close(alone(x[1:2], keys[3, 1:2]), plan(x, keys[3])[1:2], rtol=0, atol=1e-9)
    torch.testing.assert_close(replace(affine, near=1.0).plan(keys)(x, keys[0]), x, rtol=0, atol=1e-4)


def test_without_a_plan_it_is_the_plain_random_pose() -> None:
    x, keys = random_images(4), torch.arange(4)
    assert torch.equal(SpreadAffine()(x, keys), RandomAffine()(x, keys))


def test_parts_of_a_chain_are_planned_with_their_own_keys() -> None:
    x, keys = random_images(3, 3, 20, 20), table(4, 3)
    chain = InputChain(Gain(), SpreadAffine())
    inner = SpreadAffine().plan(substream(keys, 1))
    expected = inner(Gain()(x, substream(keys[2], 0)), substream(keys[2], 1))
    assert torch.equal(chain.plan(keys)(x, keys[2]), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpreadAffine(design="sobol"), "design must be 'latin', 'lattice' or 'antithetic'"),  # type: ignore[arg-type]
        (lambda: SpreadAffine(scale=(0, 1)), "scale must be a pair, each a number above 0"),
        (lambda: SpreadAffine(near=1.1), r"near must be a number in \[0, 1\]"),
        (lambda: SpreadAffine(near=0.1, scale=(1.1, 1.5)), "near shows the image as it is, so scale must reach 1"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


@pytest.mark.parametrize("design", DESIGNS)
def test_a_plan_of_more_numbers_fills_their_ranges_too(design: str) -> None:
    spread = SpreadAffine(tilt=20, blur=3, design=design)  # type: ignore[arg-type]  # from a table
    keys, x = table(10, 3), random_images(3, 3, 20, 26)
    points = DESIGNS[design](keys, spread.dimensions)
    assert points.shape == (10, 3, 7)
    assert float(points.min()) >= 0
    assert float(points.max()) < 1
    if design != "lattice":  # whose steps depend on the number of ranges
        assert torch.equal(points[..., :4], DESIGNS[design](keys))
    torch.testing.assert_close(spread.plan(keys)(x, keys[4]), spread.pose(x, points[4]), rtol=0, atol=1e-6)
