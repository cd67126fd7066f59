"""Draw the figures of docs/frontier.md from the outcomes in benchmarks/results: rates pooled over poses, as its table.

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
from frontier_figure import draw  # noqa: E402 - likewise

SOURCES = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}
EPS = (16.0, 8.0, 4.0)
# Rows whose kernel is part of the page's comparison, by the name that they have there.
NAMES = {"dim+ai0.5": "dim, σ 0.5", "ram+ai0.5": "ram, σ 0.5"}
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


def main() -> None:
    """Draw both."""
    for source, title in SOURCES.items():
        draw(_rows(Frontier(source)), EPS, HERE / f"frontier-{source}.png", source=title)


if __name__ == "__main__":
    main()
