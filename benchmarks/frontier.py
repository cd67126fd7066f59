"""Success on other networks against gradients per image: whorl's attacks, their parts, EOT, and other libraries'.

    python benchmarks/frontier.py --source resnet18,efficientnet_lite0 --data NIPS17_FOLDER --device cuda --out FOLDER

Every candidate of ``frontier_candidates`` is crafted on each source and shown to every network of another family in the
paper's twelve poses. One line a candidate: gradients per image, the mean success rate over poses and targets at each
eps, the rate on each target, seconds. Results are saved in FOLDER, a file for each source, after each candidate and
eps; run again with the same FOLDER, it goes on where it stopped. ``--only`` takes names, or beginnings of names with a
``*``, and measures in its order; ``--list`` shows all. A name such as ``dim+t0.8s0r0.5/10`` is an attack
with a kernel, as ``frontier_kernels`` reads it: that σ of translations, scalings and rotations.

The libraries' attacks need ``pip install torchattack``. They get our step size and as many gradients; a candidate whose
library is missing or that fails is named and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whorl
from frontier_candidates import Make, chosen
from frontier_figure import draw, summary
from frontier_judge import Judge, joined, measure
from judge import Data
from measure import metadata, save
from whorl.analysis.calibration import other_networks
from whorl.evaluation import PAPER_POSES


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="resnet18", help="names, joined by commas (default: resnet18)")
    parser.add_argument("--targets", help="names, joined by commas; every zoo network of another family without it")
    parser.add_argument("--eps", default="16,8", help="of 255, joined by commas (default: 16,8)")
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, default=200, help="first images (default: 200)")
    parser.add_argument("--skip", type=int, default=0, help="leave so many images at the beginning out")
    parser.add_argument("--fresh", type=int, default=0, help="also give rates without the first so many images")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--only", help="names of candidates, or beginnings, joined by commas")
    parser.add_argument("--list", action="store_true", help="name the candidates and stop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--half", action="store_true", help="the targets answer in bfloat16")
    parser.add_argument("--out", type=Path, default=Path("frontier"), help="folder for the results")
    parser.add_argument(
        "--figure", type=Path, help="also draw: .html, or .svg and .png with kaleido; {source} stands for the source"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, print, save."""
    options = parse(argv)
    listed = chosen(options.only)
    if options.list:
        print("\n".join(listed))
        return
    device, networks = torch.device(options.device), {}
    data = Data.load(options.data, options.n, options.size, device, skip=options.skip)
    for source in options.source.split(","):
        names = options.targets.split(",") if options.targets else others(source)
        for name in (source, *names):
            if name not in networks:  # each is loaded and made ready once, for all sources
                networks[name] = whorl.load_model(name, device=device)
        run(source, {name: networks[name] for name in names}, networks[source], data, listed, options)


def run(
    name_of_source: str,
    targets: Mapping[str, nn.Module],
    source: nn.Module,
    data: Data,
    listed: Mapping[str, Make],
    options: argparse.Namespace,
) -> None:
    """Measure, print and save what is not measured yet on one source."""
    eps = [float(value) for value in options.eps.split(",")]
    asked = {
        "source": name_of_source,
        "targets": list(targets),
        "n": len(data.x),
        "skip": options.skip,
        "size": options.size,
        "seed": options.seed,
        "fresh": options.fresh,
        "half": options.half,
        "data": Path(options.data).resolve().name if options.data else "samples",
    }
    path = options.out / f"frontier-{name_of_source}-{len(data.x)}.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
    rows: dict[str, Any] = _defined(saved["rows"]) if saved.get("asked") == asked else {}
    about = metadata(data.x.device, weights_sha256={name: clf.weights_sha256 for name, clf in targets.items()})
    judge: Judge | None = None
    failed: dict[str, str] = {}
    for place, (name, make) in enumerate(listed.items(), 1):
        missing = eps
        try:
            known = still_true(rows.pop(name, None), make)
            if known:
                rows[name] = known
            missing = [value for value in eps if f"{value:g}" not in (known["eps"] if known else ())]
            for value in missing:
                judge = judge or Judge(targets, data, PAPER_POSES, options.batch_size, half=options.half)
                more = measure(
                    make, [value], source, judge, batch_size=options.batch_size, seed=options.seed, fresh=options.fresh
                )
                rows[name] = joined(rows.get(name), more)
                save({"metadata": about, "asked": asked, "rows": rows, "failed": failed}, path)
        except Exception as error:  # noqa: BLE001 - one candidate, often another library's, must not end the rest
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"[{place}/{len(listed)}] {name}: {failed[name]}", file=sys.stderr, flush=True)
            continue
        print(f"[{place}/{len(listed)}] {line(name, rows[name])}{'' if missing else ' (saved)'}", flush=True)
    # One that failed half-way has no rate at some eps, and no place in a table of all.
    shown = {name: rows[name] for name in listed if set(rows.get(name, {}).get("eps", ())) >= {f"{v:g}" for v in eps}}
    print(f"{name_of_source}\n{summary(shown, eps)}")
    if options.figure and shown:
        draw(shown, eps, Path(str(options.figure).format(source=name_of_source)), source=name_of_source)


def still_true(record: dict[str, Any] | None, make: Make) -> dict[str, Any] | None:
    """What a record holds of the candidate as it is now: only the eps at which it had the same settings."""
    kept = {}
    for eps, rates in record["eps"].items() if record else ():
        if rates.get("settings") == repr(make(float(eps) / 255)):
            kept[eps] = rates
    return {**record, "eps": kept} if record and kept else None


def _defined(value: Any) -> Any:
    """JSON has no NaN, and null was written for it: the rate on a target that knows none of the images."""
    if isinstance(value, dict):
        return {name: _defined(one) for name, one in value.items()}
    return math.nan if value is None else value


def line(name: str, record: Mapping[str, Any]) -> str:
    """A candidate in one line."""
    parts = [f"{name:28s} {record['gradients']:5d} gradients"]
    for eps, rates in record["eps"].items():
        each = " ".join(f"{rate:.1f}" for rate in rates["targets"].values())
        parts.append(f"eps {eps}: {rates['mean']:.2f} (soft {rates['soft']:.2f}; {each})")
        if "fresh" in rates:
            parts[-1] += f" [fresh {rates['fresh']['mean']:.2f}]"
    return " | ".join([*parts, f"{record['seconds']:.1f} s"])


def others(source: str) -> list[str]:
    """The plain networks of the zoo that pip alone brings and that are of another family."""
    return list(other_networks(source))


if __name__ == "__main__":
    main()
