"""How far training brings attacks down, for how much clean accuracy: shares of the way, chosen here and judged there.

    python benchmarks/hardening_frontier.py --data NIPS17 --weights OUT/efficientnet_lite0.best-at.safetensors \
        --shares 0.4,0.6,0.8,1 --attacks ai-best --eps 8 --most-lost 3 --json OUT/choice.json
    python benchmarks/hardening_frontier.py --data JUDGE --weights OUT/efficientnet_lite0.best-at.safetensors \
        --choice OUT/choice.json --json benchmarks/results/hardening-frontier-resnet18.json
    python benchmarks/hardening_frontier.py --keep OUT/choice.json --weights OUT/efficientnet_lite0.best-at.safetensors

A weight file is where a training ended; so much of the way from the original to it is a network of its own. The first
call evaluates some and chooses: of those that lose at most so many points of top-1 on images as they are, the one that
the first attack fools least often over the paper's twelve poses. The second has the chosen one, some beside it, the
original and what is in the package answer for other images, on which nothing is chosen. The third leaves the chosen
network in place of the trained one, for ``hardening.py --evaluate`` and ``--ship``; the trained one stays in a folder
beside it.

The outcome of every image, a bit each, is saved after each attack, as ``held_out.py`` has them; run again, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import whorl
from hardening_networks import partly
from held_out import ATTACKS, shuffled
from judge import Data, unpacked
from measure import metadata, save, table
from rivals import CLEAN, Judged, enter, known
from whorl.evaluation import PAPER_POSES, Pose, Predictor
from whorl.hardening.student import blended
from whorl.models.defended import pack, shipped, unpack
from whorl.runs.folder import as_json

ALL = {**ATTACKS, "ai-max": ("ai-max", {})}
UPRIGHT = PAPER_POSES.index(Pose())


def named(path: Path, share: float) -> str:
    """What a network is called that is so much of the way to a file.

    >>> named(Path("out/resnet18.best-at.safetensors"), 0.5)
    'resnet18.best-at@0.5'
    """
    return f"{path.stem}@{share:g}"


def rates(saved: Mapping[str, Any], target: str, label: str) -> tuple[float, float, float]:
    """Top-1 as images are, success pooled over the poses, and success as images are; all in percent."""
    clean, adversarial = (unpacked(saved["recognised"][target][cell], len(PAPER_POSES)) for cell in (CLEAN, label))
    fooled = clean & ~adversarial
    return tuple(
        100 * float(part.sum()) / max(1, whole)
        for part, whole in (
            (clean[UPRIGHT], clean.shape[1]),
            (fooled, clean.sum()),
            (fooled[UPRIGHT], clean[UPRIGHT].sum()),
        )
    )


def choice(figures: Mapping[str, tuple[float, float]], before: float, most_lost: float) -> str:
    """Of networks by (top-1, success), the least fooled of those that lose at most so many points; else the best top-1.

    >>> choice({"a": (85, 40), "b": (84, 30), "c": (80, 10)}, 86, 3)
    'b'
    """
    kept = {name: one for name, one in figures.items() if one[0] >= before - most_lost}
    if not kept:
        return max(figures, key=lambda name: figures[name][0])
    return min(kept, key=lambda name: kept[name][1])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what is not measured yet; save after each cell."""
    began = time.perf_counter()
    device = torch.device(options.device)
    whole = shuffled(options.data, options.size, options.seed, device)
    data = Data(x=whole.x[: options.n], y=whole.y[: options.n], ids=whole.ids[: options.n])
    base = options.weights[0].stem.partition(".")[0]
    others = [name for name, one in shipped().items() if one.base == base] if options.beside else []
    targets = {name: whorl.load_model(name, device=device) for name in (base, *others)}
    for path in options.weights:
        for share in options.shares:
            targets[named(path, share)] = partly(base, unpack(path), share, options)
    source = whorl.load_model(options.source, device=device)
    judged = Judged(
        data=data,
        goal=data.y,
        targeted=False,
        predictor=Predictor(targets),
        batch=options.batch,
        seed=options.seed,
    )
    about = metadata(
        device,
        data=Path(options.data).resolve().name,
        source=options.source,
        size=options.size,
        seed=options.seed,
        weights_sha256={name: net.weights_sha256 for name, net in targets.items()},
    )
    saved: dict[str, Any] = {"settings": {}, "ids": data.ids, "recognised": {}, "cost": {}}
    if options.json.exists():
        saved = json.loads(options.json.read_text(encoding="utf-8"))
        if saved["ids"] != data.ids or saved["metadata"]["weights_sha256"] != about["weights_sha256"]:
            sys.exit(f"{options.json} holds other photographs or networks; give another --json.")
    saved["metadata"] = about
    saved["poses"] = [{"angle": p.angle, "scale": p.scale, "shift": list(p.shift)} for p in PAPER_POSES]
    if not known(saved, CLEAN, None, list(targets), len(data.ids)):
        enter(saved, CLEAN, judged.bits(data.x))
        save(saved, options.json)
    for name in options.attacks.split(","):
        for eps in options.eps.split(","):
            label, (preset, changed) = f"{name}-{eps}", ALL[name]
            attack = whorl.attack(preset, eps=float(eps) / 255, **changed)
            if known(saved, label, as_json(attack), list(targets), len(data.ids)):
                continue
            if time.perf_counter() - began > options.seconds:
                print(f"{options.seconds:g} s are over: {label} and what follows are not measured", flush=True)
                return saved
            adv, cost = judged.crafted(attack, source, options.batch)
            enter(saved, label, judged.bits(adv))
            saved["settings"][label], saved["cost"][label] = as_json(attack), cost
            save(saved, options.json)
            rows = [[target, *(f"{rate:.1f}" for rate in rates(saved, target, label))] for target in targets]
            print(table([label, "clean", "poses", "as it is"], rows), flush=True)
    return saved


