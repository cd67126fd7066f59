"""Does ``whorl.worst_pose`` miss what a grid of 2,000 poses finds? Image by image, on every network asked for.

    python benchmarks/worst_pose.py --data JUDGE_FOLDER --n 200 --networks all --boxes paper,rotations --device cuda

Within each box every image gets a search of at most 200 poses, and a grid of 2,000 that stops where the image is
fooled. Saved with what came of every image; run again, it goes on where it stopped. ``--show`` prints the table of what
is saved, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from judge import Data
from measure import HERE, metadata, save
from whorl.evaluation import Pose, Predictor
from whorl.evaluation.pose_search import BUDGET
from whorl.geometry.pose import posed
from whorl.models import model_names
from whorl.transforms import RandomAffine

BOXES = {
    "paper": RandomAffine(),
    # Engstrom et al. (2019): 30 degrees and a tenth of the image either way, no scaling.
    "rotations": RandomAffine(scale=(1.0, 1.0), shift=30.0),
}
# Values of angle, scale, shift right and shift down: 2,000 poses either way.
GRIDS = {"paper": (10, 8, 5, 5), "rotations": (20, 1, 10, 10)}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, default=200, help="images, evenly spread (default: 200)")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--networks", default="resnet18,mobilenet_v2", help="joined by commas; all: every zoo network")
    parser.add_argument("--boxes", default="paper,rotations", help=f"of {', '.join(BOXES)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "worst-pose.json")
    parser.add_argument("--show", action="store_true", help="print the table of what is saved")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is missing, save, print."""
    options = parse(argv)
    if not options.show:
        measure(options)
    print(table(json.loads(options.json.read_text())["rows"]))


def measure(options: argparse.Namespace) -> None:
    """Search, and lay the grid, for every network, box and image that is not saved yet."""
    data = Data.load(options.data, None, options.size, options.device).spread(options.n)
    saved = json.loads(options.json.read_text()) if options.json.exists() else {}
    rows: dict[str, Any] = saved.get("rows", {})
    names = model_names() if options.networks == "all" else options.networks.split(",")
    folder = Path(options.data).resolve().name if options.data else "samples"
    for name, box in product(names, options.boxes.split(",")):
        network = whorl.load_model(name, device=options.device)
        asked = {
            "data": folder,
            "size": options.size,
            "weights_sha256": network.weights_sha256,
            "box": repr(BOXES[box]),
            "budget": BUDGET,
        }
        row = rows.get(f"{name}, {box}", {})
        done: dict[str, Any] = row["images"] if row.get("asked") == asked else {}
        for place, image in enumerate(data.ids):
            if image in done:
                continue
            x, y = data.x[place : place + 1], data.y[place : place + 1]
            done[image] = compare(network, x, y, box, options.batch_size)
            rows[f"{name}, {box}"] = {"asked": asked, "images": done}
            if place % 10 == 9 or place == len(data.ids) - 1 or not done[image]["search"]["fooled"]:
                save({"metadata": metadata(data.x.device), "rows": rows}, options.json)
        print(line(f"{name}, {box}", done), flush=True)


def compare(network: nn.Module, x: Tensor, y: Tensor, box: str, batch_size: int) -> dict[str, Any]:
    """Search and grid on one image."""
    start = time.perf_counter()
    found = whorl.worst_pose(network, x, y, box=BOXES[box], batch_size=batch_size)
    middle = time.perf_counter()
    by_grid, queries = fooled_by_grid(network, x, y, box, batch_size)
    return {
        "recognised": bool(found.recognised),
        "search": {
            "fooled": bool(found.fooled),
            "queries": int(found.queries),
            "pose": found.poses[0].changed,
            "margin": round(float(found.margins), 4),
            "seconds": round(middle - start, 3),
        },
        "grid": {"fooled": by_grid, "queries": queries, "seconds": round(time.perf_counter() - middle, 3)},
    }


def fooled_by_grid(network: nn.Module, x: Tensor, y: Tensor, box: str, batch_size: int) -> tuple[bool, int]:
    """Whether any of 2,000 poses fools, and how many were tried: in a shuffled order."""
    shares = [torch.linspace(0, 1, count, dtype=torch.float64) if count > 1 else [0.5] for count in GRIDS[box]]
    draws = torch.tensor([[float(value) for value in point] for point in product(*shares)], dtype=torch.float64)
    # In an order that has nothing to do with the search's; it decides how soon it stops, not what it finds.
    order = torch.randperm(len(draws), generator=torch.Generator().manual_seed(0))
    numbers, predictor = BOXES[box].numbers(draws[order]), Predictor({"it": network})
    for start in range(0, len(numbers), batch_size):
        some = numbers[start : start + batch_size].to(x.device)
        images = posed(x.expand(len(some), -1, -1, -1), some, BOXES[box].drawn)
        right = predictor.recognised(images, y.expand(len(some)), {"it": (Pose(),)})["it", Pose()]
        if not bool(right.all()):
            return True, start + len(some)
    return False, len(numbers)


def line(name: str, images: Mapping[str, Any]) -> str:
    """One network in one box, as a row of a Markdown table."""
    known = [image for image in images.values() if image["recognised"]]
    search, grid = ([image[way]["fooled"] for image in known] for way in ("search", "grid"))
    alone = sum(b and not a for a, b in zip(search, grid, strict=True))
    further = sum(a and not b for a, b in zip(search, grid, strict=True))
    queries = sorted(image["search"]["queries"] for image in known)
    mean = sum(queries) / len(queries)
    shares = [f"{100 * sum(way) / len(known):.1f}" for way in (search, grid)]
    spent = [f"{mean:.1f}", str(queries[len(queries) // 2]), str(queries[-1])]
    cells = [name, str(len(images)), str(len(known)), *shares, str(further), str(alone), *spent]
    return f"| {' | '.join(cells)} |"


def table(rows: Mapping[str, Any]) -> str:
    """Every network and box; of the images that are recognised as they are."""
    titles = ["network, box", "images", "recognised", "fooled by the search, %", "by 2,000 poses, %"]
    titles += ["by the search alone", "by the grid alone", "queries, mean", "median", "most"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([*lines, *(line(name, row["images"]) for name, row in rows.items())])


if __name__ == "__main__":
    main()
