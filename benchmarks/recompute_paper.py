"""Rates, intervals and marks of a table of the paper, from the outcomes that ``whorl paper`` keeps and numpy alone.

    python benchmarks/recompute_paper.py runs/…/paper/table1-outcomes.json          # prints every figure
    python benchmarks/recompute_paper.py table1-outcomes.json --against table1.csv   # 1 where the two differ
    python benchmarks/recompute_paper.py table[123]-outcomes.json --compare eot-adam eot   # over all poses
    python benchmarks/recompute_paper.py table[123]-outcomes.json --counts counts.csv      # of each cell

It imports nothing of whorl, so that its statistics can be held against another reading of the same definitions.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recompute_held_out import interval, swap_test

Z = 1.959963984540054
Figure = tuple[float, float, float, str]
"""Percent, the ends of its interval, marks."""


def mean_rate(e: np.ndarray, s: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """By row of weights: the poses' rates, each counting the same; one in which nothing is recognised is left out."""
    below, above = weights @ e.T.astype(float), weights @ s.T.astype(float)
    there = below > 0
    rates = np.divide(above, below, out=np.zeros_like(below), where=there).sum(-1)
    means: np.ndarray = np.divide(rates, there.sum(-1), out=np.full(rates.shape, math.nan), where=there.any(-1))
    return means


def wilson(share: float, n: int) -> tuple[float, float]:
    """95% of a share of n images."""
    middle, scale = share + Z * Z / (2 * n), 1 + Z * Z / n
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def rate(e: np.ndarray, s: np.ndarray) -> tuple[float, float, float]:
    """The rate of (poses, images) eligible and successful, and its interval: BCa where an image counts twice."""
    value = float(mean_rate(e, s, np.ones(e.shape[1])))
    if math.isnan(value):
        return math.nan, math.nan, math.nan
    if e.sum(0).max() > 1 and 0 < s.sum() < e.sum():
        low, high = interval(value, lambda weights: mean_rate(e, s, weights), e.shape[1])
    else:
        low, high = wilson(value, int(e.any(0).sum()))
    return 100 * value, 100 * low, 100 * high


def holm(p: list[float]) -> list[float]:
    """Corrected for their number."""
    order, least, adjusted = np.argsort(p, kind="stable"), 0.0, [0.0] * len(p)
    for place, index in enumerate(order):
        least = adjusted[index] = max(least, min(1.0, (len(p) - place) * p[index]))
    return adjusted


def mark(p: float, lead: float, printed: list[float | None]) -> str:
    """✓ as in the paper, ✗ the other way round, ~ not significant."""
    if printed[0] is None or printed[1] is None:
        return ""
    gap = round(printed[0] - printed[1], 1)
    return ("~" if gap else "✓") if p >= 0.05 else "✓" if lead * gap > 0 else "✗"


def unpacked(data: Any) -> np.ndarray:
    """(1 + rows, targets, poses, images) bool: recognised; clean first."""
    shape = (1 + len(data["rows"]), len(data["targets"]), len(data["poses"]), len(data["ids"]))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(data["bits"]), np.uint8), count=math.prod(shape))
    return bits.reshape(shape).astype(bool)


def recompute(data: Any) -> dict[tuple[str, str, str, str], Figure]:
    """By source, target, column and row."""
    seen, found, tests = unpacked(data), {}, []
    for column in data["columns"]:
        source, t, poses = column["source"], data["targets"].index(column["target"]), column["poses"]
        e = seen[0, t, poses]
        own = {label: e & ~seen[1 + i, t, poses] for i, (label, on) in enumerate(data["rows"]) if on == source}
        for label, s in own.items():
            found[source, column["target"], column["heading"], label] = (*rate(e, s), "")
        each = np.divide(1.0, e.sum(1), out=np.zeros(len(e)), where=e.sum(1) > 0)  # what an image counts in a pose
        for a, b in [] if column["extra"] else data["orderings"]:
            leads = each @ (own[a].astype(int) - own[b])
            p = swap_test(leads if len(e) > 1 else np.sign(leads)) if e.any() else math.nan
            cell = (source, column["target"], column["heading"], a)
            tests.append((cell, p, leads.sum(), [column["printed"].get(row) for row in (a, b)]))
    adjusted = iter(holm([p for _, p, _, _ in tests if not math.isnan(p)]))
    for cell, p, lead, printed in tests:
        shown = "?" if math.isnan(p) else mark(next(adjusted), lead, printed)
        found[cell] = (*found[cell][:3], found[cell][3] + shown)
    return found


