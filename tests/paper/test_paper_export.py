"""A comparison as part of a report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.invoking import invoke
from paper.synthetic import Synthetic
from paper.toys import toy_images, toy_profile
from report.latex_parser import parse
from whorl import paper
from whorl.paper.export import report_tables, result_tables
from whorl.report.result_table import latex, wide_rows


def test_tables_for_a_report_carry_figures_and_notes() -> None:
    item = paper.load("table1")
    declared = item.declaration(present=())
    done = Synthetic(declaration=declared, fooled=lambda attack, *_: 120 if attack.startswith("ai-") else 60)
    compared = paper.compare_with_printed(item, done)
    *tables, last = report_tables(compared)
    assert len(tables) == 3
    assert tables[1].columns == ("attack", "θ=-30°", "θ=-15°", "θ=0°", "θ=15°", "θ=30°", "mean")
    ai_dim = [row[0] for row in tables[1].rows].index("ai-dim")
    assert tables[1].rows[ai_dim][1] == "80.0 (72.9 to 85.6) / 88.8 ✓✓"
    assert tables[1].rows[-1] == ("n", *["150"] * 5, "750")
    assert tables[1].notes[ai_dim] == "1 of 10 the other way round"
    assert compared.summary in last.about
    assert [row[0] for row in last.rows] == [str(one) for one in compared.differing]


def test_a_row_is_bold_where_it_is_ahead_of_all_that_it_is_held_against() -> None:
    """Which rows are held against which is the item's; how they stand is worked out here from the images alone."""
    item = paper.load("table1")
    fooled = {"ai-dim": 120, "ai-pgd": 61, "mim": 120, "eot": 60}
    done = Synthetic(declaration=item.declaration(present=()), fooled=lambda attack, *_: fooled.get(attack, 60))
    compared = paper.compare_with_printed(item, done)
    tables = result_tables(compared)
    assert len(tables) == len(compared.blocks) == 3
    columns = [c for c in range(len(tables[0].columns)) if tables[0].columns[c] != "mean"]
    ahead = {row.keys[0]: {row.entries[c].best for c in columns} for table in tables for row in table.rows}
    assert {name for name, best in ahead.items() if best == {True}} == {"ai-dim", "mim"}
    assert not any(row.entries[-1].best for row in tables[0].rows)  # the paper has no such column
    parsed = parse(latex(tables, intervals=True))
    cell = {row[0]: row[1] for row in parsed[1].rows}["ai-dim"]
    assert cell == "*80.0 [72.9, 85.6] / 88.8"
    assert "Bold: significantly ahead of every row that it is held against" in parsed[0].caption
    head, *rows = wide_rows(tables)
    assert head[:8] == (
        "table",
        "attack",
        *(f"θ=-30°{part}" for part in (" (%)", " n", " low (%)", " high (%)", " few")),
        head[7],
    )
    assert head[7] == "θ=-30° printed (%)"
    assert len(rows) == sum(len(block.lines) for block in compared.blocks)


def test_where_the_paper_printed_nothing_there_is_nothing_to_be_the_other_way_round() -> None:
    item = paper.load("figure4")
    done = Synthetic(declaration=item.declaration(), fooled=lambda *_: 60)
    compared = paper.compare_with_printed(item, done)
    tables = report_tables(compared)
    assert len(tables) == 5
    assert all(compared.summary in table.about for table in tables)


def test_a_report_is_written_when_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")
    data, profile = toy_images(tmp_path), toy_profile(tmp_path)
    words = ("--profile", str(profile), "--data", str(data), "--out", str(tmp_path / "run"), "--attacks", "pgd,ai-pgd")
    assert invoke("paper", "table3", *words).exit_code == 0
    assert not list((tmp_path / "run").rglob("*.html"))
    assert len(parse((tmp_path / "run" / "paper" / "table3.tex").read_text())) == 2
    assert (tmp_path / "run" / "paper" / "table3-wide.csv").read_text().startswith("table,attack,")
    result = invoke("paper", "table3", *words, "--report")
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "run" / "paper" / "table3.html").read_text()
    assert "Table 3: Success rates under translation" in page
    assert "/ 85.5" in page


def test_a_run_needs_no_plots(tmp_path: Path) -> None:
    """Where there is nothing to draw with, tables still run."""
    words = ["paper", "table3", "--attacks", "fgsm,ai-fgsm", "--device", "cpu", "--profile", str(toy_profile(tmp_path))]
    words += ["--data", str(toy_images(tmp_path)), "--out", str(tmp_path / "run")]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['plotly', 'kaleido', 'jinja2', 'ray']))\n"
        f"from whorl.cli import app; app({words!r})"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment()
    )
    assert found.returncode == 0, found.stderr
    assert "orderings agree with the paper" in found.stdout


def _environment() -> dict[str, str]:
    tests = str(Path(__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))}
