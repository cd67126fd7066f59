"""One attack on one network into a run folder: the declaration that ``craft`` and ``query`` share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import torch

from whorl.attacks import Attack
from whorl.attacks.contract import Model
from whorl.data import BadImage
from whorl.data.images import none_usable
from whorl.errors import WhorlError
from whorl.evaluation import Pose, SuccessRate, check_recognised
from whorl.evaluation.data_frame import data_frame
from whorl.evaluation.rate_table import percent
from whorl.models.classifier import name_of
from whorl.progress import Progress, duration, silent
from whorl.records import Plotted, html_table
from whorl.runs.engines import Interrupted, carry_out, check_sources
from whorl.runs.folder import Json, environment
from whorl.runs.images import ImageSource, with_classes
from whorl.runs.networks import Networks, device_of, identify
from whorl.runs.plan import Plan, Task, Variant, chunk_size, known_to_source, make_tasks, surroundings
from whorl.runs.query_rows import QueryRow, summarise
from whorl.runs.store import Store
from whorl.runs.worker import LONG, Orders, trace_folder

if TYPE_CHECKING:
    from pandas import DataFrame


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
        return chunk_size(self.device, self.options.get("batch_size"), cpu=4)

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


@dataclass(frozen=True, kw_only=True)
class AttackResult(Plotted):
    """What came of one attack on one network.

    Attributes:
        attack: what the images are listed under: the attack's name, and its start's if it has one (``nes-ai-dim``).
        source: name of the network, or networks, that was attacked or queried.
        folder: where the images lie.
        ids: all images, in order.
        kept: how many of them an earlier run had made.
        left_out: images that could not be used.
        counts: after :func:`whorl.runs.craft`, successes on the saved images as they are, by name: the source and, if
            it is an ensemble, each of its members.
        reached: likewise, how many the source takes for the target; None if the attack is untargeted.
        grad_evals: input gradients spent on the images, by whichever run made them.
        seconds: time spent likewise.
        queries: after :func:`whorl.runs.query`, by id, images that the target was shown for it.
        success: by id, whether the attacked network answered as wanted.
        discarded_queries: those that went into batches which were cut short and done again, in all runs so far.
        trace: folder of each image's steps, if they are kept.
    """

    attack: str
    source: str
    folder: Path
    ids: list[str]
    kept: int
    left_out: list[BadImage]
    counts: dict[str, SuccessRate]
    reached: int | None
    grad_evals: int
    seconds: float
    queries: dict[str, int]
    success: dict[str, bool]
    discarded_queries: int
    trace: Path | None

    @property
    def made(self) -> int:
        """How many images were crafted now."""
        return len(self.ids) - self.kept

    def to_pandas(self) -> DataFrame:
        """Give a data frame with a row for each image: whether it fools the network, and its queries if they count.

        Raises:
            WhorlError: pandas is not installed (extra ``pandas``).
        """
        rows = ((self.attack, self.source, name, self.success[name], self.queries.get(name)) for name in self.ids)
        return data_frame(("attack", "source", "id", "success", "queries"), rows)

    @property
    def row(self) -> QueryRow:
        """Queries counted over all images; each counts, whatever the target says of the clean one."""
        # What was queried is what was saved, so success holds of the files.
        facts = [
            {"counts": True, "queries": spent, "success": won, "saved_success": won, "seconds": 0.0}
            for spent, won in ((self.queries[name], self.success[name]) for name in self.ids)
        ]
        return summarise((self.attack, "none", self.source), facts)

    def _repr_html_(self) -> str:
        """What came of it as a table, for notebooks: a row for each network, or the queries."""
        caption = f"{self.attack} on {self.source}: {len(self.ids)} images, as they are, in {self.folder}"
        if self.queries:
            spent = f"{sum(self.queries.values()) / len(self.queries):,.0f}"
            row = (self.source, len(self.ids), sum(self.success.values()), spent)
            return html_table(caption, ("network", "images", "fooled", "queries, mean"), [row])
        rows = [(name, one.n_clean_correct, one.n_success, percent(one.rate)) for name, one in self.counts.items()]
        return html_table(caption, ("network", "recognised clean", "fooled", "success rate"), rows)


def run_single(one: SingleAttack, images: ImageSource, out: str | Path) -> AttackResult:
    """Run one attack into a run folder, going on where an earlier run stopped.

    Args:
        one: the attack.
        images: what to start from.
        out: the run folder.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and network with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    options, variants, around = one.options, one.variants(), environment(one.device)
    seed, command = options.get("seed", 0), options.get("command", ())
    started = datetime.now(UTC).isoformat(timespec="seconds")
    details: Json = {"repr": repr(one.attack), "data": images.describe(), "command": list(command), "started": started}
    details |= {"batch_size": one.batch_size, **around}
    # Bad settings are found before anything is written.
    guide = getattr(one.attack, "surrogate", None)
    met = {name_of(one.model): one.model, **one.evaluated}
    if guide is not None:  # it may well be called what the target is
        met[f"the surrogate {name_of(guide)}"] = guide
    tasks = make_tasks(
        variants, with_classes(images.listed(), met, images), one.batch_size, read=images.describe()["size"], cut=True
    )
    with Store.open(out, command) as store:
        targets = {name: identify(model) for name, model in one.evaluated.items()}
        plan = Plan(store=store, poses=(Pose(),), variants=variants, targets=targets, tasks=tasks)
        _claim(store, variants[-1], overwrite=options.get("overwrite", False))
        left = plan.left()
        orders = Orders(folder=store.path, images=images, seed=seed, target_keys=plan.target_keys)
        networks = Networks(one.device, seed, given={name_of(one.model): one.model, **one.evaluated})
        stage, progress = f"{one.label} on {name_of(one.model)}", options.get("progress", silent)
        check_sources(plan, left, orders, networks, progress)
        _note(plan, details)
        if progress is not silent:
            stage += _expected(one, images, [task for task in left if task.make and task.variant.attack is not None])
        try:
            carry_out(plan, left, orders, networks, stage=stage, progress=progress)
        except Interrupted as error:
            made = sum(len(chunk.ids) for chunk in store.chunks(variants[-1].place))
            place = store.images(variants[-1].label, variants[-1].source)
            raise Interrupted(f"{made} images are in {place}. Run the same command again to go on.") from error
        finally:
            discarded = _note(plan, details)
        done = _collected(plan, {task.key for task in left if task.make}, discarded)
        if one.attack.black_box:
            facts = ("n", "n_success", "asr", "mean_queries", "mean_queries_all")
            _note(plan, {**details, "summary": {fact: getattr(done.row, fact) for fact in facts}})
    return done


