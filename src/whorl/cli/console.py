"""Where text goes: results to stdout, everything else to stderr; wide in a log, as wide as it is on a terminal."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from whorl.errors import printable

if TYPE_CHECKING:  # they would bring torch, and `whorl --help` needs none
    from whorl.evaluation import Rate
    from whorl.runs.done import Done

_LOG_WIDTH = 240  # one row a line, so that a listing can be searched
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
    console = _Console(highlight=False, markup=False, emoji=False, **settings)
    console.push_render_hook(_AsText())
    return console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has gone, as in ``whorl models | head -1``: nothing more to say, and no gate has failed."""
        try:
            super().on_broken_pipe()
        except SystemExit as error:
            raise SystemExit(2) from error


class _AsText(RenderHook):
    """Names may hold anything, also what a terminal would obey: only what rich itself adds gets there."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Plain(one) for one in renderables]


class _Plain:
    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def show_json(content: object) -> None:
    """Print JSON and nothing else."""
    output().print_json(json.dumps(content, ensure_ascii=False))


def show_line(text: str, style: str = "") -> None:
    """Print a line, or a paragraph, that the terminal breaks and a log does not."""
    output().print(Text(text, style=style), soft_wrap=True)


def table(*headings: str, numbers: bool = False, rows: Iterable[Sequence[str]] = (), names: int = 1) -> Table:
    """Make a table in the house style; more rows may follow.

    Args:
        headings: of the columns.
        numbers: whether all columns but the first hold numbers, and so end on the right.
        rows: to begin with.
        names: how many columns, from the left, are never broken.
    """
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        # A long word, such as a setting with its kernel, goes on in a second line: cut off it would say nothing.
        name, number = place < names, numbers and place > 0
        made.add_column(
            heading, no_wrap=name, justify="right" if number else "left", overflow="ellipsis" if name else "fold"
        )
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress_bar() -> Iterator[ShownProgress]:
    """Show how far a job is: bars on a terminal, with the time that is left; now and then a plain line in a log."""
    console = messages()
    if not console.is_terminal:
        yield _LineProgress(console)
        return
    with _Bars(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
    ) as bars:
        yield _BarProgress(bars)


class ShownProgress(Protocol):
    """Progress that somebody sees."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""

    def note(self, text: str) -> None:
        """Show what is known so far; the latest counts."""


class _Bars(Bars):
    """Bars, and a line below them."""

    known = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """What is drawn again and again."""
        yield self.make_tasks_table(self.tasks)
        if self.known:
            yield Text(self.known, style="bold")


class _BarProgress:
    def __init__(self, bars: _Bars) -> None:
        self.bars, self.tasks = bars, dict[str, TaskID]()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(printable(stage), total=total)
        self.bars.update(self.tasks[stage], completed=done)

    def note(self, text: str) -> None:
        self.bars.known = printable(text)


class _LineProgress:
    def __init__(self, console: Console) -> None:
        self.console, self.seen, self.last, self.noted = console, set[str](), 0.0, -_SECONDS_BETWEEN_LINES

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        # A batch's own progress comes between that of the batches: neither is news because of the other.
        if stage not in self.seen or done == total or now - self.last >= _SECONDS_BETWEEN_LINES:
            self.console.print(f"{stage}: {done}/{total}")
            self.seen.add(stage)
            self.last = now

    def note(self, text: str) -> None:
        if time.monotonic() - self.noted >= _SECONDS_BETWEEN_LINES:
            self.console.print(text)
            self.noted = time.monotonic()


def show_rates(done: Done) -> None:
    """Print the headline rates of an experiment, a row an attack and a column a target, and its headline."""
    from whorl.evaluation import FEWEST, headline
    from whorl.report.experiment import headline_of
    from whorl.runs.networks import white_box_on

    declared, console = done.declaration, output()
    for source in dict.fromkeys(source for _, source in declared.versions()):
        targets = [f"{name} (white-box)" if white_box_on(source, name) else name for name in declared.targets]
        shown, found = table("attack", *targets, numbers=True), done.outcomes(source)
        for name in found.attacks:
            shown.add_row(name, *(rate_words(headline(found.counted(name, target))) for target in declared.targets))
        poses = len(done.plan.poses)
        heading = (
            f"Crafted on {source}: success rate (%), pooled over {poses} pose{'s' * (poses != 1)}, with its 95% "
            f"interval over images; {len(done.ids)} images, n transformed ones recognised clean"
        )
        show_line(heading, style="bold")
        console.print(shown)
    left_out = f"Poses in which a network recognises fewer than {FEWEST} clean images are left out, or marked (few)."
    show_line(left_out, style="dim")
    said = headline_of(done)
    show_line(said.statement)
    for detail in said.details:
        show_line(detail, style="dim")
    show_left_out(f"{name}: {reason}" for name, reason in done.left_out)


def show_files(files: Mapping[str, Path]) -> None:
    """Print where things lie, a line each."""
    for what, path in files.items():
        show_line(f"{what + ':':<12}{path}")


def show_left_out(reasons: Iterable[str]) -> None:
    """Print why images are missing."""
    for reason in reasons:
        messages().print(Text(f"left out: {reason}", style="yellow"))


def rate_words(one: Rate) -> str:
    """A success rate in a table of percentages, with its interval and what it is of."""
    if math.isnan(one.value):
        return "–"
    low, high = one.interval
    # "n=12" is one word, which a narrow table does not break.
    return f"{100 * one.value:.1f} ({100 * low:.0f} to {100 * high:.0f}, n={one.n}{', few' * one.few})"
