"""Run an experiment: declaration, plan, tasks, table. Run it again and only what is missing is done."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack

from whorl.data.images import none_usable
from whorl.errors import WhorlError
from whorl.evaluation import Outcomes, Pose, SuccessRate, check_recognised
from whorl.models.zoo import find_device
from whorl.progress import Progress, Tracker, silent
from whorl.runs.declaration import Declaration
from whorl.runs.done import Done
from whorl.runs.engines import carry_out, check_sources, find_engine
from whorl.runs.folder import Json, as_json, environment
from whorl.runs.images import HashedImage, class_names, with_classes
from whorl.runs.networks import UNDEFENDED, Networks, identify, split_target
from whorl.runs.plan import Plan, Variant, chunk_size, known_to_source, make_tasks, surroundings
from whorl.runs.results import Cell, write_results
from whorl.runs.shard import Shard
from whorl.runs.store import Chunk, Store
from whorl.runs.worker import Orders


class ExperimentOptions(TypedDict, total=False):
    """How an experiment is run, besides what it is: keywords of :func:`run`.

    Attributes:
        engine: "local" or "ray".
        workers: of the engine ray; None for one on each CPU or GPU of the cluster.
        shard: do this share alone; ``merge`` puts all of them together.
        command: what the user typed, for the manifest.
        progress: called with each task.
        track: told of the success rates as images are done.
    """

    engine: str
    workers: int | None
    shard: Shard | None
    command: Sequence[str]
    progress: Progress
    track: Tracker | None


def run(
    declaration: Declaration, out: str | Path, *, device: str = "auto", **options: Unpack[ExperimentOptions]
) -> Done:
    """Run an experiment, going on where an earlier run stopped.

    Args:
        declaration: what to do.
        out: the run folder. Whatever it holds that the same settings, weights, images and versions made is kept.
        device: "auto", "cpu", "cuda" or "cuda:1".
        options: any of ``engine`` ("local" or "ray"), ``workers`` (of ray), ``shard`` (do this share alone),
            ``command`` (what the user typed, for the manifest), ``progress`` and ``track`` (called with the success
            rates as images are done).

    Returns:
        What came of it; of a shard, what came of its share, and no table is written.

    Raises:
        WhorlError: bad input, or a folder that cannot be written to.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    engine, shard = find_engine(options.get("engine", "local")), options.get("shard")
    progress, track = options.get("progress", silent), options.get("track")
    around: Any = {"command": options.get("command", ()), "progress": progress}
    with prepare(declaration, out, device=device, shard=shard, **around) as ready:
        plan = ready.plan
        left = plan.left()
        orders = Orders(
            folder=plan.store.path,
            images=declaration.data,
            seed=declaration.seed,
            target_keys=plan.target_keys,
            precision=declaration.precision,
        )
        if shard is None:
            check_sources(plan, left, orders, ready.networks, progress)
        ready.note()
        share = "" if shard is None else f"shard {shard}: "
        attacks = len(plan.variants) - 1
        stage = f"{share}crafting and evaluating, {attacks} attack{'s' * (attacks != 1)}"
        if track is not None:
            track.begin(declaration.name, declaration.model_dump(mode="json"))
            progress = _tracked(plan, track, progress)
        workers = options.get("workers")
        carry_out(plan, left, orders, ready.networks, stage=stage, engine=engine, workers=workers, progress=progress)
        done = conclude(ready, computed=len(left))
        if track is not None:
            track.end({} if shard is not None else {"results": done.results})
    return done


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """An experiment that is about to be run, or put together: its folder is locked, its images are listed.

    Attributes:
        declaration: the experiment.
        plan: all that it consists of; of a shard, its share.
        networks: loaded as they are needed.
        labels: what the classes are called; None if nobody knows.
        shard: which share; None for all of it.
        command: what the user typed.
        begun: when, as text.
        start: when, on the clock of ``time.perf_counter``.
    """

    declaration: Declaration
    plan: Plan
    networks: Networks
    labels: tuple[str, ...] | None
    shard: Shard | None
    command: Sequence[str]
    begun: str
    start: float

    def note(self) -> None:
        """Put everything that the results depend on into the manifest."""
        plan, declaration = self.plan, self.declaration
        specs = {(spec.title, source): spec for spec, source in declaration.versions()}
        noted: Json = {
            "experiment": declaration.model_dump(mode="json"),
            "command": list(self.command),
            "started": self.begun,
            "images": len(plan.images),
            "targets": dict(plan.targets),
            **environment(self.networks.device),
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
            for variant in plan.attacked
        }

        def change(manifest: Json) -> None:
            plain = [key for key in crafted if manifest["crafted"].get(key, {}).get("images")]
            if plain:
                raise WhorlError(
                    f"{plan.store.path} already holds {plain[0]}, made by `whorl attack`. Choose another folder (out)."
                )
            manifest.pop("shard", None)
            manifest.update(noted if self.shard is None else {**noted, "shard": str(self.shard)})
            manifest["crafted"].update(crafted)

        plan.store.write(change)


