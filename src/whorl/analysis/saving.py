"""Figures of the analysis as files: a page that opens offline, and PNG and PDF as the report writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whorl.files import atomic_write
from whorl.progress import Progress, silent
from whorl.report.rendering import render

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SCALE = 3  # as in a report: about 300 dots an inch


def save_figure(figure: Figure, stem: Path, *, width: int = 900, progress: Progress = silent) -> list[Path]:
    """Write a figure as PNG and PDF, drawn by the browser that draws a report's figures.

    Args:
        figure: with its height set.
        stem: path without an ending.
        width: in pixels of the layout.
        progress: called with each file.

    Raises:
        WhorlError: kaleido or a browser is missing.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    size = {"width": width, "height": figure.layout.height}
    wanted = {
        Path(f"{stem}.{end}"): (figure, {"format": end, "scale": _SCALE if end == "png" else 1, **size})
        for end in ("png", "pdf")
    }
    render(wanted, progress)
    return list(wanted)


def save_page(figure: Figure, path: Path) -> Path:
    """Write a figure as one HTML file that can be looked at closely and needs no network."""
    with atomic_write(path) as file:
        file.write(figure.to_html(include_plotlyjs=True, full_html=True).encode())
    return path
