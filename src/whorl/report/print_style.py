"""Figures as papers print them: the one place for their widths, type and lines.

A figure for a paper is as wide as a column or as a page, has type as large as that of the captions around it, and no
title of its own, for a caption says that. Colours are those of ``whorl.report.charts``, which people of every colour
vision distinguish, and every line differs from the others in its marks or dashes too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from whorl.report.charts import INK

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Width = Literal["column", "page"]
WIDTHS: dict[Width, float] = {"column": 3.3, "page": 6.9}
"""In inches: a column of a page of two, and the whole width of it."""
PIXELS = 96
"""To the inch, as browsers have it."""
_HEIGHTS: dict[Width, float] = {"column": 2.4, "page": 2.9}
_SURFACE_HEIGHTS: dict[Width, float] = {"column": 2.9, "page": 4.2}
_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_TYPE, _SMALL = 8.0, 7.0  # points
_LINE, _MARK = 1.25, 5.0  # pixels
_ROW = 0.17  # inches of a row of the legend
_FURTHER: dict[Width, float] = {"column": 1.45, "page": 1.1}


def for_print(figure: Figure, width: Width, *, inches_high: float | None = None) -> Figure:
    """Set a figure for a paper: its width and height, type of 8 points, thin lines, tight margins, no title.

    Args:
        figure: in the house style; it stays as it is.
        width: "column" or "page".
        inches_high: None for a usual height; what a legend of several rows takes is added.
    """
    from plotly.graph_objects import Figure

    made = Figure(figure)
    surface = any(trace.type == "surface" for trace in made.data)
    high = (inches_high or (_SURFACE_HEIGHTS if surface else _HEIGHTS)[width]) + _legend_inches(made, width)
    made.update_layout(
        title=None,
        width=round(WIDTHS[width] * PIXELS),
        height=round(high * PIXELS),
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": _FONT, "size": _points(_TYPE), "color": INK},
        margin={"l": 4, "r": 8, "t": 4, "b": 4, "pad": 0},
        legend={"font": {"size": _points(_SMALL)}, "itemsizing": "trace", "itemwidth": 30, "tracegroupgap": 0},
    )
    small, usual = {"size": _points(_SMALL)}, {"size": _points(_TYPE)}
    for axes in (made.update_xaxes, made.update_yaxes):
        axes(tickfont=small, title_font=usual, title_standoff=4, automargin=True, gridwidth=0.5)
    made.update_annotations(font=usual)
    if surface:
        scene = {axis: {"tickfont": small, "title": {"font": usual}} for axis in ("xaxis", "yaxis", "zaxis")}
        eye = made.layout.scene.camera.eye
        further = {
            axis: _FURTHER[width] * (eye[axis] or 0) for axis in "xyz"
        }  # beside the same letters there is less room
        made.update_layout(scene=scene, scene_camera_eye=further)
    made.update_traces(
        line_width=_LINE, marker_size=_MARK, selector=lambda trace: trace.type == "scatter" and trace.mode is not None
    )
    made.update_traces(error_y={"thickness": 0.75, "width": 2}, selector={"type": "scatter"})
    made.update_traces(textfont=small, selector={"type": "scatter"})
    return made


def _legend_inches(figure: Figure, width: Width) -> float:
    """What a legend of several rows takes from the height: it stands above, and its rows are as full as they can be."""
    if figure.layout.showlegend is False:
        return 0.0
    shown = [trace.name or "" for trace in figure.data if trace.showlegend is not False]
    widest = max((len(name) for name in shown), default=0) * 0.055 + 0.55
    return _ROW * (math.ceil(len(shown) / max(1, int(WIDTHS[width] / widest))) - 1)


def _points(size: float) -> float:
    """A size of type in pixels."""
    return round(size * PIXELS / 72, 2)