def choose(saved: dict[str, Any], options: argparse.Namespace) -> None:
    """Choose by the first attack and radius, and save what was chosen with the figures."""
    label = f"{options.attacks.split(',')[0]}-{options.eps.split(',')[0]}"
    figures = {target: rates(saved, target, label)[:2] for target in saved["recognised"]}
    made = {target: figures[target] for target in figures if "@" in target}
    base = options.weights[0].stem.partition(".")[0]
    chosen = choice(made, figures[base][0], options.most_lost)
    saved["choice"] = {
        "chosen": chosen,
        "share": float(chosen.rpartition("@")[2]),
        "most_lost": options.most_lost,
        "label": label,
        "figures": figures,
    }
    save(saved, options.json)
    print(f"chosen: {chosen}, top-1 {made[chosen][0]:.1f} of {figures[base][0]:.1f}, {label} {made[chosen][1]:.1f}")


def keep(options: argparse.Namespace) -> None:
    """Put the chosen network in place of the trained one, in the file and in its record."""
    chosen = json.loads(options.keep.read_text(encoding="utf-8"))
    share, [path] = chosen["choice"]["share"], options.weights
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    trained = path.parent / "trained" / path.name
    if trained.exists():
        sys.exit(f"trained/{path.name} is there: the chosen network has been put in place already.")
    trained.parent.mkdir(exist_ok=True)
    trained.write_bytes(path.read_bytes())
    original = whorl.load_model(path.stem.partition(".")[0])
    pack(path, blended(original, unpack(trained), share), about={"name": path.stem})
    save(record | {"blend": share, "blend_chosen_on": chosen["metadata"]["data"]}, path.with_suffix(".json"))
    print(f"kept {share:g} of the way of {path.stem}")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, nargs="+", required=True, help="MODEL.RECIPE.safetensors, packed")
    parser.add_argument("--data", help="labelled images")
    parser.add_argument("--json", type=Path, help="where to save, and to go on from")
    parser.add_argument("--shares", default="1", help="of the way to the weights, joined by commas")
    parser.add_argument("--choice", type=Path, help="take the share that was chosen there, too, first")
    parser.add_argument("--most-lost", type=float, help="choose: points of top-1 that may be lost")
    parser.add_argument("--keep", type=Path, metavar="CHOICE", help="put what was chosen in the file's place; no more")
    parser.add_argument("--beside", action="store_true", help="evaluate the package's hardened versions too")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--attacks", default="ai-best", help=f"of {', '.join(ALL)}, joined by commas")
    parser.add_argument("--eps", default="8,16", help="of 255, joined by commas")
    parser.add_argument("--n", type=int, default=500, help="first so many of the shuffled images")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--batch", type=int, default=250, help="images at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the attacks")
    options = parser.parse_args(argv)
    shares = [float(share) for share in options.shares.split(",") if share]
    if options.choice is not None:
        shares = [json.loads(options.choice.read_text(encoding="utf-8"))["choice"]["share"], *shares]
    options.shares = list(dict.fromkeys(shares))
    if options.keep is None and not (options.data and options.json):
        parser.error("--data and --json are needed, unless with --keep")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and choose, measure alone, or put what was chosen in place."""
    options = parse(argv)
    if options.keep is not None:
        keep(options)
        return
    saved = measure(options)
    if options.most_lost is not None:
        choose(saved, options)


if __name__ == "__main__":
    main()
