"""Run an experiment: declaration, plan, tasks, table. Run it again and only what is missing is done."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, Distance, Outcomes, Pose, SuccessRate, check_recognised
from whorl.models.zoo import find_device
from whorl.progress import Progress, silent
from whorl.runs.declaration import Declaration
from whorl.runs.engines import carry_out, find_engine
from whorl.runs.folder import Json, as_json, environment
from whorl.runs.images import HashedImage, with_classes
from whorl.runs.networks import UNDEFENDED, Networks, identify, split_target
from whorl.runs.plan import Plan, Variant, chunk_size, known_to_source, make_tasks, surroundings
from whorl.runs.results import Cell, write_results
from whorl.runs.store import Store
from whorl.runs.worker import Orders


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of an experiment.

    Attributes:
        declaration: what was declared.
        plan: all that it consisted of.
        ids: the images that were used, in order.
        cells: one for each attack, source, target and pose: the rows of ``results.csv``.
        distances: of the adversarial images to the clean ones, by (attack, source).
        left_out: images that could not be used: id and reason.
        computed: tasks that were done now.
        seconds: how long it took now.
    """

    declaration: Declaration
    plan: Plan
    ids: list[str]
    cells: tuple[Cell, ...]
    distances: Mapping[tuple[str, str], Distance]
    left_out: list[tuple[str, str]] = field(default_factory=list)
    computed: int
    seconds: float

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.plan.store.path

    @property
    def results(self) -> Path:
        """The cells as CSV."""
        return self.folder / "results.csv"

    def outcomes(self, source: str) -> Outcomes:
        """What became of each image under every attack on one source, by their labels; read from the store once.

        Raises:
            WhorlError: there is no such source, or a chunk is gone.
        """
        rows = [row for row, variant in enumerate(self._attacked) if variant.source == source]
        if not rows:
            raise WhorlError(f"there is no attack on {source!r} in this experiment; see its declaration.")
        labels = tuple(self._attacked[row].label for row in rows)
        return replace(
            self._outcomes,
            attacks=labels,
            adversarial=self._outcomes.adversarial[rows],
            distances={label: self.distances[label, source] for label in labels},
        )

    @property
    def _attacked(self) -> list[Variant]:
        return [variant for variant in self.plan.variants if variant.attack is not None]

    @cached_property
    def _outcomes(self) -> Outcomes:
        return Outcomes.joined([outcomes for outcomes, _ in self.plan.by_chunk()])

    def compare(self, first: str, second: str, source: str, target: str, pose: Pose | None = None) -> Comparison:
        """Compare two attacks on one target, in one pose or over all of them; see ``whorl.evaluation.Outcomes``.

        Args:
            first: an attack's label.
            second: another's.
            source: network that both were crafted on.
            target: as the declaration names it.
            pose: None for all.

        Raises:
            WhorlError: there is no such attack, source, target or pose.
        """
        return self.outcomes(source).compare(first, second, target, pose)


