"""Run a table or figure of the paper, and put it beside what the paper printed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from whorl.errors import WhorlError
from whorl.files import write_csv as write_rows
from whorl.files import write_file
from whorl.paper.cast import load_profile
from whorl.paper.comparison import Compared
from whorl.paper.declaration import PaperOptions, declaration, file_stem
from whorl.paper.export import markdown, report_tables, result_tables, write_csv
from whorl.paper.item import Item, load
from whorl.paper.outcomes_file import outcomes_text
from whorl.paper.panels import write_panels
from whorl.paper.photographs import reproduce_photographs
from whorl.paper.printed import compare_with_printed
from whorl.paper.queries import reproduce_queries
from whorl.progress import Progress, silent
from whorl.report.experiment import experiment_content, run_gallery
from whorl.report.export import save_figures, save_gallery
from whorl.report.gallery import RULE, recognised_first
from whorl.report.page import write_report
from whorl.report.result_table import latex, wide_rows
from whorl.runs.done import Done
from whorl.runs.experiment import run
from whorl.runs.results import write_results

EXAMPLES = 4


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
    done: Done | None = None
    folder: Path
    files: dict[str, Path]


def default_folder(options: PaperOptions) -> Path:
    """Where a run goes by default: one folder for all tables on the same images, so that they share them.

    >>> default_folder(PaperOptions(data="photos/nips17", limit=8)).as_posix()
    'runs/paper-offline-nips17-8'
    """
    images = "samples" if options.data is None else Path(options.data).resolve().stem
    parts = [file_stem("paper", options.kernel), load_profile(options.profile).name, images]
    return Path("runs") / "-".join((*parts, *([] if options.limit is None else [str(options.limit)])))


def reproduce(
    name: str, out: str | Path | None = None, options: PaperOptions | None = None, *, progress: Progress = silent
) -> Reproduced:
    """Run a table or figure of the paper, going on where an earlier run stopped.

    Beside what every run leaves, the folder ``paper`` in the run folder gets the comparison as Markdown, as LaTeX and
    as CSV in long and in wide form, the cells in long form, what became of each image, and for a gallery the image.

    Args:
        name: as in ``table1``.
        out: the run folder; see :func:`default_folder`. Tables that are given the same one share their images.
        options: what to run, on what, and where; everything, on the bundled samples, if None.
        progress: called with each task.

    Raises:
        WhorlError: there is no such table or figure, it cannot be run yet, or the input is bad.
    """
    item, options = load(name), options or PaperOptions()
    folder = default_folder(options) if out is None else Path(out)
    kinds = {"queries": _with_queries, "photographs": _with_photographs}
    made = kinds.get(item.kind, _as_experiment)(item, folder, options, progress)
    place = folder / "paper"
    stem = file_stem(item.name, options.kernel)
    files = {"comparison": place / f"{stem}.md", "figures": place / f"{stem}.csv"}
    write_file(files["comparison"], markdown(made.compared, command=shlex.join(options.command)))
    write_csv(files["figures"], [made.compared])
    tables = result_tables(made.compared)
    if tables:
        files |= {"LaTeX": place / f"{stem}.tex", "wide CSV": place / f"{stem}-wide.csv"}
        write_file(files["LaTeX"], latex(tables, intervals=options.intervals))
        write_rows(files["wide CSV"], wide_rows(tables))
    return replace(made, files=files | made.files)


def _as_experiment(item: Item, folder: Path, options: PaperOptions, progress: Progress) -> Reproduced:
    done = run(
        declaration(item, options),
        folder,
        device=options.device,
        engine=options.engine,
        workers=options.workers,
        command=options.command,
        progress=progress,
    )
    compared = compare_with_printed(item, done, options.profile, kernel=options.kernel)
    place, stem = folder / "paper", file_stem(item.name, options.kernel)
    files = {"cells": place / f"{stem}-results.csv", "outcomes": place / f"{stem}-outcomes.json"}
    write_results(files["cells"], done.cells)
    write_file(files["outcomes"], outcomes_text(compared, done))
    if item.kind == "gallery":
        files["gallery"] = place / f"{stem}.png"
        draw_gallery(item, done, files["gallery"], device=options.device)
    if options.page:
        if item.axis is not None:
            files |= write_panels(compared, place, files_too=options.figures, progress=progress)
        content = experiment_content(done, device=options.device, tables=report_tables(compared))
        files["report"] = write_report(place / f"{stem}.html", content)
        if options.figures:
            files["drawings"] = place / f"{stem}-figures"
            save_figures(files["drawings"], content)
    return Reproduced(compared=compared, done=done, folder=folder, files=files)


def _with_queries(item: Item, folder: Path, options: PaperOptions, progress: Progress) -> Reproduced:
    _check_local(item, options)
    if options.page:
        raise WhorlError(
            f"{item.name} counts queries, for which there is no HTML report. Leave report and figures out."
        )
    place = folder / file_stem(item.name, options.kernel)
    compared = reproduce_queries(item, place, options, progress=progress)
    return Reproduced(compared=compared, folder=folder, files={"queries": place / "images.jsonl"})


def _with_photographs(item: Item, folder: Path, options: PaperOptions, progress: Progress) -> Reproduced:
    _check_local(item, options)
    place, stem = folder / "paper", file_stem(item.name, options.kernel)
    files = {"report": place / f"{stem}.html"} if options.page else {}
    files |= {"drawings": place / f"{stem}-figures"} if options.figures else {}
    compared = reproduce_photographs(
        item,
        folder / stem,
        options,
        page=files.get("report"),
        figures=files.get("drawings"),
        progress=progress,
    )
    return Reproduced(compared=compared, folder=folder, files=files)


def _check_local(item: Item, options: PaperOptions) -> None:
    if options.engine != "local":
        raise WhorlError(f"{item.name} runs on the engine local only; got {options.engine!r}.")


def draw_gallery(item: Item, done: Done, path: Path, *, device: str = "auto") -> list[str]:
    """Draw the examples of a gallery as a PNG file.

    Shown are the first images that the target recognises clean in every pose, whatever the attacks make of them. If
    there are too few, those follow that it recognises in most poses.

    Args:
        item: a gallery.
        done: what came of running its declaration.
        path: the file.
        device: "auto", "cpu", "cuda" or "cuda:1".

    Returns:
        The ids of the images that are shown.
    """
    [source], [target] = done.declaration.sources, done.declaration.targets
    poses = {shown.label: shown.pose for shown in item.poses}
    chosen = recognised_first(done.outcomes(source), target, tuple(poses.values()))[:EXAMPLES]
    made = run_gallery(done, source, target, chosen, poses=poses, device=device)
    title = f"{item.title}: crafted on {source}, evaluated on {target}"
    about = f"Images: {RULE.format(target)}"
    save_gallery(path.with_suffix(""), replace(made, title=title, about=about), ["png"])
    return [done.ids[place] for place in chosen]
