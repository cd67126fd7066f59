"""``whorl bench``: how fast attacks and the estimator are here, beside other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from whorl.bench.sections import ATTACKS, DEFAULT_ATTACKS, DEFAULT_SECTIONS, OURS, SECTIONS, bench, size_for
from whorl.cli.app import app
from whorl.cli.console import messages, output, progress_bar, show_json, table
from whorl.cli.options import AsJson, Device, split_names
from whorl.files import check_writable, json_text, write_file
from whorl.models.zoo import find_device

_EXAMPLES = """
Example: whorl bench

Example: whorl bench --network timm:efficientnet_lite0 --side 224 --batch 256 --sections attacks --attacks ai-dim

Example: whorl bench --attacks all --sections attacks,compiled --out bench.json

Example: whorl bench --device cpu --quick --json
"""


@app.command("bench", epilog=_EXAMPLES)
def bench_command(
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A tiny, fast run, to see that it works.")] = False,
    network: Annotated[
        str | None, typer.Option(help="Architecture; torchvision:inception_v3 on a GPU, :resnet18 on a CPU.")
    ] = None,
    side: Annotated[int | None, typer.Option(help="Side of the images; 299 on a GPU, 224 on a CPU.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images; 64 on a GPU, 8 on a CPU.")] = None,
    sections: Annotated[
        str,
        typer.Option(
            help=f"What to measure, of {', '.join(SECTIONS)}; the last beside torch.compile, which takes minutes."
        ),
    ] = ",".join(DEFAULT_SECTIONS),
    attacks: Annotated[
        str,
        typer.Option(help="whorl's attacks to time, with other libraries' versions; all: every gradient attack."),
    ] = ",".join(DEFAULT_ATTACKS),
    repeats: Annotated[int | None, typer.Option(help="Measured rounds; 20 on a GPU and 3 on a CPU.")] = None,
    out: Annotated[Path | None, typer.Option(help="Keep all figures as JSON in this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time attacks and the estimator beside other libraries' on the same network, in alternating rounds.

    Every figure is a ratio in one run: time over that of ours, so above 1 ours is faster. Libraries that are not
    installed are named and left out; the extra interop brings them.
    """
    if out is not None:
        check_writable(out)
    where = find_device(device)
    size = size_for(where, quick=quick, network=network, side=side, batch=batch, repeats=repeats)
    with progress_bar() as progress:
        made = bench(
            where,
            size,
            sections=split_names(sections),
            attacks=ATTACKS if attacks == "all" else split_names(attacks),
            progress=progress,
        )
    if as_json:
        show_json(made)
    else:
        _show(made)
    if out is not None:  # last: whatever becomes of the file, the figures have been shown
        write_file(out, json_text(made))


def _show(made: dict[str, Any]) -> None:
    console, about = output(), made["metadata"]
    console.print(f"{about['hardware']}, torch {about['torch']}, whorl {about['whorl']}, {about['repeats']} rounds")
    for section in made["sections"]:
        console.print()
        console.print(Text(section["title"], style="bold"))
        shares = any("share" in row for row in section["rows"])
        names = ["", "median ms", "p10 to p90", "first ms", "rounds", "beside", "time / ours"]
        listing = table(*names, *(["share of a gradient"] if shares else []), numbers=True)
        for row in section["rows"]:
            ours = row["library"] == OURS
            listing.add_row(
                Text(row["name"] if ours else f"  {row['library']} {row['name']}", style="bold" if ours else ""),
                f"{row['median_ms']:.4g}",
                f"{row['p10_ms']:.4g} to {row['p90_ms']:.4g}",
                f"{row['first_ms']:.4g}",
                str(row["n"]),
                row["beside"],
                f"{row['ratio']:.3g}",
                *([f"{row['share']:.2%}"] if shares else []),
            )
        console.print(listing)
        for row in section["rows"]:
            if row["note"]:
                console.print(f"- {row['library']} {row['name']}: {row['note']}.")
    for name, why in made["missing"].items():
        messages().print(Text(f"not measured: {name} ({why})", style="yellow"))
