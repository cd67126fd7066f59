"""What whorl's own attacks and hardened networks gain on photographs that chose nothing.

    python benchmarks/held_out.py --data JUDGE_FOLDER --work FOLDER

Kernels, presets and recipes were chosen on NIPS17 photographs. Here they are judged on others: class folders of
labelled photographs on which nothing is ever chosen, in an order that a seed shuffles, so that the first n are a fair
sample. Attacks are crafted on one source; every target answers for the clean and the adversarial images, rounded to 8
bits, in the paper's twelve poses.

FOLDER keeps the adversarial images and what each network answered, a chunk of photographs at a time (25 on a CPU, 125
on a GPU); run again, it goes on where it stopped, and ``--limit`` says how far. After each chunk the outcome of every
image, a bit each, is saved in ``benchmarks/results/held-out-SOURCE-DEVICE.json``, from which ``verify_docs.py``
recomputes the figures of the pages.

Where an attack has changed, it alone is measured again, and put in place of the earlier one:

    python benchmarks/held_out.py --data JUDGE_FOLDER --work NEW_FOLDER --attacks ai-best,ai-best-50 --json NEW.json
    python benchmarks/held_out.py --merge NEW.json
    python benchmarks/verify_docs.py --write
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import convert_conv2d_weight_memory_format

import whorl
from judge import Data, packed, unpacked
from measure import HERE, metadata, save
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, Predictor, to_8_bits
from whorl.files import atomic_write
from whorl.runs.folder import as_json

TARGETS = (
    "resnet18",
    "mobilenet_v2",
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite2",
    "inception_v3",
    "efficientnet_lite0.ens-at",
    "efficientnet_lite0.alp",
    "efficientnet_lite0.ai-at",
    "mobilenet_v2.ens-at",
    "mobilenet_v2.alp",
)
ATTACKS = {  # name here: preset, and what is changed of it
    "dim": ("dim", {}),
    "ti-dim": ("ti-dim", {}),
    "ai-dim": ("ai-dim", {}),
    "ri-dim": ("ri-dim", {}),
    "ai-best": ("ai-best", {}),
    "ai-best-50": ("ai-best", {"steps": 50}),
    "ai-max": ("ai-max", {}),
    "eot": ("eot", {}),
}
EPS = (16, 8)  # of 255
# Photographs in a chunk, and in a batch. On one thread small batches are fastest: what a layer makes stays in cache.
SIZES = {"cpu": (25, 5), "cuda": (125, 125)}
POSES = [{"angle": p.angle, "scale": p.scale, "shift": list(p.shift)} for p in PAPER_POSES]  # as they are saved


@dataclass(frozen=True, order=True)
class Cell:
    """An attack at an eps (of 255)."""

    attack: str
    eps: int

    @property
    def made(self) -> whorl.Attack:
        """With every setting resolved."""
        preset, changed = ATTACKS[self.attack]
        return whorl.attack(preset, eps=self.eps / 255, **changed)

    @property
    def label(self) -> str:
        """A name for files."""
        return f"{self.attack}-{self.eps}"


class Work:
    """The folder of a measurement: what is there is not made again."""

    def __init__(self, folder: Path, data: Data, source: nn.Module, seed: int) -> None:
        self.folder, self.data, self.source, self.seed = folder, data, source, seed
        self.device = data.x.device
        self.chunk, self.batch = SIZES[self.device.type]
        self.networks: dict[str, nn.Module] = {}

    def network(self, name: str) -> nn.Module:
        """A target; with the channels of a pixel side by side, which halves the time of a forward pass on a CPU."""
        if name not in self.networks:
            net = whorl.load_model(name, device=self.device)
            self.networks[name] = convert_conv2d_weight_memory_format(net, torch.channels_last)
        return self.networks[name]

    def attacked(self, cell: Cell) -> nn.Module:  # noqa: ARG002 - where there are several sources, the cell says which
        """What a cell's images are crafted on."""
        return self.source

    def poses(self, target: str) -> Sequence[Pose]:  # noqa: ARG002 - as above
        """In which a target is evaluated."""
        return PAPER_POSES

    def images(self, cell: Cell | None, chunk: int) -> torch.Tensor:
        """The chunk's images, (chunk, C, H, W): adversarial ones, crafted if they are not there; None: clean ones."""
        part = slice(chunk * self.chunk, (chunk + 1) * self.chunk)
        if cell is None:
            return self.data.x[part]
        path = self.folder / "adv" / cell.label / f"{chunk:02d}.npy"
        if not path.exists():
            made = [
                cell.made(self.attacked(cell), self.data.x[p], self.data.y[p], seed=self.seed, ids=self.data.ids[p])
                for p in self._batches(part)
            ]
            _write(path, (to_8_bits(torch.cat(made)) * 255).round().to(torch.uint8).cpu().numpy())
        return torch.from_numpy(np.load(path)).to(self.device).float() / 255

    def recognised(self, cell: Cell | None, chunk: int, target: str, *, make: bool = True) -> np.ndarray | None:
        """(poses, chunk) bool: recognised; None where it is not there and not to be made."""
        path = self.folder / "recognised" / (cell.label if cell else "clean") / target / f"{chunk:02d}.npy"
        if not path.exists():
            if not make:
                return None
            _write(path, self.evaluated(cell, chunk, target))
        answers: np.ndarray = np.load(path)
        return answers

    def evaluated(self, cell: Cell | None, chunk: int, target: str) -> np.ndarray:
        """(poses, chunk) bool: evaluate a chunk, whatever is there."""
        images, first = self.images(cell, chunk), chunk * self.chunk
        return self.answers(images, np.arange(first, first + len(images)), target)

    def answers(self, images: torch.Tensor, places: np.ndarray, target: str) -> np.ndarray:
        """(poses, n) bool: whether a target recognises images, given with their places among the photographs."""
        net, rows = self.network(target), torch.from_numpy(places)
        predictor, poses = Predictor({target: net}), {target: self.poses(target)}
        found = [torch.empty(len(poses[target]), 0, dtype=torch.bool)]
        for part in self._batches(slice(0, len(images))):
            y, ids = self.data.y[rows[part].to(self.device)], [self.data.ids[place] for place in places[part]]
            cells = predictor.recognised(images[part], y, poses, ids=ids)
            found.append(torch.stack([cells[target, pose] for pose in poses[target]]).cpu())
        return torch.cat(found, 1).numpy()

    def complete(self, cells: Sequence[Cell], target: str) -> int:
        """How many chunks have been evaluated on a target, of all cells and of the clean images."""
        chunks = 0
        while all(self.recognised(cell, chunks, target, make=False) is not None for cell in (None, *cells)):
            chunks += 1
        return chunks

    def outcomes(self, cells: Sequence[Cell], target: str, chunks: int) -> dict[str, Any]:
        """The first chunks' outcomes on a target, packed: of the clean images and of each cell."""
        found = {}
        for cell in (None, *cells) if chunks else ():
            bits = np.concatenate([self.recognised(cell, chunk, target) for chunk in range(chunks)], 1)
            found[cell.label if cell else "clean"] = {"n": bits.shape[1], "bits": packed(bits)}
        return found

    def _batches(self, part: slice) -> list[slice]:
        return [slice(start, min(start + self.batch, part.stop)) for start in range(part.start, part.stop, self.batch)]


