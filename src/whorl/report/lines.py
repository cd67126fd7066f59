"""Cells sorted into lines, one for each attack, source and target: what tables, figures and words are drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whorl.evaluation import Pose, SuccessRate
from whorl.runs.networks import UNDEFENDED
from whorl.runs.results import Cell, mean_rate

AFFINE_INVARIANT = "ai-"


class View(NamedTuple):
    """Where an attack was crafted, and who looks at it."""

    source: str
    """"" if nobody recorded it."""
    target: str
    """With its defence, as in ``resnet18+jpeg``."""
    white_box: bool
    """Whether the target's network is the source, or one of an ensemble's members."""

    def __str__(self) -> str:
        return f"{self.source} → {self.target}" if self.source else self.target


class Line(NamedTuple):
    """One attack in one view."""

    attack: str
    """Its name; with the bound too, where one attack has several."""
    view: View


@dataclass(frozen=True, kw_only=True)
class Overall:
    """One line over all its poses.

    Attributes:
        mean: success rate, each pose counting the same; NaN if no clean image was recognised in any.
        interval: Wilson's, 95%, of the pooled counts; as wide as the images alone make it, however many the poses.
        accuracy: share of all images that are still recognised, each pose counting the same; NaN without images.
        clean_accuracy: the same of the clean images.
        poses: how many there are.
        n: images in a pose, at most.
    """

    mean: float
    interval: tuple[float, float]
    accuracy: float
    clean_accuracy: float
    poses: int
    n: int


def target_name(cell: Cell) -> str:
    """The target with its defence."""
    return cell.target if cell.defense == UNDEFENDED else f"{cell.target}+{cell.defense}"


def view_of(cell: Cell) -> View:
    """Where a cell was crafted and who looked at it."""
    # An ensemble is called by its members, joined by "+".
    return View(cell.source, target_name(cell), cell.target in (cell.source, *cell.source.split("+")))


def lines(cells: Iterable[Cell]) -> dict[Line, tuple[Cell, ...]]:
    """Sort cells by attack and view, in the order in which they come."""
    every = tuple(cells)
    bounds: dict[str, set[float | None]] = {}
    for cell in every:
        bounds.setdefault(cell.attack, set()).add(cell.eps)
    found: dict[Line, list[Cell]] = {}
    for cell in every:
        name = cell.attack if len(bounds[cell.attack]) == 1 else f"{cell.attack}, ε = {bound(cell.eps)}"
        found.setdefault(Line(name, view_of(cell)), []).append(cell)
    return {line: tuple(own) for line, own in found.items()}


def bound(eps: float | None) -> str:
    """Write a bound as people do.

    >>> bound(16 / 255), bound(0.1), bound(None)
    ('16/255', '0.1', 'unbounded')
    """
    if eps is None:
        return "unbounded"
    levels = round(eps * 255)
    return f"{levels}/255" if levels and math.isclose(levels / 255, eps, rel_tol=1e-9) else f"{eps:g}"


def overall(cells: Sequence[Cell], *, repeats: int = 1) -> Overall:
    """Sum up one line; ``repeats`` is how often each image was counted within a cell."""
    with_rate = sum(1 for cell in cells if cell.counts.n_clean_correct)
    pooled = sum((cell.counts for cell in cells), SuccessRate())
    return Overall(
        mean=mean_rate(cells),
        interval=pooled.interval(poses=repeats * max(1, with_rate)),
        accuracy=_mean(cell.counts.accuracy for cell in cells),
        clean_accuracy=_mean(cell.counts.clean_accuracy for cell in cells),
        poses=len(cells),
        n=max((cell.counts.n for cell in cells), default=0),
    )


def attacks(found: Iterable[Line]) -> list[str]:
    """Every attack once, in order."""
    return list(dict.fromkeys(line.attack for line in found))


def views(found: Iterable[Line]) -> list[View]:
    """Every view once, in order."""
    return list(dict.fromkeys(line.view for line in found))


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each attack beside its affine-invariant version, where both are there.

    >>> pairs(["pgd", "ai-pgd", "dim", "ti-dim"])
    [('pgd', 'ai-pgd')]
    """
    return [(name, AFFINE_INVARIANT + name) for name in names if AFFINE_INVARIANT + name in names]


def angle_scale_grid(poses: Iterable[Pose], *, least: int = 3) -> tuple[list[float], list[float]] | None:
    """Find the angles and scales that form a grid without a shift.

    Args:
        poses: any.
        least: how many angles and scales make a grid.

    Returns:
        Angles and scales, ascending, or None. An angle or a scale that stands alone is no part of the grid.

    >>> grid = [Pose(angle=a, scale=s) for a in (-30, 0, 30) for s in (0.5, 1, 1.5)]
    >>> angle_scale_grid([*grid, Pose(angle=7)])
    ([-30, 0, 30], [0.5, 1, 1.5])
    >>> angle_scale_grid(grid[:5])
    """
    there = {(pose.angle, pose.scale) for pose in poses if not any(pose.shift)}
    while there:
        by_angle = {a: sum(1 for angle, _ in there if angle == a) for a, _ in there}
        by_scale = {s: sum(1 for _, scale in there if scale == s) for _, s in there}
        kept = {(a, s) for a, s in there if by_angle[a] >= least and by_scale[s] >= least}
        if kept == there:
            return sorted(by_angle), sorted(by_scale)
        there = kept
    return None


def _mean(values: Iterable[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
