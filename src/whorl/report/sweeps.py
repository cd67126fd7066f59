"""Lines through a set of poses: what a profile is drawn along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whorl.evaluation import Pose

# The paper's profiles; the nearest that were measured are drawn.
_FIXED_SCALES, _FIXED_ANGLES = (0.6, 0.8), (-30.0, -15.0)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Poses of which one number varies.

    Attributes:
        axis: which one; a shift is the same in both directions.
        values: ascending.
        poses: one for each value.
        fixed: what all have in common, in words.
    """

    axis: Literal["angle", "scale", "shift"]
    values: tuple[float, ...]
    poses: tuple[Pose, ...]
    fixed: str


def sweeps(poses: Iterable[Pose]) -> list[Sweep]:
    """Find the lines through the poses that are worth a profile: two by angle, two by scale, two by shift.

    On a grid these are the paper's four, or the nearest to them. Lines without a shift go first.

    >>> from whorl.evaluation import PAPER_POSES
    >>> [(sweep.axis, sweep.values, sweep.fixed) for sweep in sweeps(PAPER_POSES)][:2]
    [('angle', (-30, -15, 0, 15, 30), 'scale 1'), ('scale', (0.5, 0.7, 1.0, 1.3, 1.5), 'angle 30°, shift (20, 20)')]
    """
    every = list(dict.fromkeys(poses))
    by_angle = _grouped(every, lambda p: (p.scale, p.shift))
    by_scale = _grouped(every, lambda p: (p.angle, p.shift))
    by_shift = _grouped([p for p in every if p.shift[0] == p.shift[1]], lambda p: (p.angle, p.scale))
    found = []
    for group in _nearest([g for g in by_angle if len(g) >= 3], _FIXED_SCALES, lambda p: p.scale):
        ordered = sorted(group, key=lambda p: p.angle)
        fixed = f"scale {group[0].scale:g}{_shift_words(group[0])}"
        found.append(Sweep(axis="angle", values=tuple(p.angle for p in ordered), poses=tuple(ordered), fixed=fixed))
    for group in _nearest([g for g in by_scale if len(g) >= 3], _FIXED_ANGLES, lambda p: p.angle):
        ordered = sorted(group, key=lambda p: p.scale)
        fixed = f"angle {group[0].angle:g}°{_shift_words(group[0])}"
        found.append(Sweep(axis="scale", values=tuple(p.scale for p in ordered), poses=tuple(ordered), fixed=fixed))
    # A pose that merely happens to have an unmoved twin is no sweep.
    moved = [group for group in by_shift if sum(any(pose.shift) for pose in group) >= 2]
    for group in sorted(moved, key=len, reverse=True)[:2]:
        ordered = sorted(group, key=lambda p: p.shift)
        fixed = f"angle {group[0].angle:g}°, scale {group[0].scale:g}"
        found.append(Sweep(axis="shift", values=tuple(p.shift[0] for p in ordered), poses=tuple(ordered), fixed=fixed))
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


def _shift_words(pose: Pose) -> str:
    return ", shift ({:g}, {:g})".format(*pose.shift) if any(pose.shift) else ""
