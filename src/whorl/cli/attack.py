"""``whorl attack``: craft adversarial images into a run folder, by gradients or by queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import whorl
from whorl import runs
from whorl.cli.app import app, typed
from whorl.cli.console import output, progress_bar, show_left_out, show_line, table
from whorl.cli.options import DataSet, Device, Limit, Seed, split_models
from whorl.errors import WhorlError
from whorl.evaluation import wilson
from whorl.evaluation.rate_table import percent, percent_interval
from whorl.interop import find_estimator
from whorl.runs.black_box import black_box_names, build_query_attack
from whorl.runs.networks import UNDEFENDED, behind, split_defense, split_target
from whorl.runs.overrides import settings_of
from whorl.runs.settings import parse_eps, read_settings

_EXAMPLES = """
Example: whorl attack ai-dim --model resnet18 --out runs/mine

Example: whorl attack pgd --model resnet18,mobilenet_v2 --data photos/ --size 224 --eps 8/255 --out runs/ensemble

Example: whorl attack torchattacks:VMIFGSM --estimator ai --model resnet18 --out runs/theirs

Example: whorl attack transferattack:OPS --transferattack clones/TransferAttack --model resnet18 --out runs/ops

Example: whorl attack mim --alpha 2/255 --momentum 0.9 --set random_start=true --model resnet18 --out runs/mine

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
    out: Annotated[Path, typer.Option(help="Run folder. Work that it already holds is not repeated.")],
    model: Annotated[
        str | None, typer.Option(help="Network to attack; several, joined by commas, as one ensemble.")
    ] = None,
    data: DataSet = None,
    limit: Limit = None,
    size: Annotated[int | None, typer.Option(help="Resize images to this side in pixels.")] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Bound of the change, such as 16/255 or 0.06; for boundary and evolutionary an L2 distance."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps.")] = None,
    alpha: Annotated[str | None, typer.Option(help="Step size, such as 2/255; 5 eps / steps by default.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Factor of the accumulated gradient.")] = None,
    loss: Annotated[str | None, typer.Option(help="Loss to maximise: ce, margin, logit or relative.")] = None,
    norm: Annotated[str | None, typer.Option(help="linf or l2.")] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="Gradient estimator: ai (the paper's), ri (ours), ti or none; by default as the attack has it. "
            "A colon and its width may follow: ai:reference, ai:printed, or pixels, ai:0.7; degrees, ri:32-1.6."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Black-box attacks: the network to query, as in resnet18 or resnet18+jpeg."),
    ] = None,
    target_class: Annotated[
        int | None, typer.Option(help="0-based class that all images shall be taken for; untargeted by default.")
    ] = None,
    defense: Annotated[
        str, typer.Option(help="Black-box attacks: defences before the target; `whorl defenses` lists all.")
    ] = UNDEFENDED,
    init: Annotated[
        str,
        typer.Option(help="Black-box attacks: where to start: none, random, an attack, or a folder of images by id."),
    ] = "none",
    surrogate: Annotated[
        str | None,
        typer.Option(help="Black-box attacks: network that the start is crafted on; several as one ensemble."),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Black-box attacks: maximum number of queries per image.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Draws per step: queries of a black-box attack, or of EOT.")
    ] = None,
    transferattack: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a git clone of TransferAttack, for transferattack:NAME; by default that of the "
            "environment variable WHORL_TRANSFERATTACK. Its code is run.",
            show_default=False,
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE, any other setting of the attack, such as random_start=true."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Black-box attacks: write every step, and a plot of success.")
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(help="Images per batch; 4 on a CPU and 64 on a GPU by default.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace images that were made with other settings.")
    ] = False,
) -> None:
    """Craft adversarial images and save them as 8-bit PNG files, with a manifest of how they were made.

    Interrupted with Ctrl-C or otherwise, the same command resumes where it stopped.
    """
    by_query = ":" not in name and whorl.attack(name).black_box
    decision = name.lower() in whorl.attack_names(kind="decision")
    bound = None if eps is None else parse_eps(eps, norm="l2" if decision else norm or "linf")
    given: dict[str, Any] = {"eps": bound, "steps": steps, "norm": norm, "budget": budget, "samples": samples}
    given |= read_settings({} if alpha is None else {"alpha": alpha}) | {"momentum": momentum, "loss": loss}
    given |= {
        "estimator": None if estimator is None else find_estimator(estimator),
        "path": _clone(name, transferattack),
    }
    settings = _with_more({key: value for key, value in given.items() if value is not None}, more or ())
    images = runs.Data.of(folder=data, limit=limit, size=size, skip_bad=skip_bad)
    shared: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "overwrite": overwrite, "command": typed(ctx)}
    _refuse_class(target)
    if by_query:
        queried, layers = _queried(model, target, defense)
        # Everything that can be wrong with the command is checked before a network is loaded, or even downloaded.
        most = _check_start(name, init, surrogate, settings)
        images.count()
        where = runs.find_device(device)
        net = behind(whorl.load_model(queried, device=where), layers, seed=seed)
        guide = None if surrogate is None else runs.load_source(split_models(surrogate), where)
        shared |= {"device": where, "trace": trace, "init": init, "surrogate": guide, "target_class": target_class}
        with progress_bar() as progress:
            found = runs.query(name, net, images, out, settings=settings, progress=progress, **shared)
        return _show_queries(found, most)
    _refuse_black_box_options(target=target, defense=defense, init=init, surrogate=surrogate, trace=trace)
    if model is None:
        raise WhorlError(f"{name} follows gradients, so it needs --model, the network to attack.")
    whorl.attack(name, **settings)
    images.count()
    source = runs.load_source(split_models(model), runs.find_device(device))
    with progress_bar() as progress:
        shared |= {"target": target_class, "progress": progress}
        done = runs.craft(name, source, images, out, settings=settings, **shared)
    return _show(done)


