"""Cells sorted into series, one for each attack, source and target, and the sweeps of poses through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from whorl.evaluation import Over, Pose, Rate, SuccessRate, headline, rate
from whorl.evaluation.image_counts import UNKNOWN
from whorl.geometry.pose import FURTHER_NUMBERS, NUMBERS
from whorl.runs.networks import UNDEFENDED, white_box_on
from whorl.runs.results import Cell, joined_images, mean_rate

AFFINE_INVARIANT = "ai-"
# The paper's profiles; the nearest that were measured are drawn.
_FIXED_SCALES, _FIXED_ANGLES = (0.6, 0.8), (-30.0, -15.0)


class Transfer(NamedTuple):
    """Where an attack was crafted, and which network it is evaluated on."""

    source: str
    """"" if nobody recorded it."""
    target: str
    """With its defence, as in ``resnet18+jpeg``."""
    white_box: bool
    """Whether the target's network is the source, or one of an ensemble's members."""

    def __str__(self) -> str:
        return f"{self.source} → {self.target}" if self.source else self.target


class Series(NamedTuple):
    """One attack in one transfer."""

    attack: str
    """Its name; with the bound too, where one attack has several."""
    transfer: Transfer


@dataclass(frozen=True, kw_only=True)
class Overall:
    """One series over all its poses.

    Attributes:
        rate: success rate, pooled over the poses that have enough images; see ``whorl.evaluation.headline``. NaN if no
            clean image was recognised in any. Without counts image by image its interval is NaN.
        mean: the unweighted mean over all poses, as in the paper's tables, likewise.
        worst_case: of the images recognised in some pose, those that some pose fools; None without counts by image.
        accuracy: share of all images that are still recognised, each pose counting the same; NaN without images.
        clean_accuracy: the same of the clean images.
    """

    rate: Rate
    mean: Rate
    worst_case: Rate | None
    accuracy: float
    clean_accuracy: float


def target_name(cell: Cell) -> str:
    """The target with its defence."""
    return cell.target if cell.defense == UNDEFENDED else f"{cell.target}+{cell.defense}"


def transfer_of(cell: Cell) -> Transfer:
    """Where a cell was crafted and evaluated."""
    return Transfer(cell.source, target_name(cell), white_box_on(cell.source, cell.target))


def series(cells: Iterable[Cell]) -> dict[Series, tuple[Cell, ...]]:
    """Sort cells by attack and transfer, in the order in which they come."""
    every = tuple(cells)
    bounds: dict[str, set[float | None]] = {}
    for cell in every:
        bounds.setdefault(cell.attack, set()).add(cell.eps)
    found: dict[Series, list[Cell]] = {}
    for cell in every:
        name = cell.attack if len(bounds[cell.attack]) == 1 else f"{cell.attack}, ε = {bound(cell.eps)}"
        found.setdefault(Series(name, transfer_of(cell)), []).append(cell)
    return {key: tuple(own) for key, own in found.items()}


def bound(eps: float | None) -> str:
    """Write a bound as people do.

    >>> bound(16 / 255), bound(0.5 / 255), bound(0.1), bound(None)
    ('16/255', '0.5/255', '0.1', 'unbounded')
    """
    if eps is None:
        return "unbounded"
    plain, levels = f"{eps:g}", round(eps * 255, 1)
    if float(plain) == eps or not math.isclose(levels / 255, eps, rel_tol=1e-9):
        return plain
    return f"{levels:g}/255"


def overall(cells: Sequence[Cell]) -> Overall:
    """Sum up one series."""
    images = joined_images(cells)
    return Overall(
        rate=headline_rate(cells),
        mean=_from_counts(cells, "mean") if images is None else rate(images, "mean"),
        worst_case=None if images is None else rate(images.any_pose()),
        accuracy=mean(cell.counts.accuracy for cell in cells),
        clean_accuracy=mean(cell.counts.clean_accuracy for cell in cells),
    )


def headline_rate(cells: Sequence[Cell]) -> Rate:
    """The pooled rate of some cells that have enough images, with its interval if they have counts image by image."""
    images = joined_images(cells)
    if images is not None:
        return headline(images)
    kept = [cell for cell in cells if not cell.counts.few]
    found = _from_counts(kept or cells, "pooled")
    return replace(found, few=not kept, left_out=len(cells) - len(kept) if kept else 0)


def _from_counts(cells: Sequence[Cell], over: Over) -> Rate:
    """A rate without its images: of one cell the interval is Wilson's, of several there is none."""
    pooled = sum((cell.counts for cell in cells), SuccessRate())
    return Rate(
        value=pooled.rate if over == "pooled" else mean_rate(cells),
        interval=cells[0].counts.interval() if len(cells) == 1 else UNKNOWN,
        images=max((cell.counts.n_clean_correct for cell in cells), default=0),
        n=pooled.n_clean_correct,
        successes=pooled.n_success,
        poses=sum(1 for cell in cells if cell.counts.n_clean_correct),
        over=over,
        method="Wilson",
        few=all(cell.counts.few for cell in cells),
    )


