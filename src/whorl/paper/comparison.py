"""What comes of putting a run beside the paper, as plain records, and whether two rows stand to each other as there."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from whorl.evaluation import Comparison, Pose, holm
from whorl.paper.item import Item, Kernel, PaperNetwork

Verdict = Literal["agrees", "differs", "level", "unprinted", "undefined"]
MARKS: dict[Verdict, str] = {"agrees": "✓", "differs": "✗", "level": "~", "unprinted": "", "undefined": "?"}
"""What a table shows beside the first row of a pair."""
Figures = tuple[float | None, float | None]
"""Of two rows; None where there is none."""
NEAR = 5.0
"""Points within which a level is counted as near the printed one."""
LEVEL_ABOVE = 0.05
"""Two attacks differ significantly if the paired test's p-value, corrected for all of an item (Holm), is below this."""


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """Two rows of one column, in ours and in the paper.

    Attributes:
        first: the row that the paper's method is in.
        second: the row that it is held against.
        where: the column, in words.
        ours: how far the first is above the second, in points; None if there is no rate.
        printed: the same in the paper; None if it printed no figures.
        comparison: of the two on the same images, exact; None if there is no rate.
        verdict: see :func:`judge`.
    """

    first: str
    second: str
    where: str
    ours: float | None
    printed: float | None
    comparison: Comparison | None
    verdict: Verdict

    @classmethod
    def of(
        cls, pair: tuple[str, str], where: str, *, ours: Figures, printed: Figures, comparison: Comparison | None
    ) -> Self:
        """Hold one row against another.

        Args:
            pair: the labels of the two.
            where: the column, in words.
            ours: a figure of each; the more the first is above the second, the better it does.
            printed: likewise the paper's.
            comparison: of the two on the same images.
        """
        gap = difference(*printed)
        return cls(
            first=pair[0],
            second=pair[1],
            where=where,
            ours=difference(*ours),
            printed=gap,
            comparison=comparison if comparison is not None and comparison.n else None,
            verdict=judge(gap, comparison),
        )

    @property
    def direction(self) -> int:
        """1 if our first row is above the second, -1 if below, 0 if the difference is not significant."""
        return 0 if self.comparison is None else self.comparison.ahead

    def __str__(self) -> str:
        printed = "" if self.printed is None else f", the paper {self.printed:+.1f}"
        ours = "no rate" if self.ours is None else f"ours {self.ours:+.1f}"
        p = "" if self.comparison is None else f", p = {self.comparison.p_value:.2g}"
        return f"{self.first} against {self.second}, {self.where}: {ours}{printed}{p}"


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


def judge(printed: float | None, comparison: Comparison | None) -> Verdict:
    """Say whether an ordering is the paper's.

    Args:
        printed: how far the paper's first row is above the second, in points.
        comparison: of ours.

    Returns:
        ``undefined`` if there is nothing to compare, ``unprinted`` if the paper gives no figures. If ours do not differ
        significantly: ``agrees`` where the paper printed the same figure twice, else ``level``. If they do: ``agrees``
        or ``differs``, by direction.

    >>> judge(16.1, Comparison(n=100, b=20, c=2)), judge(16.1, Comparison(n=100, b=2, c=20))
    ('agrees', 'differs')
    >>> judge(0.2, Comparison(n=100, b=3, c=2)), judge(0.0, Comparison(n=100, b=3, c=2))
    ('level', 'agrees')
    """
    if comparison is None or not comparison.n:
        return "undefined"
    if printed is None:
        return "unprinted"
    if not comparison.differs(LEVEL_ABOVE):
        return "agrees" if printed == 0 else "level"
    return "agrees" if comparison.ahead * printed > 0 else "differs"


def corrected(orderings: Iterable[Ordering]) -> tuple[Ordering, ...]:
    """Correct the p-values of all orderings of an item for their number (Holm), and judge them again."""
    listed = list(orderings)
    found = holm({place: one.comparison for place, one in enumerate(listed) if one.comparison is not None})
    return tuple(
        replace(one, comparison=found[place], verdict=judge(one.printed, found[place])) if place in found else one
        for place, one in enumerate(listed)
    )


def summarise(orderings: Iterable[Ordering]) -> str:
    """Say in a line how many orderings are the paper's; empty if there are none."""
    listed = list(orderings)
    printed = [one for one in listed if one.printed is not None]
    lines = []
    if printed:
        count = {verdict: sum(one.verdict == verdict for one in printed) for verdict in MARKS}
        lines.append(
            f"{count['agrees']} of {len(printed)} orderings agree with the paper, {count['differs']} differ, "
            f"{count['level']} are not significant (paired test, Holm, p ≥ {LEVEL_ABOVE:g})"
            + (f", {count['undefined']} have no rate" if count["undefined"] else "")
            + "."
        )
    for first, second in dict.fromkeys((one.first, one.second) for one in listed if one.printed is None):
        own = [one for one in listed if (one.first, one.second, one.printed) == (first, second, None)]
        signs = [one.direction for one in own if one.comparison is not None]
        undefined = len(own) - len(signs)
        lines.append(
            f"{first} is above {second} in {signs.count(1)} of {len(own)} poses, below in {signs.count(-1)}, "
            f"and not significantly apart in {signs.count(0)} (paired test, Holm, p ≥ {LEVEL_ABOVE:g})"
            + (f"; {undefined} have no rate" if undefined else "")
            + ". The paper printed no figures."
        )
    return " ".join(lines)


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


def marks_of(orderings: Iterable[Ordering]) -> dict[tuple[str, str], str]:
    """By first row and column, a mark for each ordering, in their order."""
    found: dict[tuple[str, str], str] = {}
    for one in orderings:
        found[one.first, one.where] = found.get((one.first, one.where), "") + MARKS[one.verdict]
    return found


def difference(first: float | None, second: float | None) -> float | None:
    """Subtract, in points to one decimal, as the paper prints them; None where one of the two is not there."""
    if first is None or second is None or math.isnan(first) or math.isnan(second):
        return None
    return round(first - second, 1)