def run(
    declaration: Declaration,
    out: str | Path,
    *,
    device: str = "auto",
    engine: str = "local",
    workers: int | None = None,
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Done:
    """Run an experiment, going on where an earlier run stopped.

    Args:
        declaration: what to do.
        out: the run folder. Whatever it holds that the same settings, weights, images and versions made is kept.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "local" or "ray".
        workers: of the engine ray; None for one on each CPU or GPU of the cluster.
        command: what the user typed, for the manifest.
        progress: called with each task.

    Raises:
        WhorlError: bad input, or a folder that cannot be written to.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    start, begun = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    chosen, networks = find_engine(engine), Networks(find_device(device), declaration.seed)
    with Store.open(out, command) as store:
        progress("reading the data set", 0, 1)
        images = declaration.data.listed()
        progress("reading the data set", 1, 1)
        sources = {name: networks.source(name) for _, name in declaration.versions()}
        targets = {name: networks.target(name) for name in declaration.targets}
        images = with_classes(images, {**sources, **targets}, declaration.data)
        plan = make_plan(declaration, store, images, networks)
        left = plan.left()
        _note(plan, declaration, environment(networks.device), command, begun)
        orders = Orders(
            folder=store.path,
            images=declaration.data,
            seed=declaration.seed,
            target_keys=plan.target_keys,
            precision=declaration.precision,
        )
        stage = f"crafting and evaluating, {len(plan.variants) - 1} attacks"
        carry_out(plan, left, orders, networks, stage=stage, engine=chosen, workers=workers, progress=progress)
        done = _collected(declaration, plan, computed=len(left), seconds=time.perf_counter() - start)
        write_results(done.results, done.cells)
    return done


def make_plan(declaration: Declaration, store: Store, images: Sequence[HashedImage], networks: Networks) -> Plan:
    """Work out everything that an experiment consists of.

    Args:
        declaration: the experiment.
        store: the run folder.
        images: the data set.
        networks: loads what is attacked and evaluated, to find out exactly which weights these are.
    """
    poses, made_by = declaration.all_poses(), surroundings(networks.device)
    targets = dict.fromkeys(declaration.targets, poses)
    variants = [Variant(identity=made_by, targets=targets)]
    for spec, source in declaration.versions():
        attack = spec.build()
        identity = {
            "attack": spec.name.lower(),
            "settings": as_json(attack),
            "source": source,
            "models": identify(networks.source(source)),
            "seed": declaration.seed,
            **made_by,
        }
        variants.append(Variant(attack=attack, label=spec.title, source=source, identity=identity, targets=targets))
    size = chunk_size(networks.device, declaration.batch_size)
    how = {} if declaration.precision == "full" else {"precision": declaration.precision}
    return Plan(
        store=store,
        poses=poses,
        variants=tuple(variants),
        targets={name: {"model": identify(networks.target(name)), **how} for name in declaration.targets},
        tasks=make_tasks(variants, images, size, read=declaration.data.size),
    )


def _note(plan: Plan, declaration: Declaration, around: Json, command: Sequence[str], begun: str) -> None:
    """Put everything that the results depend on into the manifest."""
    specs = {(spec.title, source): spec for spec, source in declaration.versions()}
    noted: Json = {
        "experiment": declaration.model_dump(mode="json"),
        "command": list(command),
        "started": begun,
        "images": len({image.entry.id for task in plan.tasks for image in task.images}),
        "targets": dict(plan.targets),
        **around,
    }
    crafted = {
        variant.name: {
            **variant.identity,
            "attack": variant.label,
            "preset": specs[variant.label, variant.source].name,
            "repr": repr(variant.attack),
            "data": declaration.data.describe(),
            "images": {},
            "cells": (Path("cells") / variant.place).as_posix(),
        }
        for variant in plan.variants
        if variant.attack is not None
    }

    def change(manifest: Json) -> None:
        plain = [key for key in crafted if manifest["crafted"].get(key, {}).get("images")]
        if plain:
            raise WhorlError(
                f"{plan.store.path} already holds {plain[0]}, made by `whorl attack`. Choose another folder (out)."
            )
        manifest.update(noted)
        manifest["crafted"].update(crafted)

    plan.store.write(change)


def _collected(declaration: Declaration, plan: Plan, *, computed: int, seconds: float) -> Done:
    """Add up the chunks, one by one; no more than a chunk's answers are held at a time."""
    counts: dict[tuple[str, str, Pose], SuccessRate] = {}
    distances: dict[str, Distance] = {}
    spent: dict[str, tuple[int, float]] = {}
    ids: list[str] = []
    left_out: list[tuple[str, str]] = []
    known: dict[str, int] = {}
    variants = [variant for variant in plan.variants if variant.attack is not None]
    for outcomes, [clean, *attacked] in plan.by_chunk():
        ids += clean.ids
        left_out += clean.bad
        counts = {cell: counts.get(cell, SuccessRate()) + one for cell, one in outcomes.counts.items()}
        for variant, chunk in zip(variants, attacked, strict=True):
            name = variant.name
            known[name] = known.get(name, 0) + known_to_source(variant, chunk)
            gradients, time_spent = spent.get(name, (0, 0.0))
            spent[name] = (gradients + sum(chunk.grad_evals), time_spent + chunk.seconds)
            distances[name] = distances.get(name, Distance()) + chunk.distance
    if not ids:
        raise WhorlError(f"none of the {len(left_out)} images can be used. The first: {left_out[0][1]}")
    for variant in variants:
        check_recognised(variant.source, known[variant.name])
    return Done(
        declaration=declaration,
        plan=plan,
        ids=ids,
        cells=tuple(_cells(plan, variants, counts, spent)),
        distances={(variant.label, variant.source): distances[variant.name] for variant in variants},
        left_out=left_out,
        computed=computed,
        seconds=seconds,
    )


def _cells(
    plan: Plan,
    variants: Sequence[Variant],
    counts: Mapping[tuple[str, str, Pose], SuccessRate],
    spent: Mapping[str, tuple[int, float]],
) -> Iterator[Cell]:
    for variant in variants:
        gradients, seconds = spent[variant.name]
        for name in plan.targets:
            model, layers = split_target(name)
            for pose in plan.poses:
                yield Cell(
                    attack=variant.label,
                    source=variant.source,
                    target=model,
                    defense="+".join(layers) or UNDEFENDED,
                    pose=pose,
                    eps=variant.eps if variant.eps is None or math.isfinite(variant.eps) else None,
                    counts=counts[variant.name, name, pose],
                    grad_evals=gradients,
                    seconds=seconds,
                )
