"""``whorl harden``: train a defended version of a network, and show what it bought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.text import Text

from whorl.cli.app import app
from whorl.cli.console import messages, output, progress_bar, show_json, table
from whorl.cli.options import AsJson, Device, Seed, split_models
from whorl.data import iter_images
from whorl.data.layouts import list_images
from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.hardening import Hardened, harden, recipe_names
from whorl.hardening.gain import Gain, draw, measure_gain
from whorl.hardening.processes import leads
from whorl.models import Classifier, load_model
from whorl.models.defended import shipped
from whorl.models.zoo import find_device

_EXAMPLES = """
Example: whorl harden mobilenet_v2 --data photos/ --recipe ens-at --seconds 600 --out runs/hardened

Example: whorl harden mobilenet_v2 --data photos/ --steps 500 --batch 64 --compare others/ --limit 50
"""
_RECIPES = f"One of {', '.join(recipe_names())}."


@app.command("harden", epilog=_EXAMPLES)
def harden_command(
    model: Annotated[str, typer.Argument(help="Network to harden; with --compare alone, a hardened one.")],
    data: Annotated[Path | None, typer.Option(help="Labelled images to train on.")] = None,
    recipe: Annotated[str, typer.Option(help=_RECIPES)] = "ens-at",
    out: Annotated[Path, typer.Option(help="Folder for checkpoint, weights and report.")] = Path("runs/hardened"),
    steps: Annotated[int | None, typer.Option(help="Optimiser steps; 1000 by default.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Train for about so long instead.")] = None,
    batch: Annotated[int, typer.Option(help="Images a step, over all processes.")] = 256,
    optimizer: Annotated[str, typer.Option(help="sgd or adam.")] = "sgd",
    lr: Annotated[float | None, typer.Option(help="Highest learning rate; 0.03 for sgd, 1.5e-4 for adam.")] = None,
    norm: Annotated[str, typer.Option(help="What BatchNorm may learn: frozen, affine or batch.")] = "affine",
    crop: Annotated[
        int | None, typer.Option(help="Side of the crops in pixels; the network's input by default.")
    ] = None,
    mix: Annotated[float, typer.Option(help="Share of the images to blend with another one.")] = 0.0,
    start: Annotated[str | None, typer.Option(help="Begin with the weights of this network.")] = None,
    pool: Annotated[str | None, typer.Option(help="Static networks that make examples, joined by commas.")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Networks whose answers to keep, joined by commas; none for labels alone.")
    ] = None,
    side: Annotated[int | None, typer.Option(help="Pixels that images are kept at; the network's by default.")] = None,
    held_out: Annotated[int, typer.Option(help="Images to watch the training with.")] = 256,
    head: Annotated[bool, typer.Option("--head", help="Let the last layer learn too.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Some classes may have no image.")] = False,
    precision: Annotated[str | None, typer.Option(help="bf16 or full; bf16 on a GPU by default.")] = None,
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the student; pays on a GPU.")] = False,
    compare: Annotated[Path | None, typer.Option(help="Images to show with what hardening bought.")] = None,
    source: Annotated[str, typer.Option(help="Network to craft on for --compare.")] = "resnet18",
    limit: Annotated[int | None, typer.Option(help="Images to compare with at most.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train a defended version of a network on a folder of images, and show what that bought.

    A run that was stopped goes on where it was. Several GPUs: torchrun --nproc-per-node 4 -m whorl harden ...
    """
    if data is None and compare is None:
        raise WhorlError("expected --data to train on, or --compare to look at a hardened network; got neither.")
    where = find_device(device)
    result: dict[str, Any] = {}
    if data is not None:
        given: dict[str, Any] = {"steps": steps, "lr": lr, "precision": precision or _precision(where.type)}
        with progress_bar() as progress:
            done = harden(
                model,
                data,
                recipe,
                out=out,
                start=None if start is None else load_model(start),
                pool=None if pool is None else split_models(pool),
                teachers=None if teacher is None else _teachers(teacher),
                seconds=seconds,
                side=side,
                partial=partial,
                device=where,
                progress=progress,
                say=_say,
                batch=batch,
                optimizer=optimizer,
                norm=norm,
                crop=crop,
                mix=mix,
                held_out=held_out,
                head=head,
                compile=compile_,
                seed=seed,
                **{name: value for name, value in given.items() if value is not None},
            )
        result |= {"name": done.classifier.name, "seconds": done.seconds, "history": done.history, "folder": str(out)}
        if not leads():
            return
        if not as_json:
            _show_training(done, out)
    if compare is not None:
        pair = (load_model(model), done.classifier) if data is not None else _shipped_pair(model)
        bought = _compare(pair, load_model(source), compare, limit=limit, device=where, seed=seed)
        draw(bought, out / "comparison.png")
        with atomic_write(out / "comparison.json") as file:
            file.write((json.dumps(bought.record(), indent=2) + "\n").encode())
        result["comparison"] = bought.record()
        if not as_json:
            _show_bought(bought, out / "comparison.png")
    if as_json:
        show_json(result)


