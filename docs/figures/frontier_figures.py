"""Draw the figures of docs/frontier.md, and print how far ``ai-best`` is from EOT, from benchmarks/results.

    python docs/figures/frontier_figures.py

Needs ``pip install whorl[figures]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
SOURCES = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}
EPS = ("16", "8", "4")
SPENT = (10, 50, 2500)
# colour, symbol
KINDS = {
    "ai-best": ("#d55e00", "square"),
    "EOT": ("#0072b2", "star"),
    "whorl's other attacks": ("#009e73", "circle"),
    "other libraries": ("#777777", "diamond"),
    "the same, wrapped": ("#777777", "diamond-open"),
}
WIDTH, HEIGHT, APART = 1320, 640, 0.032


def kind_of(name: str) -> str:
    """Under which mark a candidate is drawn.

    >>> kind_of("eot/2500"), kind_of("BSR+ai0.5/10"), kind_of("ti-dim/50")
    ('EOT', 'the same, wrapped', "whorl's other attacks")
    """
    if name.startswith(("ai-best", "eot")):
        return "EOT" if name.startswith("eot") else "ai-best"
    if not name[0].isupper():
        return "whorl's other attacks"
    return "the same, wrapped" if "+" in name else "other libraries"


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Heights of labels, from the top down, as near to those of their points as ``apart`` allows.

    >>> spread([3.0, 2.0, 1.9], 0.5)
    [3.0, 2.2, 1.7]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _lowest(groups[-2], apart) - _highest(groups[-1], apart) < apart - 1e-9:
            last = groups.pop()
            groups[-1] += last
    return [round(_highest(group, apart) - i * apart, 6) for group in groups for i in range(len(group))]


def _highest(group: Sequence[float], apart: float) -> float:
    return sum(group) / len(group) + apart * (len(group) - 1) / 2


def _lowest(group: Sequence[float], apart: float) -> float:
    return _highest(group, apart) - apart * (len(group) - 1)


def draw(rows: Mapping[str, Any], title: str) -> Any:
    """Success against gradients, a panel for each ε; every point has its name beside it."""
    drawn = import_module("plotly.subplots").make_subplots(
        rows=1, cols=len(EPS), subplot_titles=[f"ε = {eps}/255" for eps in EPS], horizontal_spacing=0.045,
        column_widths=[3, 3, 2],
    )  # fmt: skip
    for column, eps in enumerate(EPS, 1):
        points = [(n, r["gradients"], r["eps"][eps]["mean"]) for n, r in rows.items() if eps in r["eps"]]
        points = [point for point in points if not point[0].startswith("ram+")]
        low, high = min(p[2] for p in points), max(p[2] for p in points)
        low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
        where = {"row": 1, "col": column}
        for kind, (colour, symbol) in KINDS.items():
            some = [p for p in points if kind_of(p[0]) == kind]
            drawn.add_scatter(
                x=[SPENT.index(p[1]) for p in some], y=[p[2] for p in some], name=kind,
                mode="markers", marker={"color": colour, "symbol": symbol, "size": 10},
                showlegend=column == 1, **where,
            )  # fmt: skip
        for place, spent in enumerate(SPENT):
            some = sorted((p for p in points if p[1] == spent), key=lambda p: -p[2])
            for point, height in zip(some, spread([p[2] for p in some], APART * (high - low)), strict=True):
                _name(drawn, point, place, height, where)
        for point in points:
            if kind_of(point[0]) == "EOT":
                drawn.add_hline(y=point[2], line={"color": "#0072b2", "width": 1, "dash": "dot"}, **where)
        shown = sorted({SPENT.index(p[1]) for p in points})
        drawn.update_yaxes(range=[low, high], **where)
        drawn.update_xaxes(
            range=[-0.15, shown[-1] + 0.75], tickvals=shown, ticktext=[f"{SPENT[i]:,}" for i in shown], **where
        )
    drawn.update_xaxes(title="gradients per picture", showgrid=False)
    drawn.update_yaxes(title="mean success (%)", row=1, col=1)
    drawn.update_layout(
        template="plotly_white", title=f"Crafted on {title}, seen by networks of other families", width=WIDTH,
        height=HEIGHT, margin={"l": 60, "r": 20, "t": 90, "b": 100}, legend={"orientation": "h", "y": -0.14},
        font={"size": 13},
    )  # fmt: skip
    return drawn


def _name(drawn: Any, point: tuple[str, int, float], place: int, height: float, where: Mapping[str, int]) -> None:
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


def distance(part: Mapping[str, Any], name: str, other: str, eps: str) -> tuple[float, float, float]:
    """How far one candidate is above another, in points, with the 95% interval over resampled pictures.

    The rates shown count each pose alike. Which poses a picture was fooled in is not kept, only in how many, so the
    resamples pool the poses; the interval is moved to the difference that is shown.
    """
    targets = part["asked"]["targets"]
    both = [part["rows"][one]["eps"][eps] for one in (name, other)]
    count = part["asked"]["n"]
    drawn = torch.randint(count, (2000, count), generator=torch.Generator().manual_seed(0))
    weights = torch.zeros(2000, count).scatter_add_(1, drawn, torch.ones(2000, count))
    found = [_pooled(rates["fooled"], part["known"], targets, weights) for rates in both]
    whole = [_pooled(rates["fooled"], part["known"], targets, torch.ones(1, count)) for rates in both]
    shown = float(both[0]["mean"] - both[1]["mean"])
    moved = found[0] - found[1] - (whole[0] - whole[1]) + shown
    low, high = moved.quantile(torch.tensor([0.025, 0.975])).tolist()
    return shown, low, high


def _pooled(fooled: Mapping[str, str], known: Mapping[str, str], targets: Sequence[str], weights: Tensor) -> Tensor:
    """(B,) percent, the mean over targets, for (B, N) weights of the pictures."""
    rates = [100 * (weights @ _counts(fooled[t])) / (weights @ _counts(known[t])) for t in targets]
    return torch.stack(rates).mean(0)


def _counts(digits: str) -> Tensor:
    return torch.tensor([float(int(digit, 16)) for digit in digits])


def main() -> None:
    """Draw both, and print the distances."""
    for source, title in SOURCES.items():
        late = json.loads((RESULTS / f"frontier-{source}.json").read_text(encoding="utf-8"))["late"]
        draw(late["rows"], title).write_image(HERE / f"frontier-{source}.png", scale=1.5)
        for eps in EPS[:2]:
            for name in ("ai-best/10", "ai-best/50"):
                shown, low, high = distance(late, name, "eot/2500", eps)
                told = f"{title}, ε = {eps}/255, {name} above EOT: {shown:+.1f} ({low:+.1f} to {high:+.1f})"
                print(told)  # noqa: T201 - a script, and this is its answer


if __name__ == "__main__":
    main()
