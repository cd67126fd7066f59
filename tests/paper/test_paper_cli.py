"""``whorl paper``: the list, a table from end to end, and a gallery."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import whorl
from cli.invoking import invoke
from cli.toy_networks import small
from paper.toys import OTHER, SMALL, toy_images, toy_profile
from whorl import paper
from whorl.evaluation import Pose
from whorl.paper import PaperOptions
from whorl.paper.reproduction import default_folder, draw_gallery
from whorl.runs import experiment

COUNT = 24


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run tables on small networks; the answer is the command's."""
    data, profile = toy_images(tmp_path, COUNT), toy_profile(tmp_path)

    def call(*arguments: str) -> Any:
        words = ("--profile", str(profile), "--data", str(data), "--out", str(tmp_path / "run"))
        return invoke("paper", *arguments, *words)

    return call


def test_lists_what_there_is() -> None:
    result = invoke("paper", "list")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert tuple(lines) == paper.names()
    listed = json.loads(invoke("paper", "list", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(paper.names())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("tabel1",), "unknown table or figure 'tabel1'. Did you mean 'table1'"),
        (("table1", "list"), "list stands alone"),
        (("table1", "--profile", "papre"), "unknown profile 'papre'. Did you mean 'paper'"),
        (("table1", "--without", "nothing"), "unknown row 'nothing'"),
        (("table1", "table4", "--attacks", "fgsm"), "no row of table4 is left"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_loaded(arguments: tuple[str, ...], problem: str) -> None:
    result = invoke("paper", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_table_from_end_to_end(run: Any, tmp_path: Path) -> None:
    result = run(
        "table3", "--attacks", "pgd,ai-pgd", "--markdown", str(tmp_path / "t.md"), "--csv", str(tmp_path / "t.csv")
    )
    assert result.exit_code == 0, result.stderr
    assert f"Inc-v3 → {SMALL}; Inc-v4 → {OTHER}." in result.stdout
    assert "orderings agree with the paper" in result.stdout
    assert "Ens-AT is left out" in result.stdout
    [row] = [line for line in result.stdout.splitlines() if line.startswith("ai-pgd")][:1]
    assert "/ 85.5" in row
    assert "/ 83.2" in row
    assert (tmp_path / "t.md").read_text().count("| `ai-pgd` |") == 2
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 1 + 2 * 2 * 3
    assert (tmp_path / "run" / "paper" / "table3.md").read_text() == (tmp_path / "t.md").read_text()


def test_the_figures_are_those_of_the_cells(run: Any, tmp_path: Path) -> None:
    [content] = json.loads(run("table3", "--attacks", "pgd,ai-pgd", "--json").stdout)
    with (tmp_path / "run" / "paper" / "table3-results.csv").open(newline="") as file:
        cells = {(row["attack"], row["target"], row["shift_x"]): float(row["asr"]) for row in csv.DictReader(file)}
    for block in content["blocks"]:
        for line in block["lines"]:
            shown = [value["ours"] for value in line["values"]]
            counted = [100 * cells[line["attack"], block["targets"][0], shift] for shift in ("5.0", "20.0")]
            assert shown == pytest.approx([*counted, sum(counted) / 2], abs=1e-3)


def test_tables_share_their_images(run: Any, tmp_path: Path) -> None:
    assert run("table3", "--attacks", "pgd,ai-pgd").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "adv").rglob("*.png")}
    assert len(before) == 2 * COUNT
    assert run("table1", "table2", "--attacks", "pgd,ai-pgd").exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "adv").rglob("*.png")} == before
    assert (tmp_path / "run" / "paper" / "table3-results.csv").is_file()


def test_a_row_need_not_be_in_every_table(run: Any) -> None:
    result = run("table3", "figure10", "--attacks", "fgsm,ai-fgsm,pgd", "--json")
    assert result.exit_code == 0, result.stderr
    rows = [[line["attack"] for line in one["blocks"][0]["lines"]] for one in json.loads(result.stdout)]
    assert rows == [["fgsm", "ai-fgsm", "pgd"], ["fgsm", "ai-fgsm"]]


def test_a_gallery_is_drawn(run: Any, tmp_path: Path) -> None:
    result = run("figure10")
    assert result.exit_code == 0, result.stderr
    with Image.open(tmp_path / "run" / "paper" / "figure10.png") as image:
        width, height = image.size
    assert width > 900
    assert height > 600
    assert "ai-fgsm is above fgsm in" in result.stdout


def test_a_gallery_shows_the_first_images_that_are_recognised(tmp_path: Path) -> None:
    data, profile = toy_images(tmp_path, COUNT), toy_profile(tmp_path)
    item = paper.load("figure10")
    done = experiment.run(item.declaration(profile, data=data), tmp_path / "run")
    x, y, ids = whorl.load_images(data)
    right = torch.stack([small()(pose.apply(x)).argmax(1) == y for pose in item.all_poses()]).sum(0).tolist()
    expected = sorted(range(COUNT), key=lambda i: (-right[i], i))[:4]
    shown = draw_gallery(item, done, tmp_path / "gallery.png", device="cpu")
    assert shown == [ids[i] for i in expected]


def test_a_surface_is_run_over_its_grid(run: Any, tmp_path: Path) -> None:
    result = run("figure8", "--limit", "2")
    assert result.exit_code == 0, result.stderr
    assert "of 143 poses" in result.stdout
    cells = (tmp_path / "run" / "paper" / "figure8-results.csv").read_text().splitlines()
    assert len(cells) == 1 + 2 * 143


def test_folders_of_other_images_are_others(tmp_path: Path) -> None:
    assert default_folder(PaperOptions(profile="paper")) == Path("runs/paper-paper-samples")
    assert default_folder(PaperOptions(profile=toy_profile(tmp_path), data="x/y", limit=3)) == Path(
        "runs/paper-toys-y-3"
    )


def test_the_notebooks_way(tmp_path: Path) -> None:
    data, profile = toy_images(tmp_path), toy_profile(tmp_path)
    item = paper.load("table1")
    declared = item.declaration(profile, data=data, attacks=["fgsm", "ai-fgsm"])
    done = experiment.run(declared, tmp_path / "run")
    compared = paper.compare_with_printed(item, done, profile)
    rates = {(cell.attack, cell.target, cell.pose): cell.counts.rate for cell in done.cells}
    white = compared.blocks[0]
    for line in white.lines:
        assert line.values[2].ours == pytest.approx(100 * rates[line.attack, SMALL, Pose()])
    [one] = [one for one in compared.orderings if one.where == f"{SMALL}, θ=0°"]
    assert one.comparison is not None
    assert one.comparison.adjusted is not None
    assert replace(one.comparison, adjusted=None) == done.compare("ai-fgsm", "fgsm", SMALL, SMALL, Pose())
    assert one.comparison is not None
    assert one.comparison.n == 6
