"""The figures of a report, each from cells alone: every one that they allow, with a title and a description."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whorl.evaluation import Rate, SuccessRate
from whorl.report.charts import (
    COLOURS,
    DASHES,
    blank,
    decades,
    error_bars,
    figure_text,
    hover,
    named,
    percent,
    thinned,
    wrap_categories,
    wrapped,
)
from whorl.report.content import Drawing
from whorl.report.series import (
    Series,
    Sweep,
    Transfer,
    angle_scale_grid,
    attacks,
    costs,
    headline_rate,
    pairs,
    series,
    sweeps,
    transfers,
)
from whorl.report.surfaces import cell_words, heat_map, surface
from whorl.report.tables import FEW, interval_words
from whorl.runs.results import Cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon", "cross")
_MANY_LINES = 3


def drawings(cells: Iterable[Cell]) -> list[Drawing]:
    """Every figure that the cells allow, in the report's order."""
    found = series(cells)
    return [*_overviews(found), *_surfaces(found), *_profiles(found), *_cost_figures(found)]


def _overviews(found: Mapping[Series, Sequence[Cell]]) -> Iterator[Drawing]:
    if any(not math.isnan(headline_rate(own).value) for own in found.values()):
        yield Drawing(
            kind="overview",
            name="overview",
            title="Success rate of each attack on each target, pooled over the poses",
            alt="Points with intervals: success rate of each attack on each target. The tables hold the same.",
            figure=overview(found),
        )


def _surfaces(found: Mapping[Series, Sequence[Cell]]) -> Iterator[Drawing]:
    wanted = [(transfer, subject) for transfer in transfers(found) for subject in _subjects(found, transfer)]
    for number, (transfer, subject) in enumerate(wanted, start=1):
        names = " and ".join(subject)
        yield Drawing(
            kind="surface",
            name=_file_name("surface", number, str(transfer), *subject),
            title=f"{names}: success rate over rotation and scaling, {transfer}",
            alt=f"Surface: success rate of {names} by angle and scale, {transfer}. The table by pose holds the same.",
            transfer=str(transfer),
            subject=names,
            figure=surface(found, transfer, subject),
        )
        yield Drawing(
            kind="map",
            name=_file_name("map", number, str(transfer), *subject),
            title=f"{names}: success rate by angle and scale, with n, {transfer}",
            alt=f"Heat map: success rate of {names} by angle and scale, with the number of images in each cell, "
            f"{transfer}. The table by pose holds the same.",
            transfer=str(transfer),
            subject=names,
            figure=heat_map(found, transfer, subject),
        )


def _profiles(found: Mapping[Series, Sequence[Cell]]) -> Iterator[Drawing]:
    wanted = [
        (transfer, sweep)
        for transfer in transfers(found)
        for sweep in sweeps(cell.pose for key, own in found.items() if key.transfer == transfer for cell in own)
    ]
    for number, (transfer, sweep) in enumerate(wanted, start=1):
        yield Drawing(
            kind="profile",
            name=_file_name("profile", number, str(transfer), "by", sweep.axis),
            title=f"Success rate by {sweep.axis}, {sweep.fixed}: {transfer}",
            alt=f"Lines: success rate of each attack by {sweep.axis}, {sweep.fixed}, {transfer}. "
            "The table by pose holds the same.",
            transfer=str(transfer),
            subject=f"{sweep.axis.capitalize()} varies, {sweep.fixed}",
            figure=profile(found, transfer, sweep),
        )


def _cost_figures(found: Mapping[Series, Sequence[Cell]]) -> Iterator[Drawing]:
    spent = costs(found)
    if len({gradients for _, gradients, _ in spent}) > 1:
        yield Drawing(
            kind="cost",
            name="cost",
            title="Success rate against cost",
            alt="Points: success rate of each attack against the input gradients that an image costs.",
            figure=cost(spent),
        )


def _subjects(found: Mapping[Series, Sequence[Cell]], transfer: Transfer) -> list[tuple[str, ...]]:
    """What gets a surface in a transfer: pairs first, then attacks that have no partner."""
    gridded = [
        key.attack
        for key, own in found.items()
        if key.transfer == transfer and angle_scale_grid(cell.pose for cell in own if cell.counts.n_clean_correct)
    ]
    together: list[tuple[str, ...]] = [*pairs(gridded)]
    paired = {name for pair in together for name in pair}
    return together + [(name,) for name in gridded if name not in paired]


def _file_name(kind: str, number: int, *words: str) -> str:
    """A file's name that no label can lead astray: a number keeps it apart, and the words are letters and digits."""
    text = "-".join(words)
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return f"{kind}-{number:02d}-{re.sub('-+', '-', kept)[:80].strip('-')}"


