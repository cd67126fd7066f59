"""What comes of putting a run beside the paper, as plain records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from whorl.evaluation import Pose
from whorl.paper.item import Item, Kernel, PaperNetwork
from whorl.paper.orderings import Ordering, summarise

NEAR = 5.0
"""Points within which a level is counted as near the printed one."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column of a table: one source, one target, and one pose or the mean over several.

    Attributes:
        source: the paper's network, and what stands for it.
        target: likewise.
        poses: which.
        place: of the pose in the item; None for a mean, and for a surface.
        heading: what stands above it.
        where: what to call it outside its table.
        extra: whether the paper has no such column, so that nothing is counted in it.
    """

    source: tuple[PaperNetwork, str]
    target: tuple[PaperNetwork, str]
    poses: tuple[Pose, ...]
    place: int | None = None
    heading: str
    where: str = ""
    extra: bool = False

    @property
    def cell(self) -> tuple[object, ...]:
        """What it is about, whatever it is called."""
        return (self.source, self.target, self.poses)


@dataclass(frozen=True, kw_only=True)
class Value:
    """One figure.

    Attributes:
        ours: percent, or mean queries; None if there is no rate.
        printed: the paper's; None if it printed none.
        interval: of ours, 95%: Wilson's of one pose, over resampled images of a mean over poses; None if there is none.
        n: clean images that the target recognised, over all poses that the figure is about.
        marks: one of ``MARKS`` for each pair of rows in which this row is the first.
        difference: ours less the printed one, in points; None unless the networks are the paper's own, for the level
            of a network that stands for another says nothing.
        ahead: whether it is significantly ahead of every row that it is held against, whichever is the first.
    """

    ours: float | None
    printed: float | None
    interval: tuple[float, float] | None = None
    n: int = 0
    marks: str = ""
    difference: float | None = None
    ahead: bool = False


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """A row.

    Attributes:
        attack: its label.
        values: one for each column.
        ours: whether the paper has no such row.
    """

    attack: str
    values: tuple[Value, ...]
    ours: bool = False


@dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """A table within a table.

    Attributes:
        title: source and target, the paper's name and ours.
        source: ours.
        targets: ours, one for each column.
        columns: headings.
        lines: one for each attack.
        digits: to show after the point.
    """

    title: str
    source: str
    targets: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[ComparedRow, ...]
    digits: int = 1

    @classmethod
    def of(
        cls,
        title: str,
        source: str,
        columns: Sequence[tuple[str, str]],
        rows: Mapping[str, str],
        value: Callable[[str, int], Value],
        *,
        ours: Collection[str] = (),
        digits: int = 1,
    ) -> Self:
        """Fill in a table.

        Args:
            title: source and target, the paper's name and ours.
            source: ours.
            columns: the heading and our target of each.
            rows: what each row is called, by its label.
            value: gives what stands in a row, by its label, and in a column, by its place.
            ours: labels of rows that the paper does not have.
            digits: to show after the point.
        """
        filled = {row: tuple(value(row, place) for place in range(len(columns))) for row in rows}
        return cls(
            title=title,
            source=source,
            targets=tuple(target for _, target in columns),
            columns=tuple(heading for heading, _ in columns),
            lines=tuple(
                ComparedRow(attack=rows[row], values=values, ours=row in ours) for row, values in filled.items()
            ),
            digits=digits,
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an attack's images cost to craft.

    Attributes:
        attack: its label.
        source: network that was attacked.
        gradients: for an image.
        seconds: for 1,000 images.
        printed_seconds: the paper's; None if it printed none.
    """

    attack: str
    source: str
    gradients: float
    seconds: float
    printed_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A table or figure, ours beside the paper's.

    Attributes:
        item: the paper's.
        profile: name of the profile.
        images: how many there were.
        players: who stands for whom, a line each.
        blocks: the figures.
        orderings: every pair of rows that the paper orders, in every column.
        costs: of each attack; empty unless the paper printed what they cost.
        notes: what to know.
        kernel: of affine-invariant rows that say no other.
        columns: every column, with what it is about; empty of queries and photographs.
    """

    item: Item
    profile: str
    images: int
    players: tuple[str, ...]
    blocks: tuple[ComparedTable, ...]
    orderings: tuple[Ordering, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]
    kernel: Kernel = "reference"
    columns: tuple[TableColumn, ...] = ()

    @property
    def summary(self) -> str:
        """How many orderings are the paper's, and how near levels are, in a line."""
        return " ".join(filter(None, (summarise(self.orderings), levels(self.blocks))))

    @property
    def differing(self) -> tuple[Ordering, ...]:
        """The orderings that are the other way round."""
        return tuple(one for one in self.orderings if one.verdict == "differs")


def levels(blocks: Iterable[ComparedTable]) -> str:
    """Say in a line how near our levels are to the printed ones; empty unless networks are the paper's own.

    >>> near, far = (Value(ours=v, printed=80.0, interval=(v - 2, v + 2), difference=v - 80) for v in (81.0, 90.0))
    >>> row = ComparedRow(attack="dim", values=(near, far))
    >>> levels([ComparedTable(title="", source="", targets=("a", "a"), columns=("θ=0°", "mean"), lines=(row,))])
    "Of 2 levels on the paper's own networks 1 is within 5 points of the paper's, and the interval of 1 holds it; the \
farthest is dim, mean, by +10.0."
    """
    found = [
        (value, line.attack, column)
        for block in blocks
        for line in block.lines
        for column, value in zip(block.columns, line.values, strict=True)
        if value.difference is not None and value.printed is not None
    ]
    if not found:
        return ""
    near = sum(abs(value.difference or 0) <= NEAR for value, _, _ in found)
    held = sum(value.interval is not None and holds(value.interval, value.printed) for value, _, _ in found)
    worst, attack, column = max(found, key=lambda one: abs(one[0].difference or 0))
    return (
        f"Of {len(found)} levels on the paper's own networks {near} {'is' if near == 1 else 'are'} within {NEAR:g} "
        f"points of the paper's, and the interval of {held} holds it; the farthest is {attack}, {column}, by "
        f"{worst.difference:+.1f}."
    )


def holds(interval: tuple[float, float], printed: float | None) -> bool:
    """Whether an interval holds what the paper printed, which is rounded to a tenth."""
    return printed is not None and interval[0] - 0.05 <= printed <= interval[1] + 0.05
