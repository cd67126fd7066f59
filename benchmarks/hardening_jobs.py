"""Jobs: which network is trained, how, and for how long; and their training."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whorl
from hardening_networks import load_start
from measure import metadata, save
from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.hardening import Hardened, TrainingImages, harden, load_training_images
from whorl.hardening import recipe as find_recipe
from whorl.hardening.recipes import DIVERSE
from whorl.models.defended import pack
from whorl.progress import Tracker

# Mobilenet learns from another network besides itself, unless told otherwise.
TEACHERS = {"mobilenet_v2": ("mobilenet_v2", "efficientnet_lite0")}


@dataclass(frozen=True)
class Job:
    """What to train: a network, a recipe, for how long, and the recipe whose weights to begin with."""

    model: str
    recipe: str
    seconds: float
    start: str = ""

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read MODEL:RECIPE:SECONDS[:START]."""
        model, recipe, seconds, *start = text.split(":")
        return cls(model, recipe, float(seconds), *start)

    @property
    def name(self) -> str:
        """Of the trained network, and of its file."""
        return f"{self.model}.{self.recipe}"


def train(options: argparse.Namespace) -> None:
    """Run the jobs one after the other."""
    begun = time.perf_counter()
    images = decoded(options)
    print(f"{len(images)} images in {time.perf_counter() - begun:.1f} s", flush=True)
    extra = settings_of(options.set)
    chosen: dict[str, dict[str, Any]] = {}
    for text in options.train:
        job = Job.parse(text)
        if options.search and job.model not in chosen:
            chosen[job.model] = search(job, images, options, extra)
        train_one(job, images, options, chosen.get(job.model, {}) | extra)


def decoded(options: argparse.Namespace) -> TrainingImages:
    """The training images, decoded or as an earlier call left them."""
    kept = options.out / f"images-{options.side}-{options.limit or 'all'}.pt"
    folder = str(Path(options.data).resolve())
    if kept.exists():
        *parts, of = torch.load(kept, weights_only=True)
        if of == folder:
            return TrainingImages.of(*parts)
    images = load_training_images(options.data, side=options.side, limit=options.limit)
    with atomic_write(kept) as file:
        torch.save((images.pixels, images.labels, list(images.ids), folder), file)
    return images


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE words; a value is JSON, or else text.

    >>> settings_of(["optimizer=sgd", "lr=0.03", "head=true", "area=[0.5,1]"])
    {'optimizer': 'sgd', 'lr': 0.03, 'head': True, 'area': (0.5, 1)}
    """
    settings = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        settings[name] = tuple(value) if isinstance(value, list) else value
    return settings


def search(job: Job, images: TrainingImages, options: argparse.Namespace, extra: dict[str, Any]) -> dict[str, Any]:
    """The settings after which held-out images, clean and transferred, are recognised most often."""
    best, highest = {}, -1.0
    for text in options.search.split(";"):
        settings = settings_of(text.split())
        done = short(job, options.search_seconds, images, options, {"reports": 2} | settings | extra)
        last = done.history[-1]
        score = (last["clean"] + last["transfer"]) / 2
        print(f"-- {job.name} {settings}: {100 * score:.1f}", flush=True)
        if score > highest:
            best, highest = settings, score
    return best


def train_one(job: Job, images: TrainingImages, options: argparse.Namespace, extra: dict[str, Any]) -> None:
    """Train one network and save it."""
    begun = time.perf_counter()
    # Its checkpoints stay there: where a run is cut short, the same command goes on.
    folder = {"out": options.out / f"{job.name}.run"} if options.resume else {}
    done = short(job, job.seconds, images, options, extra | folder)
    path = options.out / f"{job.name}.safetensors"
    pack(path, done.learned, about={"name": job.name, "seed": str(options.seed)})
    record = {
        "job": vars(job),
        "about": done.about,
        "seed": options.seed,
        "steps": done.training.steps,
        "seconds": round(done.seconds, 1),
        "wall": round(time.perf_counter() - begun, 1),
        "batch": done.training.batch,
        "history": done.history,
        "metadata": metadata(torch.device(options.device)),
    }
    save(record, options.out / f"{job.name}.json")
    print(f"== {job.name}: {done.training.steps} steps, {time.perf_counter() - begun:.0f} s in all", flush=True)


def short(
    job: Job, seconds: float, images: TrainingImages, options: argparse.Namespace, extra: dict[str, Any]
) -> Hardened:
    """Train one network for some time, telling how it goes."""
    original = whorl.load_model(job.model, device=options.device)
    start = load_start(job.model, job.start, options) if job.start else None
    gpu = torch.device(options.device).type == "cuda"
    settings = {"seed": options.seed, "precision": "bf16" if gpu else "full"} | extra
    teachers = settings.pop("teachers", TEACHERS.get(job.model))
    print(f"== {job.name}: {seconds:g} s, {extra}{f', from {job.start}' if job.start else ''}", flush=True)

    class Lines(Tracker):
        def log(self, step: int, values: Mapping[str, float]) -> None:
            rates = "  ".join(f"{k} {100 * values[k]:5.1f}" for k in ("clean", "transfer", "white_box") if k in values)
            so_far = f"  step {step:5d}/{values['steps']}  {values['seconds']:6.1f} s"
            print(f"{so_far}  loss {values['loss']:.3f}  {rates}", flush=True)

    recipe = find_recipe(job.recipe)
    if options.diverse and DIVERSE not in recipe.examples:
        recipe = recipe.with_(examples=(*recipe.examples, DIVERSE.with_(weight=options.diverse)))

    def run(compiled: bool) -> Hardened:
        return harden(
            original,
            images,
            recipe,
            start=start,
            teachers=teachers,
            seconds=seconds,
            partial=options.limit is not None,
            device=options.device,
            track=Lines(),
            **settings | {"compile": compiled},
        )

    if options.compile:
        try:
            return run(True)
        except WhorlError:
            raise
        except Exception as error:  # noqa: BLE001 - compilers fail in many ways, and the hours of a GPU cost meanwhile
            print(f"  compiling failed, going on without ({type(error).__name__}: {str(error)[:300]})", flush=True)
            options.compile = False
    return run(False)
