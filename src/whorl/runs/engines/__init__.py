"""Who does the tasks of an experiment: this process, or the workers of a Ray cluster. Same plan, same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from whorl.errors import unknown_name
from whorl.runs.engines.local import run_here
from whorl.runs.engines.ray_cluster import run_on_ray
from whorl.runs.loading import Networks
from whorl.runs.plan import Task
from whorl.runs.worker import Job

Engine = Callable[[Job, Sequence[Task], Networks, int | None], Iterator[int]]
"""Called with the job, its tasks, the networks of this process and a number of workers (None lets the engine choose).

Yields, for each task that is done, how many images it was about; the order does not matter.
"""

ENGINES: Mapping[str, Engine] = {"local": run_here, "ray": run_on_ray}


def find_engine(name: str) -> Engine:
    """Find an engine by name.

    >>> find_engine("local").__name__
    'run_here'
    """
    if name.lower() not in ENGINES:
        raise unknown_name("engine", name, ENGINES, hint="Expected local or ray.")
    return ENGINES[name.lower()]
