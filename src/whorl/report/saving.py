"""Figures and galleries as files for papers: PNG, PDF and whatever else the browser writes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.progress import Progress, silent
from whorl.report.content import Content, Encoded, Example, Gallery, Shot
from whorl.report.drawings import Drawing, drawings
from whorl.report.escaping import figure_text
from whorl.report.rendering import render
from whorl.report.sheet import Panel, Tile, draw

FORMATS = ("png", "pdf", "svg")
WIDTH, SURFACE_WIDTH = 760, 820
_SCALE = 3  # pixels of a PNG for each of the layout's: about 300 dots an inch at the width of a column
_SHEET: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "optimize": True},
    "pdf": {"format": "PDF", "resolution": 150, "quality": 95},
}
_PAPER: tuple[str, ...] = ("png", "pdf")


def save_figures(
    folder: str | Path, content: Content, formats: Sequence[str] = _PAPER, *, progress: Progress = silent
) -> list[Path]:
    """Write every figure of a report, and every gallery, as files.

    Figures are drawn by a browser without a window, a second or two each. In a PDF or an SVG, lines and words stay
    sharp at any size; surfaces are pixels there too. Galleries are pixels, and become no SVG.

    Args:
        folder: where to; made if it is not there.
        content: the report.
        formats: any of "png", "pdf" and "svg".
        progress: called with each file.

    Returns:
        The files, figures first, in the report's order.

    Raises:
        WhorlError: an unknown format, kaleido or a browser is missing, or a file cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise WhorlError(f"unknown format {name!r} for figures; expected some of {', '.join(FORMATS)}.")
    endings, place = tuple(dict.fromkeys(formats)), Path(folder)
    figures = {place / f"{one.name}.{end}": _options(one, end) for one in drawings(content.cells) for end in endings}
    contact = content.photographs.galleries if content.photographs else ()
    try:
        place.mkdir(parents=True, exist_ok=True)
        render(figures, progress)
        sheets = [
            path
            for number, gallery in enumerate((*content.galleries, *contact), start=1)
            for path in save_gallery(place / f"gallery-{number:02d}", gallery, endings)
        ]
    except OSError as error:
        raise WhorlError(
            f"cannot write to {place} ({error}). Choose a folder that is writable and has space."
        ) from error
    return [*figures, *sheets]


def _options(one: Drawing, ending: str) -> tuple[Any, dict[str, Any]]:
    from plotly.graph_objects import Figure

    figure = Figure(one.figure)
    title = {
        "text": figure_text(one.title),
        "x": 0.02,
        "xanchor": "left",
        "font": {"size": 15},
        "y": 0.97,
        "yanchor": "top",
    }
    figure.update_layout(title=title, paper_bgcolor="white", plot_bgcolor="white")
    top = figure.layout.margin.t + 40
    figure.update_layout(margin={"t": top})
    width = SURFACE_WIDTH if one.kind == "surface" else WIDTH
    size = {"width": width, "height": figure.layout.height + 40}
    return figure, {"format": ending, "scale": _SCALE if ending == "png" else 1, **size}


def save_gallery(stem: Path, gallery: Gallery, formats: Sequence[str] = _PAPER) -> list[Path]:
    """Write a gallery as files.

    Args:
        stem: the path without its ending.
        gallery: what to draw.
        formats: "png" and "pdf"; others are left out.

    Returns:
        The files.
    """
    changes = gallery.magnified is not None
    leading = (f"perturbation x {gallery.magnified:.0f}", "its middle") if changes else ("",)
    panels = [Panel(name=example.truth, rows=_rows(example, changes=changes)) for example in gallery.examples]
    written = []
    with TemporaryDirectory() as folder:
        sheet = Path(folder) / "sheet.png"
        draw(panels, sheet, title=gallery.title, subtitle="", columns=(*leading, *gallery.poses))
        with Image.open(sheet) as image:
            for ending in (name for name in formats if name != "svg"):
                path = stem.with_suffix(f".{ending}")
                with atomic_write(path) as file:
                    image.save(file, **_SHEET[ending])
                written.append(path)
    return written


def _rows(example: Example, *, changes: bool) -> dict[str, tuple[Tile | None, ...]]:
    """A row for each version; the image's name goes where the tile is None, in the first row."""
    blank = Tile(picture=torch.ones(3, 1, 1))
    rows: dict[str, tuple[Tile | None, ...]] = {}
    for version in example.versions:
        first: Tile | None = None if not rows else blank
        leading = [Tile(picture=_decoded(version.change)) if version.change else first]
        if changes:
            leading.append(Tile(picture=_decoded(version.centre)) if version.centre else blank)
        rows[version.name] = (*leading, *(blank if shot is None else _tile(shot) for shot in version.shots))
    return rows


def _tile(shot: Shot) -> Tile:
    sure = "" if shot.probability is None else f" {100 * shot.probability:.0f}%"
    return Tile(picture=_decoded(shot.picture), caption=f"{shot.label}{sure}", fooled=shot.fooled)


def _decoded(picture: Encoded) -> Tensor:
    """(3, H, W) in [0, 1]."""
    import numpy as np

    with Image.open(io.BytesIO(picture.data)) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1) / 255
