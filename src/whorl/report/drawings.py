"""Which figures a report has: every one that its cells allow, with a title, a file's name and a description."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whorl.report.figures import cost, costs, overview, profile, surface
from whorl.report.lines import Line, View, angle_scale_grid, lines, overall, pairs, views
from whorl.report.sweeps import sweeps
from whorl.runs.results import Cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Kind = Literal["overview", "surface", "profile", "cost"]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure, and where it belongs.

    Attributes:
        kind: which part of the report shows it.
        name: for a file, without an ending.
        title: one line.
        alt: what it shows, for those who cannot see it.
        view: whose answers it shows; "" for all.
        subject: which attacks it shows; "" for all.
        figure: for plotly.
    """

    kind: Kind
    name: str
    title: str
    alt: str
    view: str = ""
    subject: str = ""
    figure: Figure


def drawings(cells: Iterable[Cell]) -> list[Drawing]:
    """Every figure that the cells allow, in the report's order."""
    found = lines(cells)
    return [*_overviews(found), *_surfaces(found), *_profiles(found), *_cost_figures(found)]


def _overviews(found: Mapping[Line, Sequence[Cell]]) -> Iterator[Drawing]:
    if any(not math.isnan(overall(own).mean) for own in found.values()):
        yield Drawing(
            kind="overview",
            name="overview",
            title="Mean success rate of each attack on each target",
            alt="Points with intervals: mean success rate of each attack on each target. The tables hold the same.",
            figure=overview(found),
        )


def _surfaces(found: Mapping[Line, Sequence[Cell]]) -> Iterator[Drawing]:
    wanted = [(view, subject) for view in views(found) for subject in _subjects(found, view)]
    for number, (view, subject) in enumerate(wanted, start=1):
        names = " and ".join(subject)
        yield Drawing(
            kind="surface",
            name=_file_name("surface", number, str(view), *subject),
            title=f"{names}: success rate over rotation and scaling, {view}",
            alt=f"Surface: success rate of {names} by angle and scale, {view}. The table by pose holds the same.",
            view=str(view),
            subject=names,
            figure=surface(found, view, subject),
        )


def _profiles(found: Mapping[Line, Sequence[Cell]]) -> Iterator[Drawing]:
    wanted = [
        (view, sweep)
        for view in views(found)
        for sweep in sweeps(cell.pose for line, own in found.items() if line.view == view for cell in own)
    ]
    for number, (view, sweep) in enumerate(wanted, start=1):
        yield Drawing(
            kind="profile",
            name=_file_name("profile", number, str(view), "by", sweep.axis),
            title=f"Success rate by {sweep.axis}, {sweep.fixed}: {view}",
            alt=f"Lines: success rate of each attack by {sweep.axis}, {sweep.fixed}, {view}. "
            "The table by pose holds the same.",
            view=str(view),
            subject=f"{sweep.axis.capitalize()} varies, {sweep.fixed}",
            figure=profile(found, view, sweep),
        )


def _cost_figures(found: Mapping[Line, Sequence[Cell]]) -> Iterator[Drawing]:
    spent = costs(found)
    if len({gradients for _, gradients, _ in spent}) > 1:
        yield Drawing(
            kind="cost",
            name="cost",
            title="Success rate against cost",
            alt="Points: mean success rate of each attack against the input gradients that an image costs.",
            figure=cost(spent),
        )


def _subjects(found: Mapping[Line, Sequence[Cell]], view: View) -> list[tuple[str, ...]]:
    """What gets a surface in a view: pairs first, then attacks that have no partner."""
    gridded = [
        line.attack
        for line, own in found.items()
        if line.view == view and angle_scale_grid(cell.pose for cell in own if cell.counts.n_clean_correct)
    ]
    together: list[tuple[str, ...]] = [*pairs(gridded)]
    paired = {name for pair in together for name in pair}
    return together + [(name,) for name in gridded if name not in paired]


def _file_name(kind: str, number: int, *words: str) -> str:
    """A file's name that no label can lead astray: a number keeps it apart, and the words are letters and digits."""
    text = "-".join(words)
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return f"{kind}-{number:02d}-{re.sub('-+', '-', kept)[:80].strip('-')}"
