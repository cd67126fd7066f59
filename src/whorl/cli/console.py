"""Where text goes: results to stdout, everything else to stderr; wide in a log, as wide as it is on a terminal."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # they would bring torch, and `whorl --help` needs none
    from whorl.progress import Progress
    from whorl.runs.experiment import Done

_LOG_WIDTH = 200  # one row a line, so that a listing can be searched
_SECONDS_BETWEEN_LINES = 10.0


def output() -> Console:
    """Make the console for results."""
    # Made anew each time: stdout may have been replaced since.
    console = _console()
    return console if console.is_terminal or "COLUMNS" in os.environ else _console(width=_LOG_WIDTH)


def messages() -> Console:
    """Make the console for progress and errors. Lines are not broken, so that they can be searched and copied."""
    return _console(stderr=True, soft_wrap=True)


def _console(**settings: Any) -> Console:
    # Nothing in the text is an instruction: "python:cow:net" has no cow in it, and a path may hold brackets.
    return Console(highlight=False, markup=False, emoji=False, **settings)


def show_json(content: object) -> None:
    """Print JSON and nothing else."""
    output().print_json(json.dumps(content, ensure_ascii=False))


def table(*headings: str, numbers: bool = False) -> Table:
    """Make an empty table in the house style.

    Args:
        headings: of the columns; the first is never broken.
        numbers: whether all columns but the first hold numbers, and so end on the right.
    """
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        made.add_column(heading, no_wrap=place == 0, justify="right" if numbers and place else "left")
    return made


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show how far a job is: bars on a terminal, now and then a plain line in a log."""
    console = messages()
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield show


def _lines(console: Console) -> Progress:
    seen: set[str] = set()
    last = 0.0

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        # A batch's own progress comes between that of the batches: neither is news because of the other.
        if stage not in seen or done == total or now - last >= _SECONDS_BETWEEN_LINES:
            console.print(f"{stage}: {done}/{total}")
            seen.add(stage)
            last = now

    return show


def show_means(done: Done) -> None:
    """Print the mean success rate of an experiment over its poses, a row an attack and a column a target."""
    declared, console = done.declaration, output()
    sources = list(dict.fromkeys(source for _, source in declared.versions()))
    for source in sources:
        targets = [f"{name} (white-box)" if name in source.split("+") else name for name in declared.targets]
        shown = table("attack", *targets, numbers=True)
        for spec in (spec for spec, crafted_on in declared.versions() if crafted_on == source):
            shown.add_row(spec.title, *(_percent(done, spec.title, source, target) for target in declared.targets))
        poses = len(done.plan.poses)
        heading = (
            f"Crafted on {source}: mean success rate (%) over {poses} pose{'s' * (poses != 1)}, n = {len(done.ids)}"
        )
        console.print(Text(heading, style="bold"))
        console.print(shown)
    for name, reason in done.left_out:
        messages().print(Text(f"left out: {name}: {reason}", style="yellow"))


def show_files(files: Mapping[str, Path]) -> None:
    """Print where things lie, a line each."""
    for what, path in files.items():
        output().print(Text(f"{what + ':':<12}{path}"), soft_wrap=True)


def _percent(done: Done, attack: str, source: str, target: str) -> str:
    from whorl.runs.networks import split_target
    from whorl.runs.results import mean_rate

    model, layers = split_target(target)
    wanted = (attack, source, model, "+".join(layers) or "none")
    rate = mean_rate(cell for cell in done.cells if (cell.attack, cell.source, cell.target, cell.defense) == wanted)
    return "–" if math.isnan(rate) else f"{100 * rate:.1f}"
