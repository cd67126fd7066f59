"""The training report: curves and settings on one page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from whorl.report import Content, Drawing, write_report
from whorl.report.charts import line_style, panels

_ACCURACIES = {
    "clean": "clean",
    "transfer": "MIM from the pool, ε = 16/255",
    "white_box": "PGD on the student, ε = 4/255",
}


def write_training_report(
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
    summary = f"{steps} Accuracy on {_held_out(last)} at the end: {'; '.join(shown)}." if shown else steps
    charts = (_curves(history),) if history else ()
    write_report(path, Content(title=name, about=summary, charts=charts, settings=about))


def _held_out(measured: Mapping[str, float]) -> str:
    """What the accuracies are of; an earlier version did not record how many."""
    return f"{measured['held_out']:.0f} held-out images" if "held_out" in measured else "held-out images"


def _curves(history: Sequence[Mapping[str, float]]) -> Drawing:
    """Two charts, one above the other: held-out accuracy and the loss."""
    titles = (f"accuracy on {_held_out(history[-1])} (%)", "training loss")
    figure = panels(2, titles=titles, height=640, shared_xaxes=True, vertical_spacing=0.12)
    steps = [entry["step"] for entry in history]
    for place, (key, text) in enumerate(_ACCURACIES.items()):
        if any(key in entry for entry in history):
            values = [100 * entry[key] if key in entry else None for entry in history]
            figure.add_scatter(x=steps, y=values, name=text, **line_style(place), row=1, col=1)
    loss = [entry["loss"] for entry in history]
    figure.add_scatter(x=steps, y=loss, name="loss", showlegend=False, **line_style(6), row=2, col=1)
    figure.update_yaxes(range=[0, 100], row=1, col=1)
    figure.update_yaxes(rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_layout(margin={"t": 90}, legend={"y": 1.06})
    alt = "Held-out accuracy, clean and under two attacks, and the training loss, over the steps."
    return Drawing(name="training", title="The training", alt=alt, figure=figure)
