"""What a run consists of: tasks, each a chunk of images in one variant; less what the store already holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whorl
from whorl.attacks import Attack
from whorl.data import StartFolder
from whorl.errors import WhorlError
from whorl.evaluation import Outcomes, Pose
from whorl.files import hashed, sha256_of
from whorl.records import Count, checked
from whorl.runs.folder import Json, folder_name
from whorl.runs.images import HashedImage
from whorl.runs.store import CLEAN, Chunk, Store


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What is shown of each image, to whom: the image itself, or what an attack on a source made of it.

    Attributes:
        attack: None for the clean images.
        label: what the attack is called in tables and paths.
        source: network that it is crafted on, or that it queries.
        identity: everything besides the images that the outcome depends on.
        targets: target's name to the poses in which it is evaluated.
        target_class: class to reach; None to leave the true one.
        trace: whether each step of a black-box attack is written down.
        counting: whether only images are attacked that the source recognises, and what comes out is counted, not kept.
        limit: take only the first so many images.
        weight: of each image in the progress.
        seed: of the attack; None for the run's.
        swept: see ``whorl.runs.AttackSpec``.
    """

    attack: Attack | None = None
    label: str = ""
    source: str = ""
    identity: Json
    targets: Mapping[str, tuple[Pose, ...]] = field(default_factory=dict)
    target_class: int | None = None
    trace: bool = False
    counting: bool = False
    limit: int | None = None
    weight: int = 1
    seed: int | None = None
    swept: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the manifest lists it under."""
        return f"{self.label}/{self.source}"

    @property
    def place(self) -> Path:
        """Where its chunks lie, below ``cells``."""
        return CLEAN if self.attack is None else Path(self.label, folder_name(self.source))

    @property
    def eps(self) -> float | None:
        """The attack's bound, if it has one."""
        eps = self.identity.get("settings", {}).get("eps")
        return float(eps) if isinstance(eps, int | float) else None

    @cached_property
    def key(self) -> str:
        """Hash of the identity."""
        return hashed(self.identity)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A chunk of images in one variant: make it if it is not there, and evaluate who has not been evaluated.

    Attributes:
        variant: which.
        images: the chunk.
        key: that the stored chunk must carry.
        clean_key: of the same images as they are.
        read: as of :func:`make_tasks`.
        cut: whether a limit may have cut the chunk short, so that a longer one serves.
        targets: target's name to the poses in which it is to be evaluated.
        make: whether the images are still to be made.
    """

    variant: Variant
    images: tuple[HashedImage, ...]
    key: str
    clean_key: str
    read: Any = None
    cut: bool = False
    targets: Mapping[str, tuple[Pose, ...]]
    make: bool = True

    @property
    def weight(self) -> int:
        """What it counts in the progress."""
        return self.variant.weight * len(self.images)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a run consists of, done or not.

    Attributes:
        store: the run folder.
        poses: each once.
        variants: the clean one first, where there is one.
        targets: name to identity.
        tasks: a task for each chunk and variant, chunk by chunk.
    """

    store: Store
    poses: tuple[Pose, ...] = ()
    variants: tuple[Variant, ...]
    targets: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Task, ...]

    @cached_property
    def attacked(self) -> tuple[Variant, ...]:
        """The variants that are not the clean images."""
        return tuple(variant for variant in self.variants if variant.attack is not None)

    @cached_property
    def target_keys(self) -> Mapping[str, str]:
        """Name to the hash that answers are filed under."""
        return {name: hashed(identity) for name, identity in self.targets.items()}

    @cached_property
    def images(self) -> Mapping[str, HashedImage]:
        """What the data set lists, by id."""
        return {image.entry.id: image for task in self.tasks for image in task.images}

    def chunk(self, task: Task) -> Chunk | None:
        """What the store holds of a task; None if nothing that counts."""
        variant, found = task.variant, self.store.get(task.variant.place, task.key)
        if found is not None or not task.cut:
            return found
        wanted = [image.content for image in task.images]
        for chunk in self.store.chunks(variant.place):
            begins = chunk.variant == variant.key and chunk.images[: len(wanted)] == wanted
            if begins and _made_so(chunk, task) and not self.unanswered(chunk, task):
                return chunk.first(len(wanted))
        return None

    def unanswered(self, chunk: Chunk, task: Task) -> dict[str, tuple[Pose, ...]]:
        """The targets of a task, and the poses, that a chunk has no answers of."""
        left = {name: chunk.missing(self.target_keys[name], poses) for name, poses in task.targets.items()}
        return {name: poses for name, poses in left.items() if poses}

    def left(self) -> list[Task]:
        """What is still to be done: the hash of every file that is there is checked."""
        left = []
        for task in self.tasks:
            chunk = self.chunk(task)
            traced = not task.variant.trace or (chunk is not None and any(n.startswith("trace/") for n in chunk.files))
            if chunk is None or not traced or not self.store.sound(chunk):
                left.append(task)
                continue
            if targets := self.unanswered(chunk, task):
                left.append(replace(task, targets=targets, make=False))
        return left

    def stored(self, task: Task) -> Chunk:
        """What the store holds of a task that was done.

        Raises:
            WhorlError: it is gone.
        """
        chunk = self.chunk(task)
        if chunk is None:
            raise WhorlError(f"{self.store.cell(task.variant.place, task.key)} is gone. Run it again.")
        return chunk

    def by_chunk(self) -> Iterator[tuple[Outcomes, list[Chunk]]]:
        """What became of the images, chunk by chunk, with what is stored of them: clean, then attacked.

        Every variant has the same chunks, and the clean one is there.
        """
        for place in range(self.chunks):
            yield self.outcomes(place)

    @property
    def chunks(self) -> int:
        """How many chunks the images are cut into."""
        return len(self.tasks) // len(self.variants)

    def finished(self, place: int) -> bool:
        """Whether a chunk of images, by its place, has been made and evaluated in all variants."""
        for task in self._variants_of(place):
            chunk = self.chunk(task)
            if chunk is None or self.unanswered(chunk, task):
                return False
        return True

    def outcomes(self, place: int) -> tuple[Outcomes, list[Chunk]]:
        """What became of one chunk of images, by its place; see ``by_chunk``."""
        names = tuple(variant.name for variant in self.attacked)
        tasks = self._variants_of(place)
        chunks = [self.stored(task) for task in tasks]
        for task, chunk in zip(tasks, chunks, strict=True):
            if chunk.ids != chunks[0].ids:
                path = self.store.cell(task.variant.place, task.key)
                raise WhorlError(f"{path} is about other images than the clean ones. Remove it and run again.")
        clean, *rest = (self._recognised(chunk) for chunk in chunks)
        outcomes = Outcomes(
            ids=tuple(chunks[0].ids),
            attacks=names,
            targets=tuple(self.targets),
            poses=self.poses,
            clean=clean,
            adversarial=torch.stack(rest),
            distances={name: chunk.distance for name, chunk in zip(names, chunks[1:], strict=True)},
        )
        return outcomes, chunks

    def _variants_of(self, place: int) -> tuple[Task, ...]:
        return self.tasks[place * len(self.variants) : (place + 1) * len(self.variants)]

    def _recognised(self, chunk: Chunk) -> Tensor:
        """(targets, poses, N) bool."""
        digits = "".join(chunk.recognised(key, pose) for key in self.target_keys.values() for pose in self.poses)
        bits = torch.from_numpy(np.frombuffer(digits.encode(), np.uint8) == ord("1"))
        return bits.reshape(len(self.targets), len(self.poses), len(chunk.ids))


