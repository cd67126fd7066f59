"""What the pages must show: tables by the name in their comment, and each page's sentences.

A table's function takes what its comment says behind its name, and gives a function of a row (column to text) and a
column: the numbers that the cell must show, in order; None where it is a label or a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whorl.evaluation.statistics import Comparison

Cell = Callable[[Mapping[str, str], str], Sequence[float] | None]
TABLES: dict[str, Callable[..., Cell]] = {}
Sentences = Sequence[tuple[str, Callable[[], Sequence[float]]]]
"""Sentences that state figures, ``{}`` for each, and what gives them, in order."""
Claims = Sequence[tuple[str, Callable[[], bool]]]
"""Sentences that claim something without a figure, and whether it holds."""
SENTENCES: dict[str, Sentences] = {}
CLAIMS: dict[str, Claims] = {}


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


def page(path: str, *, sentences: Sentences = (), claims: Claims = ()) -> None:
    """Register what a page says; once a page, so that nothing is replaced by a second call."""
    if path in SENTENCES:
        raise ValueError(f"{path} is registered already")
    SENTENCES[path], CLAIMS[path] = sentences, claims


def apart(found: Comparison) -> list[float]:
    """A difference and its interval, in points."""
    return [100 * found.difference, 100 * found.interval[0], 100 * found.interval[1]]


def marked(found: Comparison) -> Printed:
    """A difference, its interval and p; the cell must have a mark where it is significant."""
    shown = Printed([*apart(found), found.p_value])
    shown.marks = {1: "✓", 0: "", -1: "✗"}[found.ahead]
    return shown