def attacks(found: Iterable[Series]) -> list[str]:
    """Every attack once, in order."""
    return list(dict.fromkeys(key.attack for key in found))


def transfers(found: Iterable[Series]) -> list[Transfer]:
    """Every transfer once, in order."""
    return list(dict.fromkeys(key.transfer for key in found))


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each attack beside its affine-invariant version, where both are there.

    >>> pairs(["pgd", "ai-pgd", "dim", "ti-dim"])
    [('pgd', 'ai-pgd')]
    """
    return [(name, AFFINE_INVARIANT + name) for name in names if AFFINE_INVARIANT + name in names]


def costs(found: Mapping[Series, Sequence[Cell]]) -> list[tuple[str, float, Rate]]:
    """What each attack costs and brings: (name, input gradients an image, success rate).

    The rate is pooled over poses and over targets that the attack was not crafted on, or all where there are no others.
    Attacks without gradients, or whose cost nobody recorded, are left out.
    """
    unseen = {key for key in found if not key.transfer.white_box} or set(found)
    rows = []
    for name in attacks(found):
        own = [cells for key, cells in found.items() if key.attack == name and key in unseen]
        pooled = headline_rate([cell for cells in own for cell in cells])
        spent = mean(cell.grad_evals / cell.counts.n for cells in own for cell in cells if cell.counts.n)
        if spent > 0 and not math.isnan(pooled.value):
            rows.append((name, spent, pooled))
    return rows


def angle_scale_grid(poses: Iterable[Pose]) -> tuple[list[float], list[float]] | None:
    """Find the angles and scales, three of each at least, that form a grid without a shift.

    Returns:
        Angles and scales, ascending, or None. An angle or a scale that stands alone is no part of the grid.

    >>> grid = [Pose(angle=a, scale=s) for a in (-30, 0, 30) for s in (0.5, 1, 1.5)]
    >>> angle_scale_grid([*grid, Pose(angle=7)])
    ([-30, 0, 30], [0.5, 1, 1.5])
    >>> angle_scale_grid(grid[:5])
    """
    there = {(pose.angle, pose.scale) for pose in poses if of_angle_and_scale(pose)}
    while there:
        by_angle = {a: sum(1 for angle, _ in there if angle == a) for a, _ in there}
        by_scale = {s: sum(1 for _, scale in there if scale == s) for _, s in there}
        kept = {(a, s) for a, s in there if min(by_angle[a], by_scale[s]) >= 3}
        if kept == there:
            return sorted(by_angle), sorted(by_scale)
        there = kept
    return None


def of_angle_and_scale(pose: Pose) -> bool:
    """Whether a pose has nothing but an angle and a scale."""
    return pose.changed.keys() <= {"angle", "scale"}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Poses of which one number varies.

    Attributes:
        axis: which one, in words; a shift is the same in both directions.
        unit: of its values, as in ``"°"``; "" without one.
        values: ascending.
        poses: one for each value.
        fixed: what all have in common, in words.
    """

    axis: str
    unit: str = ""
    values: tuple[float, ...]
    poses: tuple[Pose, ...]
    fixed: str


def sweeps(poses: Iterable[Pose]) -> list[Sweep]:
    """Find the lines through the poses that are worth a profile: two by angle, two by scale, two by shift.

    On a grid these are the paper's four, or the nearest to them. Lines without a shift go first. Then one line for
    each further number of a pose that takes three values or more while all others stay.

    >>> from whorl.evaluation import PAPER_POSES
    >>> [(sweep.axis, sweep.values, sweep.fixed) for sweep in sweeps(PAPER_POSES)][:2]
    [('angle', (-30, -15, 0, 15, 30), 'scale 1'), ('scale', (0.5, 0.7, 1.0, 1.3, 1.5), 'angle 30°, shift (20, 20)')]
    """
    listed = list(dict.fromkeys(poses))
    return [*_paper_sweeps(_plainest(listed)), *_further_sweeps(listed)]


def _plainest(listed: Sequence[Pose]) -> list[Pose]:
    """The poses without further numbers; if there are none, those of the most frequent ones."""
    groups = _grouped(listed, _further)
    return max(groups, key=lambda group: (_further(group[0]) == _further(Pose()), len(group)), default=[])


