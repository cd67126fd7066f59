"""Draw the images of docs/hardening/weights.md and docs/hardening/frontier.md from benchmarks/results.

Run from anywhere: python docs/figures/hardening_figure.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from whorl.report import Drawing, bars, save_charts
from whorl.report.charts import BASELINE, COLOURS, FAINT, blank
from whorl.report.export import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

import doc_hardening  # noqa: E402 - it stands beside the benchmarks

MEASURED = HERE.parents[1] / "benchmarks" / "results" / "hardening-cuda.json"
SHORT = {"efficientnet_lite0": "lite0", "mobilenet_v2": "mobilenet"}
UPRIGHT, POSED = "identity from resnet18", "twelve poses from resnet18"


def main() -> None:
    """Draw both, in few colours."""
    charts = {"hardening": gains(), "hardening-frontier": frontier()}
    for path in save_charts({HERE / f"{name}.png": figure for name, figure in charts.items()}):
        with Image.open(path) as image:
            image.convert("RGB").quantize(64).save(path, optimize=True)


def gains() -> Figure:
    """Clean accuracy, dim as the images are, and ai-dim over the poses, before and after."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    groups = {
        "clean accuracy": pairs(measured[UPRIGHT], "dim", clean=True),
        "fooled by dim": pairs(measured[UPRIGHT], "dim"),
        "fooled by ai-dim, 12 poses": pairs(measured[POSED], "ai-dim"),
    }
    title = f"Gain of hardening: {measured['metadata']['n']} NIPS17 images, attacks crafted on resnet18"
    chart = Drawing(name="hardening", title=title, alt="", figure=bars(groups))
    return titled(chart).update_layout(width=1000)


def frontier() -> Figure:
    """Success of ai-best at ε = 8/255 over the poses, and what it cost: on what chose, on what judges, and the bar."""
    chart = blank(height=430)
    shares = ["original", *doc_hardening.shares()]
    unnamed = ("original", doc_hardening.HALF, doc_hardening.WHOLE)
    chosen = [(lost(name, choice=True), doc_hardening.success(name, "ai-best-8", choice=True)) for name in shares]
    chart.add_scatter(
        x=[cost[0] for cost, _ in chosen],
        y=[rate[0] for _, rate in chosen],
        text=[name.partition("@")[2] if name not in unnamed else "" for name in shares],
        name="shares of the way, NIPS17, as when chosen",
        mode="lines+markers+text",
        textposition="bottom left",
        textfont={"size": 11, "color": FAINT},
        line={"color": BASELINE, "width": 2},
        marker={"size": 6},
    )
    names = ["original", "ens-at", "alp", "ai-at", doc_hardening.HALF, doc_hardening.WHOLE]
    judged = [(lost(name), doc_hardening.success(name, "ai-best-8")) for name in names]
    bars_of = [arms([found[axis] for found in judged]) for axis in (0, 1)]
    chart.add_scatter(
        x=[cost[0] for cost, _ in judged],
        y=[rate[0] for _, rate in judged],
        text=[f"<b>{name}</b>" for name in names],
        name="held-out photographs, 95% intervals",
        textposition=["bottom left" if name == doc_hardening.HALF else "top right" for name in names],
        mode="markers+text",
        marker={"size": 9, "color": COLOURS[0]},
        error_x=bars_of[0],
        error_y=bars_of[1],
    )
    most, half = doc_hardening.chosen_on().data["choice"]["most_lost"], judged[0][1][0] / 2
    chart.add_shape(type="rect", x0=-1, x1=most, y0=0, y1=half, fillcolor=COLOURS[2], opacity=0.18, line_width=0)
    chart.add_annotation(x=(most - 1) / 2, y=half / 2, text="the bar", showarrow=False, font={"color": COLOURS[2]})
    chart.update_xaxes(title="clean top-1 lost (points)", range=[-1, 20.5], dtick=3)
    chart.update_yaxes(title="ai-best succeeds, 12 poses (%)", range=[0, 107])
    one = Drawing(name="hardening-frontier", title="ai-best from resnet18, ε = 8/255", alt="", figure=chart)
    return titled(one)


def lost(name: str, *, choice: bool = False) -> list[float]:
    """Points of top-1 with their interval; the original loses none."""
    return [0.0, 0.0, 0.0] if name == "original" else doc_hardening.lost(name, choice=choice)


def arms(found: list[list[float]]) -> dict[str, Any]:
    """Intervals, given as (value, low, high), as plotly draws them."""
    up, down = [high - value for value, _, high in found], [value - low for value, low, _ in found]
    shape = {"thickness": 1.2, "width": 3}
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **shape}


def pairs(cells: list[dict[str, Any]], attack: str, *, clean: bool = False) -> dict[str, dict[str, float]]:
    """One pair of bars a hardened network: its original, and itself."""
    found = {}
    for name in sorted({cell["target"] for cell in cells}):
        base, _, recipe = name.partition(".")
        if recipe:
            before, after = (share(cells, target, attack, clean=clean) for target in (base, name))
            found[f"{SHORT[base]} {recipe}"] = {"original": before, "hardened": after}
    return found


def share(cells: list[dict[str, Any]], target: str, attack: str, *, clean: bool) -> float:
    """Accuracy, or the success rate of an attack, in [0, 1] as a mean over the poses."""
    own = [cell for cell in cells if cell["target"] == target and cell["attack"] == attack]
    part, whole = ("n_clean_correct", "n") if clean else ("n_success", "n_clean_correct")
    return sum(float(cell[part] / cell[whole]) for cell in own) / len(own)


if __name__ == "__main__":
    main()
