"""Who does the tasks of a run: this process, or the workers of a Ray cluster. Same plan, same results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing

from whorl.errors import WhorlError, unknown_name
from whorl.evaluation import check_recognised, recognised
from whorl.progress import Progress, listening
from whorl.runs.images import HashedImage
from whorl.runs.networks import Networks
from whorl.runs.plan import Plan, Task
from whorl.runs.ray_cluster import run_on_ray
from whorl.runs.worker import Orders, Worker

_CHECKING = "checking the sources"

Engine = Callable[[Orders, Sequence[Task], Networks, int | None], Generator[int, None, None]]
"""Called with the orders, tasks, the networks of this process and a number of workers (None lets the engine choose).

Yields, for each task that is done, what it counts in the progress; the order does not matter.
"""


def run_here(
    orders: Orders, tasks: Sequence[Task], networks: Networks, workers: int | None
) -> Generator[int, None, None]:
    """Do the tasks one after the other in this process; see ``Engine``."""
    if workers not in (None, 1):
        raise WhorlError(f"the local engine is one process; got workers={workers}. Use the engine ray for more.")
    yield from Worker(orders, networks).work(tasks)


ENGINES: Mapping[str, Engine] = {"local": run_here, "ray": run_on_ray}


def find_engine(name: str) -> Engine:
    """Find an engine by name.

    >>> find_engine("local").__name__
    'run_here'
    """
    if name.lower() not in ENGINES:
        raise unknown_name("engine", name, ENGINES, hint="Expected local or ray.")
    return ENGINES[name.lower()]


def check_sources(plan: Plan, left: Sequence[Task], orders: Orders, networks: Networks, progress: Progress) -> None:
    """Refuse a source that recognises none of the clean images, before anything is crafted on it.

    It sees images as they are, until it recognises one. A network that is queried is not shown any, nor is one of which
    a part is done already: what came of them is counted in the end.

    Args:
        plan: all that is to be done.
        left: what of it is still to be done.
        orders: how images are read.
        networks: of this process.
        progress: called with each source.

    Raises:
        WhorlError: which source.
    """
    waiting = {task.key for task in left if task.make}
    by_source: dict[str, list[Task]] = {}
    for task in plan.tasks:
        if task.variant.attack is not None and not task.variant.attack.black_box:
            by_source.setdefault(task.variant.source, []).append(task)
    fresh = {name: tasks for name, tasks in by_source.items() if all(task.key in waiting for task in tasks)}
    for place, (name, tasks) in enumerate(fresh.items()):
        progress(_CHECKING, place, len(fresh))
        chunks = {task.clean_key or task.key: task.images for task in tasks}.values()
        if not _recognises_any(name, chunks, orders, networks):
            check_recognised(name, 0)
        progress(_CHECKING, place + 1, len(fresh))


def _recognises_any(name: str, chunks: Iterable[tuple[HashedImage, ...]], orders: Orders, networks: Networks) -> bool:
    """Whether a source recognises an image; also where none can be read, which is said in the end, with the reason."""
    any_read = False
    for images in chunks:
        batch = orders.images.read(images)
        if not batch.ids:
            continue
        any_read = True
        x, y = batch.x.to(networks.device), batch.y.to(networks.device)
        if bool(recognised({name: networks.source(name)}, x, y, ids=batch.ids).any()):
            return True
    return not any_read


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a run is at work; the message says what was kept."""


def carry_out(
    plan: Plan,
    left: Sequence[Task],
    orders: Orders,
    networks: Networks,
    *,
    stage: str,
    engine: Engine = run_here,
    workers: int | None = None,
    progress: Progress,
) -> None:
    """Do what is left of a plan, under the lock of its store.

    Args:
        plan: all of it.
        left: what of it is still to be done.
        orders: what the tasks share.
        networks: of this process.
        stage: what to call it in the progress.
        engine: who does it.
        workers: of the engine.
        progress: called with each task, and within one that takes long, if it is done in this process.

    Raises:
        Interrupted: Ctrl-C. What was finished is kept.
    """
    for variant in plan.variants:
        plan.store.settle(variant.place, variant.key)
        anew = {image.entry.id for task in left if task.variant is variant and task.make for image in task.images}
        if anew:
            keys = {task.key for task in plan.tasks if task.variant.place == variant.place}
            plan.store.forget_overlapping(variant.place, anew, keep=keys)
    total = sum(task.weight for task in plan.tasks)
    seen = total - sum(task.weight for task in left)
    progress(stage, seen, total)
    try:
        # Closed whatever happens: nothing is written any more once the lock of the store is given back.
        with listening(progress), closing(engine(orders, left, networks, workers)) as done:
            for count in done:
                seen += count
                progress(stage, seen, total)
    except KeyboardInterrupt as error:
        raise Interrupted(f"What was finished is in {plan.store.path}. Run the same command again to go on.") from error
