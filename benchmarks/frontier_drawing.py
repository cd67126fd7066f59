"""The frontier as a table, and as a figure: success against gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from frontier_candidates import PEERS
from measure import table


def draw(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float], path: Path) -> None:
    """Write the figure as a page, or as a picture by its suffix."""
    drawn = figure(rows, eps)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        drawn.write_html(path, include_plotlyjs="cdn")
    else:
        drawn.write_image(path, width=1000, height=620)


def summary(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float]) -> str:
    """All candidates as a table, by gradients and then by the mean at the first eps."""
    order = sorted(rows.items(), key=lambda row: (row[1]["gradients"], -row[1]["eps"][f"{eps[0]:g}"]["mean"]))
    titles = ["candidate", "gradients", *(f"eps {value:g}" for value in eps), "seconds"]
    cells = [
        [name, str(r["gradients"]), *(f"{r['eps'][f'{v:g}']['mean']:.2f}" for v in eps), f"{r['seconds_crafting']:.1f}"]
        for name, r in order
    ]
    return table(titles, cells)


def best_so_far(points: Sequence[tuple[int, float, str]]) -> list[tuple[int, float, str]]:
    """Those that no candidate beats with as few gradients: the frontier, by gradients.

    >>> best_so_far([(50, 98.0, "b"), (10, 95.0, "a"), (10, 90.0, "c"), (100, 97.0, "d")])
    [(10, 95.0, 'a'), (50, 98.0, 'b')]
    """
    kept: list[tuple[int, float, str]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


def figure(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float]) -> Any:
    """Success against gradients, a panel for each eps: every candidate a point, the best ones joined."""
    subplots = import_module("plotly.subplots")
    titles = [f"ε = {value:g}/255" for value in eps]
    drawn = subplots.make_subplots(rows=1, cols=len(eps), subplot_titles=titles)
    for column, value in enumerate(eps, 1):
        at = f"{value:g}"
        points = [(r["gradients"], r["eps"][at]["mean"], name) for name, r in rows.items() if at in r["eps"]]
        kinds = {
            "other libraries": [p for p in points if p[2].partition("/")[0].partition("+")[0] in PEERS],
            "EOT": [p for p in points if p[2].startswith("eot")],
            "ai-best": [p for p in points if p[2].startswith("ai-best")],
        }
        named = {point for some in kinds.values() for point in some}
        kinds["whorl's other attacks"] = [p for p in points if p not in named]
        for (kind, some), (colour, symbol) in zip(kinds.items(), _MARKS, strict=True):
            drawn.add_scatter(
                x=[p[0] for p in some],
                y=[p[1] for p in some],
                text=[p[2] for p in some],
                name=kind,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9},
                hovertemplate="%{text}<br>%{x} gradients, %{y:.1f} %<extra></extra>",
                showlegend=column == 1,
                row=1,
                col=column,
            )
        edge = best_so_far(points)
        drawn.add_scatter(
            x=[p[0] for p in edge],
            y=[p[1] for p in edge],
            text=[p[2].partition("/")[0] for p in edge],
            mode="lines+text",
            textposition="bottom right",
            line={"color": "#1f2328", "width": 1, "shape": "hv"},
            showlegend=False,
            hoverinfo="skip",
            row=1,
            col=column,
        )
    drawn.update_xaxes(type="log", title="gradients per picture")
    drawn.update_yaxes(title="mean success on other families (%)", col=1)
    drawn.update_layout(template="plotly_white", legend={"orientation": "h", "y": -0.2})
    return drawn


# Okabe and Ito's colours, which people of every colour vision tell apart.
_MARKS = (("#7f7f7f", "diamond"), ("#0072b2", "star"), ("#d55e00", "square"), ("#009e73", "circle"))
