"""One attack on one network into a run folder: the declaration that ``craft`` and ``query`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import torch

from whorl.attacks import Attack
from whorl.attacks.contract import Model
from whorl.data import BadImage
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.progress import Progress, silent
from whorl.runs.engines import Interrupted, carry_out
from whorl.runs.folder import Json, environment
from whorl.runs.images import ImageSource
from whorl.runs.networks import Networks, device_of, identify, name_of
from whorl.runs.plan import Plan, Task, Variant, make_tasks, surroundings
from whorl.runs.store import Chunk, Store
from whorl.runs.worker import Orders

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 4, 64


class RunOptions(TypedDict, total=False):
    """How one attack is run, besides what it is: keywords of :func:`whorl.runs.craft` and :func:`whorl.runs.query`.

    Attributes:
        seed: of all randomness; 0 by default.
        batch_size: images at a time; None for 4 on a CPU and 64 on a GPU.
        overwrite: whether to replace images of the same attack and network that were made with other settings.
        device: where to compute; None for the network's own.
        command: what the user typed, for the manifest.
        progress: called with each batch.
    """

    seed: int
    batch_size: int | None
    overwrite: bool
    device: torch.device | None
    command: Sequence[str]
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class SingleAttack:
    """One attack on one network.

    Attributes:
        attack: the attack.
        label: what its images are listed under.
        model: what it attacks.
        settings: of the attack, as JSON.
        target_class: class to reach; None to leave the true one.
        trace: whether to write each step of a black-box attack.
        extra: what else the images depend on, as JSON.
        evaluated: networks to evaluate on the clean and the saved images as they are, by name.
        options: how it is run.
    """

    attack: Attack
    label: str
    model: Model
    settings: Json
    target_class: int | None = None
    trace: bool = False
    extra: Json = field(default_factory=dict)
    evaluated: Mapping[str, Model] = field(default_factory=dict)
    options: RunOptions

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return self.options.get("device") or device_of(self.model)

    @property
    def batch_size(self) -> int:
        """Images at a time."""
        given = self.options.get("batch_size")
        default = _GPU_BATCH if self.device.type == "cuda" else _CPU_BATCH
        return default if given is None else given

    def variants(self) -> tuple[Variant, ...]:
        """The clean images if anybody is evaluated on them, and the attacked ones."""
        name, made_by = name_of(self.model), surroundings(self.device)
        identity = {
            "attack": self.label,
            "settings": self.settings,
            "source": name,
            "models": identify(self.model),
            **self.extra,
            "target": self.target_class,
            "seed": self.options.get("seed", 0),
            **made_by,
        }
        targets = dict.fromkeys(self.evaluated, (Pose(),))
        attacked = Variant(
            attack=self.attack,
            label=self.label,
            source=name,
            identity=identity,
            targets=targets,
            target_class=self.target_class,
            trace=self.trace,
        )
        return (Variant(identity=made_by, targets=targets, weight=0), attacked) if targets else (attacked,)


@dataclass(kw_only=True)
class AttackedFolder:
    """What a run folder holds of one attack on one network, after it was run.

    Attributes:
        plan: what was to be done.
        pairs: of each chunk, the clean one (None if nobody was evaluated on it) and the attacked one.
        ids: all images, in order.
        kept: how many of them an earlier run had made.
        left_out: images that could not be used.
        discarded_queries: those that went into work which was cut short, in all runs so far.
    """

    plan: Plan
    pairs: list[tuple[Chunk | None, Chunk]]
    ids: list[str]
    kept: int
    left_out: list[BadImage]
    discarded_queries: int

    @property
    def images(self) -> Path:
        """Where the images lie."""
        variant = self.plan.variants[-1]
        return self.plan.store.folder.images(variant.label, variant.source)

    def total(self, column: Callable[[Chunk], float]) -> float:
        """Add up something over all chunks."""
        return sum(column(chunk) for _, chunk in self.pairs)


def run_single(
    one: SingleAttack,
    images: ImageSource,
    out: str | Path,
    *,
    summary: Callable[[AttackedFolder], Json] = lambda _: {},
) -> AttackedFolder:
    """Run one attack into a run folder, going on where an earlier run stopped.

    Args:
        one: the attack.
        images: what to start from.
        out: the run folder.
        summary: what else to put into the manifest in the end.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and network with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    started, options = datetime.now(UTC).isoformat(timespec="seconds"), one.options
    given = {name_of(one.model): one.model, **one.evaluated}
    networks = Networks(one.device, options.get("seed", 0), given=given)
    variants, command = one.variants(), options.get("command", ())
    # Bad settings are found before anything is written.
    tasks = make_tasks(variants, images.listed(), one.batch_size, read=images.describe()["size"], cut=True)
    with Store.open(out, command) as store:
        plan = Plan(
            store=store,
            poses=(Pose(),),
            variants=variants,
            targets={name: identify(model) for name, model in one.evaluated.items()},
            tasks=tasks,
        )
        details = {
            "repr": repr(one.attack),
            "data": images.describe(),
            "command": list(command),
            "started": started,
            "batch_size": one.batch_size,
            **environment(one.device),
        }
        _claim(store, variants[-1], overwrite=options.get("overwrite", False))
        _note(plan, details)
        left = plan.left()
        orders = Orders(folder=store.path, images=images, seed=options.get("seed", 0), target_keys=plan.target_keys)
        stage = f"{one.label} on {name_of(one.model)}"
        try:
            carry_out(plan, left, orders, networks, stage=stage, progress=options.get("progress", silent))
        except Interrupted as error:
            made = sum(len(chunk.ids) for chunk in store.chunks(variants[-1].place))
            place = store.folder.images(variants[-1].label, variants[-1].source)
            raise Interrupted(f"{made} images are in {place}. Run the same command again to go on.") from error
        finally:
            discarded = _note(plan, details)
        done = _collected(plan, {task.key for task in left if task.make}, discarded)
        _note(plan, {**details, **summary(done)})
    return done


