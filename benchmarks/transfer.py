"""How attacks crafted on one network fare on others when the image is rotated, scaled and translated.

Prints mean success rates over the paper's twelve poses, one row an attack, one column a target:

    python benchmarks/transfer.py --data NIPS17_FOLDER --size 224 --device cuda

Saves every count as JSON with the settings, weight hashes and versions that made it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

import whorl
from judge import Data, evaluated, percent, rows
from measure import metadata, save, table

NARROW = whorl.AffineInvariant(sigma=0.7)
PRINTED = whorl.AffineInvariant(sigma="printed")
REFERENCE = whorl.AffineInvariant(sigma="reference")
BASES = ("fgsm", "pgd", "mim", "dim", "ram")


def line_up(which: str) -> dict[str, whorl.Attack]:
    """The attacks to compare, by row name: every base attack with every estimator, more gradients, and EOT."""
    rows: dict[str, whorl.Attack] = {}
    for base in BASES:
        attack = whorl.attack(base)
        rows[base] = attack
        rows[f"{base} + TI"] = attack.with_(estimator=whorl.TranslationInvariant())
        rows[f"{base} + AI printed"] = attack.with_(estimator=PRINTED)
        rows[f"{base} + AI reference"] = attack.with_(estimator=REFERENCE)
        rows[f"{base} + AI σ 0.7"] = attack.with_(estimator=NARROW)
    rows["ram, 50 steps"] = whorl.attack("ram", steps=50)
    rows["ram + AI reference, 50 steps"] = whorl.attack("ai-ram", steps=50, estimator=REFERENCE)
    rows["eot, 20 samples x 50 steps"] = whorl.attack("eot", samples=20)
    if which == "all":
        return rows
    return {name: rows[name] for name in which.split(",")}


def main() -> None:
    """Craft, evaluate, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--limit", type=int, help="first images only")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--targets", default="resnet18,mobilenet_v2,efficientnet_lite0")
    parser.add_argument("--attacks", default="all", help="comma-separated rows")
    parser.add_argument("--eps", type=float, default=16, help="of 255")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=125)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    data = Data.load(options.data, options.limit, options.size, options.device)
    source = whorl.load_model(options.source, device=options.device)
    targets = {name: whorl.load_model(name, device=options.device) for name in options.targets.split(",")}
    lines, results = [], []
    for name, attack in line_up(options.attacks).items():
        bounded = attack.with_(eps=options.eps / 255)
        start = time.perf_counter()
        made = data.attacked(bounded, source, batch_size=options.batch_size, seed=options.seed)
        seconds = time.perf_counter() - start
        done = evaluated(targets, data, {name: made}, batch_size=options.batch_size)
        rates = [percent(done, name, target) for target in targets]
        lines.append([name, *(f"{rate:.1f}" for rate in rates)])
        print(" ".join(lines[-1]), f"({seconds:.1f} s)", flush=True)
        results.append(
            {
                "attack": name,
                "settings": repr(bounded),
                "mean_success_rate": dict(zip(targets, rates, strict=True)),
                "counts": [{key: value for key, value in row.items() if key != "attack"} for row in rows(done)],
            }
        )
    print(table(["attack", *targets], lines))
    if options.json:
        about = metadata(
            torch.device(options.device),
            data=Path(options.data).name if options.data else "samples",
            n=len(data.ids),
            ids=data.ids,
            size=options.size,
            eps=f"{options.eps:g}/255",
            seed=options.seed,
            source=options.source,
            weights_sha256={name: target.weights_sha256 for name, target in targets.items()},
        )
        save({"metadata": about, "results": results}, options.json)


if __name__ == "__main__":
    main()
