"""Tables and figures of the paper one after the other, within a time limit; what became of each image is kept.

    python benchmarks/paper_runs.py --data NIPS17 --out outcomes --work runs --time-limit 240 inception:table8

Each job is a profile and a table or figure as ``whorl paper`` has them; ``inception:figure7-white_randmix`` leaves out
the column of a role. Rows of table 6 are done a base attack after the other, and what is whole is written when it is.
A job whose file is there is not done again. A run folder lies in ``--work``, one a profile, and is shared.

On a GPU each network that is evaluated has its normalisations folded into the convolutions before them, and the layout
of memory that is faster there (the same function up to rounding), and JPEG is coded in several processes (the same
bits): 150,000 images are shown to Inception-v3 for one table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import whorl
from measure import metadata
from parallel_jpeg import ParallelJpeg
from whorl import paper
from whorl.files import write_file
from whorl.models import Classifier
from whorl.models.prepared.fold import fold
from whorl.paper.declaration import declaration
from whorl.paper.outcomes_file import outcomes_text
from whorl.runs import experiment
from whorl.runs.networks import Networks, behind, split_target

TRIES = 3
# Of table 6: what is done first, and so whole if time runs out.
PARTS = {
    "table6": [[f"{kind}{base}" for kind in ("", "ti-", "ai-")] for base in ("dim", "fgsm", "mim", "pgd")],
}


class OutOfTimeError(Exception):
    """The time limit is over."""


# ---------------------------------------------------------------------------------------------------------------------
# The same networks, faster


def seconds_of(clf: Classifier, like: torch.Tensor) -> float:
    """The shortest of a few passes."""
    with torch.no_grad():
        clf(like)
        taken = []
        for _ in range(TRIES):
            torch.cuda.synchronize(like.device)
            start = time.perf_counter()
            clf(like)
            torch.cuda.synchronize(like.device)
            taken.append(time.perf_counter() - start)
    return min(taken)


def faster(name: str, device: torch.device, size: int, *, batch: int = 125) -> Classifier:
    """Load a classifier; on a GPU folded, and with the layout of memory that takes less time."""
    if device.type != "cuda":
        return whorl.load_model(name, device=device)
    like = torch.rand(batch, 3, size, size, device=device, generator=torch.Generator(device).manual_seed(0))
    found: list[tuple[float, str, Classifier]] = []
    expected = None
    for layout in (torch.contiguous_format, torch.channels_last):
        clf = whorl.load_model(name, device=device)
        with torch.no_grad():
            expected = clf(like) if expected is None else expected
            clf.net.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub forgets it
            folds = fold(clf.net, clf.size)
            gap = float((clf(like) - expected).abs().max())
        found.append((seconds_of(clf, like), f"{layout}, {folds} folded, logits differ by at most {gap:.2g}", clf))
    _, about, best = min(found, key=lambda one: one[0])
    rates = ", ".join(f"{batch / one:,.0f}" for one, _, _ in found)
    print(f"{name} at {size}: {rates} images a second; {about}", file=sys.stderr, flush=True)
    return best


class Faster(Networks):
    """Networks that are loaded once for all tables, and evaluated by a faster copy."""

    size: ClassVar[int] = 224
    loaded: ClassVar[dict[str, Classifier]] = {}
    copies: ClassVar[dict[tuple[str, int], Classifier]] = {}

    def model(self, name: str) -> Classifier:
        """One network, as it is."""
        if name not in self.loaded:
            self.loaded[name] = super().model(name)
        return self.loaded[name]

    def target(self, name: str) -> nn.Module:
        """A network to evaluate, behind defences if the name says so."""
        model, layers = split_target(name)
        key = model, self.size
        if key not in self.copies:
            self.copies[key] = faster(model, self.device, self.size)
        return behind(self.copies[key], layers, seed=self.seed)


def code_in_parallel(workers: int) -> None:
    """Have JPEG coded by several processes from now on."""
    coders: Any = ParallelJpeg(workers=workers)._coders  # type: ignore[attr-defined]  # its only way to code an array

    def coded(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
        parts = np.array_split(np.ascontiguousarray(pixels), min(len(pixels), 2 * workers))
        return np.concatenate(coders.code(parts, quality))

    # By its name: whorl.defenses has a function called jpeg as well.
    module: Any = import_module("whorl.defenses.jpeg")
    module.coded = coded


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def parts_of(name: str, rows: Sequence[str]) -> Iterator[list[str]]:
    """The rows to have after each step: a few, more, all."""
    done: list[str] = []
    for part in PARTS.get(name, [list(rows)]):
        done = [row for row in rows if row in {*done, *part}]
        yield done


def do(job: str, arguments: argparse.Namespace, deadline: float) -> None:
    """Run a job as far as the deadline allows, and write what is whole."""
    label, _, rest = job.partition(":")
    name, *without = rest.split("-") if not rest.startswith("ablation") else [rest]
    profile = paper.load_profile(label)
    if without:
        kept = {role: names for role, names in profile.networks.items() if role not in without}
        profile = profile.model_copy(update={"networks": kept})
    item, file = paper.load(name), arguments.out / f"{name}-{label}-outcomes.json"
    about = arguments.out / "about.jsonl"
    known = [json.loads(line) for line in about.read_text(encoding="utf-8").splitlines()] if about.is_file() else []
    Faster.size = profile.size or 224

    def watch(stage: str, done: int, total: int) -> None:
        if time.monotonic() > deadline:
            raise OutOfTimeError
        if done == total:
            print(f"{job}: {stage}: {done}/{total}, {deadline - time.monotonic():.0f} s left", file=sys.stderr)

    options = paper.PaperOptions(
        profile=profile,
        data=arguments.data,
        limit=arguments.limit,
        seed=arguments.seed,
        batch_size=arguments.batch_size,
        device=arguments.device,
    )
    for rows in parts_of(name, item.rows):
        if file.is_file() and any(line["job"] == job and line["rows"] == rows for line in known):
            continue
        start = time.monotonic()
        chosen = replace(options, attacks=rows)
        out = experiment.run(declaration(item, chosen), arguments.work / label, device=arguments.device, progress=watch)
        write_file(file, outcomes_text(paper.compare_with_printed(item, out, profile), out))
        line = {"job": job, "rows": rows, "n": len(out.ids), "seconds": round(time.monotonic() - start, 1)}
        line |= {"crafting": {f"{cell.attack} on {cell.source}": round(cell.seconds, 2) for cell in out.cells}}
        with about.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        print(f"{job}: {len(rows)} rows in {line['seconds']} s", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Do the jobs in their order until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", help="as in inception:table8")
    parser.add_argument("--data", type=Path, help="NIPS17 folder; the bundled samples without it")
    parser.add_argument("--limit", type=int, help="the first so many images")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--work", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--batch-size", type=int, default=125)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jpeg-workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds; then it stops")
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + arguments.time_limit
    arguments.out.mkdir(parents=True, exist_ok=True)
    experiment.Networks = Faster  # type: ignore[attr-defined]  # what the runs below load their networks with
    if arguments.jpeg_workers > 1:
        code_in_parallel(arguments.jpeg_workers)
    write_file(
        arguments.out / "metadata.json",
        json.dumps(metadata(torch.device(arguments.device), jobs=arguments.jobs, batch_size=arguments.batch_size)),
    )
    for job in arguments.jobs:
        try:
            do(job, arguments, deadline)
        except OutOfTimeError:
            print(f"{job}: the time is over", file=sys.stderr)
            break
        except whorl.WhorlError as error:  # the next job may do
            print(f"{job}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
