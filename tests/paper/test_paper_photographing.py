"""Table 5: the simulated photographs beside what the paper printed. (Put this file into tests/paper/.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from whorl import paper
from whorl.physical.table5 import SIMULATED


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> paper.Reproduced:
    out = tmp_path_factory.mktemp("table5")
    return paper.reproduce("table5", out, limit=2, attacks=["dim", "ai-dim", "ai-ram"], device="cpu")


def test_ours_stand_beside_the_printed_figures(made: paper.Reproduced) -> None:
    [block] = made.compared.blocks
    assert block.columns == ("setting 1", "setting 2", "setting 3")
    assert [line.attack for line in block.lines] == ["clean", "dim", "ai-dim", "ai-ram"]
    printed = {line.attack: [value.printed for value in line.values] for line in block.lines}
    assert printed["ai-dim"] == [10.5, 5.5, 5.6]
    assert printed["ai-ram"] == printed["clean"] == [None] * 3
    for line in block.lines:
        for value in line.values:
            assert value.n == 2
            assert value.ours in (0, 50, 100)


def test_it_says_that_it_is_simulated(made: paper.Reproduced) -> None:
    assert SIMULATED in made.compared.notes
    assert SIMULATED in made.files["comparison"].read_text()
    assert "Not run: eot, ti-dim." in made.compared.notes


def test_lower_accuracy_is_better(made: paper.Reproduced) -> None:
    [ordering, *_] = made.compared.orderings
    assert (ordering.first, ordering.second, ordering.printed) == ("ai-dim", "dim", 1.3)


def test_crafted_pictures_are_kept(made: paper.Reproduced) -> None:
    files = sorted(Path(made.folder / "table5").rglob("adv/*/*/*.png"))
    assert len(files) == 6
