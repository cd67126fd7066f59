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
from torch import Tensor, nn

import whorl
from frontier_judge import craft
from judge import Data
from measure import HERE, metadata, save
from whorl.evaluation import Outcomes, Pose, poses, recognised, to_8_bits
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import Comparison, compare, holm, rate

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
OURS = "ai-best"


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
        clean = clean or recognised_by(targets, data, data.x, options.batch_size)
        rows[name] = {
            "settings": repr(attack),
            "gradients": gradients,
            "seconds_crafting": round(seconds, 1),
            "recognised": recognised_by(targets, data, to_8_bits(adversarial), options.batch_size),
        }
        about = metadata(data.x.device)
        save({"metadata": about, "asked": asked, "clean": clean, "attacks": rows}, path)


def recognised_by(
    targets: Mapping[str, nn.Module], data: Data, images: Tensor, batch_size: int
) -> dict[str, list[str]]:
    """For each target a string for each pose, with "1" for each image that is recognised and "0" for each other."""
    parts = [
        recognised(targets, images[part], data.y[part], POSES, ids=data.ids[part]) for part in data.parts(batch_size)
    ]
    rows = torch.cat(parts, dim=-1).int().tolist()
    return {name: ["".join("01"[value] for value in row) for row in rows[t]] for t, name in enumerate(targets)}


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
    """Two Markdown tables for each target: pooled success rates over each family, and ours against the others."""
    done = read(saved)
    parts = []
    for target in done.targets:
        of = {attack: {name: counts(done, attack, target, name) for name in FAMILIES} for attack in done.attacks}
        titles = [f"{target}, {len(done.ids)} images", *FAMILIES]
        parts.append(markdown(titles, [[attack, *map(interval, of[attack].values())] for attack in of]))
        versus = [attack for attack in of if attack != OURS and OURS in of]
        titles[0] = f"{OURS} minus …, on {target}"
        lines = [[attack, *map(apart, compared(done, target, attack).values())] for attack in versus]
        parts.append(markdown(titles, lines))
    return "\n\n".join(parts)


def compared(done: Outcomes, target: str, other: str) -> dict[str, Comparison]:
    """Ours against another attack in every family, corrected for all others that ours is compared with there."""
    found = {
        (attack, name): compare(counts(done, OURS, target, name), counts(done, attack, target, name))
        for attack in done.attacks
        if attack != OURS
        for name in FAMILIES
    }
    return {name: one for (attack, name), one in holm(found).items() if attack == other}


def counts(done: Outcomes, attack: str, target: str, family: str) -> ImageCounts:
    """What is counted of each image in a family's poses."""
    places = [done.poses.index(pose) for pose in FAMILIES[family]]
    t = done.targets.index(target)
    return ImageCounts.of(done.clean[t, places], done.adversarial[done.attacks.index(attack), t, places])


def interval(of: ImageCounts) -> str:
    """A rate with its interval, in percent."""
    found = rate(of)
    low, high = found.interval
    return f"{100 * found.value:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def apart(found: Comparison) -> str:
    """A difference with its interval, in points, and its p-value, corrected for the table."""
    low, high = found.interval
    return f"{100 * found.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = {found.p_value:.2g})"


def markdown(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, ["---"] * len(titles), *lines))


if __name__ == "__main__":
    main()