@contextmanager
def prepare(
    declaration: Declaration,
    out: str | Path,
    *,
    device: str,
    shard: Shard | None = None,
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Iterator[Preparation]:
    """Lock the folder of an experiment, list its images, and plan it; see ``run`` for the arguments."""
    start, begun = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    networks = Networks(find_device(device), declaration.seed, addresses=declaration.models)
    size = chunk_size(networks.device, declaration.batch_size)
    with Store.open(out, command) as store:
        _refuse_other_share(store, shard)
        progress("reading the data set", 0, 1)
        images = declaration.data.listed(None if shard is None else shard.takes(size))
        progress("reading the data set", 1, 1)
        if not images:
            total = declaration.data.count()
            raise WhorlError(
                f"shard {shard} would be empty: {total} images in chunks of {size} make {-(-total // size)} chunks. "
                "Take no more shards than that, or a smaller batch_size."
            )
        sources = {name: networks.source(name) for _, name in declaration.versions()}
        targets = {name: networks.target(name) for name in declaration.targets}
        met = {**sources, **targets}
        labels, images = class_names(images, met), with_classes(images, met, declaration.data)
        plan = make_plan(declaration, store, images, networks)
        yield Preparation(
            declaration=declaration,
            plan=plan,
            networks=networks,
            labels=labels,
            shard=shard,
            command=command,
            begun=begun,
            start=start,
        )


def conclude(ready: Preparation, *, computed: int) -> Done:
    """Count what is stored, and write the table unless it is a shard's; every task has been done."""
    tally, known = Tally(), Counter[str]()
    attacked = ready.plan.attacked
    for outcomes, chunks in ready.plan.by_chunk():
        tally.add(outcomes, chunks)
        for variant, chunk in zip(attacked, chunks[1:], strict=True):
            known[variant.source] += known_to_source(variant, chunk)
    done = _collected(ready, tally, computed=computed)
    if ready.shard is None:
        for source in {variant.source for variant in attacked}:
            check_recognised(source, known[source])
        write_results(done.results, done.cells)
    return done


def _refuse_other_share(store: Store, shard: Shard | None) -> None:
    """A folder holds a run, or one shard of it."""
    manifest = store.read()
    if shard is not None and manifest.get("shard", str(shard) if "experiment" not in manifest else None) != str(shard):
        held = f"shard {manifest['shard']}" if "shard" in manifest else "a whole run"
        raise WhorlError(f"{store.path} holds {held}. Choose another folder (out) for shard {shard}.")


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
            "seed": declaration.seed if spec.seed is None else spec.seed,
            **made_by,
        }
        own: Any = {"label": spec.title, "source": source, "identity": identity, "seed": spec.seed, "swept": spec.swept}
        variants.append(Variant(attack=attack, targets=targets, **own))
    size = chunk_size(networks.device, declaration.batch_size)
    how = {} if declaration.precision == "full" else {"precision": declaration.precision}
    return Plan(
        store=store,
        poses=poses,
        variants=tuple(variants),
        targets={name: {"model": identify(networks.target(name)), **how} for name in declaration.targets},
        tasks=make_tasks(variants, images, size, read=declaration.data.size),
    )


class Tally:
    """Puts the chunks of an experiment together, one by one."""

    def __init__(self) -> None:
        self.parts: list[Outcomes] = []
        self.counts: dict[tuple[str, str, Pose], SuccessRate] = {}
        self.spent: dict[str, tuple[int, float]] = {}
        self.ids: list[str] = []
        self.left_out: list[tuple[str, str]] = []

    def add(self, outcomes: Outcomes, chunks: Sequence[Chunk]) -> None:
        """Add what became of some images: the clean chunk first."""
        clean, *attacked = chunks
        self.parts.append(outcomes)
        self.ids += clean.ids
        self.left_out += clean.bad
        self.counts = {cell: self.counts.get(cell, SuccessRate()) + one for cell, one in outcomes.counts.items()}
        for name, chunk in zip(outcomes.attacks, attacked, strict=True):
            gradients, seconds = self.spent.get(name, (0, 0.0))
            self.spent[name] = (gradients + sum(chunk.grad_evals), seconds + chunk.seconds)

    def rates(self) -> dict[str, float]:
        """Pooled success rates so far, where there are any, by what a tracker calls them."""
        pooled: dict[str, SuccessRate] = {}
        for (attack, target, _), one in self.counts.items():
            name = f"success_rate/{attack}/{target}"
            pooled[name] = pooled.get(name, SuccessRate()) + one
        return {name: one.rate for name, one in pooled.items() if one.n_clean_correct}


def _tracked(plan: Plan, track: Tracker, progress: Progress) -> Progress:
    """Tell a tracker too: of each chunk of images that is done in all variants, in the order of the data set."""
    tally, waiting = Tally(), iter(range(plan.chunks))
    place = next(waiting, None)

    def show(stage: str, done: int, total: int) -> None:
        nonlocal place
        progress(stage, done, total)
        while place is not None and plan.finished(place):
            tally.add(*plan.outcomes(place))
            track.log(len(tally.ids), tally.rates())
            place = next(waiting, None)

    return show


def _collected(ready: Preparation, tally: Tally, *, computed: int) -> Done:
    plan, left_out = ready.plan, tally.left_out
    if not tally.ids:
        raise none_usable([reason for _, reason in left_out])
    variants, whole = plan.attacked, Outcomes.joined(tally.parts)
    return Done(
        declaration=ready.declaration,
        plan=plan,
        ids=tally.ids,
        cells=tuple(_cells(plan, variants, whole, tally.spent)),
        distances={(variant.label, variant.source): whole.distances[variant.name] for variant in variants},
        whole=whole,
        labels=ready.labels,
        left_out=left_out,
        computed=computed,
        seconds=time.perf_counter() - ready.start,
    )


def _cells(
    plan: Plan,
    variants: Sequence[Variant],
    whole: Outcomes,
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
                    counts=whole.counts[variant.name, name, pose],
                    swept=variant.swept,
                    grad_evals=gradients,
                    seconds=seconds,
                    images=whole.counted(variant.name, name, [pose]),
                )
