"""``whorl demo``: the main job on real networks and photographs, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl.cli.app import app, typed
from whorl.cli.console import output, progress_bar, show_files, show_line, show_rates
from whorl.cli.options import Device, Figures, Seed
from whorl.demo import demo as run_demo

_NEXT = """\
Try next:
  whorl ui                                                              craft an image and rotate it in a browser
  whorl attack ai-best --model resnet18 --data photos/ --out runs/mine  attack images of your own
  whorl gate mobilenet_v2 --data samples --fail-above 60                test a network, with an exit code for CI"""


@app.command(epilog="Example: whorl demo --images 4")
def demo(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    images: Annotated[
        int | None,
        typer.Option(help="Number of photographs, of the 20 bundled ones; all by default.", show_default=False),
    ] = None,
    figures: Figures = False,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Attack sample photographs, rotate and scale them, evaluate three networks, and write a report."""
    from whorl.report import report_experiment

    with progress_bar() as progress:
        made = run_demo(
            out, images=images, seed=seed, device=device, command=typed(ctx), progress=progress, say=progress.note
        )
        files = report_experiment(made.done, device=device, figures=figures, progress=progress)
    show_rates(made.done)
    console = output()
    console.print()
    show_files({"figure": made.figure, **files, "rates": made.done.results, "run folder": made.done.folder})
    console.print(Text(f"took {made.done.seconds:.0f} s\n"))
    show_line(_NEXT)
