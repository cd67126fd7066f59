"""From captures to counts: recognition and success, overall and by how images lay in the photographs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from whorl.evaluation import Comparison, Pose, SuccessRate, compare
from whorl.physical.captures import Capture, Scored, View
from whorl.physical.sheet import CLEAN, Print
from whorl.runs.networks import UNDEFENDED
from whorl.runs.results import Cell

ANGLE, SCALE, TILT = 5.0, 0.1, 10.0
"""Steps in which rotation (degrees), scale and tilt (degrees) are grouped."""

BY: dict[str, Callable[[Capture], float]] = {
    "rotation": lambda capture: _turned(capture.seen.pose.angle),
    "scale": lambda capture: _to_step(capture.seen.pose.scale, SCALE),
    "tilt": lambda capture: _to_step(capture.seen.tilt, TILT),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One version of the images, seen in one way by one network.

    Attributes:
        view: how it was cut out.
        item: one of its prints, which says how all were attacked.
        target: the network.
        counts: of all captures. A capture whose clean version was not photographed counts towards accuracy alone.
        across: how many were compared with a clean version from another photograph, for want of one in the same.
        repeats: how often each print was captured, rounded up. One print in three photographs is not three prints.
        by: the same counts by rotation, scale and tilt, each rounded to a step.
    """

    view: View
    item: Print
    target: str
    counts: SuccessRate
    across: int
    repeats: int
    by: dict[str, dict[float, SuccessRate]]

    @property
    def version(self) -> str:
        """Attack and source."""
        return self.item.version


def summarise(scored: Scored) -> list[Line]:
    """Count every version under every view and target; clean ones first."""
    partners = _partners(scored.captures)
    return [
        _line(view, target, captures, partners)
        for view in scored.settings.views
        for captures in by_version(scored.captures).values()
        for target in scored.targets
    ]


def pooled(lines: Iterable[Line], *, clean: bool) -> SuccessRate:
    """Add up the clean versions, or all attacked ones."""
    return sum((line.counts for line in lines if (line.version == CLEAN) == clean), SuccessRate())


def cells(scored: Scored, view: View, defenses: dict[str, tuple[str, str]] | None = None) -> list[Cell]:
    """Give the rows of ``results.csv``: one for each version, target, and rounded rotation and scale.

    Args:
        scored: the captures.
        view: which of the ways of cutting out.
        defenses: target's name to its model and defence; None where names are models.
    """
    partners = _partners(scored.captures)
    rows: list[Cell] = []
    for captures in by_version(scored.captures).values():
        first = captures[0].item
        spent = _spent(captures)
        for target in scored.targets:
            model, defense = (defenses or {}).get(target, (target, UNDEFENDED))
            poses: dict[Pose, list[Capture]] = {}
            for capture in captures:
                poses.setdefault(Pose(angle=BY["rotation"](capture), scale=BY["scale"](capture)), []).append(capture)
            for pose in sorted(poses, key=lambda pose: (pose.angle, pose.scale)):
                row = Cell(
                    attack=first.attack,
                    source=first.source,
                    target=model,
                    defense=defense,
                    pose=pose,
                    eps=first.eps,
                    counts=_count(view, target, poses[pose], partners),
                    recorded=bool(spent),
                    **spent,
                )
                rows.append(row)
    return rows


def by_version(captures: Sequence[Capture]) -> dict[str, list[Capture]]:
    """Sort captures by attack and source, clean ones first."""
    versions: dict[str, list[Capture]] = {}
    for capture in sorted(captures, key=lambda capture: capture.item.attack != CLEAN):
        versions.setdefault(capture.item.version, []).append(capture)
    return versions


def compared(scored: Scored, view: View, first: str, second: str, target: str) -> Comparison:
    """Compare two versions on the photographs that show both and the clean one: McNemar's test, exact.

    An image that was photographed several times has one vote; see ``whorl.evaluation.compare``.
    """
    seen: dict[str, dict[tuple[str, tuple[str, str]], bool]] = {CLEAN: {}, first: {}, second: {}}
    for capture in scored.captures:
        if capture.item.version in seen:
            key = capture.photo, (capture.sheet, capture.item.id)
            seen[capture.item.version][key] = capture.right(view, target)
    shared = [key for key in seen[CLEAN] if key in seen[first] and key in seen[second]]
    rows = {photo: row for row, photo in enumerate(dict.fromkeys(photo for photo, _ in shared))}
    columns = {item: column for column, item in enumerate(dict.fromkeys(item for _, item in shared))}

    def right(version: str) -> torch.Tensor:
        known = torch.zeros(len(rows), len(columns), dtype=torch.bool)
        for photo, item in shared:
            known[rows[photo], columns[item]] = seen[version][photo, item]
        return known

    return compare(right(CLEAN), right(first), right(second))


def _line(view: View, target: str, captures: Sequence[Capture], partners: dict[int, Capture | None]) -> Line:
    groups: dict[str, dict[float, list[Capture]]] = {name: {} for name in BY}
    for name, step in BY.items():
        for capture in captures:
            groups[name].setdefault(step(capture), []).append(capture)
    across = [capture for capture in captures if (other := partners[id(capture)]) and other.photo != capture.photo]
    prints = {(capture.sheet, capture.item.id) for capture in captures}
    return Line(
        view=view,
        item=captures[0].item,
        target=target,
        counts=_count(view, target, captures, partners),
        across=len(across),
        repeats=math.ceil(len(captures) / len(prints)),
        by={
            name: {step: _count(view, target, group[step], partners) for step in sorted(group)}
            for name, group in groups.items()
        },
    )


def _count(view: View, target: str, captures: Sequence[Capture], partners: dict[int, Capture | None]) -> SuccessRate:
    total = SuccessRate()
    for capture in captures:
        partner, still = partners[id(capture)], capture.right(view, target)
        right = partner is not None and partner.right(view, target)
        total += SuccessRate(1, int(right), int(right and not still), int(still))
    return total


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
    a, b = one.seen, other.seen
    turned = abs((a.pose.angle - b.pose.angle + 180) % 360 - 180)
    return (
        one.photo != other.photo,
        turned / ANGLE + abs(a.pose.scale - b.pose.scale) / SCALE + abs(a.tilt - b.tilt) / TILT,
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


def _turned(angle: float) -> float:
    """Round a rotation; half a turn is the same to the left and to the right."""
    stepped = _to_step(angle, ANGLE)
    return 180.0 if stepped == -180 else stepped


def _to_step(value: float, step: float) -> float:
    # Rounded twice: 3 steps of 0.1 are 0.30000000000000004. Adding 0 turns -0 into 0.
    return round(round(value / step) * step, 6) + 0.0
