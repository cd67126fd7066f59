"""Figures hold the cells' own numbers, and leave out what is undefined."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from report.made_up import GRID, cell, grid_cells, rate
from whorl import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, SuccessRate, poses
from whorl.report import drawings
from whorl.report.figures import cost, overview, profile
from whorl.report.series import Series, Transfer, angle_scale_grid, costs, overall, series, sweeps
from whorl.report.surfaces import heat_map, surface
from whorl.runs.results import Cell

BLACK_BOX = Transfer("net-a", "net-b", white_box=False)


def traces(figure: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(figure.to_json())["data"]
    return found


def kinds(cells: tuple[Cell, ...]) -> list[str]:
    return [one.kind for one in drawings(cells)]


def test_a_surface_holds_the_rates() -> None:
    cells = grid_cells()
    first, mesh, second, _ = traces(surface(series(cells), BLACK_BOX, ("dim", "ai-dim")))
    assert (first["type"], mesh["type"]) == ("surface", "scatter3d")
    by_place = {(c.attack, c.target, c.pose.angle, c.pose.scale): c.counts.rate for c in cells}
    for trace in (first, second):
        assert (trace["y"], trace["x"]) == ([-30, -15, 0, 15, 30], [0.6, 0.8, 1.0])
        for i, angle in enumerate(trace["y"]):
            for j, scale in enumerate(trace["x"]):
                expected = by_place[trace["name"], "net-b", angle, scale]
                assert trace["z"][i][j] == pytest.approx(100 * expected, abs=1e-4)


def test_a_heat_map_holds_the_rates_and_n() -> None:
    def counts(attack: str, target: str, pose: Pose) -> SuccessRate:
        return {GRID[0]: rate(0, 0), GRID[1]: rate(3, 9)}.get(pose, rate(150, 160))

    figure = heat_map(series(grid_cells(counts=counts)), BLACK_BOX, ("dim", "ai-dim"))
    maps = [trace for trace in traces(figure) if trace["type"] == "heatmap"]
    assert [trace["name"] for trace in maps] == ["dim", "ai-dim"]
    for trace in maps:
        assert (trace["y"], trace["x"]) == (["-30°", "-15°", "0°", "15°", "30°"], ["0.6", "0.8", "1"])
        assert trace["z"][0] == [None, pytest.approx(100 / 3, abs=1e-4), 93.75]
    for words in (trace for trace in traces(figure) if trace["type"] == "scatter"):
        assert words["text"][:2] == ["<b>33%</b><br>n 9*", "<b>94%</b><br>n 160"]
        assert len(words["text"]) == len(GRID) - 1
    # Where no clean image is recognised, there is no rate, and n says so.
    none = [note for note in figure.layout.annotations if note.text == "n 0"]
    assert [(note.x, note.y) for note in none] == [(0, 0), (0, 0)]  # by number: plotly reads "0.6" as a place between


def test_the_mesh_passes_through_every_measured_point_twice() -> None:
    surfaced, mesh, *_ = traces(surface(series(grid_cells()), BLACK_BOX, ("dim", "ai-dim")))
    points = [p for p in zip(mesh["x"], mesh["y"], mesh["z"], strict=True) if p[2] is not None]
    measured = [
        (scale, angle, surfaced["z"][i][j])
        for i, angle in enumerate(surfaced["y"])
        for j, scale in enumerate(surfaced["x"])
    ]
    assert sorted(points) == sorted(2 * measured)


def test_an_undefined_rate_is_a_hole() -> None:
    def counts(attack: str, target: str, pose: Pose) -> SuccessRate:
        return SuccessRate(200, 0, 0, 0) if pose == GRID[0] else rate(50)

    found = series(grid_cells(counts=counts))
    assert traces(surface(found, BLACK_BOX, ("dim",)))[0]["z"][0] == [None, 25, 25]
    by_angle = sweeps(GRID)[0]
    line = traces(profile(found, BLACK_BOX, by_angle))[0]
    assert line["y"][0] is None
    assert "no clean image recognised" in line["text"][0]


def test_no_grid_no_surface() -> None:
    found = series(grid_cells(where=PAPER_POSES))
    with pytest.raises(WhorlError, match="3 angles and 3 scales"):
        surface(found, BLACK_BOX, ("dim",))
    assert "surface" not in kinds(grid_cells(where=PAPER_POSES))


def test_pairs_share_a_surface_and_others_have_their_own() -> None:
    drawn = [one for one in drawings(grid_cells(("pgd", "dim", "ai-dim", "ti-dim"))) if one.kind == "surface"]
    assert [one.subject for one in drawn if one.transfer == "net-a → net-b"] == ["dim and ai-dim", "pgd", "ti-dim"]


def test_a_profile_holds_the_rates_and_with_two_lines_the_intervals() -> None:
    cells = grid_cells()
    sweep = next(one for one in sweeps(GRID) if one.axis == "scale")
    for trace in traces(profile(series(cells), BLACK_BOX, sweep)):
        own = {c.pose: c.counts for c in cells if (c.attack, c.target) == (trace["name"], "net-b")}
        counts = [own[pose] for pose in sweep.poses]
        assert trace["x"] == list(sweep.values)
        assert trace["y"] == pytest.approx([100 * c.rate for c in counts], abs=1e-4)
        tops = [y + up for y, up in zip(trace["y"], trace["error_y"]["array"], strict=True)]
        assert tops == pytest.approx([100 * c.interval()[1] for c in counts], abs=1e-3)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (GRID, [("angle", "scale 0.6"), ("angle", "scale 0.8"), ("scale", "angle -30°"), ("scale", "angle -15°")]),
        (
            PAPER_POSES,
            [
                ("angle", "scale 1"),
                ("scale", "angle 30°, shift (20, 20)"),
                ("shift", "angle 25°, scale 0.7"),
            ],
        ),
        ([Pose(angle=a) for a in (-10, 0, 10)], [("angle", "scale 1")]),
        ([Pose(angle=a, scale=s) for a in (0, 9) for s in (1, 2)], []),
        ([Pose()], []),
        (
            poses(shears=(-20, 0, 20)) + poses(tilts=((0, -30), (0, 30))) + poses(blurs=(1, 2), angles=(0, 15)),
            [
                ("shear", "the rest as it is"),
                ("tilt of the bottom edge", "the rest as it is"),
                ("blur", "the rest as it is"),
            ],
        ),
        (
            poses(contrasts=(0.5, 1.5), angles=(-10, 0, 10)),
            [("angle", "scale 1, contrast ×0.5")],
        ),
        (poses(brightnesses=(-0.2, 0.1, 0.2), angles=(10,)), [("brightness", "10°")]),
        (
            [Pose(angle=a, scale=s) for a in (0, 10, 40) for s in (1, 1.5, 2)],
            [("angle", "scale 1"), ("angle", "scale 1.5"), ("scale", "angle 0°"), ("scale", "angle 10°")],
        ),
    ],
)
def test_the_papers_profiles_or_the_nearest(where: list[Pose], expected: list[tuple[str, str]]) -> None:
    assert [(one.axis, one.fixed) for one in sweeps(where)] == expected


def test_a_profile_of_a_further_number_names_it_with_its_unit() -> None:
    where = poses(blurs=(0, 1, 2))
    cells = tuple(cell("dim", "net-b", rate(10 * i), pose=pose) for i, pose in enumerate(where))
    figure = profile(series(cells), BLACK_BOX, sweeps(where)[0])
    assert figure.layout.xaxis.title.text == "blur (σ in pixels of 299)"
    assert traces(figure)[0]["x"] == [0, 1, 2]
    assert "surface" not in kinds(cells)


def test_what_has_further_numbers_is_no_part_of_a_surface() -> None:
    tilted = [Pose(angle=pose.angle, scale=pose.scale, tilt=(20, 0)) for pose in GRID]
    assert angle_scale_grid(tilted) is None
    assert angle_scale_grid([*GRID, *tilted]) == angle_scale_grid(GRID)


def test_a_sweep_is_in_order() -> None:
    sweep = sweeps([Pose(angle=a) for a in (20, -20, 0)])[0]
    assert sweep.values == (-20, 0, 20)
    assert [pose.angle for pose in sweep.poses] == [-20, 0, 20]


def test_the_overview_holds_the_means_and_intervals() -> None:
    found = series(grid_cells())
    for trace in traces(overview(found)):
        summed = [overall(own) for line, own in found.items() if line.attack == trace["name"]]
        assert trace["y"] == pytest.approx([100 * one.rate.value for one in summed], abs=1e-4)
        lows = [y - down for y, down in zip(trace["y"], trace["error_y"]["arrayminus"], strict=True)]
        assert lows == pytest.approx([100 * one.rate.interval[0] for one in summed], abs=1e-3)


def test_cost_is_counted_by_image_and_drawn_only_where_it_differs() -> None:
    cells = [
        cell("dim", "net-b", rate(100), grad_evals=2000),
        cell("eot", "net-b", rate(180), grad_evals=200_000),
        cell("eot", "net-a", rate(200), grad_evals=200_000),
        cell("nes", "net-b", rate(10), grad_evals=0),
    ]
    rows = costs(series(cells))
    assert [(name, spent, one.value) for name, spent, one in rows] == [("dim", 10, 0.5), ("eot", 1000, 0.9)]
    figure = cost(rows)
    assert [(t["x"], t["y"]) for t in traces(figure)] == [([10], [50]), ([1000], [90])]
    assert figure.layout.xaxis.type == "log"
    low, high = figure.layout.xaxis.range
    assert 10**low < 10 < 1000 < 10**high
    assert list(figure.layout.xaxis.ticktext) == ["10", "100", "1,000"]
    assert "cost" in kinds(tuple(cells))
    assert "cost" not in kinds(tuple(cells[:1]))


@pytest.mark.parametrize("attacks", [("dim",), ("dim", "ai-dim")])
def test_one_pose_gives_an_overview_alone(attacks: tuple[str, ...]) -> None:
    assert kinds(grid_cells(attacks, where=[Pose()])) == ["overview"]


def test_nothing_recognised_gives_no_figure() -> None:
    assert drawings(grid_cells(counts=lambda *_: SuccessRate(9, 0, 0, 0), where=[Pose()])) == []


def test_file_names_are_plain_and_different_whatever_the_labels() -> None:
    attacks = ("../a/b", "..\\a\\b", "<x>", "x" * 300)
    names = [one.name for one in drawings(grid_cells(attacks, ("net\x00", "../../etc")))]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isalnum() and len(name) < 120 for name in names)


def test_markup_in_names_is_neutralised() -> None:
    nasty = "<b>%{x} & $y$</b>"
    for one in drawings(grid_cells((nasty, f"ai-{nasty}"), (nasty,))):
        text = one.figure.to_json()
        assert "<b>%{" not in text.replace("\\u003c", "<").replace("\\u003e", ">")
        assert not any(trace["name"] == nasty for trace in traces(one.figure))


@pytest.mark.parametrize(("others", "colours"), [((), 3), (("pgd",), 1)])
def test_dashes_and_markers_tell_the_kinds_apart(others: tuple[str, ...], colours: int) -> None:
    """And colours what they are based on, or the kinds too where all are based on the same."""
    found = series(grid_cells(("dim", "ti-dim", "ai-dim", *others)))
    drawn = traces(profile(found, BLACK_BOX, sweeps(GRID)[0]))
    assert len({trace["line"]["dash"] for trace in drawn[:3]}) == 3
    assert len({trace["marker"]["symbol"] for trace in drawn[:3]}) == 3
    assert len({trace["line"]["color"] for trace in drawn[:3]}) == colours
    assert {trace["line"]["color"] for trace in drawn[3:]}.isdisjoint(t["line"]["color"] for t in drawn[:3])


def test_transfers_keep_sources_apart() -> None:
    cells = tuple(cell("dim", "net-c", rate(i), source=f"net-{i}", pose=pose) for i in (1, 2) for pose in GRID)
    drawn = [one for one in drawings(cells) if one.kind == "surface"]
    assert [one.transfer for one in drawn] == ["net-1 → net-c", "net-2 → net-c"]
    found = series(cells)
    assert math.isclose(overall(found[Series("dim", Transfer("net-2", "net-c", white_box=False))]).rate.value, 0.01)