def gap(clean: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[float, float, float, float]:
    """Of (poses, images) recognised: points by which the first attack's mean rate is above, its interval, p."""
    a, b, n = clean & ~first, clean & ~second, clean.shape[1]

    def apart(weights: np.ndarray) -> np.ndarray:
        points: np.ndarray = 100 * (mean_rate(clean, a, weights) - mean_rate(clean, b, weights))
        return points

    each = np.divide(1.0, clean.sum(1), out=np.zeros(len(clean)), where=clean.sum(1) > 0)
    value = float(apart(np.ones(n)))
    low, high = interval(value, apart, n)
    return value, float(low), float(high), swap_test(each @ (a.astype(int) - b))


def gaps(files: list[Any], first: str, second: str) -> dict[tuple[str, str], tuple[float, float, float, float]]:
    """By source and target, over all poses of some tables: points, their interval, p with Holm's correction."""
    found: dict[tuple[str, str], tuple[float, float, float, float]] = {}
    for source, target in dict.fromkeys((c["source"], c["target"]) for data in files for c in data["columns"]):
        poses: dict[str, np.ndarray] = {}
        for data in files:
            seen = unpacked(data)[:, data["targets"].index(target)]
            rows = [0, *(1 + data["rows"].index([name, source]) for name in (first, second))]
            poses |= {json.dumps(pose): seen[rows, i] for i, pose in enumerate(data["poses"])}
        found[source, target] = gap(*np.array(list(poses.values())).transpose(1, 0, 2))
    adjusted = holm([p for *_, p in found.values()])
    return {key: (*one[:3], p) for (key, one), p in zip(found.items(), adjusted, strict=True)}


def counts(data: Any) -> list[dict[str, Any]]:
    """What ``whorl paper`` writes as ``table1-results.csv``, as far as outcomes say it."""
    seen = unpacked(data)
    return [
        {"attack": row, "source": source, "target": target, "defense": "none"}
        | {"angle": pose["angle"], "scale": pose["scale"], "shift_x": pose["shift"][0], "shift_y": pose["shift"][1]}
        | {"n": len(data["ids"]), "n_clean_correct": int(e.sum()), "n_success": int((e & ~after).sum())}
        | {"asr": (e & ~after).sum() / e.sum() if e.any() else ""}
        for i, (row, source) in enumerate(data["rows"], 1)
        for target, clean, attacked in zip(data["targets"], seen[0], seen[i], strict=True)
        for pose, e, after in zip(data["poses"], clean, attacked, strict=True)
    ]


def write_counts(files: list[Any], path: str | Path, targets: Sequence[str] = ()) -> None:
    """Of some tables, on some targets or on all, as a CSV file that ``whorl analyze correlate`` reads."""
    rows = [row for data in files for row in counts(data) if not targets or row["target"] in targets]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def differences(found: dict[tuple[str, str, str, str], Figure], path: str) -> list[str]:
    """Where a table that ``whorl paper`` wrote as CSV says otherwise."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    wrong = [] if {row["attack"] for row in written} == {key[3] for key in found} else ["other rows"]
    for row in written:
        key = (row["source"], row["target"], row["column"], row["attack"])
        said = [float(row[name] or "nan") for name in ("ours", "low", "high")]
        if key not in found or row["marks"] != found[key][3] or not np.allclose(said, found[key][:3], 0, 1e-3, True):
            wrong.append(f"{key}: {said} {row['marks']}, and the outcomes say {found.get(key)}")
    return wrong


def read(path: str | Path) -> Any:
    """A file of outcomes."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def main() -> int:
    """Print every figure; 1 where a table says otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", nargs="+", help="as whorl paper writes them")
    parser.add_argument("--against", help="the table's CSV file, to compare with")
    parser.add_argument("--compare", nargs=2, metavar="ROW", help="print how far one row is above another instead")
    parser.add_argument("--counts", metavar="CSV", help="write what each cell counts instead")
    parser.add_argument("--targets", default="", help="joined by commas; of --counts")
    options = parser.parse_args()
    files, wrong = [read(path) for path in options.outcomes], []
    if options.counts:
        write_counts(files, options.counts, [name for name in options.targets.split(",") if name])
    elif options.compare:
        for (source, target), found in gaps(files, *options.compare).items():
            print("{} -> {}: {:+.1f} ({:+.1f} to {:+.1f}), p {:.2g}".format(source, target, *found))
    for data in [] if options.counts or options.compare else files:
        figures = recompute(data)
        for (source, target, column, row), (value, low, high, marks) in figures.items():
            print(f"{source} -> {target}, {column}, {row}: {value:.1f} ({low:.1f} to {high:.1f}) {marks}".rstrip())
        wrong += differences(figures, options.against) if options.against else []
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
