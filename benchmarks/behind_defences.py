"""How attacks hold up behind input defences and on hardened networks, from one source and from an ensemble.

    python benchmarks/behind_defences.py --data JUDGE_FOLDER --work FOLDER

Each attack is crafted on one network and on the mean of the logits of three, on photographs that chose nothing, the
first of ``held_out.py``'s in its order. Nobody attacks the defences: the images are only shown to a network that is
neither source, bare and behind each of them, and to hardened networks, whose originals are members of the ensemble: as
they are, and in the paper's twelve poses. A pose is first, then the defence acts on what the camera would see. Poses
behind defences take long, and come after all else of a block of photographs; RandMix, ten passes an image, has none.

FOLDER keeps images and answers, a chunk of photographs at a time; run again, it goes on where it stopped, and
``--limit`` says how far. The outcome of every image, a bit each, is saved as ``held_out.py`` does in
``benchmarks/results/behind-defences-DEVICE.json``, of the photographs that all but those poses has been measured
on, and of these as many as there are; from it ``verify_docs.py`` recomputes the page's figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import held_out
import whorl
from held_out import POSES, Work, command_line, first, made_before, shuffled
from judge import Data
from measure import HERE, metadata, save
from whorl.defenses import Defended
from whorl.evaluation import Pose
from whorl.runs.folder import as_json

SOURCES = {"resnet18": ("resnet18",), "ensemble": ("resnet18", "mobilenet_v2", "efficientnet_lite0")}
ATTACKS = ("dim", "ai-dim", "ai-best")
EPS = 16  # of 255
DEFENDED = "efficientnet_lite2"  # neither source has it
DEFENCES = ("jpeg", "bitdepth", "resize-pad", "randmix")
HARDENED = ("efficientnet_lite0.alp", "efficientnet_lite0.ai-at", "mobilenet_v2.ens-at")
ALONE = "@as-they-are"  # behind a target's name: shown images in no pose alone
TARGETS = (DEFENDED, *HARDENED, *(f"{DEFENDED}+{defence}{ALONE}" for defence in DEFENCES))
LATER = tuple(f"{DEFENDED}+{defence}" for defence in DEFENCES if defence != "randmix")
CHUNK = 5  # photographs, so that little is lost where it is stopped
BLOCK = 8  # chunks


@dataclass(frozen=True, order=True)
class Cell(held_out.Cell):
    """An attack at an eps (of 255) from one of :data:`SOURCES`."""

    source: str

    @property
    def label(self) -> str:
        """A name for files."""
        return f"{self.source}-{super().label}"


CELLS = tuple(Cell(name, EPS, source) for source in SOURCES for name in ATTACKS)


class BehindDefences(Work):
    """The folder of a measurement, with several sources, and with targets that stand behind defences."""

    def __init__(self, folder: Path, data: Data, sources: Mapping[str, nn.Module], seed: int) -> None:
        super().__init__(folder, data, next(iter(sources.values())), seed)
        self.sources = sources
        self.chunk = self.batch = CHUNK

    def attacked(self, cell: held_out.Cell) -> nn.Module:
        """What a cell's images are crafted on."""
        return self.sources[cell.source] if isinstance(cell, Cell) else super().attacked(cell)

    def network(self, name: str) -> nn.Module:
        """A target, behind a defence if its name says so."""
        name = name.removesuffix(ALONE)
        if name not in self.networks and "+" in name:
            bare, _, defence = name.partition("+")
            self.networks[name] = whorl.load_defense(defence, self.network(bare))
        return super().network(name)

    def poses(self, target: str) -> Sequence[Pose]:
        """In which a target is evaluated."""
        return (Pose(),) if target.endswith(ALONE) else super().poses(target)


def tasks(chunks: int) -> Iterator[tuple[int, Sequence[str]]]:
    """Chunks and targets, in an order whose every beginning is of use."""
    for start in range(0, chunks, BLOCK):
        for targets in (TARGETS, LATER):
            for chunk in range(start, min(start + BLOCK, chunks)):
                yield chunk, targets


def collected(work: BehindDefences, about: dict[str, Any]) -> dict[str, Any]:
    """The chunks that all cells have on all targets, on later ones fewer: packed outcomes, and every setting."""
    chunks = min(work.complete(CELLS, target) for target in TARGETS)
    outcomes = {
        target: work.outcomes(CELLS, target, min(chunks, work.complete(CELLS, target))) for target in (*TARGETS, *LATER)
    }
    shown = {net.name: net for name in TARGETS if isinstance(net := work.network(name), Defended)}
    return {
        "metadata": about,
        "settings": {cell.label: as_json(cell.made) for cell in CELLS},
        "defences": {
            name: {**as_json(net.defense), "samples": net.samples, "seed": net.seed} for name, net in shown.items()
        },
        "poses": POSES,
        "ids": work.data.ids[: chunks * work.chunk],
        "recognised": {target: found for target, found in outcomes.items() if not target.endswith(ALONE)},
        "recognised_as_they_are": {
            target.removesuffix(ALONE): found for target, found in outcomes.items() if target.endswith(ALONE)
        },
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and save after each chunk."""
    parser = command_line(__doc__, limit=100, saved="behind-defences-DEVICE")
    options = parser.parse_args(argv)
    if not (options.data and options.work):
        parser.error("--data and --work are needed")
    device = torch.device(options.device)
    path = options.json or HERE / "results" / f"behind-defences-{device.type}.json"
    torch.set_num_threads(options.threads)
    loaded = {name: whorl.load_model(name, device=device) for names in SOURCES.values() for name in names}
    sources = {
        source: loaded[names[0]] if len(names) == 1 else whorl.Ensemble([loaded[name] for name in names])
        for source, names in SOURCES.items()
    }
    data = first(shuffled(options.data, options.size, options.seed, device), options.limit)
    work = BehindDefences(options.work, data, sources, options.seed)
    networks = {**loaded, **{name: work.network(name) for name in (DEFENDED, *HARDENED)}}
    about = metadata(
        device,
        data=Path(options.data).resolve().name,
        sources=SOURCES,
        size=options.size,
        seed=options.seed,
        weights_sha256={name: net.weights_sha256 for name, net in networks.items()},
    )
    about.update(made_before(path, about["commit"]))
    for chunk, targets in tasks(len(data.ids) // work.chunk):
        for cell in (None, *CELLS):
            print(f"{cell.label if cell else 'clean'}, chunk {chunk}", file=sys.stderr, flush=True)
            for target in targets:
                work.recognised(cell, chunk, target)
        save(collected(work, about), path)


if __name__ == "__main__":
    main()
