"""Table 5 with a simulated printer and camera, within a time limit; what became of each image is kept.

    python benchmarks/paper_photographs.py --data NIPS17 --profile inception --workers 14 --out outcomes --work runs

It does what ``whorl paper table5`` does, and shows the prints to further networks too. Pages are photographed in their
order, each in every setting; if time runs out, the images of the pages that are done make the table.

Bits of the file are (1 + rows, targets, settings, images): whether the photograph is recognised, clean first.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import metadata
from whorl import paper
from whorl.files import write_file
from whorl.models.zoo import find_device
from whorl.paper.cast import cast
from whorl.paper.photographs import _versions
from whorl.physical import PageLayout, Rehearsal, arrange, collect
from whorl.physical.rehearsal import SETTINGS, VIEW, _photograph, _pool
from whorl.physical.scorer import Scorer
from whorl.runs.images import Data
from whorl.runs.networks import identify, load_source, load_targets, split_source
from whorl.runs.settings import read_settings
from whorl.runs.white_box import craft


def main(argv: Sequence[str] | None = None) -> None:
    """Craft, photograph, write."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="NIPS17 folder")
    parser.add_argument("--profile", default="inception")
    parser.add_argument("--limit", type=int, default=200, help="the first so many images")
    parser.add_argument("--attacks", default="", help="rows, joined by commas; the paper's without it")
    parser.add_argument("--quick", action="store_true", help="EOT with 100 gradients: for a trial")
    parser.add_argument("--pixels", type=int, nargs=2, default=(3000, 4000), help="width and height of a photograph")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1, help="processes that photograph")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--work", type=Path, required=True, help="folder of the images")
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds; then it writes what it has")
    arguments = parser.parse_args(argv)

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    item, profile, device = paper.load("table5"), paper.load_profile(arguments.profile), find_device(arguments.device)
    [(_, source)] = cast(item, profile).sources
    names = list(dict.fromkeys([source, *profile.networks["black"]]))
    rows = [name for name in arguments.attacks.split(",") if name]
    specs = paper.PaperOptions(attacks=rows, quick=arguments.quick).rows(item)
    model = load_source(split_source(source), device)
    images = Data.of(folder=arguments.data, limit=arguments.limit, size=profile.size)
    folder = arguments.work / profile.name
    for spec in sorted(specs, key=lambda one: one.name == "eot"):
        own: dict[str, Any] = {"seed": arguments.seed, "batch_size": arguments.batch_size}
        craft(spec.name, model, images, folder / spec.title, settings=read_settings(spec.settings), **own)
        say(f"{spec.title}: crafted")
    groups = [collect(folder / spec.title, clean=arguments.data, limit=arguments.limit) for spec in specs]
    sheet = arrange([_versions(group, specs) for group in zip(*groups, strict=True)], PageLayout())
    targets = load_targets(names, device=device, seed=arguments.seed)
    how = Rehearsal(seed=arguments.seed, size=(arguments.pixels[0], arguments.pixels[1]))
    scorers = {name: Scorer([sheet], targets, how.views) for name in how.settings}

    def write(pages: int) -> None:
        content = outcomes(sheet, pages, scorers, names, [spec.title for spec in specs], source)
        about = {
            "item": item.name,
            "profile": profile.name,
            "seed": arguments.seed,
            "attacks": {spec.title: repr(spec.build()) for spec in specs},
            "networks": {target.name: identify(target.net) for target in targets},
            "pixels": list(how.size),
            "pages": [pages, sheet.pages],
            "printed": {row: [pose[0] for pose in poses] for row, poses in item.printed["white"].items()},
            "orderings": item.orderings,
            "metadata": metadata(device),
        }
        text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**about, **content}.items())
        write_file(arguments.out / f"table5-{profile.name}-outcomes.json", "{\n" + text + "\n}\n")

    arguments.out.mkdir(parents=True, exist_ok=True)
    say(f"{sheet.pages} pages")
    with _pool(arguments.workers) as spread:
        for page, made in enumerate(spread(partial(_photograph, sheet, how), range(sheet.pages)), 1):
            for setting, (photographed, views) in made.items():
                scorers[setting].evaluate(photographed, views)
            over = time.monotonic() - began > arguments.time_limit
            if over or page % 5 == 0 or page == sheet.pages:
                write(page)
                say(f"page {page} of {sheet.pages}")
            if over and page < sheet.pages:
                say("the time is over")
                for process in active_children():  # what they photograph is not waited for
                    process.kill()
                os._exit(0)


def outcomes(
    sheet: Any, pages: int, scorers: dict[str, Scorer], names: list[str], rows: list[str], source: str
) -> dict[str, Any]:
    """What became of each image whose versions are all on these pages, and were found in every setting."""
    versions = ["clean", *(f"{row} on {source}" for row in rows)]
    later = {item.id for item in sheet.prints if item.page >= pages}
    ids = [name for name in dict.fromkeys(item.id for item in sheet.prints) if name not in later]
    found: dict[tuple[str, str, str], Any] = {
        (setting, capture.item.version, capture.item.id): capture
        for setting in SETTINGS
        for capture in scorers[setting].result.captures
    }
    whole = [name for name in ids if all((s, v, name) in found for s in SETTINGS for v in versions)]
    bits = np.array(
        [
            [[[found[s, v, i].correct(VIEW, target) for i in whole] for s in SETTINGS] for target in names]
            for v in versions
        ],
        dtype=bool,
    )
    return {
        "identified": [sum((s, v, i) in found for i in ids for v in versions) for s in SETTINGS],
        "prints": len(ids) * len(versions),
        "rows": [[row, source] for row in rows],
        "targets": names,
        "settings": list(SETTINGS),
        "ids": whole,
        "bits": base64.b64encode(np.packbits(bits).tobytes()).decode(),
    }


if __name__ == "__main__":
    main()
