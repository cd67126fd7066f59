"""Tables of docs/analysis.md and the pages below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from doc_data import RESULTS, read, where
from doc_tables import Cell, table
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


def _points(*names: str) -> Any:
    return read_points([RESULTS / "paper" / f"{name}.csv" for name in names])


@table("correlation-points")
def _(*names: str) -> Cell:
    points = {point.attack: point for point in _points(*names)}

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        point = points[row["attack"]]
        return [point.invariance if "transformed" in column else point.transfer]

    return cell


_RUNS = {
    "attacks, tables 1 to 3": ("table1", "table2", "table3"),
    "kernels, ablation-sigma": ("ablation-sigma", "ablation-parts"),
    "kernels, table8-128": ("table8-128", "figure7"),
    "attacks and kernels": (
        *("table1", "table2", "table3"),
        *("ablation-parts", "ablation-sigma", "figure7", "table8-128"),
    ),
}


@table("correlation")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        (runs,) = (runs for begin, runs in _RUNS.items() if row["over"].startswith(begin))
        found = correlate(_points(*(f"{name}-results" for name in runs)))
        values: dict[str, list[float]] = {
            "attacks": [len(found.points)],
            "Pearson": [found.pearson, *found.pearson_interval],
            "Spearman": [found.spearman, *found.spearman_interval],
        }
        return values.get(column)

    return cell
