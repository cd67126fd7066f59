"""What was measured of the approximations, as tables, Markdown, JSON and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from whorl.analysis.error import OTHERS, SIGN, STEPS, LawMeasurement
from whorl.report.charts import line_style, panels
from whorl.report.content import Table
from whorl.report.result_table import markdown_row

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COST_WORDS = {
    "g2": "inverse for adjoint",
    "g1": "gradient at the image",
    "linear": "linear scaling",
    "lattice": "finite kernel",
    "estimate": "interpolation",
}
"""What each step gives up, by the name of what it leads to."""
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


def tables(found: Sequence[LawMeasurement]) -> tuple[Table, ...]:
    """Lay everything out in tables: the corollaries, the steps, the alternatives, and kernels against every law."""
    always = _corollaries(found), _steps(found), _alternatives(found)
    return (*always, _kernels(found), _signs(found)) if _further(found[0]) else always


def _corollaries(found: Sequence[LawMeasurement]) -> Table:
    rows = []
    for one in found:
        b, held = one.bounds, one.held()
        count = len(b.c1)
        medians = [_short(_median(v)) for v in (b.c1, b.c2, b.c3, b.distance, b.mean_distance, b.distance_bound())]
        medians += [_signed(_median(b.cosine)), _signed(_median(b.cosine_bound()))]
        said = [f"{min(held[name])}/{count}" for name in ("same", "halves", "others")]
        rows.append((one.law.label, *medians, *said))
    return Table(
        title="The corollaries",
        about="Medians over the images, each with its own constants. Held: images for which both corollaries hold, "
        "with c₁ from the same draws, from the other half of the draws, and from the other images. A cosine is never "
        "below -1, so a bound below that says nothing.",
        columns=(
            *("law", "c₁", "c₂", "c₃", "‖g₂-g₁‖", "mean of norms", "bound c₁c₂", "cos(g₁,g₂)", "its bound"),
            *("held, same", "halves", "others"),
        ),
        rows=tuple(rows),
    )


def _steps(found: Sequence[LawMeasurement]) -> Table:
    rows = []
    for one in found:
        apart = [_signed(one.gram.cosine(after, before)) for before, after in pairwise(STEPS)]
        rows.append((one.law.label, *apart, _signed(one.gram.cosine("estimate", "truth"))))
    return Table(
        title="What each step costs",
        about="Cosine of each step's outcome with the one before it, noise of the draws removed; 1 costs nothing. "
        "Last, the estimate against the true gradient of the mean loss.",
        columns=("law", *(COST_WORDS[name] for name in STEPS[1:]), "estimate, truth"),
        rows=tuple(rows),
    )


def _alternatives(found: Sequence[LawMeasurement]) -> Table:
    names = ("g2", "g1", "adjoint", "estimate", *OTHERS[1:])
    rows = []
    for one in found:
        cells = []
        for name in names:
            low, high = one.gram.interval(name, "truth")
            cells.append(f"{_signed(one.gram.cosine(name, 'truth'))} ({_signed(low)} to {_signed(high)})")
        rows.append((one.law.label, *cells, f"{one.gram.reliability('truth'):.2f}"))
    return Table(
        title="Cosine with the true gradient of the mean loss",
        about="With 95% intervals over resampled images. Adjoint: Fᵀ instead of F⁻¹, at the image itself. Finer: a "
        "polar grid with twice the radii and six times the angles; log-polar likewise, and scaling exact. The last "
        "column says how much of the drawn truth is no noise; the noise is removed from the cosines.",
        columns=("law", *names, "reliability"),
        rows=tuple(rows),
    )


def _kernels(found: Sequence[LawMeasurement]) -> Table:
    names = ("plain", *_further(found[0]))
    rows = [(one.law.label, *(_digits(one.gram.cosine(name, "truth")) for name in names)) for one in found]
    return Table(
        title="Each kernel against each law's true gradient",
        about="Cosine of what an attack with that kernel would follow with what it should, whichever law the kernel "
        "stands for. Where a source is named, its gradient is the one that is averaged.",
        columns=("law", *names),
        rows=tuple(rows),
    )


def _signs(found: Sequence[LawMeasurement]) -> Table:
    names = _further(found[0])
    rows = [(one.law.label, *(_digits(one.gram.cosine(SIGN + name, "truth")) for name in names)) for one in found]
    return Table(
        title="The same after the sign, as an L∞ step takes it",
        about="Cosine of the step with the truth. All steps are equally long, so what a step gains, to first order, is "
        "in proportion to it.",
        columns=("law", *names),
        rows=tuple(rows),
    )


def _further(one: LawMeasurement) -> tuple[str, ...]:
    """The estimators that were held against every law."""
    return tuple(name for name in one.gram.names if name not in (*STEPS, *OTHERS) and not name.startswith(SIGN))


def markdown(found: Sequence[LawMeasurement], *, heading: str, command: str = "") -> str:
    """Write all tables as a section of Markdown."""
    parts = [f"### {heading}", laws_in_words(found)]
    for table in tables(found):
        lines = [table.columns, ("---",) * len(table.columns), *table.rows]
        parts += [f"**{table.title}**", "\n".join(map(markdown_row, lines)), table.about]
    parts += [f"```sh\n{command}\n```"] if command else []
    return "\n\n".join(parts) + "\n"


def laws_in_words(found: Sequence[LawMeasurement]) -> str:
    """Say what the laws are: their spreads."""
    words = {"gaussian": "σ", "uniform": "±"}
    laws = [one.law for one in found]
    each = [
        f"{law.label}: {words[law.kind]} {law.angle:.2g}°, {100 * law.scale:.2g}%, {law.shift:.2g} px" for law in laws
    ]
    return "; ".join(each) + "."


def law_as_json(one: LawMeasurement) -> dict[str, Any]:
    """Give everything as JSON values; what is undefined is null."""
    law, b, g = one.law, one.bounds, one.gram
    names = one.gram.names
    return {
        "label": law.label,
        "kind": law.kind,
        "angle": law.angle,
        "scale": law.scale,
        "shift": law.shift,
        "estimator": repr(law.estimator),
        "constants": {"c1": float(b.c1.max()), "c2": float(b.c2.max()), "c3": float(b.c3.min())},
        "held": {name: list(counts) for name, counts in one.held().items()},
        "images": {field.name: _listed(getattr(b, field.name)) for field in fields(b)}
        | {"distance_bound": _listed(b.distance_bound()), "cosine_bound": _listed(b.cosine_bound())},
        "steps": {
            after: {
                "cosine": _number(g.cosine(after, before)),
                "relative_distance": _number(g.relative(after, before)),
                "cosine_with_truth": _number(g.cosine(after, "truth")),
            }
            for before, after in pairwise(STEPS)
        },
        "cosine_with_truth": {name: _number(g.cosine(name, "truth")) for name in names},
        "interval": {name: [_number(end) for end in g.interval(name, "truth")] for name in names},
        "cosine_with_g2": {name: _number(g.cosine(name, "g2")) for name in names},
        "relative_distance_g1_g2": _number(g.relative("g1", "g2")),
        "reliability": {name: _number(g.reliability(name)) for name in names},
    }


def _median(values: torch.Tensor) -> float:
    return float(values.quantile(0.5))  # torch's median takes the lower of two


def _listed(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 5)


def _digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _signed(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}" if abs(value) < 1e5 else f"{value:.1e}"


def _short(value: float) -> str:
    return f"{value:.3g}"


def draw(content: Mapping[str, Any]) -> Figure:
    """Two panels side by side: distances beside corollary 1's bound, and cosines with the true gradient.

    Args:
        content: with a list of what :func:`law_as_json` gives under ``laws``, as a written file has it. Laws are shown
            in order; ranges, kernels and whatever else are joined by lines among themselves, by the first word of
            their labels.
    """
    titles = ("corollary 1, median image", "cosine with the gradient of the mean loss")
    figure = panels(cols=2, titles=titles, height=560, column_widths=[0.44, 0.56])
    laws = content["laws"]
    bounded = {name: [median(law["images"][key]) for law in laws] for key, name in _BOUNDED.items()}
    cosines = {name: [law["cosine_with_truth"][way] for law in laws] for way, name in _CURVES.items()}
    labels = [law["label"] for law in laws]
    drawn: list[tuple[Mapping[str, Sequence[float | None]], str]] = [(bounded, "legend"), (cosines, "legend2")]
    for column, (curves, legend) in enumerate(drawn, start=1):
        for place, (name, values) in enumerate(curves.items()):
            for first, (x, y) in enumerate(_pieces(labels, values)):
                named = {"name": name, "legendgroup": name, "legend": legend, "showlegend": not first}
                figure.add_scatter(x=x, y=y, **named, **line_style(place), row=1, col=column)
    _lay_out(figure)
    return figure


def _pieces(labels: Sequence[str], values: Sequence[float | None]) -> list[tuple[list[str], list[float | None]]]:
    """Cut a curve where one kind of law ends: a line from ranges to kernels would mean nothing."""
    pairs = zip(labels, values, strict=True)
    groups = [list(group) for _, group in groupby(pairs, key=lambda pair: pair[0].split()[0])]
    return [([label for label, _ in group], [value for _, value in group]) for group in groups]


def _lay_out(figure: Figure) -> None:
    legend = {"orientation": "v", "y": -0.42, "yanchor": "top", "font": {"size": 11}, "tracegroupgap": 0}
    figure.update_layout(
        width=900,
        margin={"t": 40, "b": 220},
        legend={**legend, "x": 0.0},
        legend2={**legend, "x": 0.5},
    )
    figure.update_xaxes(type="category", tickangle=-40)
    figure.update_yaxes(type="log", dtick=1, row=1, col=1)
    figure.update_yaxes(range=[-0.05, 1.03], row=1, col=2)
