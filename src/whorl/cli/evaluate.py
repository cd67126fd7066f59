"""``whorl evaluate``: score adversarial images that lie in folders, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from whorl.cli.app import app
from whorl.cli.console import messages, output, progress_bar, show_json, show_left_out, show_line, table
from whorl.cli.options import (
    LABELLED,
    AsJson,
    BatchSize,
    Defenses,
    Device,
    Seed,
    Targets,
    split_models,
    split_names,
    split_numbers,
    split_pairs,
)
from whorl.errors import WhorlError
from whorl.evaluation import FEWEST, PAPER_POSES, Comparison, Pose, SuccessRate, poses
from whorl.evaluation.pose_search import BUDGET
from whorl.evaluation.rate_table import percent, percent_interval
from whorl.files import check_writable
from whorl.models.zoo import find_device
from whorl.runs import scores
from whorl.runs.kept_outcomes import forget_kept, kept_beside
from whorl.runs.networks import UNDEFENDED, load_targets
from whorl.runs.pairs import PairedImages
from whorl.runs.results import write_results
from whorl.runs.scores import Evaluated, evaluate_folders
from whorl.transforms import RandomAffine

ABOVE_LIMIT = 1
_LEGEND = (
    "Success rate: pooled over the poses, of n transformed images that are recognised clean; its interval is over "
    f"resampled images (BCa). Poses with fewer than {FEWEST} such images are left out; where there are no others, the "
    "rate is marked (few). Mean over poses: unweighted, as in the paper's tables. Any pose: of the images recognised "
    "in some pose, those that some pose fools. SSIM: structural similarity to the clean image, 1 where they are equal."
)
_SEARCHED = (
    "Of the images recognised clean and as they are, those that some pose within 30°, scales from 0.5 to 1.5 and "
    f"shifts of 20 pixels of 299 fools; at most {BUDGET} poses an image, a query each."
)
_EXAMPLES = """
Example: whorl evaluate samples runs/mine/adv/ai-dim/resnet18 --model mobilenet_v2

Example: whorl evaluate photos/ runs/mine/adv/ai-dim/resnet18 --model mobilenet_v2 --size 224

Example: whorl evaluate photos/ pgd/ mine/ --model resnet18 --defense none,jpeg --angles -30,0,30 --fail-above 60

Example: whorl evaluate photos/ mine/ --model resnet18 --tilts 30:0,0:30 --blurs 0,2 --worst-case
"""


@app.command(epilog=_EXAMPLES)
def evaluate(
    clean: Annotated[str, typer.Argument(help=LABELLED, show_default=False)],
    adversarial: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of adversarial images, one per attack, named as the clean ones.", show_default=False
        ),
    ],
    model: Targets,
    defense: Defenses = UNDEFENDED,
    angles: Annotated[
        str | None, typer.Option(help="Rotations in degrees, joined by commas; pose options are combined.")
    ] = None,
    scales: Annotated[str | None, typer.Option(help="Scale factors, joined by commas.")] = None,
    shifts: Annotated[
        str | None, typer.Option(help="Translations in pixels of a 299-pixel image, both ways alike or right:down.")
    ] = None,
    shears: Annotated[str | None, typer.Option(help="Shears in degrees, joined by commas.")] = None,
    stretches: Annotated[str | None, typer.Option(help="Factors of width to height, joined by commas.")] = None,
    tilts: Annotated[
        str | None, typer.Option(help="Perspective: degrees, right edge:bottom edge away, joined by commas.")
    ] = None,
    brightnesses: Annotated[str | None, typer.Option(help="Brightness added, in units of the [0, 1] range.")] = None,
    contrasts: Annotated[str | None, typer.Option(help="Contrast factors about middle grey, joined by commas.")] = None,
    blurs: Annotated[str | None, typer.Option(help="Gaussian blur, σ in pixels of a 299-pixel image.")] = None,
    pose_set: Annotated[
        str | None,
        typer.Option("--poses", help="paper: the paper's twelve poses, the default; without the options above."),
    ] = None,
    worst_case: Annotated[
        bool,
        typer.Option("--worst-case", help="Search for the worst pose of each image, clean and attacked, too."),
    ] = False,
    size: Annotated[int | None, typer.Option(help="Resize all images to this side in pixels.")] = None,
    limit: Annotated[int | None, typer.Option(help="Number of clean images to take; all by default.")] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    seed: Seed = 0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out images that are unreadable or in one folder only.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="CSV file for the counts of each pose.")] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(help="Exit with 1 if a success rate, pooled over the poses, is above this percentage."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate networks on rotated, scaled and translated images, clean and adversarial: success rates.

    With --out, the same command resumes an evaluation that was interrupted.

    Exits with 0, with 1 if a rate is above the limit, and with 2 if something is wrong with the input.
    """
    plain = {"angles": angles, "scales": scales, "shears": shears, "contrasts": contrasts, "blurs": blurs}
    paired = {"shifts": shifts, "stretches": stretches, "tilts": tilts}
    chosen = _poses(plain | {"brightnesses": brightnesses}, paired, pose_set)
    if fail_above is not None and not 0 <= fail_above <= 100:
        raise WhorlError(f"--fail-above must lie in [0, 100], a percentage; got {fail_above:g}.")
    if out is not None and out.is_dir():
        raise WhorlError(f"expected the path of a CSV file to write, got the folder {out}.")
    if out is not None:
        check_writable(out)
    where = find_device(device)
    # What can be wrong with the folders is found before a network is loaded, or even downloaded.
    images = PairedImages(
        clean, adversarial, device=where, batch_size=batch_size, limit=limit, size=size, skip_bad=skip_bad
    )
    targets = load_targets(split_models(model), split_names(defense), device=where, seed=seed)
    keep = None if out is None else kept_beside(out)
    with progress_bar() as progress:
        box = RandomAffine() if worst_case else None
        done = evaluate_folders(images, targets, poses=chosen, box=box, keep=keep, progress=progress)
    # Shown before it is written: whatever becomes of the file, the work is not lost.
    if as_json:
        show_json(scores.as_json(done))
    else:
        _show(done)
    if out is not None and keep is not None:
        write_results(out, done.cells)
        forget_kept(keep)
        if not as_json:
            show_line(f"counts of each pose: {out}")
    show_left_out(bad.reason for bad in done.left_out)
    failed = [] if fail_above is None else done.above(fail_above)
    for summary in failed:
        said = f"{summary.attack}, evaluated on {summary.target}: {summary.rate.value:.1%} is above {fail_above:g}%"
        messages().print(Text(f"failed: {said}", style="red"))
    if failed:
        raise typer.Exit(ABOVE_LIMIT)