def overview(found: Mapping[Series, Sequence[Cell]]) -> Figure:
    """Success rate pooled over the poses, a point with its interval for each attack and transfer."""
    seen, names = transfers(found), attacks(found)
    plain = len({transfer.source for transfer in seen}) == 1
    figure = blank(height=420)
    for name in names:
        shown = [transfer for transfer in seen if Series(name, transfer) in found]
        summed = [headline_rate(found[Series(name, transfer)]) for transfer in shown]
        colour, symbol, _ = _style(name, names)
        figure.add_scatter(
            x=[figure_text(transfer.target if plain else str(transfer)) for transfer in shown],
            y=[percent(one.value) for one in summed],
            **named(name),
            mode="markers",
            offsetgroup=str(names.index(name)),
            marker={"color": colour, "size": 10, "symbol": symbol},
            error_y=error_bars([one.value for one in summed], [one.interval for one in summed]),
            text=[hover(name, str(transfer), *_rate_words(one)) for transfer, one in zip(shown, summed, strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.update_layout(scattermode="group", scattergap=0.4)
    figure.update_xaxes(type="category", title="target" if plain else "source → target")
    wrap_categories(figure.update_xaxes, [transfer.target if plain else str(transfer) for transfer in seen], 14)
    return figure


def profile(found: Mapping[Series, Sequence[Cell]], transfer: Transfer, sweep: Sweep) -> Figure:
    """Success rate along a sweep, a line for each attack; with intervals where there are few lines."""
    names = [key.attack for key in found if key.transfer == transfer]
    every = attacks(found)
    figure = blank(height=340)
    for name in names:
        by_pose = {cell.pose: cell for cell in found[Series(name, transfer)]}
        cells = [by_pose.get(pose) for pose in sweep.poses]
        colour, symbol, dash = _style(name, every)
        figure.add_scatter(
            x=list(sweep.values),
            y=[None if cell is None else percent(cell.counts.rate) for cell in cells],
            **named(name),
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 8, "opacity": [0.35 if one and one.counts.few else 1.0 for one in cells]},
            error_y=_intervals(cells) if len(names) < _MANY_LINES else None,
            text=["" if cell is None else hover(name, *cell_words(cell)) for cell in cells],
            hovertemplate="%{text}<extra></extra>",
        )
    axis = f"{sweep.axis} ({sweep.unit})" if sweep.unit else sweep.axis
    figure.update_xaxes(title=figure_text(axis), tickvals=thinned(sweep.values))
    return figure


def cost(rows: Sequence[tuple[str, float, Rate]]) -> Figure:
    """Success rate against input gradients per image, on a logarithmic axis; see ``costs``."""
    figure = blank(height=420)
    names = [name for name, _, _ in rows]
    for name, gradients, rate in rows:
        colour, symbol, _ = _style(name, names)
        figure.add_scatter(
            x=[gradients],
            y=[percent(rate.value)],
            error_y=error_bars([rate.value], [rate.interval]),
            **named(name),
            mode="markers+text",
            text=[f" {wrapped(name)}"],
            textposition="middle right",
            cliponaxis=False,
            marker={"color": colour, "symbol": symbol, "size": 12},
            hovertext=[hover(name, *_rate_words(rate), f"for {gradients:g} input gradients per image")],
            hoverinfo="text",
        )
    figure.update_layout(showlegend=False, margin={"t": 16})
    lowest, highest = (math.log10(end(gradients for _, gradients, _ in rows)) for end in (min, max))
    spread = highest - lowest
    # Room on the right for the last one's name.
    reach = [lowest - max(0.15 * spread, 0.1), highest + max(0.3 * spread, 0.25)]
    ticks = decades(*reach)
    figure.update_xaxes(
        type="log",
        title="input gradients per image",
        range=reach,
        tickvals=ticks,
        ticktext=[f"{tick:,.10g}" for tick in ticks],
    )
    return figure


def _style(name: str, names: Sequence[str]) -> tuple[str, str, str]:
    """Colour and marker by what an attack is based on; dashes distinguish plain, translation- and affine-invariant.

    Where all are based on the same, the colours distinguish that too.
    """
    bases = list(dict.fromkeys(_base(other) for other in names))
    place = bases.index(_base(name))
    kind = 0 if name.startswith("ai-") else 2 if name.startswith("ti-") else 1
    colour = COLOURS[(place if len(bases) > 1 else kind) % len(COLOURS)]
    symbol = _SYMBOLS[place % len(_SYMBOLS)] + ("", "-open", "-open-dot")[kind]
    return colour, symbol, DASHES[kind]


def _base(name: str) -> str:
    return name[3:] if name.startswith(("ai-", "ti-")) else name


def _intervals(cells: Sequence[Cell | None]) -> dict[str, Any]:
    counts = [SuccessRate() if cell is None else cell.counts for cell in cells]
    return error_bars([one.rate for one in counts], [one.interval() for one in counts])


def _rate_words(one: Rate) -> tuple[str, ...]:
    """A rate with what it rests on."""
    words = interval_words(one.value, one.interval)
    return (words, f"n = {one.n} over {one.poses} poses, {one.images} images" + (f"; {FEW}" if one.few else ""))