def _write(path: Path, array: np.ndarray) -> None:
    with atomic_write(path) as file:
        np.save(file, array)


def tasks(work: Work, limit: int, attacks: Sequence[str]) -> Iterator[tuple[Cell | None, int, str]]:
    """What to measure, in an order whose every beginning is of use.

    All attacks on the same photographs, first at eps 16, then at eps 8; a clean image before its adversarial ones.
    """
    each = max(1, 100 // work.chunk)
    for first in range(0, limit // work.chunk, each):
        chunks = range(first, min(first + each, limit // work.chunk))
        for eps in EPS:
            for chunk in chunks:
                for cell in (None, *(Cell(name, eps) for name in attacks)):
                    for target in TARGETS:
                        yield cell, chunk, target


def collected(work: Work, about: dict[str, Any]) -> dict[str, Any]:
    """Everything measured so far: for each cell and target the first n photographs, packed."""
    cells = [Cell(name, eps) for eps in EPS for name in ATTACKS]
    targets: dict[str, Any] = {}
    for target in TARGETS:
        found = {}
        for cell in (None, *cells):
            parts: list[np.ndarray] = []
            while (part := work.recognised(cell, len(parts), target, make=False)) is not None:
                parts.append(part)
            if parts:
                bits = np.concatenate(parts, 1)
                found[cell.label if cell else "clean"] = {"n": bits.shape[1], "bits": packed(bits)}
        targets[target] = found
    settings = {cell.label: as_json(cell.made) for cell in cells}
    return {"metadata": about, "settings": settings, "poses": POSES, "ids": work.data.ids, "recognised": targets}


def merged(into: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """``into`` with every attack that ``new`` has in place of its own; the clean outcomes stay.

    Whose outcomes they are is kept in ``metadata.merged``: the metadata of ``new``, and its cells that still stand.

    Raises:
        WhorlError: the two are not of the same photographs, poses, source and networks; ``new`` has fewer photographs
            or networks; or clean outcomes differ in more than one of a thousand, so that they cannot be paired.
    """
    about, from_new = dict(into["metadata"]), dict(new["metadata"])
    for name in ("data", "source", "size", "seed", "weights_sha256"):
        if about[name] != from_new[name]:
            raise WhorlError(f"cannot merge: {name} is {about[name]!r} in the one, {from_new[name]!r} in the other.")
    if (into["poses"], into["ids"]) != (new["poses"], new["ids"]):
        raise WhorlError("cannot merge: the poses or the photographs' names differ.")
    cells = sorted(set(new["settings"]).intersection(*new["recognised"].values()) if new["recognised"] else [])
    if not cells:
        raise WhorlError("cannot merge: there is no attack that all networks have been evaluated on.")
    recognised = {}
    for target, known in into["recognised"].items():
        fresh, n = new["recognised"].get(target, {}), known["clean"]["n"]
        if any(cell not in fresh or fresh[cell]["n"] != n for cell in ("clean", *cells)):
            raise WhorlError(f"cannot merge: {target} has not been evaluated on all {n} photographs.")
        clean = [unpacked(one["clean"], len(into["poses"])) for one in (known, fresh)]
        if (apart := (clean[0] != clean[1]).sum()) > clean[0].size / 1000:
            raise WhorlError(f"cannot merge: {apart} clean outcomes of {target} differ, of {clean[0].size}.")
        recognised[target] = {**known, **{cell: fresh[cell] for cell in cells}}
    earlier = [
        {**one, "cells": [cell for cell in one["cells"] if cell not in cells]} for one in about.pop("merged", [])
    ]
    about["merged"] = [*(one for one in earlier if one["cells"]), {"cells": cells, **from_new}]
    settings = {**into["settings"], **{cell: new["settings"][cell] for cell in cells}}
    return {**into, "metadata": about, "settings": settings, "recognised": recognised}


def shuffled(folder: str, size: int, seed: int, device: torch.device) -> Data:
    """All photographs of a folder, in an order that depends on the seed alone."""
    data = Data.load(folder, None, size, device)
    order = np.random.default_rng(seed).permutation(len(data.ids))
    return Data(x=data.x[order], y=data.y[order], ids=[data.ids[i] for i in order])


def first(data: Data, n: int) -> Data:
    """The first ``n`` photographs."""
    return Data(x=data.x[:n], y=data.y[:n], ids=data.ids[:n])


def command_line(description: str | None, *, limit: int, saved: str) -> argparse.ArgumentParser:
    """The options of every measurement on these photographs; ``saved``: where, unless another file is named."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="class folders of photographs that chose nothing")
    parser.add_argument("--work", type=Path, help="folder for images and answers; goes on from it")
    parser.add_argument("--limit", type=int, default=limit, help="first so many of the shuffled photographs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the attacks")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help=f"default: benchmarks/results/{saved}.json")
    return parser


def made_before(path: Path, commit: str | None) -> dict[str, Any]:
    """What made the photographs of a file so far: other commits may have, on other days."""
    if not path.exists():
        return {}
    before = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    every = [*before.pop("earlier", []), before]
    return {"earlier": [one for one in every if one["commit"] != commit]}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and save after each chunk."""
    parser = command_line(__doc__, limit=500, saved="held-out-SOURCE-DEVICE")
    parser.add_argument("--merge", type=Path, help="put the attacks of this file in place of those in --json; no more")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--attacks", default="dim,ti-dim,ai-dim,ri-dim,ai-best", help=f"of {', '.join(ATTACKS)}")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    path = options.json or HERE / "results" / f"held-out-{options.source}-{device.type}.json"
    if options.merge:
        save(merged(*(json.loads(one.read_text(encoding="utf-8")) for one in (path, options.merge))), path)
        return
    if not (options.data and options.work):
        parser.error("--data and --work are needed, unless with --merge")
    torch.set_num_threads(options.threads)
    source = whorl.load_model(options.source, device=device)
    work = Work(options.work, shuffled(options.data, options.size, options.seed, device), source, options.seed)
    about = metadata(
        device,
        data=Path(options.data).resolve().name,
        source=options.source,
        size=options.size,
        seed=options.seed,
        weights_sha256={name: work.network(name).weights_sha256 for name in TARGETS},
    )
    about.update(made_before(path, about["commit"]))
    at = None
    for cell, chunk, target in tasks(work, options.limit, options.attacks.split(",")):
        if (cell, chunk) != at:
            at = (cell, chunk)
            save(collected(work, about), path)
            print(
                f"{cell.label if cell else 'clean'}, photographs from {chunk * work.chunk}", file=sys.stderr, flush=True
            )
        work.recognised(cell, chunk, target)
    save(collected(work, about), path)


if __name__ == "__main__":
    main()