def _precision(device: str) -> str:
    return "bf16" if device == "cuda" else "full"


def _teachers(text: str) -> list[str]:
    return [] if text.strip().lower() == "none" else split_models(text)


def _say(entry: dict[str, float]) -> None:
    rates = ", ".join(f"{name.replace('_', '-')} {entry[name]:.1%}" for name in _RATES if name in entry)
    messages().print(
        f"step {entry['step']:.0f} of {entry['steps']:.0f}, {entry['seconds']:.0f} s: loss {entry['loss']:.3f}; {rates}"
    )


_RATES = ("clean", "transfer", "white_box")


def _show_training(done: Hardened, out: Path) -> None:
    console = output()
    last = done.history[-1]
    summary = table("accuracy on held-out images", "%", numbers=True)
    texts = ("clean", "MIM from the pool's first network, ε = 16/255", "PGD on itself, ε = 4/255")
    for name, text in zip(_RATES, texts, strict=True):
        if name in last:
            summary.add_row(text, f"{100 * last[name]:.1f}")
    console.print(f"{done.classifier.name}: {done.training.steps} steps in {done.seconds:.0f} s", style="bold")
    console.print(summary)
    for what, name in (("weights", "weights.safetensors"), ("report", "report.html")):
        console.print(Text(f"{what + ':':<10}{out / name}"), soft_wrap=True)


def _shipped_pair(name: str) -> tuple[Classifier, Classifier]:
    hardened = load_model(name)
    entry = shipped().get(hardened.name)
    if entry is None:
        raise WhorlError(
            f"expected a hardened network of whorl to compare with its original, got {name!r}. "
            f"There are: {', '.join(shipped()) or 'none'}. To train one, give --data."
        )
    return load_model(entry.base), hardened


def _compare(
    pair: tuple[Classifier, Classifier],
    source: Classifier,
    folder: Path,
    *,
    limit: int | None,
    device: torch.device,
    seed: int,
) -> Gain:
    original, hardened = (net.to(device) for net in pair)
    listed = len(list_images(folder))
    size = 8 if device.type == "cpu" else 64
    images = iter_images(folder, batch_size=size, limit=limit, size=original.size)
    batches = ((x.to(device), y.to(device), ids) for x, y, ids in images)
    with progress_bar() as progress:
        total = listed if limit is None else min(listed, limit)
        return measure_gain(original, hardened, source.to(device), batches, seed=seed, total=total, progress=progress)


def _show_bought(bought: Gain, image: Path) -> None:
    console = output()
    before, after = bought.clean
    pair = f"{bought.original} and {bought.hardened}"
    console.print(f"{pair}: success rates (%), crafted on {bought.source}", style="bold")
    headings = ("attack", "original", "hardened", f"original, {bought.poses} poses", f"hardened, {bought.poses} poses")
    rates = table(*headings, numbers=True)
    for row in bought.rows:
        rates.add_row(row.attack, *(f"{100 * value:.1f}" for value in (*row.upright, *row.posed)))
    console.print(rates)
    console.print(f"clean accuracy: {before:.1%} before, {after:.1%} after; n = {bought.n}")
    console.print(Text(f"image: {image}"), soft_wrap=True)