def _further(pose: Pose) -> tuple[float, ...]:
    return pose.numbers[-len(FURTHER_NUMBERS) :]


def _paper_sweeps(every: Sequence[Pose]) -> list[Sweep]:
    by_angle = _grouped(every, lambda p: (p.scale, p.shift))
    by_scale = _grouped(every, lambda p: (p.angle, p.shift))
    by_shift = _grouped([p for p in every if p.shift[0] == p.shift[1]], lambda p: (p.angle, p.scale))
    found = []
    for group in _nearest([g for g in by_angle if len(g) >= 3], _FIXED_SCALES, lambda p: p.scale):
        ordered = sorted(group, key=lambda p: p.angle)
        fixed = f"scale {group[0].scale:g}{_shift_words(group[0])}{_further_words(group[0])}"
        values = tuple(p.angle for p in ordered)
        found.append(Sweep(axis="angle", unit="°", values=values, poses=tuple(ordered), fixed=fixed))
    for group in _nearest([g for g in by_scale if len(g) >= 3], _FIXED_ANGLES, lambda p: p.angle):
        ordered = sorted(group, key=lambda p: p.scale)
        fixed = f"angle {group[0].angle:g}°{_shift_words(group[0])}{_further_words(group[0])}"
        found.append(Sweep(axis="scale", values=tuple(p.scale for p in ordered), poses=tuple(ordered), fixed=fixed))
    # A pose that merely happens to have a twin without a shift is no sweep.
    shifted = [group for group in by_shift if sum(any(pose.shift) for pose in group) >= 2]
    for group in sorted(shifted, key=len, reverse=True)[:2]:
        ordered = sorted(group, key=lambda p: p.shift)
        fixed = f"angle {group[0].angle:g}°, scale {group[0].scale:g}{_further_words(group[0])}"
        values = tuple(p.shift[0] for p in ordered)
        unit = "right and down, pixels of 299"
        found.append(Sweep(axis="shift", unit=unit, values=values, poses=tuple(ordered), fixed=fixed))
    return found


def _all_but(place: int, pose: Pose) -> tuple[float, ...]:
    return pose.numbers[:place] + pose.numbers[place + 1 :]


def _further_sweeps(every: Sequence[Pose]) -> list[Sweep]:
    found = []
    first = len(NUMBERS) - len(FURTHER_NUMBERS)
    for place, number in enumerate(FURTHER_NUMBERS, start=first):
        groups = _grouped(every, partial(_all_but, place))
        # The longest line, and of those the one whose other numbers change least.
        group = max(groups, key=lambda g: (len(g), -len(g[0].changed.keys() - {number.name})), default=[])
        if len(group) < 3:
            continue
        ordered = sorted(group, key=lambda p: p.numbers[place])
        rest = list(group[0].numbers)
        rest[place] = number.neutral
        others = Pose.of(rest)
        axis, _, unit = number.words.partition(" (")
        found.append(
            Sweep(
                axis=axis,
                unit=unit.removesuffix(")"),
                values=tuple(p.numbers[place] for p in ordered),
                poses=tuple(ordered),
                fixed=str(others) if others.changed else "the rest as it is",
            )
        )
    return found


def _grouped(every: Sequence[Pose], key: Callable[[Pose], tuple[Any, ...]]) -> list[list[Pose]]:
    groups: dict[tuple[Any, ...], list[Pose]] = {}
    for pose in every:
        groups.setdefault(key(pose), []).append(pose)
    return list(groups.values())


def _nearest(groups: Sequence[list[Pose]], wanted: Sequence[float], of: Callable[[Pose], float]) -> list[list[Pose]]:
    """For each wanted number the nearest group that is left, in ascending order."""
    left, chosen = list(groups), []
    for value in wanted:
        if left:
            best = min(left, key=lambda group: (any(group[0].shift), abs(of(group[0]) - value), of(group[0])))
            chosen.append(best)
            # A second line with another shift would answer another question.
            left = [group for group in left if group is not best and group[0].shift == best[0].shift]
    return sorted(chosen, key=lambda group: of(group[0]))


def _further_words(pose: Pose) -> str:
    four = Pose().numbers[: -len(FURTHER_NUMBERS)]
    alone = Pose.of((*four, *_further(pose)))
    return f", {str(alone).removeprefix('0° ')}" if alone.changed else ""


def _shift_words(pose: Pose) -> str:
    return ", shift ({:g}, {:g})".format(*pose.shift) if any(pose.shift) else ""


def mean(values: Iterable[float]) -> float:
    """The mean of what is defined; NaN if nothing is."""
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
