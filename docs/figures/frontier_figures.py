"""Draw the figures of docs/frontier.md, and the README's plot, from the outcomes in benchmarks/results.

Rates are pooled over poses, as in the page's table.

    python docs/figures/frontier_figures.py

Needs ``pip install torchwhorl[figures]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

from doc_data import Frontier  # noqa: E402 - it stands beside the benchmarks
from frontier_figure import draw, figure  # noqa: E402 - likewise

SOURCES = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}
EPS = (16.0, 8.0, 4.0)
# Rows whose kernel is part of the page's comparison, by the name that they have there.
NAMES = {"dim+ai0.5": "dim, σ 0.5", "ram+ai0.5": "ram, σ 0.5", "ai-best@d86f66b": "ai-best before"}
# Its targets answered in another precision than those that the clean images were kept of, so it cannot be pooled.
LEFT_OUT = "dim+turn32-1.6/10"


def _rows(data: Frontier) -> dict[str, Any]:
    """The rows under the names of the page (``dim+ai0.5/10`` is ``dim, σ 0.5/10``), their rates pooled."""
    found = {}
    for name, row in data.part["rows"].items():
        if name == LEFT_OUT:
            continue
        base, _, gradients = name.rpartition("/")
        rates = {eps: {"mean": 100 * data.counts(name, eps).value("mean")} for eps in row["eps"]}
        found[f"{NAMES.get(base, base)}/{gradients}"] = {**row, "eps": rates}
    return found


def _readme_plot(rows: dict[str, Any]) -> None:
    """One bound, without what was wrapped or given another kernel: its caption stands in the README."""
    plain = {name: row for name, row in rows.items() if not any(mark in name for mark in ("+", ",", "before"))}
    drawn = figure(plain, (8.0,), source="")
    drawn.layout.annotations = [note for note in drawn.layout.annotations if not note.text.startswith("ε")]
    drawn.update_layout(title=None, width=760, height=440, margin={"l": 60, "r": 10, "t": 10, "b": 60})
    drawn.update_yaxes(title="success over 12 poses (%)").update_layout(legend={"y": -0.16})
    drawn.update_traces(showlegend=False, selector={"name": "the same, wrapped"})
    drawn.write_image(HERE / "frontier.png", scale=2)


def main() -> None:
    """Draw all."""
    for source, title in SOURCES.items():
        rows = _rows(Frontier(source))
        draw(rows, EPS, HERE / f"frontier-{source}.png", source=title)
        if source == "resnet18":
            _readme_plot(rows)


if __name__ == "__main__":
    main()