def _clone(name: str, folder: Path | None) -> str | None:
    """Folder of TransferAttack, where one of its attacks is meant."""
    if folder is not None and not name.lower().startswith("transferattack:"):
        raise WhorlError(f"--transferattack is for attacks of that library, as in transferattack:OPS; got {name}.")
    return None if folder is None else str(folder)


def _with_more(settings: dict[str, Any], more: Sequence[str]) -> dict[str, Any]:
    """The settings that options of their own gave, and those of --set."""
    read = read_settings(settings_of(more))
    if twice := settings.keys() & read.keys():
        name = min(twice)
        raise WhorlError(f"{name} is given twice, by --{name} and by --set {name}. Leave one of them out.")
    return settings | read


def _refuse_class(target: str | None) -> None:
    if target is not None and target.isdecimal():
        raise WhorlError(
            f"--target is the network that a black-box attack queries; got {target}. The class that all "
            f"images shall be taken for is --target-class {target}."
        )


def _queried(model: str | None, target: str | None, defense: str) -> tuple[str, tuple[str, ...]]:
    """The network to query and what stands before it, from the options that may name it."""
    named = [name for name in (model, target) if name is not None]
    if len(named) != 1:
        came = "neither" if not named else "both"
        raise WhorlError(
            f"a black-box attack needs --target, the network to query (or --model, but not both); got {came}."
        )
    net, layers = split_target(named[0])
    if layers and defense != UNDEFENDED:
        raise WhorlError(f"{named[0]} already names a defence; leave out --defense {defense}.")
    return net, layers or split_defense(defense)


