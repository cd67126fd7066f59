"""Attacks under four families of transforms that nobody crafted for: shear, perspective, brightness and contrast, blur.

    python benchmarks/families.py --data JUDGE_FOLDER --n 100 --source resnet18 --targets resnet18,mobilenet_v2

Every attack is crafted on the source and shown to every target in four poses of each family and as it is. Saved after
each attack, with every single outcome; run again, it goes on where it stopped. ``--show`` prints the tables of what is
saved, as Markdown, and computes nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whorl
from frontier_judge import craft
from judge import Data, evaluated
from measure import HERE, metadata, save
from whorl.evaluation import Outcomes, Pose, poses
from whorl.evaluation.statistics import percentile_interval, resampled

FAMILIES: Mapping[str, tuple[Pose, ...]] = {
    "as it is": (Pose(),),
    "shear": poses(shears=(-30, -15, 15, 30)),
    "perspective": poses(tilts=((-30, 0), (30, 0), (0, -30), (0, 30))),
    "brightness and contrast": (*poses(brightnesses=(-0.25, 0.25)), *poses(contrasts=(0.5, 1.5))),
    "blur": poses(blurs=(1, 2, 3, 4)),
}
POSES = tuple(pose for family in FAMILIES.values() for pose in family)
ATTACKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "dim": ("dim", {}),
    "ai-best": ("ai-best", {}),
    "eot, 100 gradients": ("eot", {"samples": 10, "steps": 10}),
    "eot, 2,500 gradients": ("eot", {}),
}
RESAMPLES = 2000


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, default=100, help="images, evenly spread (default: 100)")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--targets", default="resnet18,mobilenet_v2,efficientnet_lite0", help="joined by commas")
    parser.add_argument("--attacks", default="dim;ai-best;eot, 100 gradients", help=f"of {'; '.join(ATTACKS)}")
    parser.add_argument("--eps", type=float, default=16, help="of 255")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to save (default: benchmarks/results/families-SOURCE.json)")
    parser.add_argument("--show", action="store_true", help="print the tables of what is saved")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Craft and evaluate what is missing, save, print."""
    options = parse(argv)
    path = options.json or HERE / "results" / f"families-{options.source}.json"
    if not options.show:
        measure(options, path)
    print(tables(json.loads(path.read_text())))


def measure(options: argparse.Namespace, path: Path) -> None:
    """Craft and evaluate what is not saved yet."""
    data = Data.load(options.data, None, options.size, options.device).spread(options.n)
    targets = {name: whorl.load_model(name, device=options.device) for name in options.targets.split(",")}
    source = targets.get(options.source) or whorl.load_model(options.source, device=options.device)
    asked = {
        "data": Path(options.data).resolve().name if options.data else "samples",
        "n": len(data.ids),
        "size": options.size,
        "source": options.source,
        "eps": f"{options.eps:g}/255",
        "seed": options.seed,
        "ids": data.ids,
        "poses": [list(pose.numbers) for pose in POSES],
        "targets": {name: target.weights_sha256 for name, target in targets.items()},
    }
    saved = json.loads(path.read_text()) if path.exists() else {}
    rows: dict[str, Any] = saved["attacks"] if saved.get("asked") == asked else {}
    clean: dict[str, list[str]] = saved["clean"] if saved.get("asked") == asked else {}
    for name in (part.strip() for part in options.attacks.split(";")):
        preset, settings = ATTACKS[name]
        attack = whorl.attack(preset, eps=options.eps / 255, **settings)
        if name in rows and rows[name]["settings"] == repr(attack):
            continue
        start = time.perf_counter()
        adversarial, gradients = craft(attack, source, data, batch_size=options.batch_size, seed=options.seed)
        seconds = time.perf_counter() - start
        done = evaluated(targets, data, {name: adversarial}, POSES, batch_size=options.batch_size)
        clean = {target: digits(done.clean[place]) for place, target in enumerate(done.targets)}
        rows[name] = {
            "settings": repr(attack),
            "gradients": gradients,
            "seconds_crafting": round(seconds, 1),
            "recognised": {target: digits(done.adversarial[0, place]) for place, target in enumerate(done.targets)},
        }
        about = metadata(data.x.device)
        save({"metadata": about, "asked": asked, "clean": clean, "attacks": rows}, path)


def digits(recognised: Tensor) -> list[str]:
    """(poses, N) bool as text: a string for each pose, with "1" for each image that is recognised."""
    return ["".join("01"[value] for value in row) for row in recognised.int().tolist()]


def read(saved: Mapping[str, Any]) -> Outcomes:
    """Outcomes of what is saved."""
    asked = saved["asked"]

    def bits(rows: Mapping[str, list[str]]) -> Tensor:
        return torch.tensor([[[digit == "1" for digit in row] for row in rows[name]] for name in asked["targets"]])

    return Outcomes(
        ids=tuple(asked["ids"]),
        attacks=tuple(saved["attacks"]),
        targets=tuple(asked["targets"]),
        poses=tuple(Pose.of(numbers) for numbers in asked["poses"]),
        clean=bits(saved["clean"]),
        adversarial=torch.stack([bits(row["recognised"]) for row in saved["attacks"].values()]),
    )


def tables(saved: Mapping[str, Any]) -> str:
    """One Markdown table for each target: pooled success rate over each family's poses, with its interval."""
    done = read(saved)
    weights = resampled(len(done.ids), RESAMPLES, torch.Generator().manual_seed(0))
    parts = []
    for t, target in enumerate(done.targets):
        lines = [f"{target}, {len(done.ids)} images", "", f"| attack | {' | '.join(FAMILIES)} |"]
        lines.append("|---" * (len(FAMILIES) + 1) + "|")
        for a, attack in enumerate(done.attacks):
            cells = [attack]
            for family in FAMILIES.values():
                places = [done.poses.index(pose) for pose in family]
                clean, success = done.clean[t, places].float().sum(0), done.success[a, t, places].float().sum(0)
                low, high = percentile_interval((weights @ success) / (weights @ clean))
                rate = float(success.sum() / clean.sum())
                cells.append(f"{100 * rate:.1f} ({100 * low:.1f} to {100 * high:.1f})")
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
