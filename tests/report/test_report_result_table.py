"""Tables for people: what is bold, what is marked, and that LaTeX, Markdown and CSV say the same."""

from __future__ import annotations

import csv
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from report.latex_parser import parse
from report.made_up import cell, rate
from runs.declaring import OTHER, SMALL, declared, save_toy_images, table
from whorl import runs
from whorl.evaluation import Comparison, ImageCounts, Pose, SuccessRate, compare, holm
from whorl.report import write_tables
from whorl.report.result_table import latex, markdown, result_tables, wide_rows
from whorl.runs.results import Cell

HOSTILE = ("a_b & 50% $x$ #1 {z}", '\\\\[2cm] ~^|<>`"--', "*[x] \\input{/etc/passwd} % no", "naïve → θ–ε\n\x1b\u202e|`")


def compared(cells: list[Cell]) -> dict[tuple[str, str, str, str], Comparison]:
    """Every two attacks on every target, from the counts of each image."""
    made = {}
    for one, other in combinations(cells, 2):
        if (one.source, one.target) == (other.source, other.target) and one.images and other.images:
            made[one.attack, other.attack, one.source, one.target] = compare(one.images, other.images)
    return holm(made)


def some(*rates: int, few: int = 200) -> list[Cell]:
    names = ("dim", "ti-dim", "ai-dim")
    made = [cell(name, "net-b", rate(k)) for name, k in zip(names, rates, strict=True)]
    return made + [cell(name, "net-c", rate(min(k, few), of=few)) for name, k in zip(names, rates, strict=True)]


def bold(cells: list[Cell]) -> list[tuple[str, str]]:
    [one] = result_tables(cells, compared(cells), name="t")
    rows = (
        (str(row.keys[0]), column, entry)
        for row in one.rows
        for column, entry in zip(one.columns, row.entries, strict=True)
    )
    return [(attack, column) for attack, column, entry in rows if entry.best]


def test_bold_is_what_the_paired_test_puts_ahead_of_all_others() -> None:
    assert bold(some(100, 150, 190)) == [("ai-dim", "net-b"), ("ai-dim", "net-c")]
    assert bold(some(100, 189, 190)) == []  # the best, but not significantly
    assert bold(some(190, 100, 190)) == []  # level
    assert bold(some(100, 150, 190, few=9)) == [("ai-dim", "net-b")]  # nine images are no figure


def test_attacks_of_another_bound_or_seed_are_no_rivals() -> None:
    cells = [
        Cell(
            attack=f"{name}@eps-{eps}-255@seed-{seed}",
            source="net-a",
            target="net-b",
            pose=Pose(),
            eps=eps / 255,
            counts=rate(k + eps),
            swept={"eps": eps / 255, "seed": seed},
            images=ImageCounts(np.ones((1, 200)), np.arange(200)[None] < k + eps),
        )
        for name, k in (("dim", 60), ("ai-dim", 150))
        for eps in (4, 16)
        for seed in (0, 1)
    ]
    [one] = result_tables(cells, compared(cells), name="t")
    assert one.keys == ("attack", "ε", "seed")
    assert [row.keys for row in one.rows][:3] == [("dim", 4 / 255, 0), ("ai-dim", 4 / 255, 0), ("dim", 4 / 255, 1)]
    assert [row[:3] for row in parse(latex([one]))[0].rows[1:4]] == [
        ["dim", "4/255", "0"],
        ["ai-dim", "4/255", "0"],
        ["dim", "4/255", "1"],
    ]
    assert list(wide_rows([one]))[1][:4] == ("net-a", "dim", 4 / 255, 0)
    assert [row.entries[0].best for row in one.rows] == [False, True] * 4
    assert latex([one]).count("\\midrule") == 1 + 3 + 1
    assert "every other attack with the same ε and seed" in " ".join(one.about)


