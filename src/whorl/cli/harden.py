"""``whorl harden``: train a defended version of a network, and show the gain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from whorl.cli.app import app
from whorl.cli.console import messages, output, progress_bar, rate_words, show_files, show_json, show_line, table
from whorl.cli.options import AsJson, Device, Seed, split_models
from whorl.errors import WhorlError
from whorl.hardening import Hardened, Setup, Training, harden, recipe_names
from whorl.hardening.gain import HardeningGain, gain_on_folder, shipped_pair, write_gain
from whorl.hardening.job import REPORT, WEIGHTS
from whorl.hardening.processes import leads
from whorl.models import load_model
from whorl.models.zoo import find_device
from whorl.progress import TensorBoard, Tracker, Trackers

_EXAMPLES = """
Example: whorl harden mobilenet_v2 --data photos/ --recipe ens-at --seconds 600 --out runs/hardened

Example: whorl harden mobilenet_v2 --data photos/ --steps 500 --batch 64 --compare others/ --limit 50
"""
_RECIPES = f"One of {', '.join(recipe_names())}."


@app.command("harden", epilog=_EXAMPLES)
def harden_command(
    model: Annotated[str, typer.Argument(help="Network to harden; with --compare alone, a hardened one.")],
    data: Annotated[
        str | None,
        typer.Option(help="Labelled images to train on: a folder, wds:SHARDS.tar, hf:NAME or python:MODULE:FACTORY."),
    ] = None,
    recipe: Annotated[str, typer.Option(help=_RECIPES)] = "ens-at",
    out: Annotated[Path, typer.Option(help="Folder for checkpoint, weights and report.")] = Path("runs/hardened"),
    steps: Annotated[int | None, typer.Option(help="Optimiser steps; 1000 by default.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Train for about this many seconds instead.")] = None,
    batch: Annotated[int, typer.Option(help="Images per step, over all processes.")] = 256,
    optimizer: Annotated[str, typer.Option(help="sgd or adam.")] = "sgd",
    lr: Annotated[float | None, typer.Option(help="Highest learning rate; 0.03 for sgd, 1.5e-4 for adam.")] = None,
    norm: Annotated[str, typer.Option(help="What BatchNorm learns: frozen, affine or batch.")] = "affine",
    crop: Annotated[
        int | None, typer.Option(help="Side of the crops in pixels; the network's input by default.")
    ] = None,
    mix: Annotated[float, typer.Option(help="Share of the images to blend with another one.")] = 0.0,
    start: Annotated[str | None, typer.Option(help="Begin with the weights of this network.")] = None,
    pool: Annotated[str | None, typer.Option(help="Static networks that make examples, joined by commas.")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Networks to distil from, joined by commas; none for labels alone.")
    ] = None,
    side: Annotated[int | None, typer.Option(help="Side of stored images in pixels; the network's by default.")] = None,
    held_out: Annotated[int, typer.Option(help="Number of held-out images that monitor the training.")] = 256,
    head: Annotated[bool, typer.Option("--head", help="Let the last layer learn too.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Allow classes without images.")] = False,
    precision: Annotated[str | None, typer.Option(help="bf16 or full; bf16 on a GPU by default.")] = None,
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the student; pays on a GPU.")] = False,
    compare: Annotated[str | None, typer.Option(help="Images to measure the gain on.")] = None,
    source: Annotated[str, typer.Option(help="Network to craft on for --compare.")] = "resnet18",
    limit: Annotated[int | None, typer.Option(help="Images to compare with at most.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard: loss and accuracies.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train a defended version of a network on a folder of images, and show the gain.

    The same command resumes a run that was stopped. Several GPUs: torchrun --nproc-per-node 4 -m whorl harden ...
    """
    if data is None and compare is None:
        raise WhorlError("expected --data to train on, or --compare to look at a hardened network; got neither.")
    where = find_device(device)
    setup = Setup(
        out=out,
        start=None if start is None else load_model(start),
        pool=None if pool is None else split_models(pool),
        teachers=None if teacher is None else _teachers(teacher),
        seconds=seconds,
        side=side,
        partial=partial,
        device=where,
    )
    training = Training().with_(
        steps=Training.steps if steps is None else steps,
        batch=batch,
        optimizer=optimizer,
        lr=lr,
        norm=norm,
        crop=crop,
        mix=mix,
        held_out=held_out,
        head=head,
        precision=precision or ("bf16" if where.type == "cuda" else "full"),
        compile=compile_,
        seed=seed,
    )
    result: dict[str, Any] = {}
    done = None
    if data is not None:
        lines = _Lines()
        track = lines if tensorboard is None or not leads() else Trackers(lines, TensorBoard(tensorboard))
        with progress_bar() as progress:
            done = harden(model, data, recipe, setup=setup, training=training, progress=progress, track=track)
        if not leads():
            return
        result |= {"name": done.classifier.name, "seconds": done.seconds, "history": done.history, "folder": str(out)}
        if not as_json:
            _show_training(done, out)
    if compare is not None:
        pair = shipped_pair(model) if done is None else (load_model(model), done.classifier)
        original, hardened, crafted_on = (net.to(where) for net in (*pair, load_model(source)))
        with progress_bar() as progress:
            gain = gain_on_folder((original, hardened), crafted_on, compare, limit=limit, seed=seed, progress=progress)
        files = write_gain(gain, out)
        result["comparison"] = gain.record()
        if not as_json:
            _show_gain(gain, files["comparison"])
    if as_json:
        show_json(result)


