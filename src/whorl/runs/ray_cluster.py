"""Does the tasks on a Ray cluster: actors that keep the networks loaded, replaced and told again if one dies."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import torch

from whorl.errors import WhorlError, imported
from whorl.progress import notice
from whorl.records import Count, checked
from whorl.runs.networks import Networks
from whorl.runs.plan import Task
from whorl.runs.worker import Orders, Worker

RETRIES = 4
"""How often a task is given to a new worker when the one that had it died; as many may die at their start."""

TIMEOUT = "WHORL_RAY_TIMEOUT"
"""Environment variable: seconds to wait for a worker to start while none is at work."""
_SECONDS = 300.0  # a cluster's machines may take minutes to import torch from a shared disk


class _Actor:
    """A worker in a process of its own."""

    def __init__(self, orders: Orders, device: str, seed: int, addresses: Mapping[str, str], threads: int) -> None:
        # As many as the process that planned the run: how sums are split among threads can change how they round.
        torch.set_num_threads(threads)
        self._worker = Worker(orders, Networks(torch.device(device), seed, addresses=addresses))

    def ready(self) -> None:
        """Answers once the worker has started."""

    def do(self, task: Task) -> int:
        return self._worker.do(task)


def run_on_ray(
    orders: Orders, tasks: Sequence[Task], networks: Networks, workers: int | None
) -> Generator[int, None, None]:
    """Do the tasks on the workers of a cluster; see ``Engine``.

    The cluster is that of ``RAY_ADDRESS``, or of a ``ray.init`` that was called before; else one is started on this
    machine and stopped at the end. Every worker must see the data set and the run folder under the same paths. There
    are no more workers than the cluster has CPUs, or GPUs, for them.

    Raises:
        WhorlError: the cluster cannot be reached or has nothing to run a worker on; none starts in time
            (``WHORL_RAY_TIMEOUT``, in seconds); or workers keep dying.
    """
    ray = imported("ray", "the engine ray", extra="ray")
    from ray.exceptions import RayTaskError

    checked("workers", workers, Count | None)
    patience = _patience()
    if not tasks:
        return
    device = networks.device.type
    own = not ray.is_initialized()
    if own:
        _connect(ray, patience)
    try:
        # No CPU beside a GPU: Ray would otherwise want one to be free where the worker is placed.
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if device == "cuda" else {"num_cpus": 1}
        actor = ray.remote(max_restarts=0, **needs)(_Actor)
        threads = torch.get_num_threads()
        count = min(_affordable(ray, device, workers), len(tasks))
        crew = _Crew(ray, lambda: actor.remote(orders, device, networks.seed, networks.addresses, threads), count)
        try:
            yield from crew.do(tasks, patience, lambda: _shortage(ray, device, count, patience))
        finally:
            crew.dismiss()
    except RayTaskError as error:
        if isinstance(error.cause, WhorlError):
            raise WhorlError(str(error.cause)) from error
        raise
    finally:
        if own:
            ray.shutdown()


class _Crew:
    """Workers, those that are starting and those at work; the tasks go to whoever is free.

    Args:
        ray: the library.
        hire: starts a worker.
        count: how many there are to be.
    """

    def __init__(self, ray: Any, hire: Callable[[], Any], count: int) -> None:
        self.ray, self.hire = ray, hire
        self.hired: list[Any] = []
        self.starting: dict[Any, Any] = {}
        self.working: dict[Any, tuple[Any, Task, int]] = {}
        self.lost = 0  # at their start
        for _ in range(count):
            self._start()

    def do(self, tasks: Sequence[Task], patience: float, shortage: Callable[[], WhorlError]) -> Iterator[int]:
        """Do tasks, and yield what each counts, as they are done.

        Args:
            tasks: what to do.
            patience: seconds in which a worker must start while none is at work.
            shortage: what to raise if none does.
        """
        waiting = deque((task, 0) for task in tasks)  # each with how many workers it lost
        while waiting or self.working:
            # Work may take as long as it takes; waiting for somebody to begin may not.
            found, _ = self.ray.wait([*self.starting, *self.working], timeout=None if self.working else patience)
            if not found:
                raise shortage()
            [event] = found
            if event in self.starting:
                free = self._started(event)
            else:
                worker, task, deaths = self.working.pop(event)
                counted = self._answer(event)
                if isinstance(counted, Exception):
                    if deaths == RETRIES:
                        raise _dying(f"a task lost its worker {RETRIES + 1} times", counted)
                    waiting.appendleft((task, deaths + 1))
                    self._start()
                    continue
                yield counted
                free = worker
            if free is not None and waiting:
                task, deaths = waiting.popleft()
                self.working[free.do.remote(task)] = (free, task, deaths)

    def dismiss(self) -> None:
        """End all of them, so that nobody writes to the folder once its lock is given back."""
        for worker in self.hired:
            self.ray.kill(worker)

    def _start(self) -> None:
        self.hired.append(self.hire())
        self.starting[self.hired[-1].ready.remote()] = self.hired[-1]

    def _started(self, event: Any) -> Any | None:
        """The worker that is ready; None if it died instead, and another one is started as long as that may help."""
        worker, answer = self.starting.pop(event), self._answer(event)
        if not isinstance(answer, Exception):
            return worker
        self.lost += 1
        if self.lost <= RETRIES:
            self._start()
        elif not self.starting and not self.working:
            raise _dying(f"{self.lost} workers died as they started", answer)
        return None

    def _answer(self, event: Any) -> Any:
        """What a worker answers, or the error by which it was lost."""
        from ray.exceptions import RayActorError, RuntimeEnvSetupError

        try:
            return self.ray.get(event)
        except (RayActorError, RuntimeEnvSetupError) as error:
            return error


def _connect(ray: Any, patience: float) -> None:
    # Workers import what this process can, the user's own networks too.
    paths = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself knocks for minutes at a door that is not there
            socket.create_connection((host, int(port)), timeout=patience).close()
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR, runtime_env=paths)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        where = f"the Ray cluster at RAY_ADDRESS={address} cannot be reached" if address else "Ray cannot be started"
        raise WhorlError(f"{where} ({error}). Check it with `ray status`, or use the engine local.") from error


def _patience() -> float:
    text = os.environ.get(TIMEOUT, str(_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise WhorlError(f"{TIMEOUT} must be a number of seconds above 0; got {text!r}.")
    return seconds


def _kind(device: str) -> str:
    return "GPU" if device == "cuda" else "CPU"


def _affordable(ray: Any, device: str, wanted: int | None) -> int:
    """How many workers the cluster has room for, at most as many as wanted."""
    kind, resources = _kind(device), ray.cluster_resources()
    there = int(resources.get(kind, 0))
    if not there:
        requested = "a worker" if wanted is None else f"{wanted} worker{'s' * (wanted != 1)}"
        raise WhorlError(
            f"the Ray cluster has no {kind}: requested {requested} of 1 {kind} each, there are {_listed(resources)}. "
            f"Start it with {kind}s (ray start --num-{kind.lower()}s=N), or choose another device."
        )
    if wanted is not None and wanted > there:
        notice(f"{wanted} workers were requested; the Ray cluster has {there} {kind}s, so {there} are started")
    return there if wanted is None else min(wanted, there)


def _shortage(ray: Any, device: str, count: int, patience: float) -> WhorlError:
    return WhorlError(
        f"no worker of the Ray cluster started within {patience:g} s: requested {count} of 1 {_kind(device)} each; "
        f"the cluster has {_listed(ray.cluster_resources())}, of which free: {_listed(ray.available_resources())}. "
        f"Wait for what else runs on it, add machines, or set {TIMEOUT} to more seconds. What was finished is kept."
    )


def _listed(resources: dict[str, float]) -> str:
    return ", ".join(f"{resources.get(kind, 0.0):g} {kind}s" for kind in ("CPU", "GPU"))


def _dying(what: str, error: Exception) -> WhorlError:
    return WhorlError(
        f"{what}, last with: {error}. What was finished is kept; if memory ran out, use fewer workers or a smaller "
        "batch_size, and run again to go on."
    )
