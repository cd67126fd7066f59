"""From captures to counts: recognition and success, overall and by how images lay in the photographs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from whorl.evaluation import Comparison, ImageCounts, Pose, SuccessRate, compare
from whorl.physical.captures import Capture, Scored, View
from whorl.physical.sheet import Print
from whorl.report.gallery import CLEAN
from whorl.runs.networks import UNDEFENDED, Target
from whorl.runs.results import Cell

ANGLE, SCALE, TILT = 5.0, 0.1, 10.0
"""Steps in which rotation (degrees), scale and tilt (degrees) are grouped."""

BY: dict[str, Callable[[Capture], float]] = {
    "rotation": lambda capture: _rotation_step(capture.appearance.pose.angle),
    "scale": lambda capture: _to_step(capture.appearance.pose.scale, SCALE),
    "tilt": lambda capture: _to_step(capture.appearance.tilt, TILT),
}


@dataclass(frozen=True, kw_only=True)
class VersionSummary:
    """One version of the images, seen in one way by one network.

    Attributes:
        view: how it was cut out.
        item: one of its prints, which says how all were attacked.
        target: the network.
        counts: of all captures. A capture whose clean version was not photographed counts towards accuracy alone.
        images: the same print by print, all prints of the sheet in order: one print in three photographs is one print.
        across: how many were compared with a clean version from another photograph, for want of one in the same.
        repeats: how often each print was captured, rounded up.
        by: both counts by rotation, scale and tilt, each rounded to a step.
    """

    view: View
    item: Print
    target: str
    counts: SuccessRate
    images: ImageCounts
    across: int
    repeats: int
    by: dict[str, dict[float, tuple[SuccessRate, ImageCounts]]]

    @property
    def version(self) -> str:
        """Attack and source."""
        return self.item.version


def summarise(scored: Scored) -> list[VersionSummary]:
    """Count every version under every view and target; clean ones first."""
    partners, prints = _partners(scored.captures), _prints(scored)
    return [
        _summary(view, target, captures, partners, prints)
        for view in scored.settings.views
        for captures in by_version(scored.captures).values()
        for target in scored.targets
    ]


def pooled(lines: Iterable[VersionSummary], *, clean: bool) -> SuccessRate:
    """Add up the clean versions, or all attacked ones."""
    return sum((line.counts for line in lines if (line.version == CLEAN) == clean), SuccessRate())


def cells(scored: Scored, view: View, targets: Sequence[Target] = ()) -> list[Cell]:
    """Give the rows of ``results.csv``: one for each version, target, and rounded rotation and scale.

    Args:
        scored: the captures.
        view: which of the ways of cutting out.
        targets: the networks; without them each is taken for a model without a defence.
    """
    partners, known = _partners(scored.captures), {target.name: target for target in targets}
    prints = _prints(scored)
    rows: list[Cell] = []
    for captures in by_version(scored.captures).values():
        poses: dict[Pose, list[Capture]] = {}
        for capture in captures:
            poses.setdefault(Pose(angle=BY["rotation"](capture), scale=BY["scale"](capture)), []).append(capture)
        spent = _spent(captures)
        for target in scored.targets:
            for pose in sorted(poses, key=lambda pose: (pose.angle, pose.scale)):
                counts, images = _count(view, target, poses[pose], partners, prints)
                of = known.get(target, target)
                rows.append(replace(cell_of(captures[0].item, of, counts, pose, spent), images=images))
    return rows


def cell_of(
    item: Print,
    target: Target | str,
    counts: SuccessRate,
    pose: Pose | None = None,
    spent: Mapping[str, float] | None = None,
) -> Cell:
    """Put counts of one version on one network into a cell, as tables and reports have it.

    Args:
        item: one of the version's prints.
        target: the network, or its name if it has no defence.
        counts: of its captures.
        pose: in which they were seen; none in particular by default.
        spent: gradients and seconds that crafting took; empty where that is not known.
    """
    known = spent or {}
    model, defense = (target, UNDEFENDED) if isinstance(target, str) else (target.model, target.defense)
    return Cell(
        attack=item.attack,
        source=item.source,
        target=model,
        defense=defense,
        pose=pose or Pose(),
        eps=item.eps,
        counts=counts,
        recorded=bool(known),
        grad_evals=int(known.get("grad_evals", 0)),
        seconds=known.get("seconds", 0.0),
    )


def by_version(captures: Sequence[Capture]) -> dict[str, list[Capture]]:
    """Sort captures by attack and source, clean ones first."""
    versions: dict[str, list[Capture]] = {}
    for capture in sorted(captures, key=lambda capture: capture.item.attack != CLEAN):
        versions.setdefault(capture.item.version, []).append(capture)
    return versions


def compared(scored: Scored, view: View, first: str, second: str, target: str) -> Comparison:
    """Compare two versions on the photographs that show both and the clean one, print by print.

    The rates are pooled over the photographs; see ``whorl.evaluation.compare``.
    """
    known: dict[str, dict[tuple[str, tuple[str, str]], bool]] = {CLEAN: {}, first: {}, second: {}}
    for capture in scored.captures:
        if capture.item.version in known:
            key = capture.photo, (capture.sheet, capture.item.id)
            known[capture.item.version][key] = capture.correct(view, target)
    shared = [key for key in known[CLEAN] if key in known[first] and key in known[second]]
    rows = {photo: row for row, photo in enumerate(dict.fromkeys(photo for photo, _ in shared))}
    columns = {item: column for column, item in enumerate(dict.fromkeys(item for _, item in shared))}

    def right(version: str) -> torch.Tensor:
        correct = torch.zeros(len(rows), len(columns), dtype=torch.bool)
        for photo, item in shared:
            correct[rows[photo], columns[item]] = known[version][photo, item]
        return correct

    one, other = (ImageCounts.of(right(CLEAN), right(version)) for version in (first, second))
    return compare(one, other)


def _summary(
    view: View,
    target: str,
    captures: Sequence[Capture],
    partners: dict[int, Capture | None],
    places: Mapping[tuple[str, str], int],
) -> VersionSummary:
    groups: dict[str, dict[float, list[Capture]]] = {name: {} for name in BY}
    for name, step in BY.items():
        for capture in captures:
            groups[name].setdefault(step(capture), []).append(capture)
    across = [capture for capture in captures if (other := partners[id(capture)]) and other.photo != capture.photo]
    prints = {(capture.sheet, capture.item.id) for capture in captures}
    counts, images = _count(view, target, captures, partners, places)
    return VersionSummary(
        view=view,
        item=captures[0].item,
        target=target,
        counts=counts,
        images=images,
        across=len(across),
        repeats=math.ceil(len(captures) / len(prints)),
        by={
            name: {step: _count(view, target, group[step], partners, places) for step in sorted(group)}
            for name, group in groups.items()
        },
    )


def _prints(scored: Scored) -> dict[tuple[str, str], int]:
    """A place for each image that was printed."""
    return {key: place for place, key in enumerate(dict.fromkeys((one.sheet, one.item.id) for one in scored.captures))}


def _count(
    view: View,
    target: str,
    captures: Sequence[Capture],
    partners: dict[int, Capture | None],
    places: Mapping[tuple[str, str], int],
) -> tuple[SuccessRate, ImageCounts]:
    """Count captures, all together and print by print."""
    eligible, success = np.zeros((1, len(places))), np.zeros((1, len(places)))
    clean, right = [], []
    for capture in captures:
        partner, at = partners[id(capture)], places[capture.sheet, capture.item.id]
        clean.append(partner is not None and partner.correct(view, target))
        right.append(capture.correct(view, target))
        eligible[0, at] += clean[-1]
        success[0, at] += clean[-1] and not right[-1]
    return SuccessRate.counted(torch.tensor(clean), torch.tensor(right)), ImageCounts(eligible, success)


def _partners(captures: Sequence[Capture]) -> dict[int, Capture | None]:
    """Find the clean version that each capture is compared with: of the same photograph, or else the likest pose."""
    clean: dict[tuple[str, str], list[Capture]] = {}
    for capture in captures:
        if capture.item.attack == CLEAN:
            clean.setdefault((capture.sheet, capture.item.id), []).append(capture)

    def partner(capture: Capture) -> Capture | None:
        if capture.item.attack == CLEAN:
            return capture
        others = clean.get((capture.sheet, capture.item.id), [])
        return min(others, key=lambda other: _unlike(capture, other), default=None)

    return {id(capture): partner(capture) for capture in captures}


def _unlike(one: Capture, other: Capture) -> tuple[bool, float]:
    a, b = one.appearance, other.appearance
    rotated = abs((a.pose.angle - b.pose.angle + 180) % 360 - 180)
    return (
        one.photo != other.photo,
        rotated / ANGLE + abs(a.pose.scale - b.pose.scale) / SCALE + abs(a.tilt - b.tilt) / TILT,
    )


def _spent(captures: Sequence[Capture]) -> dict[str, float]:
    """What crafting the captured images took, each counted once; nothing if it is not known of all."""
    items: dict[str, Print] = {capture.item.id: capture.item for capture in captures}
    if any(item.grad_evals is None or item.seconds is None for item in items.values()):
        return {}
    return {
        "grad_evals": sum(item.grad_evals or 0 for item in items.values()),
        "seconds": sum(item.seconds or 0.0 for item in items.values()),
    }


def _rotation_step(angle: float) -> float:
    """Round a rotation; 180 degrees are the same to the left and to the right."""
    stepped = _to_step(angle, ANGLE)
    return 180.0 if stepped == -180 else stepped


def _to_step(value: float, step: float) -> float:
    # Rounded twice: 3 steps of 0.1 are 0.30000000000000004. Adding 0 turns -0 into 0.
    return round(round(value / step) * step, 6) + 0.0
