"""Does the tasks on a Ray cluster: actors that keep the networks loaded, replaced and told again if one dies."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from whorl.errors import WhorlError, missing_extra
from whorl.runs.networks import Networks
from whorl.runs.plan import Task
from whorl.runs.worker import Orders, Worker

RETRIES = 4
"""How often a task is given to a new worker when the one that had it died."""


class _Actor:
    """A worker in a process of its own."""

    def __init__(self, orders: Orders, device: str, seed: int, threads: int) -> None:
        # As many as the process that planned the run: how sums are split among threads can change how they round.
        torch.set_num_threads(threads)
        self._worker = Worker(orders, Networks(torch.device(device), seed))

    def do(self, task: Task) -> int:
        return self._worker.do(task)


def run_on_ray(orders: Orders, tasks: Sequence[Task], networks: Networks, workers: int | None) -> Iterator[int]:
    """Do the tasks on the workers of a cluster; see ``Engine``.

    The cluster is that of ``RAY_ADDRESS``, or of a ``ray.init`` that was called before; else one is started on this
    machine and stopped at the end. Every worker must see the data set and the run folder under the same paths.
    """
    try:
        import ray
        from ray.exceptions import RayActorError, RayTaskError
        from ray.util import ActorPool
    except ImportError as error:
        raise missing_extra("the engine ray", "ray", extra="ray") from error
    if workers is not None and workers < 1:
        raise WhorlError(f"workers must be a whole number from 1; got {workers}.")
    if not tasks:
        return
    device = networks.device.type
    own = not ray.is_initialized()
    if own:
        # Workers import what this process can, the user's own networks too.
        paths = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR, runtime_env=paths)
    try:
        count = min(workers or _available(ray, device), len(tasks))
        needs: dict[str, Any] = {"num_gpus": 1} if device == "cuda" else {"num_cpus": 1}
        actor = ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(_Actor)
        threads = torch.get_num_threads()
        pool = ActorPool([actor.remote(orders, device, networks.seed, threads) for _ in range(count)])
        yield from pool.map_unordered(lambda worker, task: worker.do.remote(task), list(tasks))
    except RayTaskError as error:
        if isinstance(error.cause, WhorlError):
            raise WhorlError(str(error.cause)) from error
        raise
    except RayActorError as error:
        raise WhorlError(
            f"a task lost its worker {RETRIES + 1} times, last with: {error}. What was finished is kept; if memory ran "
            "out, use fewer workers or a smaller batch_size, and run again to go on."
        ) from error
    finally:
        if own:
            ray.shutdown()


def _available(ray: Any, device: str) -> int:
    kind = "GPU" if device == "cuda" else "CPU"
    count = int(ray.cluster_resources().get(kind, 0))
    if not count:
        raise WhorlError(f"the Ray cluster has no {kind}. Start it with one, or choose another device.")
    return count
