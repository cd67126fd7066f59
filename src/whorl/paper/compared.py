"""What came of putting a run beside the paper, as plain records."""

from __future__ import annotations

from dataclasses import dataclass

from whorl.paper.item import Item
from whorl.paper.verdicts import Ordering, summarise


@dataclass(frozen=True, kw_only=True)
class Value:
    """One figure.

    Attributes:
        ours: percent, or mean queries; None if there is no rate.
        printed: the paper's; None if it printed none.
        interval: Wilson's of ours, 95%, percent; None for a mean over poses.
        n: clean images that the target recognised, over all poses that the figure is about.
        marks: one of ``verdicts.MARKS`` for each pair of rows in which this row is the first.
    """

    ours: float | None
    printed: float | None
    interval: tuple[float, float] | None = None
    n: int = 0
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row: the attack's label, and a value for each column."""

    attack: str
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Block:
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
    lines: tuple[Line, ...]
    digits: int = 1


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
        pictures: how many there were.
        players: who stands for whom, a line each.
        blocks: the figures.
        orderings: every pair of rows that the paper orders, in every column.
        costs: of each attack; empty unless the paper printed what they cost.
        notes: what to know.
    """

    item: Item
    profile: str
    pictures: int
    players: tuple[str, ...]
    blocks: tuple[Block, ...]
    orderings: tuple[Ordering, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """How many orderings are the paper's, in a line."""
        return summarise(self.orderings)

    @property
    def differing(self) -> tuple[Ordering, ...]:
        """The orderings that are the other way round."""
        return tuple(one for one in self.orderings if one.verdict == "differs")
