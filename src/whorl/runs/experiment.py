"""Run an experiment: declaration, plan, tasks, table. Run it again and only what is missing is done."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, Distance, Outcomes, Pose, SuccessRate, compare
from whorl.progress import Progress, silent
from whorl.runs.declaration import Declaration
from whorl.runs.engines import carry_out, find_engine
from whorl.runs.folder import Json, as_json, environment
from whorl.runs.images import HashedImage
from whorl.runs.networks import UNDEFENDED, Networks, find_device, identify, members, split_target
from whorl.runs.plan import Plan, Variant, make_tasks, surroundings
from whorl.runs.results import Cell, write_results
from whorl.runs.store import CLEAN, Chunk, Store
from whorl.runs.worker import Orders

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 8, 64


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of an experiment.

    Attributes:
        plan: all that it consisted of.
        ids: the images that were used, in order.
        cells: one for each attack, source, target and pose: the rows of ``results.csv``.
        distances: of the adversarial images to the clean ones, by (attack, source).
        left_out: images that could not be used: id and reason.
        computed: tasks that were done now.
        seconds: how long it took now.
    """

    plan: Plan
    ids: list[str]
    cells: tuple[Cell, ...]
    distances: Mapping[tuple[str, str], Distance]
    left_out: list[tuple[str, str]] = field(default_factory=list)
    computed: int
    seconds: float
    _recognised: dict[tuple[Path, str], torch.Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def declaration(self) -> Declaration:
        """What was asked for."""
        return self.plan.declaration

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.plan.folder

    @property
    def results(self) -> Path:
        """The cells as CSV."""
        return self.folder / "results.csv"

    def compare(self, first: str, second: str, source: str, target: str, pose: Pose | None = None) -> Comparison:
        """Compare two attacks on one target, in one pose or over all of them; see ``whorl.evaluation.compare``.

        Args:
            first: an attack's label.
            second: another's.
            source: network that both were crafted on.
            target: as the declaration names it.
            pose: None for all.

        Raises:
            WhorlError: there is no such attack, source, target or pose.
        """
        poses = self.plan.poses if pose is None else (pose,)
        if target not in self.plan.targets or not set(poses) <= set(self.plan.poses):
            raise WhorlError(f"{target!r} was not asked in {list(map(str, poses))}; see the declaration.")
        rows = [self.plan.poses.index(one) for one in poses]
        versions = _find(self.plan, None, ""), _find(self.plan, first, source), _find(self.plan, second, source)
        clean, one, other = (self._outcomes(version, target)[rows] for version in versions)
        return compare(Outcomes(clean, one), Outcomes(clean, other))

    def _outcomes(self, version: Version, target: str) -> torch.Tensor:
        """Who is recognised in which pose, (poses, N) bool; read from the records once."""
        key = (version.place, target)
        if key not in self._recognised:
            self._recognised[key] = _outcomes(self.plan, version, target)
        return self._recognised[key]


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
    chosen, folder = find_engine(engine), RunFolder(Path(out).absolute())
    networks = Networks(find_device(device), declaration.seed)
    try:
        with exclusive(folder.path / ".run"):
            progress("reading the data set", 0, 1)
            pictures = list_pictures(declaration.data, folder.path / ".pictures.json")
            progress("reading the data set", 1, 1)
            plan = make_plan(declaration, folder.path, pictures, networks)
            left = plan.left()
            _note(folder, plan, networks, command, begun)
            _forget_strangers(folder, plan)
            job = Job(
                folder=plan.folder,
                data=declaration.data,
                seed=declaration.seed,
                target_keys=plan.target_keys,
                precision=declaration.precision,
            )
            _work(chosen(job, left, networks, workers), plan, left, progress)
            done = _collected(plan, computed=len(left), seconds=time.perf_counter() - start)
            write_results(done.results, done.cells)
    except OSError as error:
        raise WhorlError(
            f"cannot work in {folder.path} ({error}). Choose a folder that is writable and has space; "
            "what was finished is kept."
        ) from error
    return done


def _work(finished: Iterator[int], plan: Plan, left: list[Task], progress: Progress) -> None:
    stage, total = f"crafting and asking, {len(plan.versions) - 1} attacks", sum(len(t.pictures) for t in plan.tasks)
    seen = total - sum(len(task.pictures) for task in left)
    progress(stage, seen, total)
    try:
        for count in finished:
            seen += count
            progress(stage, seen, total)
    except KeyboardInterrupt as error:
        raise Interrupted(f"What was finished is in {plan.folder}. Run the same command again to go on.") from error


def _note(folder: RunFolder, plan: Plan, networks: Networks, command: Sequence[str], begun: str) -> None:
    """Put everything that the results depend on into the manifest."""
    declaration = plan.declaration
    noted: Json = {
        "experiment": declaration.model_dump(mode="json"),
        "command": list(command),
        "started": begun,
        "pictures": len({p.entry.id for task in plan.tasks for p in task.pictures}),
        "targets": dict(plan.targets),
        **environment(networks.device),
    }
    crafted = {
        f"{version.spec.title}/{version.source}": {
            **version.identity,
            "attack": version.spec.title,
            "preset": version.spec.name,
            "repr": repr(version.spec.build()),
            "images": {},
            "cells": (Path("cells") / version.place).as_posix(),
        }
        for version in plan.versions
        if version.spec is not None
    }

    def change(manifest: Json) -> None:
        plain = [key for key in crafted if manifest["crafted"].get(key, {}).get("images")]
        if plain:
            raise WhorlError(
                f"{folder.path} already holds {plain[0]}, made by `whorl attack`. Choose another folder (out)."
            )
        manifest.update(noted)
        manifest["crafted"].update(crafted)

    folder.write(change)


def _forget_strangers(folder: RunFolder, plan: Plan) -> None:
    """Remove records that cut the same images into other chunks; those of images beyond the limit stay."""
    known = {task.record(plan.folder) for task in plan.tasks}
    count = max(task.number + len(task.pictures) for task in plan.tasks)
    for version in plan.versions:
        for path in (folder.path / "cells" / version.place).glob("*.json"):
            if path not in known and not (path.stem.isdecimal() and int(path.stem) >= count):
                path.unlink()


def _collected(plan: Plan, *, computed: int, seconds: float) -> Done:
    """Add up the records, chunk by chunk; no more than a chunk's answers are held at a time."""
    counts: dict[tuple[Path, str, Pose], SuccessRate] = {}
    spent: dict[Path, tuple[int, float]] = {}
    distances: dict[Path, Distance] = {}
    ids: list[str] = []
    left_out: list[tuple[str, str]] = []
    clean: Record | None = None
    for task in plan.tasks:
        record = plan.record(task)
        if record is None:
            raise WhorlError(f"{task.record(plan.folder)} went missing while the run was at work. Run it again.")
        place = task.version.place
        if place == _CLEAN:
            clean = record
            ids += record.ids
            left_out += record.bad
            continue
        if clean is None or clean.ids != record.ids:
            raise WhorlError(f"{task.record(plan.folder)} is about other images than the clean ones. Run it again.")
        gradients, time_spent = spent.get(place, (0, 0.0))
        spent[place] = (gradients + sum(record.grad_evals), time_spent + record.seconds)
        distances[place] = distances.get(place, Distance()) + record.distance
        for name, key in plan.target_keys.items():
            for pose in plan.poses:
                cell = (place, name, pose)
                one = _count(clean.recognised(key, pose), record.recognised(key, pose))
                counts[cell] = counts.get(cell, SuccessRate()) + one
    if not ids:
        raise WhorlError(f"none of the {len(left_out)} images can be used. The first: {left_out[0][1]}")
    attacked = [version for version in plan.versions if version.spec is not None]
    return Done(
        plan=plan,
        ids=ids,
        cells=tuple(_cells(plan, attacked, counts, spent)),
        distances={(v.spec.title, v.source): distances[v.place] for v in attacked if v.spec is not None},
        left_out=left_out,
        computed=computed,
        seconds=seconds,
    )


def _cells(
    plan: Plan,
    versions: Sequence[Version],
    counts: Mapping[tuple[Path, str, Pose], SuccessRate],
    spent: Mapping[Path, tuple[int, float]],
) -> Iterator[Cell]:
    for version in versions:
        gradients, seconds = spent[version.place]
        for name in plan.targets:
            model, layers = split_target(name)
            for pose in plan.poses:
                yield Cell(
                    attack=version.spec.title if version.spec else "",
                    source=version.source,
                    target=model,
                    defense="+".join(layers) or UNDEFENDED,
                    pose=pose,
                    eps=version.eps if version.eps is None or math.isfinite(version.eps) else None,
                    counts=counts[version.place, name, pose],
                    grad_evals=gradients,
                    seconds=seconds,
                )


def _count(clean: str, shown: str) -> SuccessRate:
    """Count one chunk's answers in one pose.

    >>> _count("1101", "1001")
    SuccessRate(n=4, n_clean_correct=3, n_success=1, n_adversarial_correct=2)
    """
    fooled = sum(before == "1" and after == "0" for before, after in zip(clean, shown, strict=True))
    return SuccessRate(len(clean), clean.count("1"), fooled, shown.count("1"))


def _find(plan: Plan, label: str | None, source: str) -> Version:
    for version in plan.versions:
        if (version.spec.title if version.spec else None) == label and version.source == source:
            return version
    raise WhorlError(f"there is no attack {label!r} on {source!r} in this experiment; see its declaration.")


def _outcomes(plan: Plan, version: Version, target: str) -> torch.Tensor:
    key, rows = plan.target_keys[target], [""] * len(plan.poses)
    for task in plan.tasks:
        if task.version == version:
            record = plan.record(task)
            if record is None:
                raise WhorlError(f"{task.record(plan.folder)} is gone. Run the experiment again.")
            rows = [row + record.recognised(key, pose) for row, pose in zip(rows, plan.poses, strict=True)]
    return torch.tensor([[digit == "1" for digit in row] for row in rows])