def _expected(one: SingleAttack, images: ImageSource, tasks: Sequence[Task]) -> str:
    """Say what an attack that takes long will cost: a few gradients of the first batch are timed."""
    cost, taste = one.attack.cost, one.attack.taste()
    if cost is None or cost.most < LONG or not tasks:
        return ""
    batch = images.read(tasks[0].images)
    if taste is None or taste.cost is None or not batch.ids:
        return f" ({cost})"
    x, y = batch.x.to(one.device), batch.y.to(one.device)
    wanted = None if one.target_class is None else torch.full_like(y, one.target_class)
    seconds = 0.0
    for _ in range(2):  # the first time, memory is set aside and kernels are chosen
        start = time.perf_counter()
        taste(one.model, x, y if wanted is None else None, target=wanted, ids=batch.ids).cpu()  # waits for the device
        seconds = time.perf_counter() - start
    return f" ({cost}, {duration(seconds / taste.cost.most * cost.most * len(tasks))})"


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
    earlier = store.read()["crafted"].get(variant.name)
    if earlier is not None and "cells" in earlier:
        raise WhorlError(f"{variant.name} in {store.path} belongs to an experiment. Choose another folder (out).")
    if earlier is None or not (earlier.get("images") or any(store.chunks(variant.place))):
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
        store.forget(variant.place, [store.images(variant.label, variant.source), trace])


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


def _collected(plan: Plan, made: set[str], discarded: int) -> AttackResult:
    """Add up the chunks; ``made`` are the keys of those that were made now."""
    attacked = [task for task in plan.tasks if task.variant.attack is not None]
    chunks = [plan.stored(task) for task in attacked]
    bad = [item for chunk in chunks for item in chunk.bad]
    left_out = [BadImage(path=plan.images[name].entry.path, id=name, reason=reason) for name, reason in bad]
    ids = [name for chunk in chunks for name in chunk.ids]
    if not ids:
        raise none_usable([one.reason for one in left_out])
    variant, path = plan.variants[-1], plan.store.path
    check_recognised(variant.source, sum(known_to_source(variant, chunk) for chunk in chunks))
    untargeted = variant.target_class is None
    return AttackResult(
        attack=variant.label,
        source=variant.source,
        folder=plan.store.images(variant.label, variant.source),
        ids=ids,
        kept=sum(len(chunk.ids) for task, chunk in zip(attacked, chunks, strict=True) if task.key not in made),
        left_out=left_out,
        counts=_counts(plan) if plan.targets else {},
        reached=None if untargeted else sum(chunk.reached.count("1") for chunk in chunks),
        grad_evals=sum(sum(chunk.grad_evals) for chunk in chunks),
        seconds=sum(chunk.seconds for chunk in chunks),
        queries={name: spent for chunk in chunks for name, spent in zip(chunk.ids, chunk.queries, strict=False)},
        success={name: won for chunk in chunks for name, won in zip(chunk.ids, chunk.success, strict=True)},
        discarded_queries=discarded,
        trace=trace_folder(path, variant.label, variant.source) if variant.trace else None,
    )


def _counts(plan: Plan) -> dict[str, SuccessRate]:
    """By network, successes on the images as they are."""
    counts = [outcomes.counts for outcomes, _ in plan.by_chunk()]
    cell = plan.variants[-1].name
    return {name: sum((one[cell, name, Pose()] for one in counts), SuccessRate()) for name in plan.targets}
