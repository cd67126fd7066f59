"""Invariance and transfer, read from results and correlated."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from cli.invoking import invoke
from whorl import WhorlError
from whorl.analysis.correlation import Point, correlate, read_points
from whorl.evaluation import Pose, SuccessRate
from whorl.runs.results import Cell, write_results

TURNED = Pose(angle=30)


def written(path: Path, rates: dict[tuple[str, str, str, Pose], int], source: str = "a") -> Path:
    """A run's results: (attack, target, defense, pose) to successes of 100."""
    cells = [
        Cell(
            attack=attack,
            source=source,
            target=target,
            defense=defense,
            pose=pose,
            eps=0.1,
            counts=SuccessRate(100, 100, hits, 100 - hits),
            grad_evals=10,
            seconds=1.0,
        )
        for (attack, target, defense, pose), hits in rates.items()
    ]
    write_results(path, cells)
    return path


def one(attack: str, invariance: tuple[int, int], transfer: int) -> dict[tuple[str, str, str, Pose], int]:
    return {
        (attack, "a", "none", Pose()): 100,  # the white box as it is has no say
        (attack, "a", "none", TURNED): invariance[0],
        (attack, "a", "none", Pose(scale=0.5)): invariance[1],
        (attack, "a", "jpeg", TURNED): 1,
        (attack, "b", "none", Pose()): transfer,
        (attack, "b", "none", TURNED): 2,  # nor has another network under a transform
        (attack, "b", "jpeg", Pose()): 3,
    }


def test_what_counts_for_what(tmp_path: Path) -> None:
    path = written(tmp_path / "results.csv", one("x", (60, 80), 30) | one("y", (50, 50), 20))
    points = read_points([path, path])
    assert points == [
        Point(attack="x", source="a", invariance=70.0, transfer=30.0),
        Point(attack="y", source="a", invariance=50.0, transfer=20.0),
    ]


def test_a_tilted_image_is_no_image_as_it_is(tmp_path: Path) -> None:
    rates = one("x", (60, 80), 30) | {("x", "a", "none", Pose(tilt=(20, 0))): 100, ("x", "b", "none", Pose(blur=2)): 90}
    found = read_points([written(tmp_path / "results.csv", rates)])
    assert found == [Point(attack="x", source="a", invariance=80.0, transfer=30.0)]


def test_members_of_an_ensemble_are_the_source(tmp_path: Path) -> None:
    path = written(tmp_path / "results.csv", one("x", (60, 80), 30), source="a+c")
    assert read_points([path])[0].invariance == 70


def test_the_coefficients_are_the_textbook_s() -> None:
    a, b = [10.0, 20.0, 35.0, 50.0, 51.0], [3.0, 9.0, 8.0, 20.0, 12.0]
    found = correlate(
        [Point(attack=str(i), source="n", invariance=p, transfer=q) for i, (p, q) in enumerate(zip(a, b, strict=True))]
    )
    expected = torch.corrcoef(torch.tensor([a, b], dtype=torch.float64))[0, 1]
    assert found.pearson == pytest.approx(float(expected))
    assert found.spearman == pytest.approx(1 - 6 * (0 + 1 + 1 + 1 + 1) / (5 * 24))
    assert found.pearson_interval[0] < found.pearson <= found.pearson_interval[1]


def test_equals_share_a_rank() -> None:
    points = [Point(attack="", source="n", invariance=v, transfer=t) for v, t in ((1, 1), (1, 2), (3, 3), (4, 4))]
    ranks = torch.corrcoef(torch.tensor([[0.5, 0.5, 2, 3], [0.0, 1, 2, 3]]))[0, 1]
    assert correlate(points).spearman == pytest.approx(float(ranks), rel=1e-5)


def test_sources_count_from_their_own_means() -> None:
    """Within each source the two go against each other; between sources they do not."""
    points = [
        Point(attack=str(i), source=source, invariance=base + i, transfer=base - i)
        for source, base in (("a", 20.0), ("b", 80.0))
        for i in range(4)
    ]
    assert correlate(points).pearson == pytest.approx(-1)


def test_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="expected 4 attacks"):
        correlate([Point(attack="x", source="n", invariance=1, transfer=1)])
    with pytest.raises(WhorlError, match="cannot be read"):
        read_points([tmp_path / "nowhere.csv"])
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(WhorlError, match="must have the columns"):
        read_points([tmp_path / "other.csv"])
    alone = {key: hits for key, hits in one("x", (60, 80), 30).items() if key[1] == "a"}
    with pytest.raises(WhorlError, match="evaluated on their own source"):
        read_points([written(tmp_path / "alone.csv", alone)])


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("asr", "nan", r"asr must be a number in \[0, 1\]; got 'nan'"),
        ("asr", "7", r"asr must be a number in \[0, 1\]; got '7'"),
        ("asr", "many", r"asr must be a number in \[0, 1\]; got 'many'"),
        ("scale", "", "scale must be a finite number; got ''"),
        ("angle", "inf", "angle must be a finite number; got 'inf'"),
        ("attack", "x" * 200_000, "field larger than field limit"),
    ],
)
def test_a_table_that_was_edited_is_named(column: str, value: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "results.csv", one("x", (60, 80), 30))
    rows = list(csv.DictReader(path.open(newline="")))
    rows[1][column] = value
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(WhorlError, match=rf"results.csv.*{says}"):
        read_points([path])


def test_the_command(tmp_path: Path) -> None:
    rates: dict[tuple[str, str, str, Pose], int] = {}
    for i in range(5):
        rates |= one(f"x{i}", (40 + 5 * i, 40 + 5 * i), 10 + 3 * i)
    path = written(tmp_path / "results.csv", rates)
    result = invoke("analyze", "correlate", str(path))
    assert result.exit_code == 0, result.stderr
    assert "Spearman's correlation: 1.00" in result.stdout
    assert json.loads(invoke("analyze", "correlate", str(path), "--json").stdout)["pearson"] == pytest.approx(1)
