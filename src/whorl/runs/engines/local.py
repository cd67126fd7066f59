"""Does the tasks in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whorl.errors import WhorlError
from whorl.runs.loading import Networks
from whorl.runs.plan import Task
from whorl.runs.worker import Job, Worker


def run_here(job: Job, tasks: Sequence[Task], networks: Networks, workers: int | None) -> Iterator[int]:
    """Do the tasks one after the other; see ``Engine``."""
    if workers not in (None, 1):
        raise WhorlError(f"the local engine is one process; got workers={workers}. Use the engine ray for more.")
    worker = Worker(job, networks)
    for task in tasks:
        yield worker.do(task)
