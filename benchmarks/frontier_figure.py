"""The frontier as a table, and as a figure: success against gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from frontier_candidates import PEERS
from measure import table

Rows = Mapping[str, Mapping[str, Any]]
Point = tuple[str, int, float]
"""A candidate's name, gradients and mean success in percent."""
# Okabe and Ito's colours, which people of every colour vision tell apart; and symbols.
KINDS = {
    "ai-best": ("#d55e00", "square"),
    "EOT": ("#0072b2", "star"),
    "whorl's other attacks": ("#009e73", "circle"),
    "other libraries": ("#777777", "diamond"),
    "the same, wrapped": ("#777777", "diamond-open"),
}
# Pixels; and how far names stand apart, as a share of a panel's height.
WIDTH, HEIGHT, APART = 1320, 640, 0.032


def summary(rows: Rows, eps: Sequence[float]) -> str:
    """All candidates as a table, by gradients and then by the mean at the first eps."""
    order = sorted(rows.items(), key=lambda row: (row[1]["gradients"], -row[1]["eps"][f"{eps[0]:g}"]["mean"]))
    titles = ["candidate", "gradients", *(f"eps {value:g}" for value in eps), "seconds"]
    cells = [
        [name, str(r["gradients"]), *(f"{r['eps'][f'{v:g}']['mean']:.2f}" for v in eps), f"{r['seconds_crafting']:.1f}"]
        for name, r in order
    ]
    return table(titles, cells)


def draw(rows: Rows, eps: Sequence[float], path: Path, *, source: str) -> None:
    """Write the figure as a page, or as an image by its suffix."""
    drawn = figure(rows, eps, source=source)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        drawn.write_html(path, include_plotlyjs="cdn")
    else:
        drawn.write_image(path, scale=1.5)


def figure(rows: Rows, eps: Sequence[float], *, source: str) -> Any:
    """Success against gradients, a panel for each eps; every candidate but parts of RAM and DIM, its name beside it."""
    shown = {name: row for name, row in rows.items() if not name.startswith(("ram+", "dim+"))}
    panels = [_points(shown, f"{value:g}") for value in eps]
    spent = [sorted({point[1] for point in points}) for points in panels]
    drawn = import_module("plotly.subplots").make_subplots(
        rows=1, cols=len(eps), subplot_titles=[f"ε = {value:g}/255" for value in eps], horizontal_spacing=0.045,
        column_widths=[max(1, len(columns)) for columns in spent],
    )  # fmt: skip
    for place, (points, columns) in enumerate(zip(panels, spent, strict=True), 1):
        if points:
            _panel(drawn, points, columns, {"row": 1, "col": place})
    drawn.update_xaxes(title="gradients per image", showgrid=False)
    drawn.update_yaxes(title="mean success (%)", row=1, col=1)
    drawn.update_layout(
        template="plotly_white", title=f"Crafted on {source}, evaluated on networks of other families", width=WIDTH,
        height=HEIGHT, margin={"l": 60, "r": 20, "t": 90, "b": 100}, legend={"orientation": "h", "y": -0.14},
        font={"size": 13},
    )  # fmt: skip
    return drawn


def _points(rows: Rows, eps: str) -> list[Point]:
    return [(name, row["gradients"], row["eps"][eps]["mean"]) for name, row in rows.items() if eps in row["eps"]]


def kind_of(name: str) -> str:
    """Under which mark a candidate is drawn.

    >>> kind_of("eot/2500"), kind_of("BSR+ai0.5/10"), kind_of("ti-dim/50")
    ('EOT', 'the same, wrapped', "whorl's other attacks")
    """
    base, _, added = name.partition("/")[0].partition("+")
    if base in PEERS:
        return "the same, wrapped" if added else "other libraries"
    return {"ai-best": "ai-best", "eot": "EOT"}.get(base, "whorl's other attacks")


def spread(heights: Sequence[float], apart: float, top: float) -> list[float]:
    """Heights of labels, from the top down, as near to those of their points as ``apart`` and ``top`` allow.

    >>> spread([3.0, 2.0, 1.9], 0.5, 4.0), spread([3.0, 2.9, 1.9], 0.5, 3.1)
    ([3.0, 2.2, 1.7], [3.1, 2.6, 1.9])
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _lowest(groups[-2], apart) - _highest(groups[-1], apart) < apart - 1e-9:
            last = groups.pop()
            groups[-1] += last
    found: list[float] = []
    for height in (_highest(group, apart) - i * apart for group in groups for i in range(len(group))):
        found.append(min(height, found[-1] - apart if found else top))
    return [round(height, 6) for height in found]


def _highest(group: Sequence[float], apart: float) -> float:
    return sum(group) / len(group) + apart * (len(group) - 1) / 2


def _lowest(group: Sequence[float], apart: float) -> float:
    return _highest(group, apart) - apart * (len(group) - 1)


def _panel(drawn: Any, points: Sequence[Point], spent: Sequence[int], where: Mapping[str, int]) -> None:
    """One eps: a column for each number of gradients, names spread, a line at EOT's height."""
    low, high = min(p[2] for p in points), max(p[2] for p in points)
    room = 0.06 * (high - low or 1.0)
    low, high = low - room, high + room
    for kind, (colour, symbol) in KINDS.items():
        some = [p for p in points if kind_of(p[0]) == kind]
        drawn.add_scatter(
            x=[spent.index(p[1]) for p in some], y=[p[2] for p in some], text=[p[0] for p in some], name=kind,
            mode="markers", marker={"color": colour, "symbol": symbol, "size": 10},
            hovertemplate="%{text}: %{y:.1f} %<extra></extra>", showlegend=where["col"] == 1, **where,
        )  # fmt: skip
    for place, count in enumerate(spent):
        some = sorted((p for p in points if p[1] == count), key=lambda p: -p[2])
        for point, height in zip(some, spread([p[2] for p in some], APART * (high - low), high), strict=True):
            _name(drawn, point, place, height, where)
    for point in points:
        if kind_of(point[0]) == "EOT":
            drawn.add_hline(y=point[2], line={"color": KINDS["EOT"][0], "width": 1, "dash": "dot"}, **where)
    drawn.update_yaxes(range=[low, high], **where)
    named = [f"{count:,}" for count in spent]
    drawn.update_xaxes(range=[-0.15, len(spent) - 0.25], tickvals=list(range(len(spent))), ticktext=named, **where)


def _name(drawn: Any, point: Point, place: int, height: float, where: Mapping[str, int]) -> None:
    """Put a candidate's name beside its mark, with a line where it had to move away."""
    name = point[0].rpartition("/")[0].replace("+ai0.5", ", wrapped")
    drawn.add_scatter(
        x=[place + 0.03, place + 0.12], y=[point[2], height], mode="lines", line={"color": "#bbbbbb", "width": 1},
        showlegend=False, hoverinfo="skip", **where,
    )  # fmt: skip
    bold = kind_of(point[0]) in ("ai-best", "EOT")
    drawn.add_annotation(
        x=place + 0.13, y=height, text=f"<b>{name}</b>" if bold else name, showarrow=False, xanchor="left",
        font={"size": 11}, bgcolor="white", borderpad=0, **where,
    )  # fmt: skip
