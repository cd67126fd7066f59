"""Rates, gains, intervals and p-values of the photographs that chose nothing, from the packed outcomes and numpy alone.

    python benchmarks/recompute_held_out.py benchmarks/results/held-out-cpu.json

It imports nothing of whorl, so that its statistics can be held against another reading of the same definitions.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

N = NormalDist()


def outcomes(stored: Any, poses: int, n: int) -> np.ndarray:
    """(poses, n) bool: recognised."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(stored["bits"]), np.uint8), count=poses * stored["n"])
    return bits.reshape(poses, stored["n"])[:, :n].astype(bool)


def counts(data: Any, target: str, cell: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each photograph: poses in which it is recognised clean, and in which of those the attack succeeds."""
    clean, after = (outcomes(data["recognised"][target][name], len(data["poses"]), n) for name in ("clean", cell))
    return clean.sum(0), (clean & ~after).sum(0)


@cache
def resampled(n: int, resamples: int) -> np.ndarray:
    """(resamples, n): how often each photograph counts."""
    chosen = np.random.default_rng((0, 0)).integers(n, size=(resamples, n))
    return np.array([np.bincount(row, minlength=n) for row in chosen], float)


def interval(value: float, of: Callable[[np.ndarray], np.ndarray], n: int, resamples: int = 2000) -> np.ndarray:
    """BCa: ``of(weights)`` is the statistic by row of (…, n) weights, which say how often a photograph counts."""
    drawn = of(resampled(n, resamples))
    same = np.isclose(drawn, value, rtol=0, atol=1e-6)
    below = ((drawn[~same] < value).sum() + same.sum() / 2) / resamples
    bias = N.inv_cdf(min(max(below, 1 / resamples), 1 - 1 / resamples))
    left = of(1 - np.eye(n))
    away = left - left.mean()
    skew = -(away**3).sum() / (6 * (away**2).sum() ** 1.5) if (away**2).sum() ** 1.5 > 1e-24 else 0.0
    z = [bias + N.inv_cdf(end) for end in (0.025, 0.975)]
    ends: np.ndarray = np.quantile(drawn, [N.cdf(bias + one / (1 - skew * one)) for one in z])
    return ends


def swap_test(leads: np.ndarray) -> float:
    """Exact: how likely so large a sum is if each photograph may as well have the other sign.

    Leads that are not whole, as of a mean over poses, are rounded onto 2^15 steps.
    """
    size = np.abs(leads[leads != 0])
    if not len(size):
        return 1.0
    step = size[0] if (size == size[0]).all() else 1.0 if (size == np.rint(size)).all() else size.sum() / 2**15
    whole = np.rint(leads / step).astype(int)
    steps = np.abs(whole[whole != 0])
    chances = np.ones(1)  # that those which keep their sign add up to 0, 1, 2, ...
    for k in steps:
        chances = (np.pad(chances, (0, k)) + np.pad(chances, (k, 0))) / 2
    sums = np.abs(2 * np.arange(len(chances)) - steps.sum())
    return min(1.0, float(chances[sums >= abs(whole.sum())].sum()))


def compared(data: Any, target: str, first: str, second: str, n: int) -> tuple[float, ...]:
    """Difference of pooled rates, its interval, p without a correction for other comparisons."""
    (e, a), (_, b) = counts(data, target, first, n), counts(data, target, second, n)
    value = float((a - b).sum() / e.sum())
    return (value, *interval(value, lambda w: w @ (a - b) / (w @ e), n), swap_test(a - b))


def main(path: str) -> None:
    """Print every rate, and its difference from ``dim``'s."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    for target, cells in data["recognised"].items():
        for cell in [name for name in cells if name != "clean"]:
            e, s = counts(data, target, cell, n := cells[cell]["n"])
            low, high = interval(s.sum() / e.sum(), lambda w, e=e, s=s: w @ s / (w @ e), n)  # type: ignore[misc]  # defaults
            print(f"{target} {cell} n={n}: {s.sum() / e.sum():.3f} ({low:.3f} to {high:.3f})")
            if cell != (dim := f"dim-{cell.rpartition('-')[2]}"):
                found = compared(data, target, cell, dim, min(n, cells[dim]["n"]))
                print("    over dim: {:+.3f} ({:+.3f} to {:+.3f}), p {:.2g}".format(*found))


if __name__ == "__main__":
    main(sys.argv[1])
