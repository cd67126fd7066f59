"""Does the tasks of a run, with the networks kept loaded: what a process, or a machine of a cluster, runs."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks import Attack, TargetError, Trace
from whorl.attacks.contract import Model
from whorl.data import Images, load_image, save_image
from whorl.evaluation import Distance, Pose, Precision, Predictor, recognised, to_8_bits
from whorl.files import in_threads
from whorl.models.prepared import copies
from whorl.progress import piece_of_work
from whorl.runs.background import ReadAhead, WriteBehind
from whorl.runs.folder import folder_name, pixels_sha256
from whorl.runs.images import HashedImage, ImageSource
from whorl.runs.networks import Networks
from whorl.runs.plan import Task, Variant, start_folder
from whorl.runs.store import CLEAN, Chunk, Ledger, Store, pose_key

LONG = 100
"""Gradients or queries an image from which on an attack says how far it is, and beforehand how long it will take."""


class OutOfTime(Exception):  # noqa: N818 - it is no error: somebody set the limit
    """The time that was given is over."""


class Meter(nn.Module):
    """Passes images on to a target and counts them, whatever the attack says.

    Args:
        model: the target.
        on_pass: called with the number of images before each pass.
        deadline: on the clock of ``time.monotonic``; after it, :class:`OutOfTime` is raised instead of a pass.
    """

    def __init__(
        self, model: Model, *, on_pass: Callable[[int], None] | None = None, deadline: float | None = None
    ) -> None:
        super().__init__()
        self.model, self.on_pass, self.deadline = model, on_pass, deadline
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        """Count, then query."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime
        if self.on_pass is not None:
            self.on_pass(len(x))
        self.seen += len(x)
        answer: Tensor = copies.answer(self.model, x)
        return answer


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What all tasks of a run share; it can be sent to another process.

    Attributes:
        folder: the run folder; absolute, and the same for every worker.
        images: how images are read.
        seed: of all randomness.
        target_keys: target's name to the hash that answers are filed under.
        precision: in which targets answer.
        deadline: when to stop, on the clock of ``time.monotonic``; None for no limit.
    """

    folder: Path
    images: ImageSource
    seed: int = 0
    target_keys: Mapping[str, str] = field(default_factory=dict)
    precision: Precision = "full"
    deadline: float | None = None


class Worker:
    """Does tasks one after the other.

    Args:
        orders: what they share.
        networks: loads what is attacked and evaluated.
    """

    def __init__(self, orders: Orders, networks: Networks) -> None:
        self.orders, self.networks = orders, networks
        self.store = Store(orders.folder)
        self._ahead, self._behind = ReadAhead(orders.images, networks.device), WriteBehind()
        self._log = orders.folder / "logs" / f"{platform.node()}-{os.getpid()}.log"

    def do(self, task: Task) -> int:
        """Do a task and store its chunk; see :meth:`work`."""
        [counts] = self.work([task])
        return counts

    def work(self, tasks: Sequence[Task]) -> Generator[int, None, None]:
        """Do tasks one after the other, store their chunks, and write a line for each into the log of this worker.

        While the device works on one, the images of the next are decoded, and what the last ones made is written.

        Yields:
            What a task counts in the progress, once its chunk is stored.

        Raises:
            OutOfTime: the deadline is over; what the task had done is discarded.
        """
        self._behind = WriteBehind()
        try:
            for place, task in enumerate(tasks, 1):
                start = time.perf_counter()
                self._do(task, tasks[place].images if place < len(tasks) else None)
                self._note(task, time.perf_counter() - start)
                yield from self._behind.done()
            yield from self._behind.done(wait=True)
        finally:  # whatever cuts it short, what was finished is kept
            self._ahead.forget()
            self._behind.close()

    def _note(self, task: Task, seconds: float) -> None:
        what = f"{'clean' if task.variant.attack is None else task.variant.name}: {len(task.images)} images"
        now = datetime.now(UTC).isoformat(timespec="seconds")
        made = f"{'made and evaluated' if task.make else 'evaluated'} in {seconds:.1f} s"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{now} {what} from {task.images[0].entry.id} {made}\n")

    def _do(self, task: Task, then: tuple[HashedImage, ...] | None) -> None:
        if self.orders.deadline is not None and time.monotonic() > self.orders.deadline:
            raise OutOfTime
        place, images = task.variant.place, self._ahead.read(task.images, then)
        chunk = None if task.make and task.variant.attack is not None else self.store.get(place, task.key)
        if chunk is None:
            chunk = _new_chunk(task, images)
            if task.variant.attack is not None:
                self._attack(task, images, chunk)
                return
        shown = images.x if task.variant.attack is None or not chunk.ids else self._saved(task.variant, chunk.ids)
        self._evaluate(chunk, shown, images.y, task.targets)
        self._reach(task.variant, chunk, shown)
        self._put(task, chunk)

    def _put(self, task: Task, chunk: Chunk) -> None:
        """Have the chunk of a task stored, which is then done; nothing changes it any more."""
        self._behind.submit(lambda: self.store.put(task.variant.place, chunk), task.weight)

    def _saved(self, variant: Variant, ids: Sequence[str]) -> Tensor:
        """Read adversarial images back as they were saved."""
        places = [self.store.image(variant.label, variant.source, name) for name in ids]
        return torch.stack(in_threads(load_image, places))

    # ------------------------------------------------------------------------------------------------------- attack

    def _attack(self, task: Task, images: Images, chunk: Chunk) -> None:
        variant = task.variant
        if variant.counting:
            images = self._recognised(task, images)
            chunk.ids = list(images.ids)
        if not images.ids:
            self._evaluate(chunk, images.x, images.y, task.targets)
            return self._put(task, chunk)
        attack: Any = variant.attack
        if attack.black_box or variant.counting:
            adv = self._kept_at_once(task, images, chunk)
        else:
            adv, files = self._craft(variant, images, chunk, None)
            self._keep(task, images, chunk, files)
        if not variant.counting and (task.targets or variant.target_class is not None):
            self._evaluate(chunk, adv, images.y, task.targets)
            self._reach(variant, chunk, adv)
        return self._put(task, chunk)

    def _keep(self, task: Task, images: Images, chunk: Chunk, files: Mapping[Path, Tensor | str]) -> None:
        """Have what was crafted stored while it is evaluated: whatever goes wrong then, it is kept."""
        crafted = replace(chunk, answers={}, files={})

        def keep() -> None:
            crafted.clean = in_threads(pixels_sha256, images.x)
            self.store.put(task.variant.place, crafted, files)
            chunk.clean, chunk.files = crafted.clean, crafted.files

        self._behind.submit(keep)

    def _kept_at_once(self, task: Task, images: Images, chunk: Chunk) -> Tensor:
        """Attack a batch and store it before anything else is done, so that no query is ever lost."""
        variant, place = task.variant, task.variant.place
        attack: Any = variant.attack
        ledger = self.store.begin(place, variant.key, task.key) if attack.black_box else None
        try:
            adv, files = self._craft(variant, images, chunk, ledger)
            chunk.clean = in_threads(pixels_sha256, images.x)
            if variant.counting:
                self._evaluate(chunk, adv, images.y, task.targets)
            self.store.put(place, chunk, None if variant.counting else files)
        except BaseException as error:  # Ctrl-C above all: whatever cuts a chunk, its queries were spent
            if ledger is not None:
                self._cut(error, variant, images.ids, ledger)
            raise
        if ledger is not None:
            self.store.finish(ledger)
        return adv

    def _craft(
        self, variant: Variant, images: Images, chunk: Chunk, ledger: Ledger | None
    ) -> tuple[Tensor, dict[Path, Tensor | str]]:
        """Attack a batch, and write down what it cost; gives the images on the device, rounded to 8 bits, and files."""
        device, source = self.networks.device, self.networks.source(variant.source)
        attack: Any = variant.attack.with_(trace=True) if variant.trace and variant.attack else variant.attack
        meter = None if ledger is None else Meter(source, on_pass=ledger.add, deadline=self.orders.deadline)
        x, y = images.x.to(device, non_blocking=True), images.y.to(device)
        if meter is None:  # an answer costs a query, where they are counted
            [[row]] = recognised({variant.source: source}, x, y, ids=images.ids)
            chunk.known = _digits(row)
        goal = {"y": y} if variant.target_class is None else {"target": torch.full_like(y, variant.target_class)}
        seed = self.orders.seed if variant.seed is None else variant.seed
        start = time.perf_counter()
        with within_a_batch(variant.label, attack):
            adv, info = attack(meter or source, x, **goal, seed=seed, ids=images.ids, return_info=True)
        adv = to_8_bits(adv)
        chunk.distance = Distance.of(x, adv)
        levels = (adv * 255).round().to(torch.uint8).cpu()  # waits for the device, so that the time is the attack's
        chunk.seconds = round(time.perf_counter() - start, 4)
        chunk.starts = _starts(attack, images)
        chunk.success = info.success.tolist()
        chunk.grad_evals = [] if info.grad_evals is None else info.grad_evals.tolist()
        chunk.queries = [] if info.queries is None else info.queries.tolist()
        if meter is not None and ledger is not None:
            chunk.work = ledger.work
            if sum(chunk.queries) != meter.seen:
                counted = f"{variant.label} counted {sum(chunk.queries)} queries"
                raise AssertionError(f"{counted}, its target saw {meter.seen} images")
        return adv, self._files(variant, images.ids, levels, info.trace)

    def _files(
        self, variant: Variant, ids: Sequence[str], adv: Tensor, trace: Trace | None
    ) -> dict[Path, Tensor | str]:
        """What is kept besides the chunk: each image, (3, H, W) uint8, and its steps if they are kept."""
        folder = self.store
        files: dict[Path, Tensor | str] = {
            folder.image(variant.label, variant.source, name): image for name, image in zip(ids, adv, strict=True)
        }
        if variant.trace and trace is not None:
            steps = trace_folder(folder.path, variant.label, variant.source)
            files |= {steps / f"{name}.csv": trace_table(trace, i) for i, name in enumerate(ids)}
        return files

    def _cut(self, error: BaseException, variant: Variant, ids: Sequence[str], ledger: Ledger) -> None:
        """Count the queries of work that was cut short, and keep what it had reached."""
        self.store.discard(ledger)
        if isinstance(error, TargetError):
            if isinstance(error.__cause__, OutOfTime):
                raise OutOfTime from error
            if error.adv is not None:
                place = self.store.path / "unfinished" / variant.label / folder_name(variant.source)
                for name, image in zip(ids, error.adv, strict=True):
                    save_image(place / f"{name}.png", image)

    def _recognised(self, task: Task, images: Images) -> Images:
        """Those images that the source recognises as they are; it was evaluated on them before."""
        self._behind.wait()
        clean = self.store.get(CLEAN, task.clean_key)
        assert clean is not None  # noqa: S101 - its task comes first
        digits = clean.recognised(self.orders.target_keys[task.variant.source], Pose())
        rows = [i for i, digit in enumerate(digits) if digit == "1"]
        return Images(images.x[rows], images.y[rows], [images.ids[i] for i in rows])

    # -------------------------------------------------------------------------------------------------- evaluation

    def _evaluate(self, chunk: Chunk, shown: Tensor, y: Tensor, poses: Mapping[str, tuple[Pose, ...]]) -> None:
        """Write down who recognises which image in which pose."""
        targets = {name: self.networks.target(name) for name in poses} if chunk.ids else {}
        predictor = Predictor(targets, precision=self.orders.precision)
        found = predictor.recognised(shown.to(self.networks.device, non_blocking=True), y, poses, ids=chunk.ids)
        for (name, pose), row in found.items():
            known = chunk.answers.setdefault(self.orders.target_keys[name], {})
            known[pose_key(pose)] = _digits(row)

    def _reach(self, variant: Variant, chunk: Chunk, adv: Tensor) -> None:
        """Write down which saved images the source takes for the wanted class."""
        if variant.target_class is None or chunk.queries:
            return
        wanted = torch.full((len(chunk.ids),), variant.target_class)
        source, shown = self.networks.source(variant.source), adv.to(self.networks.device)
        [[row]] = recognised({variant.source: source}, shown, wanted, ids=chunk.ids)
        chunk.reached = _digits(row)


def _digits(row: Tensor) -> str:
    return "".join(map(str, row.int().tolist()))


def within_a_batch(label: str, attack: Attack) -> AbstractContextManager[None]:
    """Show how far an attack that takes long is within a batch."""
    cost = attack.cost
    if cost is None or cost.most < LONG:
        return nullcontext()
    return piece_of_work(f"{label}, this batch, {cost.unit}", cost.most, cost.unit)


def trace_folder(run: Path, label: str, source: str) -> Path:
    """Where the steps of a black-box attack lie."""
    return run / "trace" / label / folder_name(source)


def trace_table(trace: Trace, place: int) -> str:
    """Write one image's steps as CSV: queries so far, loss (empty where unknown) and distance.

    Args:
        trace: of a batch.
        place: of the image in it.

    >>> steps = Trace(torch.tensor([[1], [21], [21]]), torch.tensor([[-1.0], [0.5], [0.5]]), torch.zeros(3, 1))
    >>> trace_table(steps, 0).split()
    ['queries,loss,distance', '1,-1,0', '21,0.5,0']
    """
    columns = (column[:, place].tolist() for column in (trace.queries, trace.loss, trace.distance))
    lines, last = ["queries,loss,distance"], None
    for queries, loss, distance in zip(*columns, strict=True):
        # An image that is done stays in the batch's trace with its last values: once is enough.
        if queries != last:
            lines.append(f"{queries},{'' if math.isnan(loss) else f'{loss:.6g}'},{distance:.6g}")
        last = queries
    return "\n".join(lines) + "\n"


def _new_chunk(task: Task, images: Images) -> Chunk:
    return Chunk(
        key=task.key,
        variant=task.variant.key,
        images=[image.content for image in task.images],
        ids=list(images.ids),
        bad=[(bad.id, bad.reason) for bad in images.bad],
    )


def _starts(attack: Attack, images: Images) -> list[str]:
    folder = start_folder(attack)
    return [] if folder is None else [pixels_sha256(start) for start in folder.load(images.x, images.ids)]
