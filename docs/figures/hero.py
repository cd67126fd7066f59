"""Draw the README's first figure: two photographs, clean and attacked, and what a hardened network says of them.

    python docs/figures/hero.py

Shown are the first two of the bundled photographs whose clean version the network recognises in every pose shown,
whatever the attacks make of them. Same photographs, seed and settings as ``whorl demo``. What the words beside the
figure count is written into ``benchmarks/results/hero-cpu.json``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import whorl
from whorl.evaluation import Pose
from whorl.report.export import MARGIN, draw_sheet
from whorl.report.gallery import Example, Gallery, TileRow, gallery

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from measure import metadata, save  # noqa: E402 - it stands beside the benchmarks

# The first network of the README's table: hardened, not attacked, and no attack was tuned on it.
SOURCE, TARGET = "resnet18", "efficientnet_lite0.alp"
ATTACKS = ("dim", "ai-dim", "ai-best")
COUNT = 2
TILE = 120  # pixels: eight beside one another, with labels that are legible at the width of a page
POSES = {
    "as it is": Pose(),
    "rotated -30°": Pose(angle=-30),
    "rotated 30°": Pose(angle=30),
    "30°, scale 0.7": Pose(angle=30, scale=0.7),
}


def side_by_side(made: Gallery) -> Gallery:
    """The examples beside one another, without the perturbations."""
    shown = len(POSES)
    rows = zip(*(example.rows for example in made.examples), strict=True)
    beside = [TileRow(name=each[0].name, tiles=sum((row.tiles[:shown] for row in each), ())) for each in rows]
    if any(tile and tile.fooled for tile in beside[0].tiles):
        raise SystemExit(f"{TARGET} recognises too few clean photographs in every pose.")
    together = Example(id="", truth="", rows=tuple(beside))  # the clean row says what they show
    # No title: the pages say what it shows, and on a first screen there is no room to say it twice.
    return Gallery(title="", columns=tuple(POSES) * len(made.examples), examples=(together,))


def main() -> None:
    """Draw it."""
    x, y, ids = whorl.load_samples(20)
    source, target = whorl.load_model(SOURCE), whorl.load_model(TARGET)
    attacks = {name: whorl.attack(name) for name in ATTACKS}
    adversarial = {name: attack(source, x, y, ids=ids) for name, attack in attacks.items()}
    made = side_by_side(gallery(target, x, adversarial, y, ids, poses=POSES, count=COUNT))
    sheet = draw_sheet(made, side=TILE)
    edge = MARGIN - 8  # the page brings margins of its own
    sheet.crop((0, edge, sheet.width, sheet.height - edge)).save(HERE / "hero.webp", quality=86, method=6)
    fooled = {row.name: [bool(tile and tile.fooled) for tile in row.tiles] for row in made.examples[0].rows}
    command = f"python docs/figures/{Path(__file__).name}"
    about = metadata(torch.device("cpu"), command=command, source=SOURCE, target=TARGET, seed=0)
    settings = {name: repr(attack) for name, attack in attacks.items()}
    content = {"metadata": about, "settings": settings, "columns": made.columns, "fooled": fooled}
    save(content, BENCHMARKS / "results" / "hero-cpu.json")


if __name__ == "__main__":
    main()
