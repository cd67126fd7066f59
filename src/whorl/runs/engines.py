"""Who does the tasks of a run: this process, or the workers of a Ray cluster. Same plan, same results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing

from whorl.errors import WhorlError, unknown_name
from whorl.progress import Progress, listening
from whorl.runs.networks import Networks
from whorl.runs.plan import Plan, Task
from whorl.runs.ray_cluster import run_on_ray
from whorl.runs.worker import Orders, Worker

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
