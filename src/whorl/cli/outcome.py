"""What came of an experiment, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from whorl.cli.console import messages, output, table
from whorl.runs.experiment import Done
from whorl.runs.networks import split_target
from whorl.runs.results import mean_rate


def show_means(done: Done) -> None:
    """Print the mean success rate over the poses, a row an attack and a column a target."""
    declared, console = done.declaration, output()
    sources = list(dict.fromkeys(source for _, source in declared.versions()))
    for source in sources:
        asked = [f"{name} (white-box)" if name in source.split("+") else name for name in declared.targets]
        shown = table("attack", *asked, numbers=True)
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
    model, layers = split_target(target)
    wanted = (attack, source, model, "+".join(layers) or "none")
    rate = mean_rate(cell for cell in done.cells if (cell.attack, cell.source, cell.target, cell.defense) == wanted)
    return "–" if math.isnan(rate) else f"{100 * rate:.1f}"
