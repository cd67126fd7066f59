"""How visible attacks are, and how often they succeed when they may be no more visible than another.

    python benchmarks/visibility.py --data JUDGE_FOLDER --work FOLDER

The same ε is not the same to the eye: a perturbation in large smooth shapes and one like noise have the same L∞. For
each photograph the structural similarity (SSIM) to the clean one and the L2 distance are measured, of attacks crafted
on one source at two ε, rounded to 8 bits, and whether two networks that were not attacked recognise it in the paper's
twelve poses. Then every attack's perturbation is scaled down, image by image, until its SSIM is not below that of
``dim``'s image at the same ε (``whorl.evaluation.bounded_by_ssim``), and the same is measured again: success at equal
visibility. An image that is similar enough is left as it is. SSIM looks through windows of 11 pixels, which see little
of shapes that are larger, so all is done once more by the SSIM of the images at a quarter of their size.

The photographs are the first of ``held_out.py``'s, in its order: nothing is ever chosen on them. FOLDER keeps images
and answers, a chunk of photographs at a time; run again, it goes on where it stopped, and ``--limit`` says how far.
After each chunk the outcome of every image, a bit each, is saved as ``held_out.py`` does, with its SSIM and L2, in
``benchmarks/results/visibility-SOURCE-DEVICE.json``, from which ``verify_docs.py`` recomputes the page's figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import held_out
import whorl
from held_out import EPS, POSES, Work, command_line, first, shuffled
from measure import HERE, metadata, save
from whorl.evaluation import Distance, bounded_by_ssim, ssim
from whorl.runs.folder import as_json

ATTACKS = ("fgsm", "mim", "dim", "ti-dim", "ai-dim", "ri-dim", "ram", "ai-best")
AS_VISIBLE_AS = "dim"
TARGETS = ("efficientnet_lite2", "efficientnet_lite0.alp")
SHRINK = {"equal": 1, "quarter": 4}  # by which SSIM images are scaled to equal visibility
DIGITS = 6


@dataclass(frozen=True, order=True)
class Cell(held_out.Cell):
    """An attack at an eps (of 255); ``scaled``: down to :data:`AS_VISIBLE_AS`'s SSIM, one of :data:`SHRINK`."""

    scaled: str = ""

    @property
    def made(self) -> whorl.Attack:
        """With every setting resolved."""
        return whorl.attack(self.attack, eps=self.eps / 255)

    @property
    def label(self) -> str:
        """A name for files."""
        return f"{self.attack}-{self.scaled}-{self.eps}" if self.scaled else super().label


CELLS = (
    *(Cell(name, eps) for eps in EPS for name in ATTACKS),
    *(Cell(name, eps, scaled) for scaled in SHRINK for eps in EPS for name in ATTACKS if name != AS_VISIBLE_AS),
)


class Visibility(Work):
    """The folder of a measurement: what is there is not made again."""

    def images(self, cell: held_out.Cell | None, chunk: int) -> torch.Tensor:
        """(chunk, C, H, W); None: clean ones. Scaled ones are made of the others whenever they are wanted."""
        if not isinstance(cell, Cell) or not cell.scaled:
            return super().images(cell, chunk)
        clean, reference = self.images(None, chunk), self.images(Cell(AS_VISIBLE_AS, cell.eps), chunk)
        shrink, whole = SHRINK[cell.scaled], self.images(replace(cell, scaled=""), chunk)
        return bounded_by_ssim(clean, whole, ssim(clean, reference, shrink=shrink), shrink=shrink)

    def evaluated(self, cell: held_out.Cell | None, chunk: int, target: str) -> np.ndarray:
        """(poses, chunk) bool; an image that was not scaled is not evaluated again."""
        if not isinstance(cell, Cell) or not cell.scaled:
            return super().evaluated(cell, chunk, target)
        whole = replace(cell, scaled="")
        images, found = self.images(cell, chunk), np.array(self.recognised(whole, chunk, target))
        scaled = (images != self.images(whole, chunk)).flatten(1).any(1).cpu()
        found[:, scaled] = self.answers(images[scaled], np.flatnonzero(scaled) + chunk * self.chunk, target)
        return found

    def distances(self, cell: Cell, chunk: int) -> dict[str, list[float]]:
        """SSIM, SSIM at a quarter of the size, and L2 of each image."""
        clean, made = self.images(None, chunk), self.images(cell, chunk)
        each = [Distance.of(clean[i : i + 1], made[i : i + 1]) for i in range(len(clean))]
        quarter = ssim(clean, made, shrink=SHRINK["quarter"])
        found = {"ssim": [one.ssim_mean for one in each], "ssim_quarter": quarter.tolist()}
        return {**found, "l2": [one.l2_mean for one in each]}


def collected(work: Visibility, about: dict[str, Any]) -> dict[str, Any]:
    """The chunks that all cells and targets have: packed outcomes, SSIM (also at a quarter of the size) and L2."""
    chunks = min(work.complete(CELLS, target) for target in TARGETS)
    measured = {cell.label: [work.distances(cell, chunk) for chunk in range(chunks)] for cell in CELLS}
    distances = {
        what: {label: [round(one, DIGITS) for part in parts for one in part[what]] for label, parts in measured.items()}
        for what in ("ssim", "ssim_quarter", "l2")
    }
    return {
        "metadata": about,
        "settings": {cell.label: as_json(cell.made) for cell in CELLS if not cell.scaled},
        "poses": POSES,
        "ids": work.data.ids[: chunks * work.chunk],
        "recognised": {target: work.outcomes(CELLS, target, chunks) for target in TARGETS},
        **distances,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and save after each chunk."""
    parser = command_line(__doc__, limit=100, saved="visibility-SOURCE-DEVICE")
    parser.add_argument("--source", default="resnet18")
    options = parser.parse_args(argv)
    if not (options.data and options.work):
        parser.error("--data and --work are needed")
    device = torch.device(options.device)
    path = options.json or HERE / "results" / f"visibility-{options.source}-{device.type}.json"
    torch.set_num_threads(options.threads)
    source = whorl.load_model(options.source, device=device)
    data = first(shuffled(options.data, options.size, options.seed, device), options.limit)
    work = Visibility(options.work, data, source, options.seed)
    networks = {options.source: source, **{name: work.network(name) for name in TARGETS}}
    about = metadata(
        device,
        data=Path(options.data).resolve().name,
        source=options.source,
        size=options.size,
        seed=options.seed,
        as_visible_as=AS_VISIBLE_AS,
        weights_sha256={name: net.weights_sha256 for name, net in networks.items()},
    )
    for chunk in range(len(data.ids) // work.chunk):
        for cell in (None, *CELLS):
            print(f"{cell.label if cell else 'clean'}, chunk {chunk}", file=sys.stderr, flush=True)
            for target in TARGETS:
                work.recognised(cell, chunk, target)
        save(collected(work, about), path)


if __name__ == "__main__":
    main()
