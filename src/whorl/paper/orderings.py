"""Whether two rows stand to each other as in the paper: by a paired test, corrected for all orderings of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from whorl.evaluation import Comparison, holm

Verdict = Literal["agrees", "differs", "level", "unprinted", "undefined"]
MARKS: dict[Verdict, str] = {"agrees": "✓", "differs": "✗", "level": "~", "unprinted": "", "undefined": "?"}
"""What a table shows beside the first row of a pair."""
Figures = tuple[float | None, float | None]
"""Of two rows; None where there is none."""
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
