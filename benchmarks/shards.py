"""What a run of 50,000 images in shards costs besides the networks: measured at a few sizes, extrapolated.

    python benchmarks/shards.py --sizes 256 512 1024 --shards 4 --json benchmarks/results/shards-cpu.json

Every shard, the merge and one whole run are processes of their own; their wall time and peak memory are measured. The
network is a tiny one, so that what is left is whorl's own work: listing, hashing, decoding, PNG, the store, the table.
The last line is a straight line through the sizes, drawn on to 50,000: an extrapolation, and not a measurement.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import metadata, save
from whorl import runs
from whorl.data import save_image

GOAL = 50_000
NETWORK = "python:shards:tiny"


def tiny() -> torch.nn.Module:
    """A network that costs next to nothing."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10))


def declaration(folder: Path) -> runs.Declaration:
    """One attack of one step, one target, two poses."""
    name = f"{NETWORK}?size=224&num_classes=10"
    return runs.declare(
        name="shards",
        data={"folder": str(folder)},
        sources=[name],
        attacks=["fgsm"],
        targets=[name],
        poses=[{"angles": [0, 30]}],
        batch_size=64,
    )


def work(data: Path, out: Path, shard: str) -> None:
    """What a process of its own does: a shard, the whole run, or the merge of what is there."""
    start = time.perf_counter()
    if shard == "merge":
        done = runs.merge(sorted(out.parent.glob("part-*")), out, device="cpu")
    else:
        share = None if shard == "whole" else runs.Shard.parse(shard)
        done = runs.run(declaration(data), out, device="cpu", shard=share)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"images": len(done.ids), "seconds": time.perf_counter() - start, "megabytes": memory}))


def measured(data: Path, out: Path, shard: str) -> dict[str, float]:
    """Let a process of its own do it."""
    command = [sys.executable, __file__, "--work", str(data), str(out), shard]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def at_size(count: int, shards: int, folder: Path) -> dict[str, Any]:
    """Measure one size."""
    data = folder / "data"
    noise = torch.Generator().manual_seed(count)
    for i in range(count):
        coarse = torch.rand(1, 3, 14, 14, generator=noise)
        image = torch.nn.functional.interpolate(coarse, 224, mode="bilinear")[0]
        save_image(data / str(i % 10) / f"{i:06d}.png", image)
    parts = [measured(data, folder / f"part-{n}", f"{n}/{shards}") for n in range(1, shards + 1)]
    merged = measured(data, folder / "merged", "merge")
    whole = measured(data, folder / "whole", "whole")
    same = [(folder / name / "results.csv").read_text().count("\n") for name in ("merged", "whole")]
    assert same[0] == same[1]
    assert sum(part["images"] for part in parts) == whole["images"] == merged["images"]
    return {
        "images": count,
        "slowest shard, s": max(part["seconds"] for part in parts),
        "merge, s": merged["seconds"],
        "whole run, s": whole["seconds"],
        "largest shard, MB": max(part["megabytes"] for part in parts),
        "merge, MB": merged["megabytes"],
        "whole run, MB": whole["megabytes"],
    }


def extrapolated(rows: list[dict[str, Any]], goal: int = GOAL) -> dict[str, Any]:
    """A straight line through what was measured, at ``goal`` images; never below the largest measurement.

    A shard's memory is left out: with one, two and four chunks a shard it shows no line.
    """
    x = np.array([row["images"] for row in rows], float)
    found: dict[str, Any] = {"images": goal}
    for name in [name for name in rows[0] if name not in ("images", "largest shard, MB")]:
        y = np.array([row[name] for row in rows])
        slope, start = np.polyfit(x, y, 1)
        found[name] = max(float(slope * goal + start), float(y.max()))
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(Path(options.work[0]), Path(options.work[1]), options.work[2])
    rows = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(at_size(size, options.shards, Path(folder)))
        print(rows[-1], flush=True)
    goal = extrapolated(rows)
    print("extrapolated:", goal)
    if options.json:
        save({"metadata": metadata(), "shards": options.shards, "measured": rows, "extrapolated": goal}, options.json)
    return None


if __name__ == "__main__":
    main()