def test_few_images_are_marked_and_n_stands_below() -> None:
    cells = some(100, 150, 190, few=9)
    [one] = result_tables(cells, name="t")
    [parsed] = parse(latex([one]))
    assert parsed.rows[-1] == ["n", "200", "9"]
    assert parsed.rows[1] == ["dim", "50.0", "100.0"]
    assert "100.0$^\\dagger$" in latex([one])
    assert "Fewer than 10 images." in parsed.caption
    assert "| `dim` | 50.0 | 100.0† |" in markdown([one])
    head, first, *_ = wide_rows([one])
    row = dict(zip(head, first, strict=True))
    assert (row["net-b (%)"], row["net-b n"], row["net-b few"]) == (50.0, 200, "")
    assert (row["net-c n"], row["net-c few"]) == (9, "yes")


def test_n_stands_beside_each_rate_where_it_differs() -> None:
    cells = [cell("dim", "net-b", rate(50, of=100)), cell("ai-dim", "net-b", rate(50, of=200))]
    tables = result_tables(cells, name="t")
    [parsed] = parse(latex(tables, intervals=True))
    assert parsed.rows[1:] == [
        ["dim", "50.0 {[}40.4, 59.6{]} (n = 100)".replace("{", "").replace("}", "")],
        parsed.rows[2],
    ]
    assert "(n = 200)" in parsed.rows[2][1]
    assert "(n = 100) |" in markdown(tables)


def test_what_has_no_rate_is_a_dash() -> None:
    cells = [cell("dim", "net-b", SuccessRate(20, 0, 0, 3)), cell("ai-dim", "net-c", rate(5, of=20, n=20))]
    tables = result_tables(cells, name="t")
    [parsed] = parse(latex(tables))
    assert [row[1:] for row in parsed.rows[1:3]] == [["– (n = 0)", "– (n = 0)"], ["– (n = 0)", "25.0 (n = 20)"]]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_come_out_as_they_are(name: str) -> None:
    cells = [cell(name, f"t{name}", rate(50), source=name), cell("b", f"t{name}", rate(50), source=name)]
    [parsed] = parse(latex(result_tables(cells, name=name), intervals=True))
    assert len(parsed.rows) == 4
    text = markdown(result_tables(cells, name=name))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {line.replace("\\|", "").count("|") for line in rows} == {3}


def test_an_experiment(tmp_path: Path) -> None:
    """Pooled from the long table, pose by pose, without those of fewer than ten images."""
    data = save_toy_images(tmp_path / "data", 16)
    done = runs.run(declared(data, attacks=["fgsm", "ai-fgsm"], batch_size=8), tmp_path / "run", device="cpu")
    files = write_tables(done, intervals=True)
    assert [path.name for path in files.values()] == ["results.tex", "results.md", "results-wide.csv"]
    wide = list(csv.DictReader(files["wide CSV"].open(newline="")))
    assert [(row["source"], row["attack"]) for row in wide] == [(SMALL, "fgsm"), (SMALL, "ai-fgsm")]
    for row in wide:
        for target, model, defense in (
            (SMALL, SMALL, "none"),
            (OTHER, OTHER, "none"),
            (f"{SMALL}+resize-pad", SMALL, "resize-pad"),
        ):
            own = [
                (int(one["n_clean_correct"]), int(one["n_success"]))
                for one in table(tmp_path / "run")
                if (one["attack"], one["target"], one["defense"]) == (row["attack"], model, defense)
            ]
            kept = [one for one in own if one[0] >= 10] or own
            n, won = (sum(part) for part in zip(*kept, strict=True))
            assert int(row[f"{target} n"]) == n
            assert row[f"{target} few"] == ("" if any(one[0] >= 10 for one in own) else "yes")
            if n:
                assert math.isclose(float(row[f"{target} (%)"]), 100 * won / n, abs_tol=1e-3)
                images = done.outcomes(SMALL)
                place = images.targets.index(target)
                clean, still = images.clean[place], images.adversarial[images.attacks.index(row["attack"]), place]
                some_pose = float((clean & ~still).any(0).sum() / clean.any(0).sum())
                assert math.isclose(float(row[f"{target} any pose (%)"]), 100 * some_pose, abs_tol=1e-3)
    [parsed] = parse(files["LaTeX"].read_text())
    assert [row[0] for row in parsed.rows] == ["attack", "fgsm", "ai-fgsm", *(["n"] if len(parsed.rows) == 4 else [])]
    assert parsed.label == "small-python-cli-toy-networks-small"
    assert files["Markdown"].read_text().count("\n| `") == 2
