"""Run a table or figure of the paper, and put it beside what the paper printed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.paper.casting import Profile, load_profile
from whorl.paper.compared import Compared
from whorl.paper.comparing import compare_with_printed
from whorl.paper.declaring import declaration
from whorl.paper.gallery import draw_gallery
from whorl.paper.item import load
from whorl.paper.panels import write_panels
from whorl.paper.photographing import reproduce_photographs
from whorl.paper.querying import reproduce_queries
from whorl.paper.reporting import write_paper_report
from whorl.paper.writing import markdown, write_csv, write_text
from whorl.progress import Progress, silent
from whorl.runs.experiment import Done, run
from whorl.runs.results import write_results


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """What came of running a table or figure.

    Attributes:
        compared: ours beside the paper's.
        done: the run; None of a table that counts queries or photographs.
        folder: the run folder.
        files: what was written of it, by what it is.
    """

    compared: Compared
    done: Done | None
    folder: Path
    files: dict[str, Path]


def default_folder(profile: str | Path | Profile, data: str | Path | None = None, limit: int | None = None) -> Path:
    """Where a run goes unless told otherwise: one folder for all tables on the same images, so that they share them.

    >>> default_folder("offline", "photos/nips17", 8).as_posix()
    'runs/paper-offline-nips17-8'
    """
    parts = ["paper", load_profile(profile).name, "samples" if data is None else Path(data).resolve().stem]
    return Path("runs") / "-".join((*parts, *([] if limit is None else [str(limit)])))


def reproduce(
    name: str,
    out: str | Path | None = None,
    *,
    profile: str | Path | Profile = "offline",
    data: str | Path | None = None,
    limit: int | None = None,
    size: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    attacks: Sequence[str] = (),
    without: Sequence[str] = (),
    quick: bool = False,
    device: str = "auto",
    engine: str = "local",
    workers: int | None = None,
    command: Sequence[str] = (),
    page: bool = False,
    figures: bool = False,
    progress: Progress = silent,
) -> Reproduced:
    """Run a table or figure of the paper, going on where an earlier run stopped.

    Beside what every run leaves, the folder ``paper`` in the run folder gets the comparison as Markdown and CSV, the
    cells in long form, and for a gallery the image.

    Args:
        name: as in ``table1``.
        out: the run folder; see :func:`default_folder`. Tables that are given the same one share their images.
        profile: who stands for the paper's networks: "offline", "paper" or a TOML file.
        data: folder of labelled images, or a CSV list; the bundled samples if None.
        limit: take only the first so many.
        size: side in pixels to resize to; the profile's if None.
        seed: of all randomness.
        batch_size: images at a time.
        attacks: rows to run; all if empty.
        without: rows to leave out.
        quick: whether EOT takes 100 gradients an image instead of 2,500.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "local" or "ray".
        workers: of the engine ray.
        command: what the user typed, for the manifest.
        page: whether to write an HTML report too, and of an item with an axis its curves; it needs plotly.
        figures: whether to write the report's figures as PNG and PDF too; they need a browser.
        progress: called with each task.

    Raises:
        WhorlError: there is no such table or figure, it cannot be run yet, or the input is bad.
    """
    item, chosen = load(name), load_profile(profile)
    folder = default_folder(chosen, data, limit) if out is None else Path(out)
    place = folder / "paper"
    files = {"comparison": place / f"{item.name}.md", "figures": place / f"{item.name}.csv"}
    common: dict[str, Any] = {"data": data, "limit": limit, "size": size, "seed": seed}
    common |= {"attacks": attacks, "without": without}
    if item.kind == "queries":
        if engine != "local":
            raise WhorlError(f"{item.name} runs on the engine local only; got {engine!r}.")
        if page:
            raise WhorlError(
                f"{item.name} counts queries, for which there is no HTML report. Leave report and figures out."
            )
        files["queries"] = folder / item.name / "images.jsonl"
        compared = reproduce_queries(item, folder / item.name, chosen, **common, device=device, progress=progress)
        done = None
    elif item.kind == "photographs":
        if engine != "local":
            raise WhorlError(f"{item.name} runs on the engine local only; got {engine!r}.")
        common |= {"batch_size": batch_size, "quick": quick, "workers": workers, "command": command}
        files |= {"report": place / f"{item.name}.html"} if page else {}
        files |= {"drawings": place / f"{item.name}-figures"} if figures else {}
        common |= {"page": files.get("report"), "figures": files.get("drawings")}
        compared = reproduce_photographs(item, folder / item.name, chosen, **common, device=device, progress=progress)
        done = None
    else:
        declared = declaration(item, chosen, **common, batch_size=batch_size, quick=quick)
        done = run(declared, folder, device=device, engine=engine, workers=workers, command=command, progress=progress)
        compared = compare_with_printed(item, done, chosen)
        files["cells"] = place / f"{item.name}-results.csv"
        write_results(files["cells"], done.cells)
    write_text(files["comparison"], markdown(compared, command=shlex.join(command)))
    write_csv(files["figures"], [compared])
    if item.kind == "gallery" and done is not None:
        files["gallery"] = place / f"{item.name}.png"
        draw_gallery(item, done, files["gallery"], device=device)
    if page and item.axis is not None:
        files |= write_panels(compared, place, files_too=figures, progress=progress)
    if page and done is not None:
        files["report"] = place / f"{item.name}.html"
        drawn = place / f"{item.name}-figures" if figures else None
        write_paper_report(compared, done, files["report"], device=device, figures=drawn)
        files |= {} if drawn is None else {"drawings": drawn}
    return Reproduced(compared=compared, done=done, folder=folder, files=files)
