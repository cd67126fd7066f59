"""Draw the figures of docs/analysis.md and docs/results/kernels.md from benchmarks/results.

Run from anywhere: python docs/figures/measured_figures.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl.analysis.error_report import draw as draw_error
from whorl.evaluation import Comparison, Pose, SuccessRate
from whorl.paper import load
from whorl.paper.declaration import PaperOptions, declaration
from whorl.paper.panels import draw_panels
from whorl.paper.printed import compare_with_printed
from whorl.report import save_charts
from whorl.runs.declaration import Declaration
from whorl.runs.results import Cell

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

from doc_data import read, read_csv  # noqa: E402 - it stands beside the benchmarks


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Counts that were kept of a run: no pair of rows can be tested."""

    declaration: Declaration
    cells: tuple[Cell, ...]

    def compare(self, *_: Any, **__: Any) -> Comparison:
        """Nothing is known of single images, so that no difference is significant."""
        return Comparison(n=0, b=0, c=0)


def cell(row: Mapping[str, Any]) -> Cell:
    """A row of a table of counts."""
    n, known, fooled = (int(row[name]) for name in ("n", "n_clean_correct", "n_success"))
    pose = Pose(angle=row["angle"], scale=row["scale"], shift=(row["shift_x"], row["shift_y"]))
    target, _, defense = row["target"].partition("+")
    return Cell(
        attack=row["attack"],
        source=row["source"],
        target=target,
        defense=defense or "none",
        pose=pose,
        eps=row["eps"],
        counts=SuccessRate(n, known, fooled, round(row["accuracy"] * n)),
    )


def main() -> None:
    """Draw both."""
    cells = tuple(map(cell, read_csv("figure7-results.csv")))
    item = load("figure7")
    kept = Kept(declaration=declaration(item, PaperOptions(), present=()), cells=cells)
    figures = {
        "analysis-error": draw_error(read("error-resnet18.json")),
        "figure7-panels": draw_panels(compare_with_printed(item, kept)),
    }
    save_charts({HERE / f"{name}.png": figure for name, figure in figures.items()})


if __name__ == "__main__":
    main()
