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
from collections.abc import Iterator, Mapping, Sequence
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
    """Search on every network, box and image that is not saved yet; then lay the grids."""
    data = Data.load(options.data, None, options.size, options.device).spread(options.n)
    saved = json.loads(options.json.read_text()) if options.json.exists() else {}
    rows: dict[str, Any] = saved.get("rows", {})
    names = model_names() if options.networks == "all" else options.networks.split(",")
    about = {"data": Path(options.data).resolve().name if options.data else "samples", "size": options.size}
    cells = [(name, box) for box in options.boxes.split(",") for name in names]

    def keep() -> None:
        save({"metadata": metadata(data.x.device), "rows": rows}, options.json)

    for step in (search, lay_grids):
        for name, box in cells:
            network = whorl.load_model(name, device=options.device)
            asked = {**about, "weights_sha256": network.weights_sha256, "box": repr(BOXES[box]), "budget": BUDGET}
            key = f"{name}, {box}"
            done: dict[str, Any] = rows[key]["images"] if rows.get(key, {}).get("asked") == asked else {}
            rows[key] = {"asked": asked, "images": done}
            for _ in step(data, done, network, box, options.batch_size):
                keep()
            print(line(key, done), flush=True)


def search(data: Data, done: dict[str, Any], network: nn.Module, box: str, batch_size: int) -> Iterator[None]:
    """Search on the images that lack it, some at a time."""
    places = [place for place, image in enumerate(data.ids) if image not in done]
    for part in (places[i : i + batch_size] for i in range(0, len(places), batch_size)):
        start, ids = time.perf_counter(), [data.ids[place] for place in part]
        found = whorl.worst_pose(network, data.x[part], data.y[part], ids=ids, box=BOXES[box], batch_size=batch_size)
        seconds = (time.perf_counter() - start) / len(part)
        for i, image in enumerate(ids):
            made = {"fooled": bool(found.fooled[i]), "queries": int(found.queries[i]), "pose": found.poses[i].changed}
            made |= {"margin": round(float(found.margins[i]), 4), "seconds": round(seconds, 3)}
            done[image] = {"recognised": bool(found.recognised[i]), "search": made}
        yield


def lay_grids(data: Data, done: dict[str, Any], network: nn.Module, box: str, batch_size: int) -> Iterator[None]:
    """Lay the grid on the images that lack it, those that the search did not fool first.

    Whether the search misses what the grid finds is decided on these; the others only tell what the search has ahead.
    """
    left = [place for place, image in enumerate(data.ids) if "grid" not in done[image]]
    for place in sorted(left, key=lambda place: done[data.ids[place]]["search"]["fooled"]):
        x, y = data.x[place : place + 1], data.y[place : place + 1]
        done[data.ids[place]]["grid"] = by_grid(network, x, y, box, batch_size)
        yield


def by_grid(network: nn.Module, x: Tensor, y: Tensor, box: str, batch_size: int) -> dict[str, Any]:
    """What a grid of 2,000 poses finds on one image."""
    start = time.perf_counter()
    fooled, queries = fooled_by_grid(network, x, y, box, batch_size)
    return {"fooled": fooled, "queries": queries, "seconds": round(time.perf_counter() - start, 3)}


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
    fooled = sum(image["search"]["fooled"] for image in known)
    both = [image for image in known if "grid" in image]
    found = sum(image["grid"]["fooled"] for image in both)
    ahead = sum(image["search"]["fooled"] and not image["grid"]["fooled"] for image in both)
    missed = sum(image["grid"]["fooled"] and not image["search"]["fooled"] for image in both)
    queries = sorted(image["search"]["queries"] for image in known)
    spent = [f"{sum(queries) / len(queries):.1f}", str(queries[len(queries) // 2]), str(queries[-1])]
    seconds = sum(image["search"]["seconds"] for image in known) / len(known)
    by_grid = f"{found} of {len(both)}", str(ahead), str(missed)
    cells = [name, str(len(known)), f"{fooled} ({100 * fooled / len(known):.1f}%)", *by_grid, *spent, f"{seconds:.3f}"]
    return f"| {' | '.join(cells)} |"


def table(rows: Mapping[str, Any]) -> str:
    """Every network and box; of the images that are recognised as they are."""
    titles = ["network, box", "recognised", "fooled by the search", "by the grid of 2,000"]
    titles += ["by the search alone", "by the grid alone", "queries: mean", "median", "most", "seconds an image"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([*lines, *(line(name, row["images"]) for name, row in rows.items())])


if __name__ == "__main__":
    main()