def _check_start(name: str, init: str, surrogate: str | None, settings: dict[str, Any]) -> int:
    """Check that the options fit together; returns the most queries for each image."""
    made: Any = build_query_attack(name, init=init, settings=settings)
    crafted = init.lower() in whorl.attack_names(kind="gradient")
    guided = name.lower() == "prgf"
    if (crafted or guided) and surrogate is None:
        what = f"--init {init}" if crafted else name
        raise WhorlError(f"{what} needs --surrogate, the network or networks to get gradients from; got none.")
    if surrogate is not None and not (crafted or guided):
        raise WhorlError(f"--surrogate is of no use with --init {init}: nothing is crafted on it. Leave it out.")
    return int(made.budget)


def _refuse_black_box_options(
    *, target: str | None, defense: str, init: str, surrogate: str | None, trace: bool
) -> None:
    given = {
        "--target": target is not None,
        "--defense": defense != UNDEFENDED,
        "--init": init != "none",
        "--surrogate": surrogate is not None,
        "--trace": trace,
    }
    if any(given.values()):
        names = ", ".join(option for option, there in given.items() if there)
        raise WhorlError(f"{names}: for black-box attacks only ({', '.join(black_box_names())}).")


def _show(done: runs.AttackResult) -> None:
    headings = ("network", "images", "recognised clean", "fooled", "success rate", "95% interval")
    summary = table(*headings, numbers=True)
    for name, counts in done.counts.items():
        numbers = (str(counts.n), str(counts.n_clean_correct), str(counts.n_success))
        summary.add_row(name, *numbers, percent(counts.rate), percent_interval(counts.interval()))
    console = output()
    console.print("White-box success on the saved images, as they are", style="bold")
    console.print(summary)
    if done.reached is not None:
        interval = percent_interval(wilson(done.reached, len(done.ids)))
        share = f"{percent(done.reached / len(done.ids))}, 95% interval {interval}"
        console.print(f"Hit rate: {done.reached} of {len(done.ids)} images are taken for the target ({share}).")
    _show_folder(len(done.ids), done.kept, done.folder)
    show_left_out(bad.reason for bad in done.left_out)


def _show_queries(done: runs.AttackResult, budget: int) -> None:
    row = done.row
    headings = ("target", "images", "success", "success rate", "mean queries", "of successes", "most", "in all")
    summary = table(*headings, numbers=True)
    means = ["-" if mean is None else f"{mean:.1f}" for mean in (row.mean_queries_all, row.mean_queries)]
    interval = percent_interval(wilson(row.n_success, row.n))
    rate = "-" if row.asr is None else f"{percent(row.asr)} ({interval})"
    most = str(max(done.queries.values(), default=0))
    summary.add_row(done.source, str(row.n), str(row.n_success), rate, *means, most, str(row.queries))
    console = output()
    console.print(f"{done.attack}: queries until success, on the images as saved", style="bold")
    console.print(summary)
    if done.discarded_queries:
        console.print(f"{done.discarded_queries} more queries were spent on interrupted work that was repeated.")
    _show_folder(len(done.ids), done.kept, done.folder)
    if done.trace is not None:
        show_line(f"trace: {done.trace}")
        from whorl.report import Drawing, query_curve, write_chart  # take their time to import

        curve = {f"{done.attack} on {done.source}": [(done.queries[i], done.success[i]) for i in done.ids]}
        alt = "Share of images that are fooled within so many queries."
        figure = query_curve(curve, budget=budget)
        chart = Drawing(name="queries", title="Success against queries", alt=alt, figure=figure)
        about = (
            f"{row.n_success} of {row.n} images are fooled, {rate}, with at most {budget:,} queries each. "
            f"Queries an image: {means[0]} on average, failures included, and {most} at most."
        )
        path = done.trace.with_name(f"{done.trace.name}.html")
        plot = write_chart(path, chart, title=f"{done.attack} on {done.source}", about=about)
        show_line(f"plot: {plot}")
    show_left_out(bad.reason for bad in done.left_out)


def _show_folder(count: int, kept: int, folder: Path) -> None:
    before = f", {kept} of them from before" if kept else ""
    show_line(f"{count} images{before}: {folder}")
