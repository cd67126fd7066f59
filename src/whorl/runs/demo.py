"""The whole story on a few photographs: craft on one network, ask three, in the paper's twelve poses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from torch import Tensor

from whorl.evaluation import PAPER_POSES, Pose, success_rates
from whorl.models import Classifier, load_model
from whorl.runs.crafting import Crafted, craft
from whorl.runs.folder import RunFolder, as_json
from whorl.runs.pictures import Loaded, spread_samples
from whorl.runs.progress import Report, silent
from whorl.runs.results import Cell, mean_rate, write_results
from whorl.runs.setup import find_device
from whorl.runs.showcase import draw_showcase

SOURCE = "resnet18"
TARGETS = ("resnet18", "mobilenet_v2", "efficientnet_lite0")
ATTACKS = ("pgd", "ai-pgd", "dim", "ai-dim")
"""Each attack beside its affine-invariant version."""
EPS = 16 / 255

# What the figure shows: the plainest attack and the best, asked of the target that differs most from the source.
_SHOWN_ATTACKS = ("pgd", "ai-dim")
_SHOWN_TARGET = "efficientnet_lite0"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found, and where it lies.

    Attributes:
        n: photographs.
        clean: by target, how many of them it gets right as they are.
        cells: one for each attack, target and pose.
        folder: the run folder.
        results: the cells as CSV.
        figure: the picture.
        seconds: how long it took.
    """

    n: int
    clean: dict[str, int]
    cells: tuple[Cell, ...]
    folder: Path
    results: Path
    figure: Path
    seconds: float

    def mean(self, attack: str, target: str) -> float:
        """Mean success rate over the twelve poses, in [0, 1]."""
        return mean_rate(cell for cell in self.cells if (cell.attack, cell.target) == (attack, target))


def demo(
    out: str | Path = "runs/demo",
    *,
    images: int = 8,
    seed: int = 0,
    device: str = "auto",
    command: Sequence[str] = (),
    report: Report = silent,
) -> Demo:
    """Craft four attacks on one network, measure them on three in twelve poses, and draw what they do.

    Args:
        out: the run folder. What an earlier demo crafted with the same settings is used again.
        images: how many of the 20 bundled photographs to take.
        seed: of all randomness.
        device: "auto", "cpu", "cuda" or "cuda:1".
        command: what the user typed, for the manifest.
        report: told of each step.
    """
    start = time.perf_counter()
    where, chosen = find_device(device), spread_samples(images)
    targets: dict[str, Classifier] = {}
    for done, name in enumerate(TARGETS):
        report("loading networks", done, len(TARGETS))
        targets[name] = load_model(name, device=where)
    report("loading networks", len(TARGETS), len(TARGETS))

    crafted = [
        craft(
            name,
            targets[SOURCE],
            Loaded(chosen),
            out,
            settings={"eps": EPS},
            seed=seed,
            overwrite=True,
            command=command,
            report=report,
        )
        for name in ATTACKS
    ]
    folder = RunFolder(out)
    x, y = chosen.x.to(where), chosen.y.to(where)
    adversarial = {name: folder.load(name, SOURCE, chosen.ids).to(where) for name in ATTACKS}
    cells = measure(targets, x, adversarial, y, crafted, report)
    results, figure = folder.path / "results.csv", folder.path / "demo.png"
    write_results(results, cells)
    shown = {name: adversarial[name] for name in _SHOWN_ATTACKS}
    draw_showcase(figure, targets[_SHOWN_TARGET], x, shown, y, source=SOURCE, eps=EPS)
    evaluated = {
        "targets": {name: model.weights_sha256 for name, model in targets.items()},
        "poses": [as_json(pose) for pose in PAPER_POSES],
        "images": chosen.ids,
        "command": list(command),
    }
    folder.write(lambda manifest: manifest.update(evaluated=evaluated))
    return Demo(
        n=len(chosen.ids),
        clean={cell.target: cell.counts.n_clean_correct for cell in cells if cell.pose == Pose()},
        cells=tuple(cells),
        folder=folder.path,
        results=results,
        figure=figure,
        seconds=time.perf_counter() - start,
    )


def measure(
    targets: dict[str, Classifier],
    x: Tensor,
    adversarial: dict[str, Tensor],
    y: Tensor,
    crafted: Sequence[Crafted],
    report: Report = silent,
) -> list[Cell]:
    """Success rates of each attack on each target in each of the paper's poses."""
    stage = "asking in 12 poses"
    report(stage, 0, len(PAPER_POSES))
    cells = []
    for done, pose in enumerate(PAPER_POSES, start=1):
        counts = success_rates(targets, x, adversarial, y, poses=[pose], batch_size=8)
        cells += [
            Cell(
                attack=attack.attack,
                source=attack.source,
                target=target,
                pose=pose,
                eps=EPS,
                counts=counts[attack.attack, target, pose],
                grad_evals=attack.grad_evals,
                seconds=attack.seconds,
            )
            for attack, target in product(crafted, targets)
        ]
        report(stage, done, len(PAPER_POSES))
    return cells
