"""How long intervals and paired tests take: 1,000 images × 25 poses × 5 targets × 10 attacks, 2,000 resamples.

python benchmarks/intervals.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations

import numpy as np

from whorl.evaluation import RESAMPLES, ImageCounts, compare, holm, rate

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


def main() -> None:
    """Print seconds."""
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
