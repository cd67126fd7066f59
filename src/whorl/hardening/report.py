"""The training report: curves on one page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError, missing_extra
from whorl.files import atomic_write

_ACCURACIES = {
    "clean": "clean",
    "transfer": "MIM from the pool, ε = 16/255",
    "white_box": "PGD on the student, ε = 4/255",
}
_COLOURS = ("#1d60a9", "#c2571a", "#6b4fa0")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
th, td {{ text-align: left; padding: .25rem 1.25rem .25rem 0; vertical-align: top; overflow-wrap: anywhere }}
th {{ font-weight: 600; white-space: nowrap }}
</style></head><body>
<h1>{title}</h1>
<p>{summary}</p>
{curves}
<h2>Settings</h2>
<table>{rows}</table>
</body></html>
"""


def write_report(
    path: Path, *, name: str, history: Sequence[Mapping[str, float]], about: Mapping[str, str], seconds: float
) -> None:
    """Write the curves of a training and its settings as one HTML page, with everything in it.

    Args:
        path: where; the file appears whole or not at all.
        name: of the hardened network.
        history: measurements, oldest first; see :class:`whorl.hardening.Hardened`.
        about: what was trained how, each as text.
        seconds: spent on training.
    """
    last = history[-1] if history else {}
    shown = [f"{text}: {100 * last[key]:.1f}%" for key, text in _ACCURACIES.items() if key in last]
    steps = f"{last['step']:.0f} steps in {seconds:.0f} s." if last else "No measurements yet."
    summary = f"{steps} Accuracy on held-out images at the end: {'; '.join(shown)}." if shown else steps
    rows = "".join(f"<tr><th>{html.escape(key)}</th><td>{html.escape(text)}</td></tr>" for key, text in about.items())
    page = _PAGE.format(title=html.escape(name), summary=html.escape(summary), curves=_curves(history), rows=rows)
    try:
        with atomic_write(path) as file:
            file.write(page.encode())
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def _curves(history: Sequence[Mapping[str, float]]) -> str:
    """Two charts, one above the other: held-out accuracy and the loss."""
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise missing_extra("the training report", "plotly") from error
    titles = ("accuracy on held-out images (%)", "training loss")
    figure: Any = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.12)
    steps = [entry["step"] for entry in history]
    for (key, text), colour in zip(_ACCURACIES.items(), _COLOURS, strict=True):
        if any(key in entry for entry in history):
            values = [100 * entry[key] if key in entry else None for entry in history]
            line = {"color": colour, "width": 2}
            figure.add_trace(
                go.Scatter(x=steps, y=values, name=text, mode="lines+markers", line=line, legendgroup=key), row=1, col=1
            )
    loss = [entry["loss"] for entry in history]
    figure.add_trace(
        go.Scatter(x=steps, y=loss, name="loss", mode="lines+markers", line={"color": "#57606a"}, showlegend=False),
        row=2,
        col=1,
    )
    figure.update_yaxes(range=[0, 100], row=1, col=1)
    figure.update_yaxes(rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_layout(
        template="plotly_white",
        height=640,
        margin={"l": 50, "r": 20, "t": 70, "b": 50},
        legend={"orientation": "h", "y": 1.12},
    )
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=True, config={"displaylogo": False})
    return drawn
