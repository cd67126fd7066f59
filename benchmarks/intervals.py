"""How long intervals and paired tests take: 1,000 images × 25 poses × 5 targets × 10 attacks, 2,000 resamples.

python benchmarks/intervals.py
python benchmarks/intervals.py --coverage --json coverage.json    # how often a 95% interval holds the true rate
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from measure import metadata, save
from whorl.evaluation import RESAMPLES, ImageCounts, compare, holm, rate
from whorl.evaluation.image_counts import percentile_interval

IMAGES, POSES, TARGETS, ATTACKS = 1000, 25, 5, 10


def made_up() -> dict[tuple[int, int], ImageCounts]:
    """Outcomes by (attack, target): images differ in how easily they are recognised and fooled, attacks in strength."""
    generator, counts = np.random.default_rng(0), {}
    hard = generator.random(IMAGES)
    for target in range(TARGETS):
        eligible = generator.random((POSES, IMAGES)) < generator.beta(4, 1.5, IMAGES)
        for attack in range(ATTACKS):
            fooled = generator.random((POSES, IMAGES)) < 1 - hard ** (1 + attack / 3)
            counts[attack, target] = ImageCounts(eligible, eligible & fooled)
    return counts


def coverage(trials: int = 600, resamples: int = 1000) -> list[dict[str, float]]:
    """Count how often a 95% interval holds the true rate: BCa, as we have it, and percentile, beside it."""
    generator, rows = np.random.default_rng(1), []
    for images in (20, 50, 200):
        for truth, alike in ((0.7, 1.0), (0.9, 1.0), (0.95, 0.5), (0.98, 0.5)):
            held = np.zeros(2, int)
            for seed in range(trials):
                # An image's own chance of being fooled is drawn; the smaller ``alike``, the more images differ.
                chance = generator.beta(2 * truth * alike, 2 * (1 - truth) * alike, images)
                eligible = generator.random((POSES, images)) < generator.beta(4, 1.5, images)
                counts = ImageCounts(eligible, eligible & (generator.random((POSES, images)) < chance))
                intervals = (
                    rate(counts, resamples=resamples, seed=seed).interval,
                    percentile_interval(counts.drawn("pooled", resamples, seed)),
                )
                held += [low <= truth <= high for low, high in intervals]
            ours, percentile = held.tolist()
            rows.append({"images": images, "rate": truth, "trials": trials, "BCa": ours, "percentile": percentile})
            print(
                f"{images} images, true rate {truth:.0%}: BCa {ours / trials:.1%}, percentile {percentile / trials:.1%}"
            )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Print seconds, or how often intervals hold the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", action="store_true", help="how often a 95% interval holds the true rate")
    parser.add_argument("--json", type=Path, help="where to save the coverage")
    options = parser.parse_args(argv)
    if options.coverage:
        about = metadata(torch.device("cpu"), poses=POSES, resamples=1000, seed=1)
        rows = coverage()
        if options.json is not None:
            save({"metadata": about, "rows": rows}, options.json)
        return
    counts = made_up()
    pairs = [(a, b, t) for a, b in combinations(range(ATTACKS), 2) for t in range(TARGETS)]
    jobs: dict[str, Callable[[], object]] = {
        f"{len(counts)} pooled rates": lambda: [rate(one) for one in counts.values()],
        f"{len(counts)} means over poses": lambda: [rate(one, "mean") for one in counts.values()],
        f"{len(pairs)} paired comparisons": lambda: holm(
            {p: compare(counts[p[0], p[2]], counts[p[1], p[2]]) for p in pairs}
        ),
    }
    total = 0.0
    print(f"{IMAGES} images, {POSES} poses, {TARGETS} targets, {ATTACKS} attacks, {RESAMPLES} resamples")
    for name, job in jobs.items():
        start = time.perf_counter()
        job()
        spent = time.perf_counter() - start
        total += spent
        print(f"{name}: {spent:.2f} s")
    print(f"together: {total:.2f} s")


if __name__ == "__main__":
    main()
