"""``whorl demo``: the main job on real networks and photographs, in a minute or two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import output, progress, table
from whorl.cli.options import Device, Seed
from whorl.runs.demo import ATTACKS, SOURCE, TARGETS

_NEXT = """\
Try next:
  whorl attack ai-dim --model resnet18,mobilenet_v2 --out runs/mine   craft on two networks at once
  whorl attacks                                                       all attacks
  whorl models                                                        all networks"""


@app.command(epilog="Example: whorl demo --images 4")
def demo(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    images: Annotated[int, typer.Option(help="How many of the 20 bundled photographs to take.")] = 8,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Attack one network with four attacks, turn and scale the pictures, and see which of three networks are fooled."""
    with progress() as report:
        done = runs.demo(out, images=images, seed=seed, device=device, command=typed(ctx), report=report)
    _show(done)


def _show(done: runs.Demo) -> None:
    asked = [f"{target} (white-box)" if target == SOURCE else target for target in TARGETS]
    summary = table("attack", *asked, numbers=True)
    for attack in ATTACKS:
        summary.add_row(attack, *(f"{100 * done.mean(attack, target):.1f}" for target in TARGETS))
    right = ", ".join(f"{count} by {target}" for target, count in done.clean.items())
    console = output()
    console.print(f"Crafted on {SOURCE}: mean success rate (%) over the paper's 12 poses", style="bold")
    console.print(summary)
    console.print(
        f"n = {done.n}; recognised as they are: {right}. That is few: each photograph counts for {100 / done.n:.0f} "
        "points or more, so read directions, not digits.",
        style="dim",
    )
    console.print()
    for what, path in (("picture", done.figure), ("rates", done.results), ("run folder", done.folder)):
        console.print(Text(f"{what + ':':<12}{path}"), soft_wrap=True)
    console.print(f"took {done.seconds:.0f} s\n")
    console.print(_NEXT, soft_wrap=True)
