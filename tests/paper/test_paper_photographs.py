"""Table 5: the simulated photographs beside what the paper printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whorl import paper
from whorl.paper.photographs import reproduce_photographs
from whorl.physical.simulation import SIMULATED

OPTIONS = paper.PaperOptions(limit=2, attacks=["dim", "ai-dim", "ai-ram"], page=True, device="cpu")
NIPS17 = Path(__file__).parents[3] / "shared" / "nips17"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> paper.Reproduced:
    out = tmp_path_factory.mktemp("table5")
    return paper.reproduce("table5", out, OPTIONS)


def test_ours_stand_beside_the_printed_figures(made: paper.Reproduced) -> None:
    [block] = made.compared.blocks
    assert block.columns == ("setting 1", "setting 2", "setting 3")
    assert [line.attack for line in block.lines] == ["clean", "dim", "ai-dim", "ai-ram"]
    printed = {line.attack: [value.printed for value in line.values] for line in block.lines}
    assert printed["ai-dim"] == [10.5, 5.5, 5.6]
    assert [line.attack for line in block.lines if line.ours] == ["ai-ram"]
    assert printed["ai-ram"] == printed["clean"] == [None] * 3
    for line in block.lines:
        for value in line.values:
            assert value.n == 2
            assert value.ours in (0, 50, 100)


def test_it_says_that_it_is_simulated(made: paper.Reproduced) -> None:
    assert SIMULATED in made.compared.notes
    assert SIMULATED in made.files["comparison"].read_text()
    assert "Not run: eot, ti-dim." in made.compared.notes


def test_the_report_has_the_photographs(made: paper.Reproduced) -> None:
    text = made.files["report"].read_text()
    for words in (SIMULATED.split(":")[1][:40], "Cut out of photographs", "By rotation"):
        assert words in text


def test_lower_accuracy_is_better(made: paper.Reproduced) -> None:
    [ordering, *_] = made.compared.orderings
    assert (ordering.first, ordering.second, ordering.printed) == ("ai-dim", "dim", 1.3)


def test_crafted_images_are_kept(made: paper.Reproduced) -> None:
    files = sorted(Path(made.folder / "table5").rglob("adv/*/*/*.png"))
    assert len(files) == 6


@pytest.mark.parametrize("row", ["ai-dim", "ai-ram"])
def test_rows_are_crafted_with_the_kernel_of_the_authors_code(made: paper.Reproduced, row: str) -> None:
    content = json.loads((made.folder / "table5" / row / "manifest.json").read_text())["crafted"]
    [entry] = content.values()
    assert entry["settings"]["estimator"]["sigma"] == "reference"


@pytest.mark.shared
@pytest.mark.slow
def test_the_whole_table_on_a_few_images_of_the_paper_s_data_set(tmp_path: Path) -> None:
    """Every row with a real network: crafted, photographed in effect, scored, compared, reported."""
    if not NIPS17.is_dir():
        pytest.skip(f"no {NIPS17}")
    page, figures = tmp_path / "table5.html", tmp_path / "figures"
    options = paper.PaperOptions(data=NIPS17, limit=3, quick=True, device="cpu")
    item = paper.load("table5")
    compared = reproduce_photographs(item, tmp_path / "run", options, page=page, figures=figures)
    [block] = compared.blocks
    assert [line.attack for line in block.lines] == ["clean", "eot-quick", "dim", "ti-dim", "ai-dim"]
    assert [value.printed for value in block.lines[1].values] == [24.3, 21.6, 18.0]
    assert {value.n for line in block.lines for value in line.values} == {3}
    pairs = {(one.first, one.second) for one in compared.orderings}
    assert pairs == {("ai-dim", "eot-quick"), ("ai-dim", "dim"), ("ai-dim", "ti-dim")}
    assert "All prints were identified in each setting." in compared.notes
    text = page.read_text()
    for words in (
        SIMULATED.split(":")[1][:40],
        "3 of 3",
        "By rotation: resnet18",
        "Cut out of photographs",
        "setting 3",
    ):
        assert words in text
    assert sorted(path.name for path in figures.iterdir()) == ["gallery-01.pdf", "gallery-01.png"]
