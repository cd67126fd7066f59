"""What whorl's own attacks and hardened networks gain on photographs that chose nothing.

    python benchmarks/held_out.py --data JUDGE_FOLDER --work FOLDER

Kernels, presets and recipes were chosen on NIPS17 photographs. Here they are judged on others: class folders of
labelled photographs on which nothing is ever chosen, in an order that a seed shuffles, so that the first n are a fair
sample. Attacks are crafted on one source; every target answers for the clean and the adversarial images, rounded to 8
bits, in the paper's twelve poses.

FOLDER keeps the adversarial images and what each network answered, 25 photographs at a time; run again, it goes on
where it stopped, and ``--limit`` says how far. After each of them the outcome of every image, a bit each, is saved in
``benchmarks/results/held-out-cpu.json``, from which ``verify_docs.py`` recomputes the figures of the pages.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import convert_conv2d_weight_memory_format

import whorl
from judge import Data, packed
from measure import HERE, metadata, save
from whorl.evaluation import PAPER_POSES, Predictor, to_8_bits
from whorl.files import atomic_write
from whorl.runs.folder import as_json

CHUNK = 25
BATCH = 5  # on one thread the fastest: what a layer makes stays in the cache
TARGETS = (
    "mobilenet_v2",
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite0.ens-at",
    "efficientnet_lite0.ai-at",
    "mobilenet_v2.ens-at",
)
CELLS = {  # attack: at which eps, of 255
    "dim": (16, 8),
    "ti-dim": (16,),
    "ai-dim": (16,),
    "ri-dim": (16, 8),
    "ai-best": (16, 8),
}


@dataclass(frozen=True, order=True)
class Cell:
    """An attack at an eps (of 255)."""

    attack: str
    eps: int

    @property
    def made(self) -> whorl.Attack:
        """With every setting resolved."""
        return whorl.attack(self.attack, eps=self.eps / 255)

    @property
    def label(self) -> str:
        """A name for files."""
        return f"{self.attack}-{self.eps}"


class Work:
    """The folder of a measurement: what is there is not made again."""

    def __init__(self, folder: Path, data: Data, source: nn.Module, seed: int) -> None:
        self.folder, self.data, self.source, self.seed = folder, data, source, seed
        self.networks: dict[str, nn.Module] = {}

    def network(self, name: str) -> nn.Module:
        """A target; with the channels of a pixel side by side, which halves the time of a forward pass on a CPU."""
        if name not in self.networks:
            self.networks[name] = convert_conv2d_weight_memory_format(whorl.load_model(name), torch.channels_last)
        return self.networks[name]

    def images(self, cell: Cell | None, chunk: int) -> torch.Tensor:
        """The chunk's images, (CHUNK, C, H, W): adversarial ones, crafted if they are not there; None: clean ones."""
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        if cell is None:
            return self.data.x[part]
        path = self.folder / "adv" / cell.label / f"{chunk:02d}.npy"
        if not path.exists():
            made = [
                cell.made(self.source, self.data.x[p], self.data.y[p], seed=self.seed, ids=self.data.ids[p])
                for p in _batches(part)
            ]
            _write(path, (to_8_bits(torch.cat(made)) * 255).round().to(torch.uint8).numpy())
        return torch.from_numpy(np.load(path)).float() / 255

    def recognised(self, cell: Cell | None, chunk: int, target: str, *, make: bool = True) -> np.ndarray | None:
        """(poses, CHUNK) bool: recognised; None where it is not there and not to be made."""
        path = self.folder / "recognised" / (cell.label if cell else "clean") / target / f"{chunk:02d}.npy"
        if not path.exists():
            if not make:
                return None
            net, images = self.network(target), self.images(cell, chunk)
            predictor, poses = Predictor({target: net}), {target: PAPER_POSES}
            found = []
            for part in _batches(slice(0, CHUNK)):
                whole = slice(chunk * CHUNK + part.start, chunk * CHUNK + part.stop)
                cells = predictor.recognised(images[part], self.data.y[whole], poses, ids=self.data.ids[whole])
                found.append(torch.stack([cells[target, pose] for pose in PAPER_POSES]))
            _write(path, torch.cat(found, 1).numpy())
        answers: np.ndarray = np.load(path)
        return answers


def _batches(part: slice) -> list[slice]:
    return [slice(start, min(start + BATCH, part.stop)) for start in range(part.start, part.stop, BATCH)]


def _write(path: Path, array: np.ndarray) -> None:
    with atomic_write(path) as file:
        np.save(file, array)


def tasks(limit: int) -> Iterator[tuple[Cell | None, int, str]]:
    """What to measure, in an order whose every beginning is of use.

    All attacks on the same 100 photographs, first at eps 16, then at eps 8; a clean image before its adversarial ones.
    """
    cells = {eps: [Cell(name, eps) for name, at in CELLS.items() if eps in at] for eps in (16, 8)}
    for first in range(0, limit // CHUNK, 4):
        chunks = range(first, min(first + 4, limit // CHUNK))
        for eps in (16, 8):
            for chunk in chunks:
                for cell in (None, *cells[eps]):
                    for target in TARGETS:
                        yield cell, chunk, target


def collected(work: Work, about: dict[str, Any]) -> dict[str, Any]:
    """Everything measured so far: for each cell and target the first n photographs, packed."""
    cells = [Cell(name, eps) for name, at in CELLS.items() for eps in at]
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
    settings = {
        cell.label: as_json(cell.made) for cell in (Cell(name, eps) for name, at in CELLS.items() for eps in at)
    }
    poses = [{"angle": p.angle, "scale": p.scale, "shift": list(p.shift)} for p in PAPER_POSES]
    return {"metadata": about, "settings": settings, "poses": poses, "ids": work.data.ids, "recognised": targets}


def shuffled(folder: str, size: int, seed: int) -> Data:
    """All photographs of a folder, in an order that depends on the seed alone."""
    data = Data.load(folder, None, size, "cpu")
    order = np.random.default_rng(seed).permutation(len(data.ids))
    return Data(x=data.x[order], y=data.y[order], ids=[data.ids[i] for i in order])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and save after each chunk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="class folders of photographs that chose nothing")
    parser.add_argument("--work", type=Path, required=True, help="folder for images and answers; goes on from it")
    parser.add_argument("--limit", type=int, default=500, help="first so many of the shuffled photographs")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the attacks")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "held-out-cpu.json")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    source = whorl.load_model(options.source)
    work = Work(options.work, shuffled(options.data, options.size, options.seed), source, options.seed)
    about = metadata(
        torch.device("cpu"),
        data=Path(options.data).resolve().name,
        source=options.source,
        size=options.size,
        seed=options.seed,
        weights_sha256={name: work.network(name).weights_sha256 for name in TARGETS},
    )
    if options.json.exists():  # other photographs may have been measured by other commits, on other days
        before = json.loads(options.json.read_text(encoding="utf-8"))["metadata"]
        earlier = [*before.pop("earlier", []), before]
        about["earlier"] = [one for one in earlier if one["commit"] != about["commit"]]
    at = None
    for cell, chunk, target in tasks(options.limit):
        if (cell, chunk) != at:
            at = (cell, chunk)
            save(collected(work, about), options.json)
            print(f"{cell.label if cell else 'clean'}, photographs from {chunk * CHUNK}", file=sys.stderr, flush=True)
        work.recognised(cell, chunk, target)
    save(collected(work, about), options.json)


if __name__ == "__main__":
    main()
