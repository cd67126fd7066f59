"""Success over rotation and scaling: a surface in 3-D, and a heat map that says how many images each cell has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from whorl.errors import WhorlError
from whorl.report.charts import (
    COLOURS,
    INK,
    PAIR,
    blank,
    figure_text,
    hover,
    mixed,
    named,
    panels,
    percent,
    readable_on,
    thinned,
    wrapped,
)
from whorl.report.series import Series, Transfer, angle_scale_grid, of_angle_and_scale
from whorl.report.tables import FEW, interval_words
from whorl.runs.results import Cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CELL_WIDTH = 46
"""Of a cell of a heat map at least, in pixels: room for a rate and an n."""


def surface(found: Mapping[Series, Sequence[Cell]], transfer: Transfer, subject: Sequence[str]) -> Figure:
    """Success rate over angle and scale, one surface for each attack, in one scene that can be rotated.

    Args:
        found: cells by series.
        transfer: whose answers.
        subject: one attack, or two to lie over each other.

    Raises:
        WhorlError: the poses form no grid of 3 angles and 3 scales without a shift.
    """
    angles, scales = _grid(found, transfer, subject)
    figure = blank(height=560)
    shades = PAIR[-len(subject) :]
    for name, colour in zip(subject, shades, strict=True):
        rows = _rows(found[Series(name, transfer)], angles, scales)
        heights = [[None if cell is None else percent(cell.counts.rate) for cell in row] for row in rows]
        figure.add_surface(
            x=scales,
            y=angles,
            z=heights,
            text=[["" if cell is None else hover(name, *cell_words(cell)) for cell in row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
            **named(name),
            legendgroup=figure_text(name),
            showlegend=True,
            showscale=False,
            cmin=0,
            cmax=100,
            colorscale=[[0, mixed(colour, 0.45)], [1, colour]],
            opacity=0.9,
            contours={axis: {"highlight": False} for axis in "xyz"},
        )
        _add_mesh(figure, scales, angles, heights, group=figure_text(name))
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 36, "b": 0},
        scene={
            "xaxis": {"title": {"text": "scale"}, "tickvals": thinned(scales), "zeroline": False},
            "yaxis": {"title": {"text": "angle (°)"}, "tickvals": thinned(angles), "zeroline": False},
            "zaxis": {"title": {"text": "success rate (%)"}, "range": [0, 100], "zeroline": False},
            "aspectmode": "manual",
            "aspectratio": {"x": 1.1, "y": 1.1, "z": 0.8},
            "camera": {"eye": {"x": 1.25, "y": -1.4, "z": 0.6}, "center": {"x": 0, "y": 0, "z": -0.24}},
        },
    )
    return figure


def heat_map(found: Mapping[Series, Sequence[Cell]], transfer: Transfer, subject: Sequence[str]) -> Figure:
    """Success rate by angle and scale, a map for each attack; in each cell the rate and n, the images recognised clean.

    Args:
        found: cells by series.
        transfer: whose answers.
        subject: attacks, from top to bottom.

    Raises:
        WhorlError: the poses form no grid of 3 angles and 3 scales without a shift.
    """
    angles, scales = _grid(found, transfer, subject)
    across, down = [f"{scale:g}" for scale in scales], [f"{angle:g}°" for angle in angles]
    own, between = len(angles) * (40 if len(angles) < 10 else 28), 84
    inner = len(subject) * own + (len(subject) - 1) * between
    titles, spacing = [""] * len(subject), between / inner if len(subject) > 1 else 0.0
    figure = panels(len(subject), 1, titles=titles, height=inner + 90, vertical_spacing=spacing)
    for row, name in enumerate(subject, start=1):
        cells = _rows(found[Series(name, transfer)], angles, scales)
        rates = [[None if cell is None else percent(cell.counts.rate) for cell in line] for line in cells]
        words = [["" if cell is None else hover(name, *cell_words(cell)) for cell in line] for line in cells]
        place = {"row": row, "col": 1}
        figure.add_heatmap(
            x=across,
            y=down,
            z=rates,
            text=words,
            hovertemplate="%{text}<extra></extra>",
            **named(name),
            zmin=0,
            zmax=100,
            colorscale=[[0, _shade(0)], [1, _shade(1)]],
            showscale=False,
            xgap=2,
            ygap=2,
            **place,
        )
        _write_cells(figure, across, down, cells, row=row, name=name)
        axis = "x domain" if row == 1 else f"x{row} domain", "y domain" if row == 1 else f"y{row} domain"
        title = {"text": f"<b>{wrapped(name, 40, 1)}</b>", "hovertext": figure_text(name), "showarrow": False}
        figure.add_annotation(**title, xref=axis[0], yref=axis[1], x=0, y=1, xanchor="left", yanchor="bottom")
        figure.update_xaxes(type="category", showgrid=False, title="scale", **place)
        figure.update_yaxes(type="category", showgrid=False, title="angle", **place)
    # A page gives it at least this width, and scrolls where the screen is narrower.
    figure.update_layout(margin={"t": 30, "b": 60}, meta={"width": 90 + _CELL_WIDTH * len(scales)})
    return figure


def _shade(share: float) -> str:
    """Colour of a rate: the darker, the more images are fooled."""
    return mixed(COLOURS[0], 0.06 + 0.94 * share)


def _write_cells(
    figure: Figure,
    across: Sequence[str],
    down: Sequence[str],
    cells: Sequence[Sequence[Cell | None]],
    *,
    row: int,
    name: str,
) -> None:
    """Write the rate and n into each cell of a heat map, black or white, whichever is read better on its colour."""
    known = [(x, y, one) for y, line in zip(down, cells, strict=True) for x, one in zip(across, line, strict=True)]
    there = [(x, y, one.counts) for x, y, one in known if one is not None and one.counts.n_clean_correct]
    figure.add_scatter(
        x=[x for x, _, _ in there],
        y=[y for _, y, _ in there],
        text=[
            f"<b>{100 * counts.rate:.0f}%</b><br>n {counts.n_clean_correct}{'*' * counts.few}" for *_, counts in there
        ],
        mode="text",
        textfont={"size": 11, "color": [readable_on(_shade(counts.rate)) for *_, counts in there]},
        hoverinfo="skip",
        **named(name),
        showlegend=False,
        row=row,
        col=1,
    )
    axis = "" if row == 1 else str(row)
    for x, y, _ in (one for one in known if one[2] is not None and not one[2].counts.n_clean_correct):
        # As a note of the figure it has the colour of the page's words. By number, for plotly would read the category
        # "0.5" as half a cell to the right.
        here = {"x": across.index(x), "y": down.index(y), "xref": f"x{axis}", "yref": f"y{axis}"}
        figure.add_annotation(**here, text="n 0", showarrow=False, font={"size": 11})


def _grid(
    found: Mapping[Series, Sequence[Cell]], transfer: Transfer, subject: Sequence[str]
) -> tuple[list[float], list[float]]:
    grid = angle_scale_grid(cell.pose for name in subject for cell in found[Series(name, transfer)])
    if grid is None:
        raise WhorlError(f"expected a grid of at least 3 angles and 3 scales for {transfer}. Measure more poses.")
    return grid


def _rows(cells: Sequence[Cell], angles: Sequence[float], scales: Sequence[float]) -> list[list[Cell | None]]:
    """Cells by angle and scale; None where nothing was measured."""
    by_pose = {(cell.pose.angle, cell.pose.scale): cell for cell in cells if of_angle_and_scale(cell.pose)}
    return [[by_pose.get((angle, scale)) for scale in scales] for angle in angles]


def cell_words(cell: Cell) -> tuple[str, str]:
    """A cell's pose, and what it holds."""
    counts = cell.counts
    if not counts.n_clean_correct:
        return str(cell.pose), "no clean image recognised"
    rate = interval_words(counts.rate, counts.interval())
    few = f"; {FEW}" if counts.few else ""
    return str(cell.pose), f"{rate}, {counts.n_success} of {counts.n_clean_correct} recognised{few}"


def _add_mesh(
    figure: Figure,
    scales: Sequence[float],
    angles: Sequence[float],
    heights: Sequence[Sequence[float | None]],
    *,
    group: str,
) -> None:
    """Thin lines over a surface through what was measured; between them it is drawn, not known."""
    along = [(scale, angle, heights[i][j]) for i, angle in enumerate(angles) for j, scale in enumerate(scales)]
    across = [(scale, angle, heights[i][j]) for j, scale in enumerate(scales) for i, angle in enumerate(angles)]
    points: list[tuple[float | None, float | None, float | None]] = []
    for every, length in ((along, len(scales)), (across, len(angles))):
        for start in range(0, len(every), length):
            points += [*every[start : start + length], (None, None, None)]
    x, y, z = zip(*points, strict=True)
    figure.add_scatter3d(
        x=x,
        y=y,
        z=z,
        name=group,
        legendgroup=group,
        showlegend=False,
        connectgaps=False,
        mode="lines",
        line={"color": INK, "width": 1.5},
        opacity=0.6,
        hoverinfo="skip",
    )
