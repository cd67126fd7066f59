"""From a declaration to a list of tasks: what is to be made and asked, less what the folder already holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

import whorl
from whorl.evaluation import Pose
from whorl.runs.cells import Record, hashed, read_record
from whorl.runs.declaration import AttackSpec, Declaration
from whorl.runs.folder import Json, RunFolder, as_json, folder_name
from whorl.runs.listing import Listed, chunks
from whorl.runs.loading import Networks

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 8, 64


@dataclass(frozen=True, kw_only=True)
class Version:
    """What is shown of each image: itself, or what an attack on a source made of it.

    Attributes:
        spec: the attack; None for the clean images.
        source: network that it is crafted on.
        identity: everything besides the images that the outcome depends on.
    """

    spec: AttackSpec | None = None
    source: str = ""
    identity: Json

    @property
    def place(self) -> Path:
        """Where its records lie, below ``cells``."""
        return Path("_clean") if self.spec is None else Path(self.spec.title, folder_name(self.source))

    @property
    def eps(self) -> float | None:
        """The attack's bound, if it has one."""
        eps = self.identity.get("settings", {}).get("eps")
        return float(eps) if isinstance(eps, int | float) else None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A chunk of images in one version: make it if it is not there, and ask who has not been asked.

    Attributes:
        version: which.
        number: of the chunk's first image in the data set.
        pictures: the chunk.
        key: that the record must carry.
        ask: target's name to the poses in which it is to be asked.
    """

    version: Version
    number: int
    pictures: tuple[Listed, ...]
    key: str
    ask: Mapping[str, tuple[Pose, ...]]

    def record(self, folder: Path) -> Path:
        """The path of the record."""
        return folder / "cells" / self.version.place / f"{self.number:08d}.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that an experiment consists of, done or not.

    Attributes:
        declaration: what was asked for.
        folder: the run folder.
        poses: each once.
        versions: the clean one first.
        targets: name to identity.
        target_keys: name to the hash that answers are filed under.
        tasks: a task for each chunk and version, chunk by chunk.
    """

    declaration: Declaration
    folder: Path
    poses: tuple[Pose, ...]
    versions: tuple[Version, ...]
    targets: Mapping[str, Json]
    target_keys: Mapping[str, str]
    tasks: tuple[Task, ...]

    def record(self, task: Task) -> Record | None:
        """What the folder holds of a task; None if nothing that counts."""
        return read_record(task.record(self.folder), task.key)

    def left(self) -> list[Task]:
        """What is still to be done."""
        folder, left = RunFolder(self.folder), []
        for task in self.tasks:
            record = self.record(task)
            if record is None or not _pictures_there(folder, task.version, record):
                left.append(task)
                continue
            ask = {name: record.missing(self.target_keys[name], poses) for name, poses in task.ask.items()}
            ask = {name: poses for name, poses in ask.items() if poses}
            if ask:
                left.append(Task(**(vars(task) | {"ask": ask})))
        return left


def make_plan(declaration: Declaration, folder: Path, pictures: list[Listed], networks: Networks) -> Plan:
    """Work out everything that an experiment consists of.

    Args:
        declaration: the experiment.
        folder: the run folder.
        pictures: the data set.
        networks: loads what is attacked and asked, to find out exactly which weights these are.
    """
    poses = declaration.all_poses()
    surroundings = {"whorl": whorl.__version__, "torch": torch.__version__, "device": networks.device.type}
    clean = Version(identity={"size": declaration.data.size, **surroundings})
    versions = [clean]
    for spec, source in declaration.versions():
        identity = {
            "attack": spec.name.lower(),
            "settings": as_json(spec.build()),
            "source": source,
            "models": networks.identify_source(source),
            "seed": declaration.seed,
            **clean.identity,
        }
        versions.append(Version(spec=spec, source=source, identity=identity))
    targets = {name: networks.identify_target(name) for name in declaration.targets}
    if declaration.precision != "full":
        targets = {name: {**identity, "precision": declaration.precision} for name, identity in targets.items()}
    size = declaration.batch_size or (_GPU_BATCH if networks.device.type == "cuda" else _CPU_BATCH)
    ask = dict.fromkeys(targets, poses)
    tasks = []
    for place, chunk in enumerate(chunks(pictures, size)):
        content = [[picture.entry.id, picture.entry.label, picture.sha256] for picture in chunk]
        tasks += [
            Task(
                version=version,
                number=place * size,
                pictures=chunk,
                key=hashed({"version": version.identity, "pictures": content}),
                ask=ask,
            )
            for version in versions
        ]
    return Plan(
        declaration=declaration,
        folder=folder,
        poses=poses,
        versions=tuple(versions),
        targets=targets,
        target_keys={name: hashed(identity) for name, identity in targets.items()},
        tasks=tuple(tasks),
    )


def _pictures_there(folder: RunFolder, version: Version, record: Record) -> bool:
    if version.spec is None:
        return True
    return all(folder.picture(version.spec.title, version.source, name).is_file() for name in record.ids)