def _poses(plain: Mapping[str, str | None], paired: Mapping[str, str | None], name: str | None) -> tuple[Pose, ...]:
    grid: dict[str, Sequence[float | tuple[float, float]]] = {
        option: split_numbers(option, text) for option, text in plain.items() if text is not None
    }
    grid |= {option: split_pairs(option, text) for option, text in paired.items() if text is not None}
    if name is not None and (grid or name.lower() != "paper"):
        raise WhorlError(f"expected --poses paper, or --angles, --scales and --shifts instead; got --poses {name}.")
    return poses(**grid) if grid else PAPER_POSES


def _show(done: Evaluated) -> None:
    # Several tables, since one of all columns has room on no terminal.
    rates = table("attack", "target", "clean right", "n", "success rate", "95% interval", names=2)
    posed = table("attack", "target", "mean over poses", "any pose", "lowest", "highest", names=2)
    sizes = table("attack", "L∞ mean", "L∞ max", "SSIM mean", "SSIM min")
    differences = table("attack", "target", "against the first", names=2)
    for summary in done.summaries:
        row, rate = (summary.attack, summary.target), summary.rate
        found = (percent(rate.value) + " (few)" * rate.few, percent_interval(rate.interval))
        rates.add_row(*row, percent(summary.pooled.clean_accuracy), str(rate.n), *found)
        edges = ("–" if edge is None else f"{_of(edge[1])} at {edge[0]}" for edge in (summary.lowest, summary.highest))
        posed.add_row(*row, percent(summary.mean.value), _of(summary.worst_case), *edges)
        if summary.versus_first:
            differences.add_row(*row, _verdict(summary.versus_first))
    for attack, distance in {summary.attack: summary.distance for summary in done.summaries}.items():
        linf = (f"{255 * level:.1f}" for level in (distance.linf_mean, distance.linf_max))
        ssim = ("–", "–") if distance.ssim_min is None else (f"{distance.ssim_mean:.3f}", f"{distance.ssim_min:.3f}")
        sizes.add_row(attack, *linf, *ssim)
    n, count = len(done.ids), len(done.poses)
    _show_table(f"Success rates of {n} images, {count} pose{'s' * (count != 1)}", rates)
    if count > 1:
        _show_table("Over the poses", posed)
    if differences.row_count:
        _show_table("Difference in points, paired test over images", differences)
    _show_table("Size of the perturbation, L∞ in levels of 255", sizes)
    show_line(_LEGEND, style="dim")
    if done.worst_cases:
        _show_worst_cases(done)


def _show_table(heading: str, rows: Table) -> None:
    console = output()
    console.print(heading, style="bold")
    console.print(rows)
    console.print()


def _show_worst_cases(done: Evaluated) -> None:
    found_table = table("images", "target", "recognised", "fooled", "95% interval", "poses tried: mean", "most")
    for case in done.worst_cases:
        queries = case.found.queries
        cells = [case.attack or "clean images", case.target, str(case.rate.images), percent(case.rate.value)]
        cells += [percent_interval(case.rate.interval)]
        found_table.add_row(*cells, f"{queries.double().mean():.1f}", str(int(queries.max())))
    console = output()
    console.print("Worst pose of each image that a search found", style="bold")
    console.print(found_table)
    show_line(_SEARCHED, style="dim")


def _of(counts: SuccessRate) -> str:
    """A rate and of how many images."""
    return f"{percent(counts.rate)} of {counts.n_clean_correct}"


def _verdict(comparison: Comparison) -> str:
    """Say whether an attack differs from the first, by the paired test over the images."""
    points = f"{100 * comparison.difference:+.1f} ({comparison.interval[0]:+.1%} to {comparison.interval[1]:+.1%})"
    said = {0: "not significant", 1: "better", -1: "worse"}[comparison.ahead]
    return f"{points}, {said} (p = {comparison.p_value:.2g})"
