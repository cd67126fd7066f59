"""Cells sorted into series."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from report.made_up import GRID, cell, grid_cells, rate
from whorl.evaluation import PAPER_POSES, Pose, SuccessRate
from whorl.report.series import (
    Series,
    Transfer,
    angle_scale_grid,
    attacks,
    bound,
    overall,
    pairs,
    series,
    transfer_of,
    transfers,
)


@pytest.mark.parametrize(
    ("source", "target", "defense", "white_box", "name"),
    [
        ("a", "a", "none", True, "a"),
        ("a", "b", "none", False, "b"),
        ("a", "a", "jpeg", True, "a+jpeg"),  # the network is known, though the defence is not
        ("a+b", "b", "none", True, "b"),  # a member of the ensemble
        ("a+b", "c", "none", False, "c"),
        ("a", "a.ens-at", "none", False, "a.ens-at"),  # other weights
        ("", "b", "none", False, "b"),
    ],
)
def test_a_transfer_knows_whether_the_source_is_asked(
    source: str, target: str, defense: str, white_box: bool, name: str
) -> None:
    assert transfer_of(cell("dim", target, rate(1), source=source, defense=defense)) == Transfer(
        source, name, white_box
    )


def test_one_attack_with_several_bounds_becomes_several_series() -> None:
    cells = [cell("dim", "b", rate(1), eps=8 / 255), cell("dim", "b", rate(2), eps=16 / 255), cell("pgd", "b", rate(3))]
    assert attacks(series(cells)) == ["dim, ε = 8/255", "dim, ε = 16/255", "pgd"]


def test_bounded_names_still_pair() -> None:
    cells = [cell(name, "b", rate(1), eps=eps / 255) for name in ("dim", "ai-dim") for eps in (8, 16)]
    assert pairs(attacks(series(cells))) == [
        ("dim, ε = 8/255", "ai-dim, ε = 8/255"),
        ("dim, ε = 16/255", "ai-dim, ε = 16/255"),
    ]


def test_series_keep_every_cell_and_the_order() -> None:
    cells = grid_cells()
    found = series(cells)
    assert [line.attack for line in found] == ["dim", "dim", "ai-dim", "ai-dim"]
    assert [one for own in found.values() for one in own] == list(cells)
    assert [str(transfer) for transfer in transfers(found)] == ["net-a → net-a", "net-a → net-b"]


def test_a_series_is_summed_up_as_the_paper_does() -> None:
    own = [
        cell("dim", "b", SuccessRate(10, 10, 10, 0), pose=Pose(angle=1)),
        cell("dim", "b", SuccessRate(10, 2, 1, 4), pose=Pose(angle=2)),
        cell("dim", "b", SuccessRate(10, 0, 0, 1), pose=Pose(angle=3)),  # no rate, but an accuracy
    ]
    one = overall(own)
    assert one.mean.value == pytest.approx((1 + 0.5) / 2)
    assert (one.rate.value, one.rate.n, one.rate.left_out) == (1.0, 10, 2)  # two poses have too few for it
    assert one.worst_case is not None
    assert (one.worst_case.n, one.worst_case.successes) == (10, 10)
    assert one.accuracy == pytest.approx((0 + 0.4 + 0.1) / 3)
    assert one.clean_accuracy == pytest.approx((1 + 0.2 + 0) / 3)
    assert one.rate.interval == SuccessRate(10, 10, 10, 0).interval()
    assert 0 < one.mean.interval[0] < 0.75 < one.mean.interval[1] <= 1


def test_without_counts_image_by_image_there_are_no_intervals_over_poses() -> None:
    own = [replace(cell("dim", "b", rate(k), pose=Pose(angle=k)), images=None) for k in (50, 100)]
    several, single = overall(own), overall(own[:1])
    assert (several.rate.value, several.mean.value, several.worst_case) == (0.375, 0.375, None)
    assert math.isnan(several.rate.interval[0])
    assert single.rate.interval == own[0].counts.interval()


def test_a_line_without_a_rate_has_none() -> None:
    one = overall([cell("dim", "b", SuccessRate(10, 0, 0, 1))])
    assert math.isnan(one.mean.value)
    assert all(map(math.isnan, one.rate.interval))


def test_the_papers_twelve_poses_are_no_grid() -> None:
    assert angle_scale_grid(PAPER_POSES) is None


def test_a_grid_is_found_among_other_poses() -> None:
    assert angle_scale_grid([*PAPER_POSES, *GRID]) == ([-30, -15, 0, 15, 30], [0.6, 0.8, 1.0])


def test_a_grid_with_a_hole_is_one() -> None:
    assert angle_scale_grid(GRID[1:]) == ([-15, 0, 15, 30], [0.6, 0.8, 1.0])


def test_a_shifted_grid_is_none() -> None:
    assert angle_scale_grid(Pose(angle=p.angle, scale=p.scale, shift=(5, 5)) for p in GRID) is None


@pytest.mark.parametrize(
    ("eps", "text"), [(16 / 255, "16/255"), (0.5, "0.5"), (1 / 255, "1/255"), (0.1 / 255, "0.1/255"), (0.001, "0.001")]
)
def test_bounds_are_written_as_people_do(eps: float, text: str) -> None:
    assert bound(eps) == text


def test_series_are_looked_up_by_name_and_transfer() -> None:
    found = series(grid_cells())
    assert len(found[Series("dim", Transfer("net-a", "net-b", white_box=False))]) == len(GRID)
