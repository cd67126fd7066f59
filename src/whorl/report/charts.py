"""The one chart toolkit: plotly figures in one style, with one palette, and the charts that need no cells."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whorl.evaluation import Rate
from whorl.evaluation.image_counts import UNKNOWN

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's colours, which people of every colour vision distinguish; their yellow is too pale for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d1f", "#7f7f7f")
PAIR = ("#e69f00", "#0072b2")
"""Of two surfaces that lie over each other."""
INK, FAINT, GRID, BASELINE = "#1f2328", "#59636e", "#d8dee4", "#b0bcc9"
"""Words, less important words, grid lines, and what others are compared with."""
FOOLED, RECOGNISED = "#cf222e", "#1a8e54"
"""Whatever has one of these also carries a cross or a tick."""
DASHES = ("solid", "dash", "dot", "dashdot")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}
_LEAST_SPAN = 10  # queries that the axis of a curve reaches at least


def figure_text(text: str) -> str:
    """Write text so that plotly shows it as it is: names and labels may come from strangers.

    plotly takes some tags, entities and formulas between dollar signs in names and titles for markup.

    >>> figure_text("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    visible = "".join(" " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter for letter in text)
    return "".join(_ENTITIES.get(letter, letter) for letter in visible)


def wrapped(name: str, width: int = 28, lines: int = 3) -> str:
    """A name as plotly shows it, over several lines if it is long; what does not fit into them is cut, and ends in "…".

    Args:
        name: any; lines end behind a space or a sign, or where they must.
        width: letters of a line at most.
        lines: how many at most.

    >>> wrapped("resnet18+mobilenet_v2+efficientnet_lite0", 22)
    'resnet18+mobilenet_v2+<br>efficientnet_lite0'
    """
    made = [""]
    for word in re.findall(rf"[^-+_/:.,;→ ]{{0,{width - 1}}}[-+_/:.,;→ ]?|.", name):
        if len(made[-1]) + len(word.rstrip()) > width:
            made.append("")
        made[-1] += word
    if len(made) > lines:
        made = [*made[: lines - 1], made[lines - 1][: width - 1].rstrip() + "…"]
    return "<br>".join(figure_text(line.strip()) for line in made)


def hover(name: str, *rest: str) -> str:
    """What is shown beside a point under the mouse: its whole name, and a line for each of the rest."""
    return "<br>".join((f"<b>{figure_text(name)}</b>", *map(figure_text, rest)))


def wrap_categories(update: Callable[..., Any], names: Sequence[str], width: int, **place: int) -> None:
    """Write long names below or beside an axis over several lines; hovering over a point still shows them whole.

    Args:
        update: ``update_xaxes`` or ``update_yaxes`` of the figure.
        names: its categories.
        width: letters of a line at most.
        place: row and column of the panel.
    """
    ticks = {figure_text(name): wrapped(name, width) for name in names}
    update(tickvals=list(ticks), ticktext=list(ticks.values()), **place)


def named(name: str) -> dict[str, Any]:
    """What a trace is called: in the legend over several lines, whole when the mouse is over it in a report."""
    return {"name": wrapped(name), "meta": {"name": figure_text(name)}}


def readable_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour: at least 4.5 to 1, as level AA of WCAG requires.

    >>> readable_on("#0072b2"), readable_on("#e69f00")
    ('#ffffff', '#000000')
    """

    def light(part: str) -> float:
        share = int(part, 16) / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (light(colour[i : i + 2]) for i in (1, 3, 5))
    # Where both are read equally well: (1 + 0.05) / (l + 0.05) = (l + 0.05) / 0.05.
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 else "#ffffff"


def blank(*, height: int) -> Figure:
    """An empty figure in the house style, with a success rate from bottom to top."""
    import plotly.graph_objects as go  # half a second to import, so only where a figure is drawn

    figure = styled(go.Figure(), height=height)
    figure.update_yaxes(title={"text": "success rate (%)", "standoff": 8}, range=[-3, 103], dtick=20)
    return figure


def panels(rows: int = 1, cols: int = 1, *, titles: Sequence[str], height: int, **spacing: Any) -> Figure:
    """Several empty charts in one figure, in the house style.

    Args:
        rows: of charts.
        cols: of charts.
        titles: one for each chart, as they are.
        height: of the figure, in pixels.
        spacing: whatever else ``plotly.subplots.make_subplots`` takes.
    """
    from plotly.subplots import make_subplots  # half a second to import

    names = [figure_text(title) for title in titles]
    return styled(make_subplots(rows=rows, cols=cols, subplot_titles=names, **spacing), height=height)


def styled(figure: Figure, *, height: int) -> Figure:
    """Give a figure the house style; colours of paper and ink are a page's own matter."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True, "title": {"standoff": 8}}
    figure.update_layout(
        template="none",
        height=height,
        font={"family": _FONT, "size": 13, "color": INK},
        margin={"l": 56, "r": 16, "t": 48, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def line_style(place: int) -> dict[str, Any]:
    """Colour and dash of a line, by its place among those of its chart: each of the first 28 is another.

    >>> line_style(8)["line"]
    {'color': '#d55e00', 'dash': 'solid', 'width': 2}
    """
    line = {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place % len(DASHES)], "width": 2}
    return {"mode": "lines+markers", "line": line, "marker": {"size": 7}}


def error_bars(rates: Sequence[float], intervals: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Intervals around rates, both in [0, 1], as plotly draws them in percent; none where a rate is NaN."""
    spans = [(high - rate, rate - low) for rate, (low, high) in zip(rates, intervals, strict=True)]
    up, down = ([0.0 if math.isnan(span[i]) else percent(max(0.0, span[i])) for span in spans] for i in (0, 1))
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 3}


def percent(share: float) -> float | None:
    """A share in [0, 1] as plotly takes it; None, which leaves a gap, for NaN."""
    return None if math.isnan(share) else round(100 * share, 4)


def thinned(values: Sequence[float]) -> list[float]:
    """Nine ticks at most, each at a measured value."""
    return list(values[:: math.ceil(len(values) / 9)])


def decades(lowest: float, highest: float) -> list[float]:
    """Round numbers between two powers of ten, given by their exponents; the fewer decades, the more of them."""
    steps = (1,) if highest - lowest > 2 else (1, 2, 5)
    every = [step * 10.0**k for k in range(math.floor(lowest), math.ceil(highest) + 1) for step in steps]
    return [tick for tick in every if lowest <= math.log10(tick) <= highest]


def mixed(colour: str, share: float) -> str:
    """A colour with white, ``share`` of it the colour's own."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


def bars(groups: Mapping[str, Mapping[str, Mapping[str, Rate | float]]]) -> Figure:
    """Shares as bars: a panel for each group, side by side, with a row for each name and a bar for each series.

    Args:
        groups: by title, name and series: a share in [0, 1], or a rate, which has its interval drawn and n on hover;
            NaN draws nothing. The first series is what the others are compared with, and is drawn pale.

    >>> figure = bars({"clean accuracy": {"as they are": {"original": 0.9, "hardened": 0.85}}})
    >>> [(trace.name, trace.x) for trace in figure.data]
    [('original', (90.0,)), ('hardened', (85.0,))]
    """
    series = list(dict.fromkeys(name for rows in groups.values() for row in rows.values() for name in row))
    names = [list(rows) for rows in groups.values()]
    height = 150 + max(map(len, names)) * (14 + 18 * len(series))
    # Panels with the same rows name them once; others need room for names between them.
    same = all(rows == names[0] for rows in names)
    widest = max(len(line) for rows in names for name in rows for line in wrapped(name).split("<br>"))
    gap = 0.06 if same else min(0.07 + 0.007 * widest, 0.5 / len(groups))
    spacing = {"shared_yaxes": same, "horizontal_spacing": gap}
    figure = panels(1, len(groups), titles=list(groups), height=height, **spacing)
    for column, rows in enumerate(groups.values(), start=1):
        for place, name in enumerate(series):
            given = [row.get(name, math.nan) for row in rows.values()]
            values = [one.value if isinstance(one, Rate) else one for one in given]
            intervals = [one.interval if isinstance(one, Rate) else UNKNOWN for one in given]
            of = [f", n = {one.n}" if isinstance(one, Rate) else "" for one in given]
            figure.add_bar(
                x=[percent(value) for value in values],
                y=[figure_text(row) for row in rows],
                text=["" if math.isnan(value) else f"{100 * value:.1f}%" for value in values],
                textposition="outside",
                cliponaxis=False,
                **named(name),
                legendgroup=name,
                showlegend=column == 1,
                orientation="h",
                marker={"color": COLOURS[place - 1] if place else BASELINE},
                error_x=error_bars(values, intervals),
                customdata=of,
                hovertemplate="%{y}: %{x:.1f}%%{customdata}<extra>" + figure_text(name) + "</extra>",
                row=1,
                col=column,
            )
        wrap_categories(figure.update_yaxes, list(rows), 28, row=1, col=column)
    figure.update_xaxes(range=[0, 112], tickvals=[0, 50, 100], ticktext=["0%", "50%", "100%"])
    # The first row is on top, and so is the first bar of a row.
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_layout(bargap=0.25, margin={"t": 90}, legend={"y": 1 + 44 / (height - 138)})
    return figure


def success_curve(outcomes: Sequence[tuple[int, bool]]) -> list[tuple[int, float]]:
    """Share of images that are fooled within so many queries: steps upwards, from no queries at all.

    Args:
        outcomes: of each image, the queries that it took, and whether the target is fooled.

    >>> success_curve([(1, True), (100, False), (40, True), (40, True)])
    [(0, 0.0), (1, 0.25), (40, 0.75)]
    """
    curve = [(0, 0.0)]
    won = sorted(queries for queries, success in outcomes if success)
    for place, queries in enumerate(won, start=1):
        share = place / len(outcomes)
        if curve[-1][0] == queries:
            curve[-1] = (queries, share)
        else:
            curve.append((queries, share))
    return curve


def query_curve(runs: Mapping[str, Sequence[tuple[int, bool]]], *, budget: int) -> Figure:
    """Success against queries, on a logarithmic axis, a line of steps for each run.

    Args:
        runs: by what to call it, the outcomes of a run's images, as in :func:`success_curve`.
        budget: where the axis ends.
    """
    figure, end = blank(height=420), max(budget, _LEAST_SPAN)
    for place, (name, outcomes) in enumerate(runs.items()):
        # On a logarithmic axis there is no place for 0 queries; 1 is where it begins.
        points = [(max(queries, 1), share) for queries, share in success_curve(outcomes)]
        points.append((end, points[-1][1]))
        figure.add_scatter(
            x=[queries for queries, _ in points],
            y=[percent(share) for _, share in points],
            **named(f"{name}: {sum(success for _, success in outcomes)} of {len(outcomes)}"),
            showlegend=True,
            **line_style(place) | {"mode": "lines"},
            line_shape="hv",
            hovertemplate=f"%{{y:.1f}}% of {len(outcomes)} images within %{{x:,}} queries<extra></extra>",
        )
    figure.update_yaxes(title="images fooled (%)")
    figure.update_layout(margin={"r": 40})  # for the last number below the axis
    ticks = [10**power for power in range(int(math.log10(end)) + 1)]
    labels = [f"{tick:,}" for tick in ticks]
    figure.update_xaxes(type="log", title="queries", range=[0, math.log10(end)], tickvals=ticks, ticktext=labels)
    return figure
