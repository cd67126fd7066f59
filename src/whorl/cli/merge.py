"""``whorl merge``: the shards of an experiment, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import progress_bar
from whorl.cli.options import AsJson, Device, Figures, Intervals
from whorl.cli.run import show_experiment

_EXAMPLES = """
Example: whorl merge runs/mine-1 runs/mine-2 --out runs/mine

Example: whorl merge runs/mine-*-of-16 --out runs/mine
"""


@app.command(epilog=_EXAMPLES)
def merge(
    ctx: typer.Context,
    folders: Annotated[list[Path], typer.Argument(help="Folders of all shards, in any order.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Run folder to make.")],
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    figures: Figures = False,
    intervals: Intervals = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Merge the shards of an experiment into the folder, table and report that one run would have made.

    Nothing is computed but the examples of the report. A shard that is missing, there twice, of other settings or not
    finished is an error that names it. The device must be of the kind that the shards ran on.
    """
    with progress_bar() as progress:
        done = runs.merge(folders, out, device=device, command=typed(ctx), progress=progress)
    show_experiment(done, report=report, figures=figures, intervals=intervals, device=device, as_json=as_json)
