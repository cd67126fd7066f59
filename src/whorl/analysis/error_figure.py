"""The approximations as a figure: what the corollaries bound and by how much, and what each step costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from whorl.report.figures import COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_BOUNDED = {
    "distance_bound": "bound c₁c₂",
    "mean_distance": "mean of norms",
    "distance": "‖g₂ - g₁‖",
    "c1": "c₁",
}
_CURVES = {
    "g2": "inverse for adjoint (g₂)",
    "g1": "+ gradient at the image (g₁)",
    "linear": "+ linear scaling",
    "lattice": "+ finite kernel",
    "estimate": "+ interpolation: the estimator",
    "log-polar": "log-polar instead",
    "plain": "no estimator",
}


def draw(content: Mapping[str, Any]) -> Figure:
    """Two panels side by side: distances beside corollary 1's bound, and cosines with the true gradient.

    Args:
        content: as :func:`whorl.analysis.error_report.as_json` gives it, or as a file of it says. Laws are shown in
            order; ranges, kernels and whatever else are joined by lines among themselves, by the first word of their
            labels.
    """
    from plotly.subplots import make_subplots  # half a second to import

    titles = ("corollary 1, median image", "cosine with the gradient of the mean loss")
    figure: Figure = make_subplots(cols=2, column_widths=[0.44, 0.56], subplot_titles=titles)
    laws = content["laws"]
    bounded = {name: [median(law["pictures"][key]) for law in laws] for key, name in _BOUNDED.items()}
    cosines = {name: [law["cosine_with_truth"][way] for law in laws] for way, name in _CURVES.items()}
    labels = [law["label"] for law in laws]
    panels: list[tuple[Mapping[str, Sequence[float | None]], str]] = [(bounded, "legend"), (cosines, "legend2")]
    for column, (curves, legend) in enumerate(panels, start=1):
        for place, (name, values) in enumerate(curves.items()):
            for first, (x, y) in enumerate(_pieces(labels, values)):
                look = {"name": name, "legendgroup": name, "legend": legend, "showlegend": not first}
                figure.add_scatter(x=x, y=y, **look, **_look(place), row=1, col=column)
    _lay_out(figure)
    return figure


def _pieces(labels: Sequence[str], values: Sequence[float | None]) -> list[tuple[list[str], list[float | None]]]:
    """Cut a curve where one kind of law ends: a line from ranges to kernels would mean nothing."""
    pairs = zip(labels, values, strict=True)
    groups = [list(group) for _, group in groupby(pairs, key=lambda pair: pair[0].split()[0])]
    return [([label for label, _ in group], [value for _, value in group]) for group in groups]


def _look(place: int) -> dict[str, Any]:
    colour = COLOURS[place % len(COLOURS)]
    dash = ("solid", "dash", "dot", "dashdot")[place % 4]
    return {"mode": "lines+markers", "line": {"color": colour, "dash": dash, "width": 2}, "marker": {"size": 7}}


def _lay_out(figure: Figure) -> None:
    legend = {"orientation": "v", "y": -0.42, "yanchor": "top", "font": {"size": 11}, "tracegroupgap": 0}
    figure.update_layout(
        template="none",
        height=560,
        margin={"l": 56, "r": 16, "t": 40, "b": 220},
        legend={**legend, "x": 0.0},
        legend2={**legend, "x": 0.5},
    )
    figure.update_xaxes(type="category", tickangle=-40, automargin=True, gridcolor="#d8dee4")
    figure.update_yaxes(gridcolor="#d8dee4", zeroline=False)
    figure.update_yaxes(type="log", dtick=1, row=1, col=1)
    figure.update_yaxes(range=[-0.05, 1.03], row=1, col=2)
