"""Rehearse without a printer and a phone: every page of a sheet, photographed by simulated cameras."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError, unknown_name
from whorl.files import atomic_write
from whorl.physical.camera import Camera, Shot, photograph, printed, setting_names
from whorl.physical.ink import Linear
from whorl.physical.pdf import render_pages
from whorl.physical.sheet import Sheet
from whorl.progress import Progress, silent

RENDERED = 600.0
"""Dots per inch of the simulated print."""
TRUTH = "truth.json"


def shoot(
    sheet: Sheet, cameras: Mapping[str, Camera], *, seed: int = 0, pages: Sequence[int] | None = None
) -> Iterator[tuple[str, int, Shot]]:
    """Photograph every page with every camera; one page in memory at a time.

    Args:
        sheet: what was printed.
        cameras: by name. Those that print alike share a print.
        seed: of all randomness.
        pages: which to take, from 0; None for all.

    Returns:
        Name of the photograph, page from 0, and the photograph. A photograph does not depend on which others are taken.
    """
    wanted = range(sheet.pages) if pages is None else pages
    for page, pixels in zip(wanted, render_pages(sheet, wanted, dpi=RENDERED), strict=True):
        made: tuple[tuple[Any, ...], Linear] | None = None
        for name, camera in cameras.items():
            title = f"{sheet.name}-{page + 1:03d}-{name}"
            ink = tuple(
                getattr(camera, part)
                for part in ("dot_gain", "saturation", "black", "paper", "ink_blur", "width", "height", "scale")
            )
            if made is None or made[0] != ink:
                made = (ink, printed(pixels, sheet.layout, camera))
            yield title, page, photograph(made[1], sheet.layout, camera, name=title, seed=seed)


def simulate(
    sheets: Sequence[Sheet],
    cameras: Mapping[str, Camera],
    out: Path,
    *,
    seed: int = 0,
    pages: int | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """Photograph sheets into a folder, with the truth about each photograph beside them in ``truth.json``.

    Args:
        sheets: what was printed.
        cameras: by name.
        out: the folder.
        seed: of all randomness.
        pages: take only the first so many of each sheet.
        progress: called with each photograph.

    Returns:
        The photographs.
    """
    total = sum(min(sheet.pages, pages or sheet.pages) for sheet in sheets) * len(cameras)
    files: list[Path] = []
    truth: dict[str, Any] = {}
    progress("photographing", 0, total)
    try:
        for sheet in sheets:
            for name, page, shot in shoot(sheet, cameras, seed=seed, pages=range(sheet.pages)[:pages]):
                file = out / f"{name}{shot.suffix}"
                with atomic_write(file) as opened:
                    opened.write(shot.file)
                files.append(file)
                truth[file.name] = {"sheet": sheet.name, "page": page + 1, **_true(sheet, page, shot)}
                progress("photographing", len(files), total)
        settings = {name: {key: getattr(camera, key) for key in setting_names()} for name, camera in cameras.items()}
        with atomic_write(out / TRUTH) as opened:
            opened.write(json.dumps({"seed": seed, "cameras": settings, "photos": truth}, indent=1).encode() + b"\n")
    except OSError as error:
        raise WhorlError(f"cannot write to {out} ({error}). Choose a folder that is writable and has space.") from error
    return files


def sweep(base: Mapping[str, Camera], changes: Iterable[str]) -> dict[str, Camera]:
    """Vary settings of cameras.

    Args:
        base: cameras by name.
        changes: as ``tilt=0,20,40``: every value of every setting with every other.

    Returns:
        Cameras by name; a setting that has several values is part of it.

    >>> cameras = sweep({"mine": Camera()}, ["tilt=0,20", "jpeg=50"])
    >>> {name: (camera.tilt, camera.jpeg) for name, camera in cameras.items()}
    {'mine-tilt0': (0.0, 50), 'mine-tilt20': (20.0, 50)}
    """
    axes = [_parse(change) for change in changes]
    varied: dict[str, Camera] = {}
    for name, camera in base.items():
        for values in product(*(values for _, values in axes)):
            chosen = {setting: value for (setting, _), value in zip(axes, values, strict=True)}
            parts = [f"{setting}{chosen[setting]:g}" for setting, several in axes if len(several) > 1]
            varied["-".join([name, *parts])] = camera.with_(**chosen)
    return varied


def _parse(change: str) -> tuple[str, list[Any]]:
    setting, equals, text = change.partition("=")
    setting = setting.strip().replace("-", "_")
    known = [name for name in setting_names() if name != "paper"]
    if not equals or not text.strip():
        raise WhorlError(f"expected a setting with its values, such as tilt=0,20,40; got {change!r}.")
    if setting not in known:
        raise unknown_name("setting", setting, known, hint=f"A camera has: {', '.join(known)}.")
    kinds: dict[str, Callable[[str], Any]] = {
        "width": int,
        "height": int,
        "jpeg": int,
        "mosaic": lambda v: bool(int(v)),
    }
    kind = kinds.get(setting, float)
    try:
        return setting, [kind(value.strip()) for value in text.split(",")]
    except ValueError as error:
        raise WhorlError(f"{setting} must be numbers joined by commas, such as {setting}=0,1; got {text!r}.") from error


def _true(sheet: Sheet, page: int, shot: Shot) -> dict[str, Any]:
    visible = [item for item in sheet.on_page(page) if shot.shows(sheet.layout.cell(item.place).corners)]
    return {"visible_cells": [item.place + 1 for item in visible], "millimetres_to_pixels": shot.paper.tolist()}
