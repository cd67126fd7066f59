"""Reads ``benchmarks/results``: counts by attack, target and pose; outcomes by image; timings."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from judge import unpacked
from recompute_paper import counts
from whorl.evaluation.image_counts import ImageCounts

RESULTS = Path(__file__).parent / "results"
Row = Mapping[str, Any]


@cache
def read(name: str) -> Any:
    """A JSON file."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@cache
def read_csv(name: str) -> tuple[dict[str, Any], ...]:
    """Cells of ``whorl paper``; a target behind a defence is called ``target+defence``, numbers are numbers."""
    with (RESULTS / "paper" / name).open(encoding="utf-8", newline="") as file:
        rows = [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        if row["defense"] != "none":
            row["target"] = f"{row['target']}+{row['defense']}"
    return tuple(rows)


@cache
def cells(name: str) -> tuple[dict[str, Any], ...]:
    """Counts of a table of ``whorl paper``: of the outcomes of each image where they are kept."""
    outcomes = RESULTS / "paper" / f"{name}-outcomes.json"
    return tuple(counts(read(f"paper/{outcomes.name}"))) if outcomes.is_file() else read_csv(f"{name}-results.csv")


@cache
def read_lines(name: str) -> tuple[dict[str, Any], ...]:
    """A JSON value a line, without the first, which holds the settings."""
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines[1:])


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values; None is any."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items() if value is not None)]


def percent(rows: Iterable[Row]) -> float:
    """Give the unweighted mean over the poses of the success rate, as in the paper's tables.

    A pose in which no clean image is recognised has none.
    """
    rates = [100 * row["n_success"] / row["n_clean_correct"] for row in rows if row["n_clean_correct"]]
    if not rates:
        raise LookupError("no cell has these values")
    return float(np.mean(rates))


class HeldOut:
    """Outcomes on the photographs that chose nothing, image by image (``held_out.py``, ``rivals.py``)."""

    def __init__(self, data: Any = None) -> None:
        self.data = read("held-out-resnet18-cuda.json") if data is None else data
        self.poses = self.data["poses"]

    def recognised(self, target: str, cell: str) -> np.ndarray:
        """(poses, n) bool; ``clean`` or an attack at an eps, ``ai-dim-16``."""
        return unpacked(self.data["recognised"][target][cell], len(self.poses))

    def n(self, eps: int, targets: Iterable[str]) -> int:
        """Photographs that all attacks measured at an eps have been evaluated on, on all of these targets."""
        measured = [self.data["recognised"][target] for target in targets]
        cells = set.intersection(*({cell for cell in one if cell.endswith(f"-{eps}")} for one in measured))
        return int(min(one[cell]["n"] for one in measured for cell in cells))

    def counts(self, target: str, cell: str, n: int, *, identity: bool = False) -> ImageCounts:
        """Of the first n photographs; in all poses, or as they are.

        A targeted attack succeeds where its class is reached, whatever becomes of the clean photograph.
        """
        reached = self.reached(target, cell, n, identity=identity)
        if "classes" in self.data:
            return ImageCounts(np.ones_like(reached), reached)
        clean = self.reached(target, "clean", n, identity=identity)
        return ImageCounts(clean, clean & ~reached)

    def mean(self, targets: Iterable[str], cell: str, n: int, *, identity: bool = False) -> ImageCounts:
        """One row a target, poses pooled: the mean over rows is the mean over targets of pooled rates."""
        each = [self.counts(target, cell, n, identity=identity) for target in targets]
        return ImageCounts(*(np.stack([getattr(c, name).sum(0) for c in each]) for name in ("eligible", "success")))

    def reached(self, target: str, cell: str, n: int, *, identity: bool = False) -> np.ndarray:
        """(poses, n) bool: the answers themselves, in all poses or as they are."""
        rows = [i for i, p in enumerate(self.poses) if (p["angle"], p["scale"], *p["shift"]) == (0, 1, 0, 0)]
        return self.recognised(target, cell)[rows if identity else list(range(len(self.poses))), :n]


class Frontier:
    """Outcomes of ``frontier.py`` by image: in how many of the twelve poses it is recognised clean, and fooled."""

    def __init__(self, source: str) -> None:
        self.part = read(f"frontier-{source}.json")["late"]
        self.targets: list[str] = self.part["asked"]["targets"]

    def has(self, name: str, eps: str) -> bool:
        """Whether a candidate was measured."""
        return name in self.part["rows"] and eps in self.part["rows"][name]["eps"]

    def counts(self, name: str, eps: str, targets: Iterable[str] | None = None) -> ImageCounts:
        """One row a target, poses pooled: so the mean over rows is the mean over targets of pooled rates."""
        row = self.part["rows"][name]["eps"][eps]
        known, fooled = row.get("known", self.part["known"]), row["fooled"]
        kept = list(targets or self.targets)
        digits = ([[int(d, 16) for d in some[t]] for t in kept] for some in (known, fooled))
        return ImageCounts(*map(np.array, digits))
