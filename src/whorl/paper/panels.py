"""Curves over what changes from row to row, a panel a pose and a line a network: the paper's figure of kernel sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whorl.errors import WhorlError
from whorl.paper.comparison import Compared, Value
from whorl.paper.declaration import file_stem
from whorl.paper.export import heading
from whorl.progress import Progress, silent
from whorl.report.charts import figure_text, line_style
from whorl.report.charts import panels as chart_panels
from whorl.report.content import Drawing
from whorl.report.export import save_charts
from whorl.report.page import write_chart
from whorl.report.print_style import WIDTHS, Width, for_print

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ACROSS = 3
_PANEL_HEIGHT = 250
_PRINTED_ACROSS: dict[Width, int] = {"column": 2, "page": 3}
_PRINTED_HEIGHT = 1.5  # inches of a row of panels
_MEAN = "mean"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of one panel.

    Attributes:
        panel: the panel's title: a pose, or what the mean is over.
        name: the network that was evaluated.
        points: (value on the axis, percent), ascending.
        of: how many images each rests on, and its interval, in words.
    """

    panel: str
    name: str
    points: tuple[tuple[float, float], ...]
    of: tuple[str, ...] = ()


def curves(compared: Compared) -> Iterator[Curve]:
    """Read the curves off a comparison whose item has an axis.

    A row without a rate leaves a gap in its curve.
    """
    axis = compared.item.axis
    if axis is None:
        raise WhorlError(f"{compared.item.name} has no axis to draw curves along.")
    for block in compared.blocks:
        lines = [(axis.values[line.attack], line) for line in block.lines if line.attack in axis.values]
        lines.sort(key=lambda pair: pair[0])
        one_panel = compared.item.kind == "mean"
        for place, (column, target) in enumerate(zip(block.columns, block.targets, strict=True)):
            if not one_panel and column == _MEAN:
                continue
            values = [(at, line.values[place].ours) for at, line in lines]
            shown = [line.values[place] for _, line in lines]
            yield Curve(
                panel=f"mean over {len(compared.item.all_poses())} poses" if one_panel else column,
                name=target,
                points=tuple((at, math.nan if rate is None else rate) for at, rate in values),
                of=tuple(f"n = {value.n}{_interval_words(value)}" for value in shown),
            )


def _interval_words(value: Value) -> str:
    return "" if value.interval is None else ", 95% interval {:.1f} to {:.1f}%".format(*value.interval)


def draw_panels(compared: Compared, across: int = _ACROSS) -> Figure:
    """Draw the curves, so many panels side by side at most, with one legend for all."""
    every = list(curves(compared))
    panels, names = (list(dict.fromkeys(getattr(one, part) for one in every)) for part in ("panel", "name"))
    across = min(across, len(panels))
    down = math.ceil(len(panels) / across)
    figure = chart_panels(
        down,
        across,
        titles=panels,
        height=90 + down * _PANEL_HEIGHT,
        shared_yaxes="all",
        vertical_spacing=0.2 if down > 1 else 0,
        horizontal_spacing=0.05,
    )
    for one in every:
        row, column = divmod(panels.index(one.panel), across)
        figure.add_scatter(
            x=[at for at, _ in one.points],
            y=[None if math.isnan(rate) else round(rate, 4) for _, rate in one.points],
            name=figure_text(one.name),
            legendgroup=one.name,
            showlegend=one.panel == panels[0],
            customdata=one.of,
            hovertemplate="%{x}: %{y:.1f}%, %{customdata}<extra>" + figure_text(one.name) + "</extra>",
            **line_style(names.index(one.name)),
            row=row + 1,
            col=column + 1,
        )
    _lay_out(figure, compared, every, down)
    return figure


def write_panels(compared: Compared, folder: Path, *, files_too: bool, progress: Progress = silent) -> dict[str, Path]:
    """Write the curves as a page, and as PNG and PDF if they are wanted.

    Args:
        compared: with an axis.
        folder: where to.
        files_too: whether to have a browser draw PNG and PDF, into ``<name>-figures``.
        progress: called with each file.

    Returns:
        What was written, by what it is.
    """
    name, figure = file_stem(compared.item.name, compared.kernel), draw_panels(compared)
    alt = "Curves: success rate by what changes from row to row, a panel a pose and a line a network."
    chart = Drawing(name="panels", title=compared.item.title, alt=alt, figure=figure)
    page = write_chart(folder / f"{name}-panels.html", chart, title=heading(compared), about=compared.item.about)
    written = {"curves": page}
    if files_too:
        stem = folder / f"{name}-figures" / "panels"
        printed = {stem.with_name(f"panels-{width}.pdf"): print_panels(compared, width) for width in WIDTHS}
        written["panels"] = save_charts({stem.with_suffix(".png"): figure, **printed}, progress=progress)[0]
    return written


def print_panels(compared: Compared, width: Width) -> Figure:
    """Draw the curves for a paper: two panels side by side in a column, three on a page, the legend above them."""
    across = _PRINTED_ACROSS[width]
    panels = len({one.panel for one in curves(compared)})
    high = 0.4 + _PRINTED_HEIGHT * math.ceil(panels / across)
    figure = for_print(draw_panels(compared, across), width, inches_high=high)
    return figure.update_layout(legend={"x": 0, "y": 1 + 0.3 / high, "yanchor": "bottom"})


def _lay_out(figure: Figure, compared: Compared, every: Sequence[Curve], down: int) -> None:
    axis = compared.item.axis
    assert axis is not None  # noqa: S101 - curves() refused an item without one
    ticks = [at for at, _ in every[0].points]
    lowest = min((rate for one in every for _, rate in one.points if not math.isnan(rate)), default=0.0)
    figure.update_layout(
        width=900,
        margin={"t": 40, "b": 100},
        legend={"y": -0.34 / down - 0.03, "yanchor": "top"},
    )
    labels = [f"{tick:.3g}" for tick in ticks]
    title = {"text": axis.label, "standoff": 6}
    figure.update_xaxes(title=title, tickvals=ticks, ticktext=labels, type="log" if axis.log else "linear")
    # Where all rates are high, their differences would not be seen on the whole scale.
    floor = max(0, 10 * math.floor((lowest - 5) / 10)) if lowest > 50 else 0
    figure.update_yaxes(range=[floor - 0.03 * (100 - floor), 100 + 0.03 * (100 - floor)], nticks=6)
    figure.update_yaxes(title="success rate (%)", col=1)
