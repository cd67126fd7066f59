"""``whorl attack``: craft adversarial images into a run folder, by gradients or by queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.text import Text

import whorl
from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import messages, output, progress_bar, table
from whorl.cli.options import Device, Seed, parse_eps, split_models
from whorl.errors import WhorlError
from whorl.interop import find_estimator
from whorl.runs.pictures import Source
from whorl.runs.query_attacks import build_query_attack
from whorl.runs.querying import Queried, query
from whorl.runs.targets import UNDEFENDED, load_targets, split_target

_EXAMPLES = """
Example: whorl attack ai-dim --model resnet18 --out runs/mine

Example: whorl attack pgd --model resnet18,mobilenet_v2 --data photos/ --size 224 --eps 8/255 --out runs/ensemble

Example: whorl attack torchattacks:VMIFGSM --estimator ai --model resnet18 --out runs/theirs

Example: whorl attack ai-dim --estimator ai:reference --model resnet18 --out runs/paper

Example: whorl attack nes --init ai-dim --surrogate resnet18 --target efficientnet_lite0 --budget 10000 --out runs/mine
"""


@app.command(epilog=_EXAMPLES)
def attack(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="The attack; `whorl attacks` lists all. LIBRARY:NAME for another library's.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder. What it already holds of the same work is kept.")],
    model: Annotated[
        str | None, typer.Option(help="Network to attack; several, joined by commas, as one ensemble.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of labelled images, or a CSV list; the bundled samples by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Take only the first so many images.")] = None,
    size: Annotated[int | None, typer.Option(help="Resize images to this side in pixels.")] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Bound of the change, such as 16/255 or 0.06; for boundary and evolutionary an L2 distance."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps.")] = None,
    norm: Annotated[str | None, typer.Option(help="linf or l2.")] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="Of the gradient: ai (affine-invariant), ti or none; by default as the attack has it. "
            "A colon and its width may follow: ai:calibrated, ai:reference, ai:printed, or pixels, ai:0.7."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Black-box attacks: the network to ask. Others: as --target-class."),
    ] = None,
    target_class: Annotated[
        int | None, typer.Option(help="0-based class that all images shall be taken for; untargeted by default.")
    ] = None,
    defense: Annotated[
        str, typer.Option(help="Black-box attacks: what stands before the target; `whorl defenses` lists all.")
    ] = UNDEFENDED,
    init: Annotated[
        str,
        typer.Option(help="Black-box attacks: where to start: none, random, an attack, or a folder of images by id."),
    ] = "none",
    surrogate: Annotated[
        str | None,
        typer.Option(help="Black-box attacks: network that the start is crafted on; several as one ensemble."),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Black-box attacks: most queries for each image.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Draws per step: queries of a black-box attack, or of EOT.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Black-box attacks: write every step, and a plot of success.")
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(help="Images at a time; 4 on a CPU and 64 on a GPU by default.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace images that were made with other settings.")
    ] = False,
) -> None:
    """Craft adversarial images and save them as 8-bit PNG files, with a manifest of how they were made.

    Interrupted with Ctrl-C or otherwise, the same command goes on where it stopped.
    """
    by_query = ":" not in name and whorl.attack(name).black_box
    decision = name.lower() in whorl.attack_names(kind="decision")
    bound = None if eps is None else parse_eps(eps, norm="l2" if decision else norm or "linf")
    given: dict[str, Any] = {"eps": bound, "steps": steps, "norm": norm, "budget": budget, "samples": samples}
    given["estimator"] = None if estimator is None else find_estimator(estimator)
    settings = {key: value for key, value in given.items() if value is not None}
    pictures = runs.Pictures(folder=data, limit=limit, size=size, skip_bad=skip_bad)
    shared: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "overwrite": overwrite, "command": typed(ctx)}
    if by_query:
        asked = _asked(model, target, defense)
        # Everything that can be wrong with the command is checked before a network is loaded, or even downloaded.
        _check_start(name, init, surrogate, settings)
        pictures.count()
        where = runs.find_device(device)
        _query(name, asked, pictures, out, init, surrogate, where, settings, target_class, trace=trace, shared=shared)
        return
    goal = _class_of(target, target_class)
    _refuse_black_box_options(defense=defense, init=init, surrogate=surrogate, trace=trace)
    if model is None:
        raise WhorlError(f"{name} follows gradients, so it needs --model, the network to attack.")
    whorl.attack(name, **settings)
    pictures.count()
    source = runs.load_source(split_models(model), runs.find_device(device))
    with progress_bar() as progress:
        done = runs.craft(name, source, pictures, out, settings=settings, target=goal, progress=progress, **shared)
    _show(done)


def _asked(model: str | None, target: str | None, defense: str) -> tuple[str, str]:
    """The model to ask and what stands before it, from the two options that may name it."""
    named = [name for name in (model, target) if name is not None]
    if len(named) != 1:
        came = "neither" if not named else "both"
        raise WhorlError(
            f"a black-box attack needs --target, the network to ask (or --model, but not both); got {came}."
        )
    if named[0].isdecimal():
        raise WhorlError(f"--target of a black-box attack is the network to ask; got {named[0]}. Use --target-class.")
    net, layers = split_target(named[0])
    if layers and defense != UNDEFENDED:
        raise WhorlError(f"{named[0]} already names a defence; leave out --defense {defense}.")
    return net, "+".join(layers) or defense


def _class_of(target: str | None, target_class: int | None) -> int | None:
    if target is None:
        return target_class
    if target_class is not None:
        raise WhorlError("--target and --target-class are the same thing for this attack; give one.")
    if not target.isdecimal():
        raise WhorlError(f"--target must be a 0-based class here; got {target!r}. The network to attack is --model.")
    return int(target)


def _check_start(name: str, init: str, surrogate: str | None, settings: dict[str, Any]) -> None:
    made = build_query_attack(name, init=init, settings=settings)
    crafted = init.lower() in whorl.attack_names(kind="gradient")
    guided = name.lower() == "prgf"
    if (crafted or guided) and surrogate is None:
        what = f"--init {init}" if crafted else name
        raise WhorlError(f"{what} needs --surrogate, the network or networks to get gradients from; got none.")
    if surrogate is not None and not (crafted or guided):
        raise WhorlError(f"--surrogate is of no use with --init {init}: nothing is crafted on it. Leave it out.")
    assert made.black_box  # noqa: S101 - or it would not have been made


def _refuse_black_box_options(*, defense: str, init: str, surrogate: str | None, trace: bool) -> None:
    given = {
        "--defense": defense != UNDEFENDED,
        "--init": init != "none",
        "--surrogate": surrogate is not None,
        "--trace": trace,
    }
    if any(given.values()):
        names = ", ".join(option for option, there in given.items() if there)
        raise WhorlError(f"{names}: for black-box attacks only ({', '.join(_black_box())}).")


def _black_box() -> list[str]:
    return [*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision")]


def _query(
    name: str,
    asked: tuple[str, str],
    pictures: Source,
    out: Path,
    init: str,
    surrogate: str | None,
    device: torch.device,
    settings: dict[str, Any],
    target_class: int | None,
    *,
    trace: bool,
    shared: dict[str, Any],
) -> None:
    [net] = load_targets([asked[0]], [asked[1]], device=device, seed=shared["seed"])
    guide = None if surrogate is None else runs.load_source(split_models(surrogate), device)
    with progress_bar() as progress:
        done = query(
            name,
            net.net,
            pictures,
            out,
            init=init,
            surrogate=guide,
            settings=settings,
            target_class=target_class,
            trace=trace,
            device=device,
            progress=progress,
            **shared,
        )
    _show_queries(done)


def _show(done: runs.Crafted) -> None:
    headings = ("network", "pictures", "recognised clean", "fooled", "success rate", "95% interval")
    summary = table(*headings, numbers=True)
    for name, counts in done.counts.items():
        low, high = counts.interval()
        numbers = (str(counts.n), str(counts.n_clean_correct), str(counts.n_success))
        summary.add_row(name, *numbers, f"{counts.rate:.1%}", f"{low:.1%} to {high:.1%}")
    console = output()
    console.print("White-box success on the saved images, as they are", style="bold")
    console.print(summary)
    if done.reached is not None:
        console.print(f"{done.reached} images are taken for the target.")
    _show_folder(len(done.ids), done.kept, done.folder)
    for bad in done.left_out:
        messages().print(Text(f"left out: {bad.reason}", style="yellow"))


def _show_queries(done: Queried) -> None:
    row = done.row
    headings = ("target", "pictures", "success", "success rate", "mean queries", "of successes", "most", "in all")
    summary = table(*headings, numbers=True)
    means = ["-" if mean is None else f"{mean:.1f}" for mean in (row.mean_queries_all, row.mean_queries)]
    rate = "-" if row.asr is None else f"{row.asr:.1%}"
    most = str(max(done.queries.values(), default=0))
    summary.add_row(done.target, str(row.n), str(row.n_success), rate, *means, most, str(row.queries))
    console = output()
    console.print(f"{done.attack}: queries until the target gave way, on the images as saved", style="bold")
    console.print(summary)
    if done.discarded_queries:
        console.print(f"{done.discarded_queries} queries besides went into work that was cut short and done again.")
    _show_folder(len(done.ids), done.kept, done.folder)
    if done.trace is not None:
        console.print(Text(f"trace: {done.trace}"), soft_wrap=True)
        console.print(Text(f"plot: {done.plot}"), soft_wrap=True)
    for bad in done.left_out:
        messages().print(Text(f"left out: {bad.reason}", style="yellow"))


def _show_folder(count: int, kept: int, folder: Path) -> None:
    before = f", {kept} of them from before" if kept else ""
    output().print(Text(f"{count} images{before}: {folder}"), soft_wrap=True)
