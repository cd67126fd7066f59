"""Success rates as a notebook shows them: a row for each attack and target."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from whorl.evaluation.image_counts import Interval
from whorl.evaluation.statistics import Rate
from whorl.evaluation.success import SuccessRate
from whorl.records import html_table

_HEAD = (
    *("attack", "target", "recognised clean", "success rate", "95% interval"),
    *("mean over poses", "images that any pose fools"),
)


class RateRow(NamedTuple):
    """What a table says of one attack on one target.

    Attributes:
        attack: its name.
        target: likewise.
        rate: what a headline states: pooled over the poses, without those of too few images.
        mean: unweighted over the poses.
        any_pose: counts of images that some pose fools.
    """

    attack: str
    target: str
    rate: Rate
    mean: Rate
    any_pose: SuccessRate

    def cells(self) -> tuple[str, ...]:
        """Give the texts of the row, in the order of the columns."""
        few = " (few)" if self.rate.few else ""
        counted = f"{self.rate.n} in {self.rate.poses} poses" if self.rate.poses != 1 else f"{self.rate.n}"
        shown = (counted, percent(self.rate.value) + few, percent_interval(self.rate.interval))
        return (self.attack, self.target, *shown, percent(self.mean.value), percent(self.any_pose.rate))


def rate_table(caption: str, rows: Iterable[RateRow]) -> str:
    """Make the table as HTML."""
    return html_table(caption, _HEAD, (row.cells() for row in rows))


def percent(share: float) -> str:
    """A share as a percentage with one digit, or a dash."""
    return "–" if math.isnan(share) else f"{share:.1%}"


def whole_percent(share: float) -> str:
    """A share in whole percent, where neither some nor nearly all is none or all.

    >>> whole_percent(0.806), whole_percent(0.002), whole_percent(0.999), whole_percent(0.0)
    ('81%', '<1%', '>99%', '0%')
    """
    if math.isnan(share):
        return "no share"
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return "<1%" if share < 0.5 else ">99%"
    return f"{share:.0%}"


def percent_interval(ends: Interval) -> str:
    """Both ends of an interval likewise."""
    return "–" if math.isnan(ends[0]) else f"{percent(ends[0])} to {percent(ends[1])}"
