"""``whorl paper``: the paper's tables and figures, ours beside the printed ones."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl import paper as suite
from whorl.cli.app import app, typed
from whorl.cli.console import output, progress_bar, show_files, show_json, show_left_out, show_line, table
from whorl.cli.options import (
    AsJson,
    BatchSize,
    DataSet,
    Device,
    EngineName,
    Figures,
    Intervals,
    Limit,
    Seed,
    Workers,
    split_names,
)
from whorl.errors import WhorlError
from whorl.files import check_writable, write_file
from whorl.paper.comparison import Compared
from whorl.paper.declaration import rows_of_each
from whorl.paper.export import (
    LEGEND,
    LEVELS,
    as_json,
    cost_lines,
    heading,
    held_against,
    level_rows,
    markdown,
    rows_of,
    write_csv,
)
from whorl.paper.item import Kernel

LIST = "list"
_EXAMPLES = """
Example: whorl paper list

Example: whorl paper table1 table2 table3 --data photos/ --quick

Example: whorl paper table1 --profile inception --data nips17/ --kernel printed --device cuda

Example: whorl paper table6 --profile paper --data nips17/ --device cuda --markdown table6.md
"""


@app.command(epilog=_EXAMPLES)
def paper(
    ctx: typer.Context,
    names: Annotated[
        list[str], typer.Argument(help="list, or tables and figures, such as table1 figure4.", show_default=False)
    ],
    profile: Annotated[
        str,
        typer.Option(
            help="Networks: offline (the zoo's), inception (Inception-v3 itself, by npm), paper (the paper's, from a "
            "hub), or a TOML file of yours."
        ),
    ] = "offline",
    kernel: Annotated[
        Kernel, typer.Option(help="Of ai- rows: reference (the authors' code, σ = l/6) or printed (the text, l/√3).")
    ] = "reference",
    data: DataSet = None,
    limit: Limit = None,
    size: Annotated[
        int | None, typer.Option(help="Resize images to this side in pixels; 224 offline, 299 otherwise.")
    ] = None,
    attacks: Annotated[str | None, typer.Option(help="Only these rows, joined by commas.")] = None,
    without: Annotated[str | None, typer.Option(help="Leave these rows out, joined by commas, such as eot.")] = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Add rows that the paper does not have: ri-, ai-best, EOT with Adam.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="EOT with 100 gradients per image instead of 2,500, and called eot-quick.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default one for all tables on the same images.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the comparison to this Markdown file too.")
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write every figure to this CSV file too.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write an HTML report of each too.")] = False,
    figures: Figures = False,
    intervals: Intervals = False,
    engine: EngineName = "local",
    workers: Workers = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json_: AsJson = False,
) -> None:
    """Run tables and figures of the paper, and show our figures beside the printed ones.

    Tables that share a run folder share their adversarial images. Interrupted with Ctrl-C or otherwise, the same
    command resumes where it stopped.
    """
    if LIST in names:
        if names != [LIST]:
            raise WhorlError(f"list stands alone; got {' '.join(names)}.")
        return _list(as_json_)
    items = [suite.load(name) for name in names]
    # Everything that can be wrong with the command is said before the first table has taken its hour.
    for file in (markdown_file, csv_file):
        if file is not None:
            check_writable(file)
    suite.load_profile(profile)
    chosen = rows_of_each(items, split_names(attacks), split_names(without), beside=beside)
    options = suite.PaperOptions(
        profile=profile,
        kernel=kernel,
        data=data,
        limit=limit,
        size=size,
        seed=seed,
        batch_size=batch_size,
        quick=quick,
        device=device,
        engine=engine,
        workers=workers,
        command=typed(ctx),
        page=report or figures,
        figures=figures,
        intervals=intervals,
    )
    done: list[Compared] = []
    for item, rows in zip(items, chosen, strict=True):
        with progress_bar() as progress:
            made = suite.reproduce(item.name, out, replace(options, attacks=rows), progress=progress)
        done.append(made.compared)
        if not as_json_:
            _show(made)
    if as_json_:
        show_json([as_json(one) for one in done])
    if markdown_file is not None:
        write_file(markdown_file, "\n".join(markdown(one, command=shlex.join(typed(ctx))) for one in done))
    if csv_file is not None:
        write_csv(csv_file, done)
    return None


def _list(as_json_: bool) -> None:
    items = [suite.load(name) for name in suite.names()]
    if as_json_:
        entries = [{"name": item.name, "title": item.title, "about": item.about, "rows": item.rows} for item in items]
        return show_json(entries)
    rows = ((item.name, item.title, str(len(item.rows)), str(len(item.all_poses()))) for item in items)
    return output().print(table("name", "what it shows", "rows", "poses", rows=rows))


def _show(made: suite.Reproduced) -> None:
    compared, console = made.compared, output()
    console.print(Text(heading(compared), style="bold"))
    show_line(f"{compared.item.about}\n{'; '.join(compared.players)}.")
    for block in compared.blocks:
        console.print()
        console.print(Text(block.title, style="bold"))
        console.print(table("attack", *block.columns, numbers=True, rows=rows_of(block)))
        if far := level_rows(block):
            show_line(LEVELS, style="dim")
            console.print(table("attack", *block.columns, numbers=True, rows=far))
    console.print()
    for line in cost_lines(compared.costs):
        show_line(line)
    if compared.summary:
        show_line(compared.summary, style="bold")
    for one in compared.differing:
        show_line(f"  the other way round: {one}", style="red")
    legend = f"{LEGEND} {held_against(compared)}" if compared.item.printed else ""
    for line in filter(None, (legend, *compared.notes)):
        show_line(line, style="dim")
    show_files({**made.files, "run folder": made.folder})
    if made.done:
        show_left_out(f"{name}: {reason}" for name, reason in made.done.left_out)
    console.print()
