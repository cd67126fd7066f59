"""Tables of docs/analysis.md and the pages below it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from doc_data import RESULTS, read, where
from doc_tables import Cell, table
from recompute_paper import read as read_outcomes
from recompute_paper import write_counts
from whorl.analysis.correlation import correlate, read_points


def _law(network: str, label: str) -> Mapping[str, Any]:
    (found,) = where(read(f"error-{network}.json")["laws"], label=label)
    return found


@table("error-bounds")
def _(network: str) -> Cell:
    names = {
        "c₁": "c1",
        "c₂": "c2",
        "c₃": "c3",
        "‖g₂-g₁‖": "distance",
        "c₁c₂": "distance_bound",
        "cos(g₁,g₂)": "cosine",
        "its bound": "cosine_bound",
    }

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        law = _law(network, row["law"]) if column != "law" else {}
        if column in names:
            return [float(np.median(law["images"][names[column]]))]
        return (
            [*(min(law["held"][name]) for name in ("same", "halves", "others")), len(law["images"]["c1"])]
            if law
            else None
        )

    return cell


@table("error-steps")
def _(network: str) -> Cell:
    steps = {
        "inverse for adjoint": "g2",
        "gradient at the image": "g1",
        "linear scaling": "linear",
        "finite kernel": "lattice",
        "interpolation": "estimate",
    }
    truths = {
        "estimate and truth": "estimate",
        "finer grid": "finer",
        "log-polar": "log-polar",
        "translation only": "translation",
        "plain gradient": "plain",
    }

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "law":
            return None
        law = _law(network, row["law"])
        if column in steps:
            return [law["steps"][steps[column]]["cosine"]]
        return [law["cosine_with_truth"][truths[column]]]

    return cell


@table("error-kernels")
def _(network: str) -> Cell:
    first = "truth under"
    return lambda row, column: None if column == first else [_law(network, row[first])["cosine_with_truth"][column]]


@table("error-signs")
def _(network: str) -> Cell:
    first = "truth under"

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        return None if column == first else [_law(network, row[first])["cosine_with_truth"][f"sign of {column}"]]

    return cell


_PLAIN = ("resnet18", "mobilenet_v2", "efficientnet_lite0")


def _points(*names: str) -> Any:
    """Of counts, and of outcomes by way of their counts."""
    kept = {name: RESULTS / "paper" / f"{name}-outcomes.json" for name in names}
    outcomes = [read_outcomes(path) for path in kept.values() if path.is_file()]
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counts.csv"
        write_counts(outcomes, counted, _PLAIN) if outcomes else None
        others = [RESULTS / "paper" / f"{name}-results.csv" for name, path in kept.items() if not path.is_file()]
        return read_points([*([counted] if outcomes else []), *others])


@table("correlation-points")
def _(*names: str) -> Cell:
    points = {point.attack: point for point in _points(*names)}

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        point = points[row["attack"].removesuffix(" (ours)")]
        return [point.invariance if "transformed" in column else point.transfer]

    return cell


_RUNS = {
    "attacks, tables 1 to 3": ("table1-resnet18", "table2-resnet18", "table3-resnet18"),
    "kernels, ablation-sigma": ("ablation-sigma", "ablation-parts"),
    "kernels, table8-128": ("table8-128", "figure7"),
    "attacks and kernels": (
        *("table1-resnet18", "table2-resnet18", "table3-resnet18"),
        *("ablation-parts", "ablation-sigma", "figure7", "table8-128"),
    ),
}


@table("correlation")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        (runs,) = (runs for begin, runs in _RUNS.items() if row["over"].startswith(begin))
        found = correlate(_points(*runs))
        values: dict[str, list[float]] = {
            "attacks": [len(found.points)],
            "Pearson": [found.pearson, *found.pearson_interval],
            "Spearman": [found.spearman, *found.spearman_interval],
        }
        return values.get(column)

    return cell


def calibrated_over(baseline: str) -> tuple[int, int]:
    """Networks on which the interval of the difference to a baseline, judged where nothing was chosen, excludes 0."""
    sources = ("resnet18", "efficientnet_lite0")
    low = [row["over"][baseline][1][0] for name in sources for row in read(f"calibration-{name}.json")["judged"]]
    return sum(end > 0 for end in low), len(low)
