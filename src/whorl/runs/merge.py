"""Shards of a run put together: the folder that one run would have made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from whorl.errors import WhorlError
from whorl.files import atomic_write, damaged
from whorl.progress import Progress, silent
from whorl.runs.declaration import Declaration, declare
from whorl.runs.done import Done
from whorl.runs.experiment import Preparation, conclude, prepare
from whorl.runs.folder import Json
from whorl.runs.plan import Plan, Task
from whorl.runs.shard import Shard
from whorl.runs.single_attack import differences
from whorl.runs.store import Chunk, Store


@dataclass(frozen=True, kw_only=True)
class ShardFolder:
    """What a shard left.

    Attributes:
        path: its run folder.
        shard: which one it is.
        manifest: what it says of itself.
    """

    path: Path
    shard: Shard
    manifest: Json

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a folder's manifest.

        Raises:
            WhorlError: there is none, or it is not that of a shard.
        """
        store = Store(path)
        manifest = store.read()
        if "shard" not in manifest:
            raise WhorlError(f"{path} holds no shard. Expected a folder that `whorl run --shard` wrote.")
        try:
            listed = [f"{spec.title}/{source}" for spec, source in _declaration(manifest).versions()]
            if "targets" not in manifest or any(name not in manifest["crafted"] for name in listed):
                raise KeyError("an attack or the targets are missing")
            return cls(path=path, shard=Shard.parse(manifest["shard"]), manifest=manifest)
        except (WhorlError, TypeError, LookupError) as error:
            raise damaged(store.manifest, error, remedy="and run the shard again, which keeps its chunks") from error

    def __str__(self) -> str:
        return f"shard {self.shard} in {self.path}"


def merge(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    device: str = "auto",
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Done:
    """Put the shards of an experiment together.

    What comes out is what one run would have made, byte for byte, but for the time that crafting took and for who
    started it when. The data set and the networks must be there: every chunk is looked up by the hashes of the images
    and weights that it was made from. Nothing is computed, and the shards stay as they are.

    Args:
        folders: one for each shard, in any order.
        out: the run folder to make. If it holds a part of the merge already, that is kept.
        device: kind of device that the shards ran on: "auto", "cpu" or "cuda".
        command: what the user typed, for the manifest.
        progress: called with each chunk.

    Raises:
        WhorlError: a shard is missing, there twice, of other settings or not finished; the message says which.
    """
    shards = _checked([ShardFolder.read(Path(folder)) for folder in folders], Path(out))
    declaration = _declaration(next(iter(shards.values())).manifest)
    with prepare(declaration, out, device=device, command=command, progress=progress) as ready:
        _same_here(ready.plan, shards.values())
        _take(ready, shards, progress)
        left = ready.plan.left()
        if left:
            raise WhorlError(
                f"{len(left)} chunks in {ready.plan.store.path} are not whole. Merge into an empty folder."
            )
        ready.note()
        return conclude(ready, computed=0)


def _declaration(manifest: Mapping[str, Any]) -> Declaration:
    return declare(**manifest["experiment"])


def _checked(found: Sequence[ShardFolder], out: Path) -> dict[Shard, ShardFolder]:
    """Refuse shards that do not make up one run."""
    if not found:
        raise WhorlError("expected the folders of all shards, got none.")
    first, by_shard = found[0], dict[Shard, ShardFolder]()
    for one in found:
        if os.path.realpath(one.path) == os.path.realpath(out):  # resolve() has an error of its own for a loop
            raise WhorlError(f"{one} cannot be the folder to merge into. Choose another (out).")
        if one.shard.count != first.shard.count:
            raise WhorlError(f"shards must be of one run; got {first} and {one}.")
        if one.shard in by_shard:
            raise WhorlError(f"shard {one.shard} is there twice: {by_shard[one.shard].path} and {one.path}.")
        other = _other(first.manifest, one.manifest)
        if other:
            raise WhorlError(f"{one} was made with another {' and another '.join(other)} than {first}.")
        by_shard[one.shard] = one
    count = first.shard.count
    missing = [shard for n in range(1, count + 1) if (shard := Shard(count=count, number=n)) not in by_shard]
    if missing:
        named = ", ".join(map(str, missing))
        raise WhorlError(f"shard {named} of the run is missing. Add its folder, or run it: --shard {missing[0]}.")
    return by_shard


def _other(one: Json, two: Json) -> list[str]:
    """What differs between two shards' manifests, of all that their results depend on."""
    found = differences(one["experiment"], two["experiment"]) + differences(one["targets"], two["targets"])
    for name, entry in one["crafted"].items():
        found += differences(entry, two["crafted"].get(name, {}))
    return list(dict.fromkeys(found))


def _same_here(plan: Plan, shards: Iterable[ShardFolder]) -> None:
    """Refuse shards that were made with other weights or versions than are here: their chunks have other keys."""
    for one in shards:
        for variant in plan.attacked:
            identity = {**variant.identity, "attack": variant.label}
            other = differences({key: one.manifest["crafted"][variant.name].get(key) for key in identity}, identity)
            if other:
                raise WhorlError(f"{one} was made with another {' and another '.join(other)} than is here.")


def _take(ready: Preparation, shards: Mapping[Shard, ShardFolder], progress: Progress) -> None:
    """Copy every chunk of the plan from the shard that it belongs to."""
    plan, count = ready.plan, len(shards)
    stage, each = f"merging {count} shards", len(plan.variants)
    missing: dict[Shard, int] = {}
    for place, task in enumerate(plan.tasks):
        one = shards[Shard.of_chunk(place // each, count)]
        if not _taken(plan, task, Store(one.path)):
            missing[one.shard] = missing.get(one.shard, 0) + 1
        progress(stage, place + 1, len(plan.tasks))
    if missing:
        named = "; ".join(f"{shards[shard]} lacks {lost} of its chunks" for shard, lost in missing.items())
        raise WhorlError(
            f"{named}. It was not finished, or the images have changed since: run it again with --shard, then merge."
        )


def _taken(plan: Plan, task: Task, shard: Store) -> bool:
    """Copy one chunk unless it is there; False if the shard has none that is whole."""
    place = task.variant.place

    def whole(store: Store, chunk: Chunk | None) -> bool:
        return chunk is not None and not plan.unanswered(chunk, task) and store.sound(chunk)

    if whole(plan.store, plan.store.get(place, task.key)):
        return True
    chunk = shard.get(place, task.key)
    if chunk is None or not whole(shard, chunk):
        return False
    for name in chunk.files:
        with (shard.path / name).open("rb") as source, atomic_write(plan.store.path / name) as target:
            shutil.copyfileobj(source, target)
    plan.store.put(place, replace(chunk))
    return True
