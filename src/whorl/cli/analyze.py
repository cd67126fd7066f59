"""``whorl analyze``: how good the estimator's approximations are, which kernel suits a network, what goes together."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl.analysis import calibration, correlation, error_report
from whorl.analysis.calibration import CalibrationOptions
from whorl.analysis.error_job import ErrorMeasurement, ErrorOptions, measure_error, write_error
from whorl.analysis.kernel_grid import DEFAULT_GRID
from whorl.attacks.objectives import LOSSES
from whorl.cli.app import app, typed
from whorl.cli.console import output, progress_bar, show_files, show_json, show_line, table
from whorl.cli.options import (
    AsJson,
    BatchSize,
    DataSet,
    Device,
    EngineName,
    Limit,
    Seed,
    Workers,
    split_models,
    split_names,
    split_numbers,
)
from whorl.errors import WhorlError
from whorl.evaluation.prediction import Precision
from whorl.files import check_writable
from whorl.models.zoo import find_device
from whorl.runs.folder import folder_name
from whorl.runs.settings import parse_eps

commands = typer.Typer(
    no_args_is_help=True, help="Measure the estimator's approximations, or choose its kernel for a network."
)
app.add_typer(commands, name="analyze", epilog="Example: whorl analyze error resnet18 --limit 4 --draws 32")

_ERROR_EXAMPLES = """
Example: whorl analyze error resnet18 --limit 4 --draws 32

Example: whorl analyze error mobilenet_v2 --data photos/ --ranges 0.01,0.1,1 --kernels 0.7,reference --out analysis
"""
_CALIBRATE_EXAMPLES = """
Example: whorl analyze calibrate resnet18 --data photos/ --limit 200 --device cuda

Example: whorl analyze calibrate resnet18 --attack mim --steps 20 --grid "translation=0.5,1;polar=0,0.5"
"""


@commands.command("error", epilog=_ERROR_EXAMPLES)
def error_(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Network whose gradients are taken.", show_default=False)],
    data: DataSet = None,
    limit: Annotated[int, typer.Option(help="Number of images to take, from the first.")] = 8,
    size: Annotated[
        int | None, typer.Option(help="Resize images to this side in pixels; the network's own by default.")
    ] = None,
    ranges: Annotated[
        str, typer.Option(help="Uniform transforms, as shares of EOT's range (30°, ±50%, 20 px), joined by commas.")
    ] = "0.001,0.01,0.03,0.1,0.3,1",
    kernels: Annotated[
        str,
        typer.Option(help="Kernels, joined by commas: σ in pixels, reference, printed, uniform; @7 for the size."),
    ] = "0.5,reference,printed,uniform",
    draws: Annotated[int, typer.Option(help="Transforms for each image.")] = 256,
    loss: Annotated[str, typer.Option(help=f"One of {', '.join(LOSSES)}.")] = "ce",
    source: Annotated[
        str | None, typer.Option(help="Compare this network's gradient, through each kernel, with MODEL's mean.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Measure on images that this attack has crafted, such as dim.")] = None,
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    out: Annotated[Path | None, typer.Option(help="Folder for JSON and Markdown.")] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Draw a figure into that folder too.")] = False,
    batch_size: Annotated[int | None, typer.Option(help="Images per batch; 8 on a CPU, 32 on a GPU.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure g₁, g₂ and both corollaries of the paper's §4, and what each approximation of the estimator costs.

    Everything is compared with the gradient of the mean loss over random transforms, computed by drawing them.
    """
    if figures and out is None:
        raise WhorlError("--figures needs a folder to draw into; give it with --out.")
    options = ErrorOptions(
        model=model,
        data=data,
        limit=limit,
        size=size,
        ranges=tuple(split_numbers("ranges", ranges)),
        kernels=tuple(split_names(kernels)),
        draws=draws,
        loss=loss,
        source=source,
        at=at,
        precision=precision,
        batch_size=batch_size,
        device=device,
        seed=seed,
    )
    if out is not None:
        check_writable(out / "error.json")
    with progress_bar() as progress:
        found = measure_error(options, progress)
    # Shown before they are written: whatever becomes of the files, the work is not lost.
    if as_json:
        show_json(found.as_json())
    else:
        _show_error(found)
    if out is not None:
        files = write_error(found, out, command=shlex.join(typed(ctx)), figure=figures)
        if not as_json:
            show_files(files)


