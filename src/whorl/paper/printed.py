"""Our figures beside the paper's, and where the orderings agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from whorl.evaluation import Comparison, Over, Pose, rate
from whorl.evaluation.image_counts import UNKNOWN
from whorl.paper.cast import Cast, Profile, cast, load_profile
from whorl.paper.comparison import Compared, ComparedTable, Cost, TableColumn, Value
from whorl.paper.declaration import not_run, row_of
from whorl.paper.item import Item, Kernel, PaperNetwork, SurfaceCut
from whorl.paper.orderings import MARKS, Ordering, corrected, difference
from whorl.report.result_table import in_percent
from whorl.report.series import target_name
from whorl.runs.declaration import Declaration
from whorl.runs.results import Cell, joined_images, mean_rate

_FEW = 100
_PAPER_IMAGES = 1000


class MeasuredRun(Protocol):
    """What a run gives; ``whorl.runs.Done`` is one."""

    @property
    def declaration(self) -> Declaration:
        """What was run."""
        ...

    @property
    def cells(self) -> Sequence[Cell]:
        """One for each attack, source, target and pose."""
        ...

    def compare(
        self, first: str, second: str, source: str, target: str, pose: Pose | None = None, *, poses: Over | None = None
    ) -> Comparison:
        """Compare two attacks on the same images, in one pose or over all."""
        ...


def compare_with_printed(
    item: Item, done: MeasuredRun, profile: str | Path | Profile = "offline", *, kernel: Kernel = "reference"
) -> Compared:
    """Put a run beside what the paper printed.

    Args:
        item: the table or figure.
        done: what came of running its declaration, or part of it.
        profile: the one that it was declared with.
        kernel: likewise.
    """
    chosen, declared = load_profile(profile), done.declaration
    who = cast(item, chosen, declared.targets)
    view = _Lookup(item, done, who)
    images = max((cell.counts.n for cell in done.cells), default=0)
    return Compared(
        item=item,
        profile=chosen.name,
        images=images,
        players=tuple(who.lines()),
        blocks=tuple(view.cuts() if item.kind == "surface" else view.tables()),
        orderings=tuple(view.orderings()),
        costs=tuple(view.costs()),
        notes=(*who.notes, *_remarks(item, declared, images)),
        kernel=kernel,
        columns=(*view.columns, *view.means()),
    )


class _Lookup:
    """Looks up a run's cells by the paper's rows and columns."""

    def __init__(self, item: Item, done: MeasuredRun, who: Cast) -> None:
        self.item, self.done, self.who = item, done, who
        self.labels = {row_of(spec.title): spec.title for spec in done.declaration.attacks}
        self.cells = {(cell.attack, cell.source, target_name(cell), cell.pose): cell for cell in done.cells}
        self.columns = list(self._columns())
        pairs = [
            (first, second, column)
            for column in self.columns
            for first, second in item.orderings
            if first in self.labels and second in self.labels
        ]
        judged = corrected(self._ordering(*pair) for pair in pairs)
        self._judged = {(a, b, column.cell): one for (a, b, column), one in zip(pairs, judged, strict=True)}

    def _columns(self) -> Iterator[TableColumn]:
        """Every column that the paper has, or would have if it printed figures."""
        item, poses = self.item, self.item.all_poses()
        labels = [shown.label for shown in item.poses] or [str(pose) for pose in poses]
        for source in self.who.sources:
            on = f", crafted on {source[1]}" if len(self.who.sources) > 1 else ""
            for target in self.who.targets:
                named = f"{target[0].heading} → {target[1]}"
                if self._wide:
                    place = None if item.kind == "mean" else 0
                    yield TableColumn(
                        source=source, target=target, poses=poses, place=place, heading=named, where=f"{target[1]}{on}"
                    )
                    continue
                for place, (pose, label) in enumerate(zip(poses, labels, strict=True)):
                    yield TableColumn(
                        source=source,
                        target=target,
                        poses=(pose,),
                        place=place if item.poses else None,
                        heading=label,
                        where=f"{target[1]}{on}, {label}",
                    )

    @property
    def _wide(self) -> bool:
        """Whether targets are columns of one table; otherwise each has a table, and poses are columns."""
        return self.item.kind == "mean" or len(self.item.all_poses()) == 1

    def tables(self) -> Iterator[ComparedTable]:
        """All columns, in tables."""
        for source in self.who.sources:
            crafted = f"crafted on {source[0].heading} → {source[1]}"
            own = [column for column in self.columns if column.source == source]
            if self._wide:
                yield self._block(crafted, own)
                continue
            for target in self.who.targets:
                columns = [*(column for column in own if column.target == target), self._mean(source, target)]
                yield self._block(_seen_by(source, target), columns)

    def cuts(self) -> Iterator[ComparedTable]:
        """The lines through a surface, a table each, and the mean over all of it."""
        for cut in self.item.cuts:
            own = [
                column
                for column in self.columns
                if cut.scale in (None, column.poses[0].scale) and cut.angle in (None, column.poses[0].angle)
            ]
            for target in self.who.targets:
                columns = [_along(cut, column) for column in own if column.target == target]
                yield self._block(f"{cut.label}: {_seen_by(columns[0].source, target)}", columns)
        poses = self.item.all_poses()
        for source in self.who.sources:
            for target in self.who.targets:
                yield self._block(f"all {len(poses)} poses: {_seen_by(source, target)}", [self._mean(source, target)])

    def means(self) -> Iterator[TableColumn]:
        """The columns that the paper does not have: means over all poses, where poses are columns."""
        if not self._wide:
            for source in self.who.sources:
                yield from (self._mean(source, target) for target in self.who.targets)

    def _mean(self, source: tuple[PaperNetwork, str], target: tuple[PaperNetwork, str]) -> TableColumn:
        return TableColumn(source=source, target=target, poses=self.item.all_poses(), heading="mean", extra=True)

    def orderings(self) -> Iterator[Ordering]:
        """Every pair of rows that the paper orders, in every column in which both were run."""
        yield from self._judged.values()

    def costs(self) -> Iterator[Cost]:
        """What each attack's images cost."""
        for row, printed in self.item.printed_seconds.items():
            for _, source in self.who.sources:
                made = (self.labels.get(row), source)
                cell = next((cell for cell in self.done.cells if (cell.attack, cell.source) == made), None)
                if cell is not None and cell.counts.n:
                    yield Cost(
                        attack=cell.attack,
                        source=source,
                        gradients=cell.grad_evals / cell.counts.n,
                        seconds=1000 * cell.seconds / cell.counts.n,
                        printed_seconds=printed,
                    )

    def _block(self, title: str, columns: list[TableColumn]) -> ComparedTable:
        headed = [(column.heading, column.target[1]) for column in columns]
        item, source = self.item, columns[0].source[1]
        rows = {row: self.labels[row] for row in (*item.rows, *item.rows_beside) if row in self.labels}
        return ComparedTable.of(
            title, source, headed, rows, lambda row, place: self._value(row, columns[place]), ours=item.rows_beside
        )

    def _value(self, row: str, column: TableColumn) -> Value:
        cells = self._found(row, column)
        images, ours = joined_images(cells), 100 * mean_rate(cells)
        held = [second for first, second in self.item.orderings if first == row and second in self.labels]
        marks = "" if column.extra else "".join(MARKS[self._judged[row, one, column.cell].verdict] for one in held)
        printed, roles = self._printed(row, column), {column.source[0].role, column.target[0].role}
        return Value(
            ours=None if math.isnan(ours) else ours,
            printed=printed,
            interval=in_percent(UNKNOWN if images is None else rate(images, "mean").interval),
            n=sum(cell.counts.n_clean_correct for cell in cells),
            marks=marks,
            difference=difference(ours, printed) if roles <= self.who.own else None,
            ahead=not column.extra and self._is_ahead(row, column),
        )

    def _is_ahead(self, row: str, column: TableColumn) -> bool:
        """Whether the paired test puts a row above every row that it is held against."""
        signs = [
            one.direction if first == row else -one.direction
            for (first, second, cell), one in self._judged.items()
            if cell == column.cell and row in (first, second)
        ]
        return bool(signs) and all(sign > 0 for sign in signs)

    def _ordering(self, first: str, second: str, column: TableColumn) -> Ordering:
        pair = self.labels[first], self.labels[second]
        ours = 100 * mean_rate(self._found(first, column)), 100 * mean_rate(self._found(second, column))
        comparison = None
        if not any(map(math.isnan, ours)):
            pose = column.poses[0] if len(column.poses) == 1 else None
            comparison = self.done.compare(*pair, column.source[1], column.target[1], pose, poses="mean")
        printed = self._printed(first, column), self._printed(second, column)
        return Ordering.of(pair, column.where, ours=ours, printed=printed, comparison=comparison)

    def _printed(self, row: str, column: TableColumn) -> float | None:
        return self.item.printed_value(column.source[0].role, row, column.target[0].role, column.place)

    def _found(self, row: str, column: TableColumn) -> list[Cell]:
        keys = [(self.labels[row], column.source[1], column.target[1], pose) for pose in column.poses]
        return [self.cells[key] for key in keys if key in self.cells]


def _seen_by(source: tuple[PaperNetwork, str], target: tuple[PaperNetwork, str]) -> str:
    seen = f"{target[0].heading} → {target[1]}"
    white_box = "white-box" if source == target else f"crafted on {source[0].heading} → {source[1]}"
    return f"{seen}, {white_box}"


def _along(cut: SurfaceCut, column: TableColumn) -> TableColumn:
    """A column of a surface, headed by where it lies on a line through it."""
    [pose] = column.poses
    heading = f"s={pose.scale:g}" if cut.scale is None else f"θ={pose.angle:g}°"
    return replace(column, heading=heading)


def _remarks(item: Item, declared: Declaration, images: int) -> Iterator[str]:
    yield from not_run(item, (spec.title for spec in declared.attacks))
    if images:
        yield f"{images} images; the paper has {_PAPER_IMAGES:,}."
    if 0 < images < _FEW:
        yield f"That is few: each counts for {100 / images:.1f} points or more, so read directions, not digits."
