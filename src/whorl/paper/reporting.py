"""A comparison with the paper as part of a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whorl.paper.compared import Compared, Line
from whorl.paper.verdicts import MARKS
from whorl.paper.writing import LEGEND, cost_lines, heading, held_against, text_of
from whorl.runs.experiment import Done

if TYPE_CHECKING:
    from whorl.report.content import Table


def report_tables(compared: Compared) -> tuple[Table, ...]:
    """Turn a comparison into tables that a report shows as they are.

    Where the paper printed figures, the last one lists the orderings that are the other way round.
    """
    from whorl.report.content import Table  # what a report needs may not be installed

    said = (compared.summary, *cost_lines(compared.costs), *compared.notes)
    about = " ".join(filter(None, said))
    tables = [
        Table(
            title=f"{heading(compared)}: {block.title}",
            about=f"{LEGEND} {held_against(compared)}" if compared.item.printed else about,
            columns=("attack", *block.columns),
            rows=tuple((line.attack, *(text_of(value, block.digits) for value in line.values)) for line in block.lines),
            notes=tuple(_note(line) for line in block.lines),
        )
        for block in compared.blocks
    ]
    if compared.item.printed:
        summary = Table(
            title=f"{heading(compared)}: orderings that are the other way round",
            about=about,
            columns=("pair, column and difference in points",),
            rows=tuple((str(one),) for one in compared.differing) or (("none",),),
        )
        tables.append(summary)
    return tuple(tables)


def write_paper_report(
    compared: Compared, done: Done, path: str | Path, *, device: str = "auto", figures: str | Path | None = None
) -> None:
    """Write the report of a table or figure as one HTML file.

    Args:
        compared: ours beside the paper's.
        done: the run.
        path: the file.
        device: where to ask networks about the examples.
        figures: folder for every figure as PNG and PDF; None for no such files.
    """
    # Plots need packages that a run does not.
    from whorl.report import save_figures, write_report
    from whorl.report.experiment import experiment_content

    content = experiment_content(done, device=device, tables=report_tables(compared))
    write_report(path, content)
    if figures is not None:
        save_figures(figures, content)


def _note(line: Line) -> str:
    marks = "".join(value.marks for value in line.values)
    wrong, level = marks.count(MARKS["differs"]), marks.count(MARKS["level"])
    parts = [f"{wrong} of {len(marks)} the other way round"] if wrong else []
    parts += [f"{level} not distinguished"] if level else []
    return ", ".join(parts)