@commands.command("calibrate", epilog=_CALIBRATE_EXAMPLES)
def calibrate_(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="Network to craft on; a+b for an ensemble.", show_default=False)],
    targets: Annotated[
        str | None,
        typer.Option(help="Other networks to evaluate on, joined by commas; by default the zoo's other families."),
    ] = None,
    attack_name: Annotated[str, typer.Option("--attack", help="A gradient attack.")] = "dim",
    grid: Annotated[
        str, typer.Option(help="Kernels: σ of translations, σ in the polar plane, sizes. A σ of 0 switches a part off.")
    ] = DEFAULT_GRID,
    steps: Annotated[int | None, typer.Option(help="Gradients per image; the attack's own by default.")] = None,
    eps: Annotated[str | None, typer.Option(help="Bound, such as 8/255; the attack's own by default.")] = None,
    data: DataSet = None,
    limit: Limit = None,
    size: Annotated[int, typer.Option(help="Resize images to this side in pixels.")] = 224,
    folds: Annotated[int, typer.Option(help="Parts of the images, each held out once.")] = 4,
    seeds: Annotated[str, typer.Option(help="Seeds of the attack, joined by commas; a run each.")] = "0",
    out: Annotated[Path | None, typer.Option(help="Folder; by default one for the source and the attack.")] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    batch_size: BatchSize = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Networks answer in bf16 or full; bf16 on a GPU by default.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Choose the estimator's kernel for a source by success on other networks, over the paper's twelve poses.

    The choice is judged on networks of families, and on images, that had no part in it. The same command resumes a run
    that was stopped.
    """
    given = {"steps": steps, "eps": None if eps is None else parse_eps(eps)}
    options = CalibrationOptions(
        targets=() if targets is None else split_models(targets),
        attack=attack_name,
        grid=grid,
        settings={name: value for name, value in given.items() if value is not None},
        data=data,
        limit=limit,
        size=size,
        seeds=[int(seed) for seed in split_numbers("seeds", seeds)],
        folds=folds,
        batch_size=batch_size,
        precision=precision or ("bf16" if find_device(device).type == "cuda" else "full"),
    )
    with progress_bar() as progress:
        done = calibration.calibrate(
            source,
            out or Path("runs") / f"calibrate-{attack_name}-{folder_name(source)}",
            options,
            device=device,
            engine=engine,
            workers=workers,
            command=typed(ctx),
            progress=progress,
        )
    if as_json:
        show_json(calibration.as_json(done))
    else:
        _show_calibrated(done)
    files = calibration.write(done)
    if not as_json:
        show_files(files)


def _show_calibrated(done: calibration.Calibrated) -> None:
    console, chosen = output(), done.chosen
    head = (
        f"{done.options.attack} on {done.source}, {done.gradients:g} gradients per image, {done.answers.images} images"
    )
    console.print(
        Text(f"{head}: success rate (%), unweighted mean over the poses, intervals over images", style="bold")
    )
    headings = ["kernel", *done.answers.targets, "mean", "95% interval", "least gain", "behind the best", "best in"]
    ranking = table(*headings, numbers=True)
    for one in chosen.ranking:
        behind, (low, high) = one.behind
        apart = "–" if one.name == chosen.winner else f"{behind:+.1f} ({low:+.1f} to {high:+.1f})"
        wins = "baseline" if one.baseline else f"{one.wins:.0%}"
        cells = [*(f"{rate:.1f}" for rate in one.rates), f"{one.mean:.1f}", "{:.1f} to {:.1f}".format(*one.interval)]
        least = min(one.least_over(name) for name in ("plain", "ti"))
        cells.append("" if one.baseline else "–" if math.isnan(least) else f"{least:+.1f}")
        ranking.add_row(one.name, *cells, apart, wins, style="bold" if one.name == chosen.winner else None)
    console.print(ranking)
    console.print()
    console.print(Text("Chosen without the network's family and without the image, judged on both", style="bold"))
    over = list(chosen.judged[0].over)
    judged = table("target", "chosen", "rate", "95% interval", *(f"over {name}" for name in over))
    for row in chosen.judged:
        gains = ["{:+.1f} ({:+.1f} to {:+.1f})".format(row.over[name][0], *row.over[name][1]) for name in over]
        rate = (f"{row.rate:.1f}", "{:.1f} to {:.1f}".format(*row.interval))
        judged.add_row(row.target, ", ".join(row.chosen), *rate, *gains)
    console.print(judged)
    level = [one.name for one in chosen.ranking if one.level and one.name != chosen.winner]
    others = f"Not significantly behind: {', '.join(level)}." if level else "All others are significantly behind."
    show_line(f"Best: {chosen.winner}. {others}")
    optimism = f"It looks {chosen.optimism:.1f} points better where it was chosen than where it was not."
    show_line(optimism, style="dim")


@commands.command("correlate", epilog="Example: whorl analyze correlate runs/mine/results.csv")
def correlate_(
    results: Annotated[
        list[Path], typer.Argument(help="results.csv of run folders, or of tables of the paper.", show_default=False)
    ],
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say whether attacks that survive transforms on their source also fool other networks, over all attacks of runs.

    The source must be among the targets, and the identity among the poses.
    """
    found = correlation.correlate(correlation.read_points(results), seed=seed)
    if as_json:
        return show_json(correlation.as_json(found))
    console = output()
    shown = table("attack", "source", "invariance: source, transformed", "transfer: others, as they are")
    for point in sorted(found.points, key=lambda point: (point.source, -point.transfer)):
        shown.add_row(point.attack, point.source, f"{point.invariance:.1f}", f"{point.transfer:.1f}")
    console.print(Text("Success rates (%), unweighted means over poses", style="bold"))
    console.print(shown)
    for name, value, (low, high) in (
        ("Pearson", found.pearson, found.pearson_interval),
        ("Spearman", found.spearman, found.spearman_interval),
    ):
        console.print(Text(f"{name}'s correlation: {value:.2f} ({low:.2f} to {high:.2f}), {len(found.points)} attacks"))
    return None


def _show_error(found: ErrorMeasurement) -> None:
    console = output()
    console.print(Text(found.heading, style="bold"))
    show_line(error_report.laws_in_words(found.laws), style="dim")
    for one in error_report.tables(found.laws):
        console.print()
        console.print(Text(one.title, style="bold"))
        console.print(table(*one.columns, numbers=True, rows=one.rows))
        show_line(one.about, style="dim")
