"""Table 7, cell by cell in the order of what they are worth, within a time limit; what became of each image is kept.

    python benchmarks/paper_queries.py --data NIPS17 --targets efficientnet_lite0.alp --out alp.jsonl --work runs/alp

Attacks go one after the other, each against every target, from every start: so a run that is stopped has some attacks
whole. What ``--out`` holds whole is not done again. Networks are folded, in the layout that is faster on this GPU, and
JPEG is coded in several processes, as ``paper_runs.py`` has it; ``--half`` as ``table7.py`` has it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import whorl
from measure import metadata
from paper_runs import code_in_parallel, faster
from table7 import quick
from whorl import paper
from whorl.files import write_file
from whorl.runs.networks import behind, split_source, split_target
from whorl.runs.query_table import NOISE, STARTS, table7


def main(argv: Sequence[str] | None = None) -> None:
    """Do the cells until the time is over."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="NIPS17 folder; the bundled samples without it")
    parser.add_argument("--profile", default="offline", help="gives size and surrogates")
    parser.add_argument("--n", type=int, default=100, help="the first so many images")
    parser.add_argument("--targets", required=True, help="joined by commas")
    parser.add_argument("--attacks", default="nattack,nes,spsa", help="joined by commas, in their order")
    parser.add_argument("--starts", default="ai-dim,ti-dim,pgd,none", help=f"of {', '.join(STARTS)}")
    parser.add_argument("--bare", default="", help="targets that are attacked from the image itself alone")
    parser.add_argument("--half", default="", help="targets whose convolutions run in float16 on a GPU")
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--block", type=int, default=50, help="images attacked together")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jpeg-workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSONL file")
    parser.add_argument("--work", type=Path, required=True, help="folder of table 7")
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds; then it stops")
    arguments = parser.parse_args(argv)

    device, profile = torch.device(arguments.device), paper.load_profile(arguments.profile)
    size = profile.size or 224
    images = (
        whorl.load_images(arguments.data, limit=arguments.n, size=size)
        if arguments.data
        else whorl.load_samples(arguments.n, size=size)
    )
    earlier = arguments.out.read_text(encoding="utf-8").splitlines()[1:] if arguments.out.is_file() else []
    known = [json.loads(line) for line in earlier]
    tried = Counter((line["attack"], line["start"], line["target"]) for line in known)
    if any(name.endswith("+jpeg") for name in arguments.targets.split(",")) and arguments.jpeg_workers > 1:
        code_in_parallel(arguments.jpeg_workers)
    nets: dict[str, nn.Module] = {}
    for name in arguments.targets.split(","):
        model, layers = split_target(name)
        half = name in arguments.half.split(",") and device.type == "cuda"
        clf = quick(model, device, images.x[:8].to(device), half=True) if half else faster(model, device, size)
        nets[name] = behind(clf, layers, seed=arguments.seed)
    [surrogates] = profile.networks["ensemble"]
    about = metadata(
        device,
        n=len(images.ids),
        size=size,
        eps="16/255",
        budget=arguments.budget,
        seed=arguments.seed,
        block=arguments.block,
        surrogates=split_source(surrogates),
        half=arguments.half.split(","),
    )

    def left() -> float:
        limit: float = arguments.time_limit
        return limit - (time.monotonic() - began)

    def save() -> None:
        file = arguments.work / "images.jsonl"
        made = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        new = [json.loads(line) for line in made[1:]]
        fresh = {(line["attack"], line["start"], line["target"]) for line in new}
        kept = [line for line in known if (line["attack"], line["start"], line["target"]) not in fresh]
        head = {
            **(json.loads(made[0]) if made else {}),
            "metadata": about,
            "seconds": round(arguments.time_limit - left()),
        }
        write_file(arguments.out, "".join(json.dumps(line) + "\n" for line in (head, *kept, *new)))

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for attack in arguments.attacks.split(","):
        for name, net in nets.items():
            starts = ["none"] if attack == NOISE or name in arguments.bare.split(",") else arguments.starts.split(",")
            wanted = [start for start in starts if tried[attack, start, name] < len(images.ids)]
            if not wanted:
                continue
            if left() < 5:
                return
            found = table7(
                images,
                arguments.work,
                attacks=(attack,),
                starts=wanted,
                targets={name: net},
                surrogates=split_source(surrogates),
                budget=arguments.budget,
                seed=arguments.seed,
                block=arguments.block,
                device=device,
                time_limit=left(),
            )
            save()
            for row in found.rows:
                rate = row.queries / max(row.seconds, 1e-9)
                print(
                    f"{left():6.1f} s left  {row.label} {row.target}: {row.n_success} of {row.n} of {row.n_images}, "
                    f"{row.queries} queries, {rate:,.0f} a second",
                    file=sys.stderr,
                    flush=True,
                )
            if not found.complete:
                print("the time is over", file=sys.stderr)
                return


if __name__ == "__main__":
    main()
