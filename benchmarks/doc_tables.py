"""Tables of the pages by the name in their comment: what a cell must show.

A table's function takes what its comment says behind its name, and gives a function of a row (column to text) and a
column: the numbers that the cell must show, in order; None where it is a label or a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Cell = Callable[[Mapping[str, str], str], Sequence[float] | None]
TABLES: dict[str, Callable[..., Cell]] = {}


class Printed(tuple[float, ...]):
    """Numbers behind which a cell has those of the paper, if it printed any.

    ``printed``: these. ``few``: ours rest on fewer than ten images, which the cell must mark with †. ``marks``: how the
    row stands to those that it is held against, which the cell must show; None where that is not known.
    """

    printed: Sequence[float] = ()
    few = False
    marks: str | None = None


def table(name: str) -> Callable[[Callable[..., Cell]], Callable[..., Cell]]:
    """Register the function of a table."""

    def add(made: Callable[..., Cell]) -> Callable[..., Cell]:
        TABLES[name] = made
        return made

    return add