def _teachers(text: str) -> list[str]:
    return [] if text.strip().lower() == "none" else split_models(text)


class _Lines(Tracker):
    """Prints each measurement."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        rates = ", ".join(f"{name.replace('_', '-')} {values[name]:.1%}" for name in _RATES if name in values)
        so_far = f"step {step} of {values['steps']:.0f}, {values['seconds']:.0f} s"
        messages().print(f"{so_far}: loss {values['loss']:.3f}; {rates}")


_RATES = ("clean", "transfer", "white_box")


def _show_training(done: Hardened, out: Path) -> None:
    console = output()
    last = done.history[-1]
    summary = table(f"accuracy on {last.get('held_out', 0):.0f} held-out images", "%", numbers=True)
    texts = ("clean", "MIM from the pool's first network, ε = 16/255", "PGD on itself, ε = 4/255")
    for name, text in zip(_RATES, texts, strict=True):
        if name in last:
            summary.add_row(text, f"{100 * last[name]:.1f}")
    console.print(f"{done.classifier.name}: {done.training.steps} steps in {done.seconds:.0f} s", style="bold")
    console.print(summary)
    show_files({"weights": out / WEIGHTS, "report": out / REPORT})


def _show_gain(gain: HardeningGain, page: Path) -> None:
    console = output()
    before, after = gain.clean
    pair = f"{gain.original} and {gain.hardened}"
    console.print(f"{pair}: success rates (%), crafted on {gain.source}", style="bold")
    posed = f"{gain.poses} poses, pooled"
    headings = (
        "attack",
        "original",
        "hardened",
        f"original, {posed}",
        f"hardened, {posed}",
        "change",
        "unweighted means",
    )
    rates = table(*headings, numbers=True)
    for row in gain.rows:
        change, low, high = (f"{100 * value:+.1f}" for value in (row.change.difference, *row.change.interval))
        sure = {0: "not significant", 1: "worse", -1: "better"}[row.change.ahead]
        means = " → ".join(f"{100 * one.value:.1f}" for one in row.means)
        shown = [rate_words(one) for one in (*row.identity, *row.pooled)]
        rates.add_row(row.attack, *shown, f"{change} ({low} to {high}), {sure}", means)
    console.print(rates)
    console.print(f"clean accuracy: {before:.1%} before, {after:.1%} after; n = {gain.n}")
    show_line(f"comparison: {page}")
