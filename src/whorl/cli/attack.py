"""``whorl attack``: craft adversarial pictures into a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import whorl
from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import messages, output, progress, table
from whorl.cli.options import Device, Seed, parse_eps, split_models

_EXAMPLES = """
Example: whorl attack ai-dim --model resnet18 --out runs/mine

Example: whorl attack pgd --model resnet18,mobilenet_v2 --data photos/ --size 224 --eps 8/255 --out runs/ensemble
"""


@app.command(epilog=_EXAMPLES)
def attack(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The attack; `whorl attacks` lists all.", show_default=False)],
    model: Annotated[str, typer.Option(help="Network to attack; several, joined by commas, as one ensemble.")],
    out: Annotated[Path, typer.Option(help="Run folder. What it already holds of the same work is kept.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of labelled pictures, or a CSV list; the bundled samples by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Take only the first so many pictures.")] = None,
    size: Annotated[int | None, typer.Option(help="Resize pictures to this side in pixels.")] = None,
    eps: Annotated[str | None, typer.Option(help="Bound of the change, such as 16/255 or 0.06.")] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps.")] = None,
    norm: Annotated[str | None, typer.Option(help="linf or l2.")] = None,
    target: Annotated[
        int | None, typer.Option(help="0-based class that all pictures shall be taken for; untargeted by default.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(help="Pictures at a time; 4 on a CPU and 64 on a GPU by default.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable pictures out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace pictures that were made with other settings.")
    ] = False,
) -> None:
    """Craft adversarial pictures and save them as 8-bit PNG files, with a manifest of how they were made.

    Interrupted with Ctrl-C or otherwise, the same command goes on where it stopped.
    """
    bound = None if eps is None else parse_eps(eps, norm=norm or "linf")
    given = {"eps": bound, "steps": steps, "norm": norm}
    settings = {key: value for key, value in given.items() if value is not None}
    # Everything that can be wrong with the command is checked before a network is loaded, or even downloaded.
    whorl.attack(name, **settings)
    pictures = runs.Pictures(folder=data, limit=limit, size=size, skip_bad=skip_bad)
    pictures.count()
    source = runs.load_source(split_models(model), runs.find_device(device))
    with progress() as report:
        done = runs.craft(
            name,
            source,
            pictures,
            out,
            settings=settings,
            target=target,
            seed=seed,
            batch_size=batch_size,
            overwrite=overwrite,
            command=typed(ctx),
            report=report,
        )
    _show(done)


def _show(done: runs.Crafted) -> None:
    headings = ("network", "pictures", "recognised clean", "fooled", "success rate", "95% interval")
    summary = table(*headings, numbers=True)
    for name, counts in done.counts.items():
        low, high = counts.interval()
        numbers = (str(counts.n), str(counts.n_clean_correct), str(counts.n_success))
        summary.add_row(name, *numbers, f"{counts.rate:.1%}", f"{low:.1%} to {high:.1%}")
    console = output()
    console.print("White-box success on the saved pictures, as they are", style="bold")
    console.print(summary)
    if done.reached is not None:
        console.print(f"{done.reached} pictures are taken for the target.")
    kept = f", {done.kept} of them from before" if done.kept else ""
    console.print(Text(f"{len(done.ids)} pictures{kept}: {done.folder}"), soft_wrap=True)
    for bad in done.left_out:
        messages().print(Text(f"left out: {bad.reason}", style="yellow"))
