"""Train defended networks within a given time, and measure the gain.

    python benchmarks/hardening.py --data IMAGENET5K --side 192 --out hardened --device cuda \
        --train mobilenet_v2:ens-at:110 mobilenet_v2:alp:110:ens-at
    python benchmarks/hardening.py --nips NIPS17 --out hardened --device cuda --check mobilenet_v2.ens-at
    python benchmarks/hardening.py --nips NIPS17 --out hardened --device cuda --evaluate
    python benchmarks/hardening.py --out hardened --ship mobilenet_v2.ens-at mobilenet_v2.alp@0.85

A job is MODEL:RECIPE:SECONDS, or MODEL:RECIPE:SECONDS:START to begin with the weights of an earlier recipe. Each leaves
``MODEL.RECIPE.safetensors`` (fp16, what training changed) and a record, ``MODEL.RECIPE.json``; several may be trained
at once into one folder. A check says at once whether a network holds what a hardened one should, and looks at weights a
little before and beyond the trained ones too, or between two trainings (``--line-from``). The evaluation takes every
file, and the originals, and saves ``evaluation.json`` after each of its parts, so that a run that is cut short keeps
what it has. Training images and attacks are kept in ``--out`` for the next call. Shipping puts a file, or what lies
0.85 of the way from the original to it, into the package, and what is known of it into the package's manifest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hardening_counts import accuracy, count, show, success, white_box
from hardening_evaluation import evaluate
from hardening_images import ATTACKS, OTHER_SOURCE, POOL_SOURCE, craft, craft_all, evaluation_images
from hardening_jobs import Job, decoded, settings_of, train
from hardening_limits import Verdict, check
from hardening_networks import networks
from hardening_package import ship
from judge import Data
from measure import metadata, save, table
from whorl.models.defended.entries import HERE

# What other scripts and the tests take from here.
__all__ = [
    "ATTACKS",
    "OTHER_SOURCE",
    "POOL_SOURCE",
    "Data",
    "Job",
    "Verdict",
    "accuracy",
    "count",
    "craft",
    "decoded",
    "evaluate",
    "evaluation_images",
    "main",
    "metadata",
    "networks",
    "save",
    "settings_of",
    "show",
    "success",
    "table",
    "white_box",
]


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="class folders to train on")
    parser.add_argument("--nips", help="NIPS17 folder to evaluate on; never trained on")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and records")
    parser.add_argument("--train", nargs="+", default=[], metavar="JOB", help="MODEL:RECIPE:SECONDS[:START]")
    parser.add_argument("--check", nargs="*", metavar="NAME", help="say whether these, or all, hold what they should")
    parser.add_argument("--keep", action="store_true", help="of what --check looks at, keep the best weights")
    parser.add_argument("--craft", action="store_true", help="make and keep the attacks of --check and --evaluate")
    parser.add_argument("--evaluate", action="store_true", help="measure every weight file in --out")
    parser.add_argument("--ship", nargs="+", default=[], metavar="NAME[@BLEND]", help="files of --out for the package")
    parser.add_argument("--commit", help="of the code that trained, where the record does not know it")
    parser.add_argument("--ship-to", type=Path, default=HERE, help="folder of the package")
    parser.add_argument("--blends", default="", help="shares of the way to look at too; beyond 1 goes further")
    parser.add_argument("--line-from", type=Path, help="weights that blends begin at; by default, where training began")
    parser.add_argument(
        "--line-share", type=float, help="look at weights so far from --line-from; blends go from the start to there"
    )
    parser.add_argument("--side", type=int, default=192, help="pixels that training images are kept at")
    parser.add_argument("--limit", type=int, help="training images and evaluation images, to see that it runs")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of the training, or teachers")
    parser.add_argument(
        "--diverse",
        type=int,
        nargs="?",
        const=1,
        help="also three-step examples with diverse inputs, so often to one other",
    )
    parser.add_argument(
        "--search",
        default="",
        metavar="SETTINGS;SETTINGS",
        help='sets to try first, such as "lr=0.03; lr=0.01 mix=0.5"',
    )
    parser.add_argument("--search-seconds", type=float, default=15, help="for each set and network")
    parser.add_argument("--resume", action="store_true", help="keep checkpoints in --out, and go on from them")
    parser.add_argument("--compile", action="store_true", help="compile the student")
    parser.add_argument("--size", type=int, default=224, help="side of the evaluation images")
    parser.add_argument("--batch-size", type=int, default=250, help="evaluation images at a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if options.line_share is not None and options.line_from is None:
        parser.error("--line-share needs --line-from, the weights that it counts from.")
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    if options.train:
        train(options)
    if options.craft:
        craft_all(options)
    if options.check is not None:
        check(options)
    if options.evaluate:
        evaluate(options)
    for text in options.ship:
        ship(text, options)
    print(f"all done in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