def known_to_source(variant: Variant, chunk: Chunk) -> int:
    """How many clean images of a chunk the attacked network recognises; all of them where that is not known."""
    attack, n = variant.attack, len(chunk.ids)
    if chunk.known:
        return chunk.known.count("1")
    free = variant.target_class is None and getattr(attack, "init", None) is None
    if attack is None or not attack.black_box or variant.counting or not free:
        return n
    # Nobody spends a query to find out, but an image that was done after the first was never recognised.
    return sum(spent > 1 or not success for spent, success in zip(chunk.queries, chunk.success, strict=True))


def chunk_size(device: torch.device, given: int | None = None, *, cpu: int = 8) -> int:
    """Images at a time: as given, or 64 on a GPU, which they fill, and ``cpu`` elsewhere.

    On a CPU a larger batch is no faster, and an interruption costs a batch.
    """
    return given if given is not None else 64 if device.type == "cuda" else cpu


def surroundings(device: torch.device) -> Json:
    """What an image may depend on besides settings, weights and seed; images of two of these must not be mixed."""
    return {"whorl_version": whorl.__version__, "torch_version": torch.__version__, "device_type": device.type}


def make_tasks(
    variants: Sequence[Variant], images: Sequence[HashedImage], size: int, *, read: Any = None, cut: bool = False
) -> tuple[Task, ...]:
    """Cut a data set into chunks, and make a task of each for every variant.

    Args:
        variants: the clean one first.
        images: the data set.
        size: images in a chunk.
        read: how images are read, as JSON: what else than their files their pixels depend on.
        cut: whether the last chunk may be served by a longer one that is there.
    """
    checked("batch_size", size, Count)
    clean = next((variant for variant in variants if variant.attack is None), None)
    tasks = []
    for start in range(0, len(images), size):
        for variant in variants:
            end = start + size if variant.limit is None else min(start + size, variant.limit)
            chunk = tuple(images[start:end])
            if not chunk:
                continue
            content = [image.content for image in chunk]
            tasks.append(
                Task(
                    variant=variant,
                    images=chunk,
                    key=_key(variant, content, read),
                    clean_key=_key(clean, content, read) if clean else "",
                    read=read,
                    cut=cut and end >= len(images),
                    targets=variant.targets,
                )
            )
    return tuple(tasks)


def start_folder(attack: Attack | None) -> StartFolder | None:
    """The folder of images that an attack starts from; None if it starts elsewhere."""
    init = getattr(attack, "init", None)
    return init if isinstance(init, StartFolder) else None


def _made_so(chunk: Chunk, task: Task) -> bool:
    """Whether a longer chunk was read, and started from, what the task is: its key is what it would be now."""
    with suppress(WhorlError, OSError):  # a start that only the longer one had may be gone
        return chunk.key == _key(task.variant, chunk.images, task.read)
    return False


def _key(variant: Variant, images: Sequence[Sequence[Any]], read: Any) -> str:
    """Hash what a chunk depends on.

    Args:
        variant: what is done.
        images: id, label and hash of each.
        read: as of :func:`make_tasks`.
    """
    folder = start_folder(variant.attack)
    starts = [] if folder is None else [sha256_of(folder.path(name)) for name, *_ in images]
    return hashed({"variant": variant.key, "starts": starts, "images": images, "read": read})
