"""The front of a report for those who research attacks: one row an attack, and why a part of the report is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whorl.evaluation import Pose
from whorl.report.content import Content, Drawing
from whorl.report.series import Series, attacks, costs, headline_rate, of_angle_and_scale, series
from whorl.report.tables import UNDEFINED, TableEntry, best_marked, rate_entry
from whorl.runs.results import Cell


@dataclass(frozen=True, kw_only=True)
class Front:
    """What each attack costs and brings, over all networks together.

    Attributes:
        columns: headings behind the attack's name.
        rows: name, and an entry for each column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableEntry, ...]], ...]


def front(cells: Sequence[Cell]) -> Front | None:
    """Sum every attack up in a row; None where there is nothing to set side by side.

    A column is there if some attack has a figure for it: input gradients an image; success on networks that it was not
    crafted on, over all poses and on the image as it is; success on those that it was crafted on.

    >>> front(()) is None
    True
    """
    found = series(cells)
    spent = {name: gradients for name, gradients, _ in costs(found)}
    kinds: dict[str, Callable[[Series, Cell], bool]] = {
        "transfer, all poses": lambda key, _: not key.transfer.white_box,
        "transfer, image as it is": lambda key, cell: not key.transfer.white_box and cell.pose == Pose(),
        "white-box, all poses": lambda key, _: key.transfer.white_box,
    }
    known = [key.transfer.source for key in found]
    if not all(known):
        kinds = {"success rate": lambda _, __: True}
    names = attacks(found)
    if len(names) < 2:
        return None
    chosen = {kind: {name: _of(found, name, fits) for name in names} for kind, fits in kinds.items()}
    columns = {
        kind: best_marked([_entry(own) for own in by_name.values()])
        for kind, by_name in chosen.items()
        if any(by_name.values())
    }
    if spent:
        given = [TableEntry(text=f"{spent[name]:,.4g}" if name in spent else UNDEFINED, value=None) for name in names]
        columns = {"gradients": given, **columns}
    rows = tuple((name, tuple(column[i] for column in columns.values())) for i, name in enumerate(names))
    return Front(columns=tuple(columns), rows=rows)


def _of(found: Mapping[Series, Sequence[Cell]], name: str, fits: Callable[[Series, Cell], bool]) -> list[Cell]:
    return [cell for key, cells in found.items() if key.attack == name for cell in cells if fits(key, cell)]


def _entry(cells: Sequence[Cell]) -> TableEntry:
    return rate_entry(replace(headline_rate(cells), left_out=0)) if cells else TableEntry(text=UNDEFINED, value=None)


def missing(content: Content, drawn: Sequence[Drawing]) -> list[tuple[str, str]]:
    """The parts that a report of cells usually has and this one lacks, each with its reason.

    Args:
        content: of the report.
        drawn: its figures.
    """
    return list(_missing(content, {one.kind for one in drawn})) if content.cells else []


def _missing(content: Content, kinds: set[str]) -> Iterator[tuple[str, str]]:
    poses = {cell.pose for cell in content.cells}
    names = {cell.attack for cell in content.cells}
    if "overview" not in kinds:
        yield "Success rates", "No target recognises any clean image, so there is no rate to draw."
    if "surface" not in kinds:
        plain = {pose for pose in poses if of_angle_and_scale(pose)}
        angles, scales = {pose.angle for pose in plain}, {pose.scale for pose in plain}
        yield (
            "Surfaces and heat maps",
            "They need at least 3 angles and 3 scales in every combination, without a shift, and clean images that are "
            f"recognised there. Angles here: {len(angles)}, scales: {len(scales)}, poses of these alone: {len(plain)}.",
        )
    if "profile" not in kinds:
        yield "Profiles", "They need 3 poses that differ in one parameter only; there are no such poses here."
    if "cost" not in kinds:
        spent = sorted({cell.grad_evals / cell.counts.n for cell in content.cells if cell.counts.n and cell.grad_evals})
        same = f"All attacks cost the same: {spent[0]:,.4g} input gradients per image." if spent else ""
        yield "Success against cost", same or "What the attacks cost was not recorded."
    if not content.comparisons:
        reason = "A comparison needs two attacks." if len(names) < 2 else "No paired comparison was made."
        yield "Which differences are significant", reason
    if not content.galleries:
        yield "Examples", "No images were kept for them."
