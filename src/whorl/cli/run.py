"""``whorl run``: an experiment that a file declares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import output, progress_bar, show_files, show_json, show_rates
from whorl.cli.options import AsJson, Device, EngineName, Figures, Intervals, Workers
from whorl.progress import TensorBoard
from whorl.runs.results import records

_EXAMPLES = """
Example: whorl run mine.toml --out runs/mine

Example: whorl run mine.toml --engine ray --workers 8 --device cuda

Example: whorl run mine.toml --shard 3/16 --out runs/mine-3

Example: whorl run mine.toml --set data.limit=50 --sweep 'attacks.*.eps=4/255,8/255' --out runs/by-eps
"""


@app.command(epilog=_EXAMPLES)
def run(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A TOML file that declares the experiment.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="PATH=VALUE overrides a setting of the file, such as attacks.0.eps=8/255."),
    ] = None,
    sweeps: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="PATH=VALUE,VALUE,...: one attack per value; several sweeps are combined."),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: Annotated[
        str | None, typer.Option(help="Run one shard alone, such as 3/16; `whorl merge` merges them.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard: success rates as images are done.")
    ] = None,
    figures: Figures = False,
    intervals: Intervals = False,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    device: Device = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the declaration's.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Run the experiment that a TOML file declares; the same command resumes it, or updates it after a change.

    Only what is missing is computed. The folder holds the images, results.csv, manifest.json and report.html;
    results.tex, results.md and results-wide.csv are tables for papers and pages.
    """
    declared = runs.read_declaration(file, overrides=overrides or (), sweeps=sweeps or ())
    if seed is not None:
        declared = declared.model_copy(update={"seed": seed})
    share = None if shard is None else runs.Shard.parse(shard)
    name = declared.name if share is None else f"{declared.name}-{share.number}-of-{share.count}"
    with progress_bar() as progress:
        done = runs.run(
            declared,
            out or Path("runs") / name,
            device=device,
            engine=engine,
            workers=workers,
            shard=share,
            command=typed(ctx),
            progress=progress,
            track=None if tensorboard is None else TensorBoard(tensorboard),
        )
    if share is not None:
        report = figures = False
        if not as_json:
            output().print(f"shard {share}: {len(done.ids)} images done. `whorl merge` merges all {share.count}.")
            return show_files({"run folder": done.folder})
    return show_experiment(done, report=report, figures=figures, intervals=intervals, device=device, as_json=as_json)


def show_experiment(
    done: runs.Done, *, report: bool, figures: bool, intervals: bool, device: str, as_json: bool
) -> None:
    """Print what came of an experiment, then write its tables and its report.

    Whatever becomes of these, the rates have been shown.
    """
    if as_json:
        show_json(_content(done))
    else:
        show_rates(done)
    from whorl.report import report_experiment, write_tables

    files = write_tables(done, intervals=intervals)
    if report or figures:
        with progress_bar() as progress:
            files = report_experiment(done, device=device, figures=figures, progress=progress) | files
    if not as_json:
        show_files({**files, "rates": done.results, "run folder": done.folder})
        output().print(Text(f"took {done.seconds:.0f} s, {done.computed} of {len(done.plan.tasks)} tasks computed"))


def _content(done: runs.Done) -> dict[str, Any]:
    """Everything as plain JSON; rates that are undefined are null."""
    return {
        "name": done.declaration.name,
        "n": len(done.ids),
        "folder": str(done.folder),
        "cells": records(done.cells),
        "left_out": [{"id": name, "reason": reason} for name, reason in done.left_out],
    }
