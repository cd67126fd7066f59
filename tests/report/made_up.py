"""Cells and galleries for the tests of the report, made up but consistent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch

from whorl.evaluation import Comparison, ImageCounts, Pose, SuccessRate, poses
from whorl.models import Classifier
from whorl.report import CutOut, Example, Gallery, Grouped, Photographs, Tile, TileRow, gallery
from whorl.report.gallery import to_image
from whorl.runs.results import Cell

AS_IT_IS = Pose()
GRID = poses(angles=(-30, -15, 0, 15, 30), scales=(0.6, 0.8, 1.0))
Counts = Callable[[str, str, Pose], SuccessRate]


def cell(
    attack: str,
    target: str,
    counts: SuccessRate,
    *,
    pose: Pose = AS_IT_IS,
    source: str = "net-a",
    eps: float = 16 / 255,
    grad_evals: int = 100,
    defense: str = "none",
) -> Cell:
    """One cell; what does not matter is filled in. The first images are recognised, and the first of those fooled."""
    return Cell(
        attack=attack,
        source=source,
        target=target,
        defense=defense,
        pose=pose,
        eps=eps,
        counts=counts,
        grad_evals=grad_evals,
        seconds=1.0,
        images=ImageCounts(
            np.arange(counts.n)[None] < counts.n_clean_correct, np.arange(counts.n)[None] < counts.n_success
        ),
    )


def rate(success: int, of: int = 200, n: int = 200) -> SuccessRate:
    """So many successes among so many recognised of ``n`` images."""
    return SuccessRate(n, of, success, of - success)


def varied(attack: str, target: str, pose: Pose) -> SuccessRate:
    """Counts that differ from cell to cell, the same every time."""
    number = sum(map(ord, f"{attack}{target}{pose}"))
    recognised = 120 + number % 80
    success = number * 7 % (recognised + 1)
    return SuccessRate(200, recognised, success, recognised - success)


def grid_cells(
    attacks: Sequence[str] = ("dim", "ai-dim"),
    targets: Sequence[str] = ("net-a", "net-b"),
    where: Sequence[Pose] = GRID,
    counts: Counts = varied,
) -> tuple[Cell, ...]:
    """Every attack on every target in every pose."""
    return tuple(cell(a, t, counts(a, t, pose), pose=pose) for a, t, pose in product(attacks, targets, where))


def small_classifier(labels: Sequence[str] = ("cat", "dog", "owl")) -> Classifier:
    """A network that answers by the mean colour: red, green, blue."""
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return Classifier.from_module(net, size=(24, 24), mean=(0, 0, 0), std=(0.05,) * 3, labels=labels, name="net-b")


def small_gallery(name: str = "image.png", labels: Sequence[str] = ("cat", "dog", "owl")) -> Gallery:
    """Two images of noise that is mostly red, attacked towards green and towards blue."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 24, 24, generator=generator) * 0.5
    x[:, 0] += 0.1
    bluer = torch.tensor([-0.06, 0.0, 0.06]).view(1, 3, 1, 1)
    adversarial = {"dim": (x + bluer.flip(1) / 2).clamp(0, 1), "ai-dim": (x + 2 * bluer).clamp(0, 1)}
    y = torch.zeros(2, dtype=torch.long)
    return gallery(small_classifier(labels), x, adversarial, y, [name, "second"], source="net-a")


def some_photographs(name: str = "photo.jpg", attacks: Sequence[str] = ("dim", "ai-dim")) -> Photographs:
    """Two ways of cutting out, two networks, three rotations; whatever has a name is called by it."""

    def cells(shift: int) -> tuple[Cell, ...]:
        made = [cell(a, t, rate(150 - shift + 9 * i)) for i, a in enumerate(attacks) for t in ("net-a", f"t{name}")]
        clean = [cell("clean", t, rate(0, 160 - shift), source="") for t in ("net-a", f"t{name}")]
        return (*clean, *made)

    turned = Grouped(by="rotation", unit="°", steps={step: cells(int(step)) for step in (0.0, 5.0, 15.0)})
    tile = Tile(image=to_image(torch.full((3, 24, 24), 0.5)), caption=name, fooled=True)
    contact = Gallery(
        title="Contact sheet",
        columns=("clean", attacks[0]),
        examples=(Example(id=name, truth=name, rows=(TileRow(name="as seen", tiles=(None, tile)),)),),
    )
    return Photographs(
        about=(name,),
        facts=(("photographs read", "3 of 4"),),
        cut_out=tuple(
            CutOut(way=way, cells=cells(i), groups=(turned,)) for i, way in enumerate(("as seen", "rectified"))
        ),
        repeats=3,
        comparisons={(attacks[1], attacks[0], "net-a", "net-a"): Comparison(n=200, b=30, c=3)},
        galleries=(contact,),
        unread=((name, f"{name}: no markers found."),),
    )


def luminance(colour: str) -> float:
    """Relative luminance, as the accessibility guidelines define it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
