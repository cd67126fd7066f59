"""The figures of a report, each from cells alone, as plotly figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whorl.errors import WhorlError
from whorl.report.escaping import figure_text
from whorl.report.lines import Line, View, angle_scale_grid, attacks, overall, views
from whorl.report.sweeps import Sweep
from whorl.runs.results import Cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's colours, which people of every colour vision tell apart; their yellow is too pale for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d1f", "#7f7f7f")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon", "cross")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_PAIR_COLOURS = ("#e69f00", "#0072b2")
_INK, _GRID = "#1f2328", "#d8dee4"
_MANY_LINES = 3


def overview(found: Mapping[Line, Sequence[Cell]]) -> Figure:
    """Mean success rate over the poses, a point with its interval for each attack and view."""
    go = _graph_objects()
    seen, names = views(found), attacks(found)
    plain = _one_source(seen)
    figure = _figure(go, height=420)
    for name in names:
        shown = [view for view in seen if Line(name, view) in found]
        summed = [overall(found[Line(name, view)]) for view in shown]
        colour, symbol, _ = _style(name, names)
        means = [_percent(one.mean) for one in summed]
        spans = [(one.mean - one.interval[0], one.interval[1] - one.mean) for one in summed]
        figure.add_trace(
            go.Scatter(
                x=[figure_text(view.target if plain else str(view)) for view in shown],
                y=means,
                name=figure_text(name),
                mode="markers",
                offsetgroup=str(names.index(name)),
                marker={"color": colour, "size": 10, "symbol": symbol},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [_percent(max(0.0, up)) for _, up in spans],
                    "arrayminus": [_percent(max(0.0, down)) for down, _ in spans],
                    "thickness": 1.5,
                    "width": 3,
                },
                text=[
                    _hover(name, str(view), _interval_words(one.mean, one.interval))
                    for view, one in zip(shown, summed, strict=True)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.update_layout(scattermode="group", scattergap=0.4)
    figure.update_xaxes(type="category", title="target" if plain else "source → target")
    return figure


def surface(found: Mapping[Line, Sequence[Cell]], view: View, subject: Sequence[str]) -> Figure:
    """Success rate over angle and scale, one surface for each attack, in one scene that turns.

    Args:
        found: cells by line.
        view: whose answers.
        subject: one attack, or two to lie over each other.

    Raises:
        WhorlError: the poses form no grid of 3 angles and 3 scales without a shift.
    """
    go = _graph_objects()
    grid = angle_scale_grid(cell.pose for name in subject for cell in found[Line(name, view)])
    if grid is None:
        raise WhorlError(f"expected a grid of at least 3 angles and 3 scales for {view}. Measure more poses.")
    angles, scales = grid
    figure = _figure(go, height=560)
    shades = _PAIR_COLOURS[-len(subject) :]
    for name, colour in zip(subject, shades, strict=True):
        by_pose = {(c.pose.angle, c.pose.scale): c for c in found[Line(name, view)] if not any(c.pose.shift)}
        rows = [[by_pose.get((angle, scale)) for scale in scales] for angle in angles]
        heights = [[None if cell is None else _percent(cell.counts.rate) for cell in row] for row in rows]
        figure.add_trace(
            go.Surface(
                x=scales,
                y=angles,
                z=heights,
                text=[["" if cell is None else _hover(name, *_cell_words(cell)) for cell in row] for row in rows],
                hovertemplate="%{text}<extra></extra>",
                name=figure_text(name),
                legendgroup=figure_text(name),
                showlegend=True,
                showscale=False,
                cmin=0,
                cmax=100,
                colorscale=[[0, _mixed(colour, 0.45)], [1, colour]],
                opacity=0.9,
                contours={axis: {"highlight": False} for axis in "xyz"},
            )
        )
        figure.add_trace(_mesh(go, scales, angles, heights, group=figure_text(name)))
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 36, "b": 0},
        scene={
            "xaxis": {"title": {"text": "scale"}, "tickvals": _thinned(scales), "zeroline": False},
            "yaxis": {"title": {"text": "angle (°)"}, "tickvals": _thinned(angles), "zeroline": False},
            "zaxis": {"title": {"text": "success rate (%)"}, "range": [0, 100], "zeroline": False},
            "aspectmode": "manual",
            "aspectratio": {"x": 1.1, "y": 1.1, "z": 0.8},
            "camera": {"eye": {"x": 1.25, "y": -1.4, "z": 0.6}, "center": {"x": 0, "y": 0, "z": -0.24}},
        },
    )
    return figure


def profile(found: Mapping[Line, Sequence[Cell]], view: View, sweep: Sweep) -> Figure:
    """Success rate along a sweep, a line for each attack; with intervals where there are few lines."""
    go = _graph_objects()
    names = [line.attack for line in found if line.view == view]
    every = attacks(found)
    figure = _figure(go, height=340)
    for name in names:
        by_pose = {cell.pose: cell for cell in found[Line(name, view)]}
        cells = [by_pose.get(pose) for pose in sweep.poses]
        colour, symbol, dash = _style(name, every)
        figure.add_trace(
            go.Scatter(
                x=list(sweep.values),
                y=[None if cell is None else _percent(cell.counts.rate) for cell in cells],
                name=figure_text(name),
                mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 2},
                marker={"symbol": symbol, "size": 8},
                error_y=_error_bars(cells) if len(names) < _MANY_LINES else None,
                text=["" if cell is None else _hover(name, *_cell_words(cell)) for cell in cells],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    words = {"angle": "angle (°)", "scale": "scale", "shift": "shift right and down (pixels of 299)"}
    figure.update_xaxes(title=words[sweep.axis], tickvals=_thinned(sweep.values))
    return figure


def costs(found: Mapping[Line, Sequence[Cell]]) -> list[tuple[str, float, float]]:
    """What each attack costs and brings: (name, input gradients an image, mean success rate in [0, 1]).

    The rate is the mean over views that the attack was not crafted on, or over all where there are no others. Attacks
    without gradients, or whose cost nobody recorded, are left out.
    """
    unseen = {line for line in found if not line.view.white_box} or set(found)
    rows = []
    for name in attacks(found):
        own = [cells for line, cells in found.items() if line.attack == name and line in unseen]
        means = [mean for mean in (overall(cells).mean for cells in own) if not math.isnan(mean)]
        spent = [cell.grad_evals / cell.counts.n for cells in own for cell in cells if cell.counts.n]
        if means and spent and sum(spent) > 0:
            rows.append((name, sum(spent) / len(spent), sum(means) / len(means)))
    return rows


def cost(rows: Sequence[tuple[str, float, float]]) -> Figure:
    """Success rate against input gradients an image, on a logarithmic axis; see ``costs``."""
    go = _graph_objects()
    figure = _figure(go, height=420)
    names = [name for name, _, _ in rows]
    for name, gradients, rate in rows:
        colour, symbol, _ = _style(name, names)
        figure.add_trace(
            go.Scatter(
                x=[gradients],
                y=[_percent(rate)],
                name=figure_text(name),
                mode="markers+text",
                text=[f" {figure_text(name)}"],
                textposition="middle right",
                cliponaxis=False,
                marker={"color": colour, "symbol": symbol, "size": 12},
                hovertext=[_hover(name, f"{100 * rate:.1f}% for {gradients:g} input gradients an image")],
                hoverinfo="text",
            )
        )
    figure.update_layout(showlegend=False, margin={"t": 16})
    lowest, highest = (math.log10(end(gradients for _, gradients, _ in rows)) for end in (min, max))
    spread = highest - lowest
    # Room on the right for the last one's name.
    reach = [lowest - max(0.15 * spread, 0.1), highest + max(0.3 * spread, 0.25)]
    ticks = _decades(*reach)
    figure.update_xaxes(
        type="log",
        title="input gradients an image",
        range=reach,
        tickvals=ticks,
        ticktext=[f"{tick:,.10g}" for tick in ticks],
    )
    return figure


def _graph_objects() -> Any:
    # Half a second to import, so only where a figure is drawn.
    import plotly.graph_objects as go

    return go


def _figure(go: Any, *, height: int) -> Figure:
    """An empty figure in the report's looks; colours of paper and ink are the page's own matter."""
    axis = {"gridcolor": _GRID, "zeroline": False, "linecolor": _GRID, "title": {"standoff": 8}, "automargin": True}
    figure: Figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        font={"family": _FONT, "size": 13, "color": _INK},
        margin={"l": 56, "r": 16, "t": 48, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hoverlabel={"align": "left"},
        xaxis=axis,
        yaxis=axis | {"title": {"text": "success rate (%)", "standoff": 8}, "range": [-3, 103], "dtick": 20},
    )
    return figure


def _style(name: str, names: Sequence[str]) -> tuple[str, str, str]:
    """Colour and marker by what an attack is based on; dashes tell plain, translation- and affine-invariant apart.

    Where all are based on the same, the colours tell that apart too.
    """
    bases = list(dict.fromkeys(_base(other) for other in names))
    place = bases.index(_base(name))
    kind = 0 if name.startswith("ai-") else 2 if name.startswith("ti-") else 1
    colour = COLOURS[(place if len(bases) > 1 else kind) % len(COLOURS)]
    symbol = _SYMBOLS[place % len(_SYMBOLS)] + ("", "-open", "-open-dot")[kind]
    return colour, symbol, ("solid", "dash", "dot")[kind]


def _base(name: str) -> str:
    return name[3:] if name.startswith(("ai-", "ti-")) else name


def _one_source(seen: Sequence[View]) -> bool:
    return len({view.source for view in seen}) == 1


def _percent(share: float) -> float | None:
    return None if math.isnan(share) else round(100 * share, 4)


def _error_bars(cells: Sequence[Cell | None]) -> dict[str, Any]:
    spans = [
        (0.0, 0.0)
        if cell is None or not cell.counts.n_clean_correct
        else (cell.counts.interval()[1] - cell.counts.rate, cell.counts.rate - cell.counts.interval()[0])
        for cell in cells
    ]
    up, down = ([_percent(max(0.0, span[i])) for span in spans] for i in (0, 1))
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 3}


def _hover(name: str, *rest: str) -> str:
    return "<br>".join((f"<b>{figure_text(name)}</b>", *map(figure_text, rest)))


def _cell_words(cell: Cell) -> tuple[str, str]:
    counts = cell.counts
    if not counts.n_clean_correct:
        return str(cell.pose), "no clean image recognised"
    rate = _interval_words(counts.rate, counts.interval())
    return str(cell.pose), f"{rate}, {counts.n_success} of {counts.n_clean_correct} recognised"


def _interval_words(rate: float, interval: tuple[float, float]) -> str:
    if math.isnan(rate):
        return "no rate"
    return f"{100 * rate:.1f}% (95% interval {100 * interval[0]:.0f} to {100 * interval[1]:.0f}%)"


def _thinned(values: Sequence[float], most: int = 9) -> list[float]:
    """So many ticks at most, each at a measured value."""
    return list(values[:: math.ceil(len(values) / most)])


def _decades(lowest: float, highest: float) -> list[float]:
    """Round numbers between two powers of ten, given by their exponents; the fewer decades, the more of them."""
    steps = (1,) if highest - lowest > 2 else (1, 2, 5)
    every = [step * 10.0**k for k in range(math.floor(lowest), math.ceil(highest) + 1) for step in steps]
    return [tick for tick in every if lowest <= math.log10(tick) <= highest]


def _mesh(
    go: Any, scales: Sequence[float], angles: Sequence[float], heights: Sequence[Sequence[float | None]], *, group: str
) -> Any:
    """Thin lines over a surface through what was measured; between them it is drawn, not known."""
    along = [(scale, angle, heights[i][j]) for i, angle in enumerate(angles) for j, scale in enumerate(scales)]
    across = [(scale, angle, heights[i][j]) for j, scale in enumerate(scales) for i, angle in enumerate(angles)]
    points: list[tuple[float | None, float | None, float | None]] = []
    for every, length in ((along, len(scales)), (across, len(angles))):
        for start in range(0, len(every), length):
            points += [*every[start : start + length], (None, None, None)]
    x, y, z = zip(*points, strict=True)
    line = {"color": "#1f2328", "width": 1.5}
    look: dict[str, Any] = {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False, "opacity": 0.6}
    return go.Scatter3d(x=x, y=y, z=z, name=group, legendgroup=group, connectgaps=False, **look)


def _mixed(colour: str, share: float) -> str:
    """A colour with white, ``share`` of it the colour's own."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)