def differences(earlier: Json, now: Json) -> list[str]:
    """Name what differs, one level into settings.

    >>> before = {"seed": 0, "settings": {"eps": 0.1, "steps": 10}}
    >>> differences(before, {"seed": 1, "settings": {"eps": 0.2, "steps": 10}})
    ['seed', 'eps']
    """
    found = []
    for key, value in now.items():
        before = earlier.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            found += [name for name in value | before if value.get(name) != before.get(name)]
        elif value != before:
            found.append(key)
    return found


def _claim(store: Store, variant: Variant, *, overwrite: bool) -> None:
    """Refuse to mix images of two settings, or remove the older ones."""
    earlier = store.folder.read()["crafted"].get(variant.name)
    if earlier is not None and "cells" in earlier:
        raise WhorlError(f"{variant.name} in {store.path} belongs to an experiment. Choose another folder (out).")
    if earlier is None or not (earlier["images"] or any(store.chunks(variant.place))):
        return
    other = differences(earlier, variant.identity)
    if other and not overwrite:
        raise WhorlError(
            f"{store.path} already holds {variant.name}, made with another {' and another '.join(other)}. "
            "Choose another folder (out), or replace it (overwrite)."
        )
    if other:
        # The manifest forgets the old images before any new one is written: at no time do both count as one.
        store.write(lambda manifest: manifest["crafted"].pop(variant.name))
        trace = store.path / "trace" / variant.place
        store.forget(variant.place, [store.folder.images(variant.label, variant.source), trace])


def _note(plan: Plan, details: Json) -> int:
    """Put everything that is known of the attack into the manifest; returns the queries that were discarded."""
    store, variant = plan.store, plan.variants[-1]
    discarded = store.settle(variant.place, variant.key)
    places = {task.key: place for place, task in enumerate(plan.tasks)}
    chunks = [chunk for chunk in store.chunks(variant.place) if chunk.variant == variant.key]
    chunks.sort(key=lambda chunk: places.get(chunk.key, len(places)))
    facts = {name: fact for chunk in chunks for name, fact in chunk.facts().items()}
    counted = {"discarded_queries": discarded} if variant.attack is not None and variant.attack.black_box else {}
    entry = {**variant.identity, **details, **counted, "images": facts}
    store.write(lambda manifest: manifest["crafted"].update({variant.name: entry}))
    return discarded


def _collected(plan: Plan, made: set[str], discarded: int) -> AttackedFolder:
    done = AttackedFolder(plan=plan, pairs=[], ids=[], kept=0, left_out=[], discarded_queries=discarded)
    clean: Chunk | None = None
    for task in plan.tasks:
        chunk = plan.chunk(task)
        if chunk is None:
            raise WhorlError(f"{plan.store.cell(task.variant.place, task.key)} is gone. Run it again.")
        if task.variant.attack is None:
            clean = chunk
            continue
        done.pairs.append((clean, chunk))
        done.ids += chunk.ids
        done.kept += 0 if task.key in made else len(chunk.ids)
        done.left_out += _left_out(task, chunk)
    if not done.ids:
        raise WhorlError(f"none of the {len(done.left_out)} images can be used. The first: {done.left_out[0].reason}")
    return done


def _left_out(task: Task, chunk: Chunk) -> list[BadImage]:
    paths = {image.entry.id: image.entry.path for image in task.images}
    return [BadImage(path=paths[name], id=name, reason=reason) for name, reason in chunk.bad]
