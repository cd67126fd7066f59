"""How a job says how far it is and what it measures, without knowing who listens.

Progress says how far a job is; a tracker is told what was measured. MLflow and Weights & Biases take ten lines each:
see the folder ``examples``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Event, RLock
from typing import Any

from whorl.errors import missing_extra, printable

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many of it are done, and how many there are."""


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def notice(line: str) -> None:
    """Print one line for the person at the terminal, on standard error."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(f"whorl: {printable(line)}", markup=False)


class Work:
    """A piece of work that is under way, counted in one unit."""

    def __init__(self, tell: Progress, stage: str, total: int, unit: str) -> None:
        self.tell, self.stage, self.total, self.unit, self.done = tell, stage, total, unit, 0.0

    def add(self, count: float, unit: str) -> None:
        """Say that so much was spent on each image of the batch in hand; what is in other units does not count."""
        if unit != self.unit:
            return
        before, self.done = int(self.done), min(self.done + count, self.total)
        # Whoever counts tasks says that the last is done; what is done early goes straight there.
        if before < int(self.done) < self.total:
            self.tell(self.stage, int(self.done), self.total)


class Share:
    """One of several shares of a piece of work, which are done side by side.

    Args:
        whole: what it is a share of; None if nobody counts.
        part: how large a share, in (0, 1].
        stopped: once set, the share ends when it next counts something as done.
    """

    def __init__(self, whole: Work | Share | None, part: float, stopped: Event) -> None:
        self.whole, self.part, self.stopped = whole, part, stopped

    def add(self, count: float, unit: str) -> None:
        """Say that so much was spent on each image of the share.

        Raises:
            Stopped: another share failed, or somebody interrupted.
        """
        if self.stopped.is_set():
            raise Stopped
        if self.whole is not None:
            with _TOGETHER:
                self.whole.add(count * self.part, unit)


class Stopped(Exception):  # noqa: N818 - what went wrong is elsewhere
    """A share of some work ends early, because another one cannot be finished."""


_TOGETHER = RLock()
# Who hears of what is done within a task, and the task itself. They belong to the thread that works.
_LISTENER: ContextVar[Progress] = ContextVar("listener", default=silent)
WORK: ContextVar[Work | Share | None] = ContextVar("work", default=None)


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """Let ``progress`` hear of what is done within tasks while the block runs, in this thread."""
    token = _LISTENER.set(progress)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def piece_of_work(stage: str, total: int, unit: str) -> Iterator[None]:
    """Count what :func:`count_work` says of ``unit`` while the block runs, and tell whoever listens.

    Args:
        stage: what to call it in the progress.
        total: how much there is at most.
        unit: of what, such as "gradients".

    >>> with listening(lambda *said: print(*said)), piece_of_work("eot, this batch", 3, "gradients"):
    ...     count_work(1, "gradients")
    ...     count_work(1, "queries")
    ...     count_work(1, "gradients")
    eot, this batch 1 3
    eot, this batch 2 3
    """
    token = WORK.set(Work(_LISTENER.get(), stage, total, unit))
    try:
        yield
    finally:
        WORK.reset(token)


@contextmanager
def share_of_work(part: float, stopped: Event) -> Iterator[None]:
    """Do a share of what is under way, in a thread beside others; see :class:`Share`.

    >>> with listening(lambda *said: print(*said)), piece_of_work("eot, this batch", 3, "gradients"):
    ...     with share_of_work(0.5, Event()):
    ...         count_work(2, "gradients")
    eot, this batch 1 3
    """
    token = WORK.set(Share(WORK.get(), part, stopped))
    try:
        yield
    finally:
        WORK.reset(token)


def count_work(count: float, unit: str) -> None:
    """Say that so much was spent on each image of the batch in hand; nobody need listen."""
    work = WORK.get()
    if work is not None:
        work.add(count, unit)


def duration(seconds: float) -> str:
    """Say about how long something takes.

    >>> duration(8), duration(130), duration(7300)
    ('about 8 s', 'about 2 min', 'about 2.0 h')
    """
    if seconds < 100:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"


class Tracker:
    """Follows a training (``whorl.harden``) or an experiment (``whorl.runs.run``). Override what you want to hear.

    Of several processes, the first one's alone is told. What it raises ends the job.

    >>> class Printed(Tracker):
    ...     def log(self, step, values):
    ...         print(step, dict(values))
    >>> Printed().log(8, {"loss": 0.5})
    8 {'loss': 0.5}
    """

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """The job begins, or goes on.

        Args:
            name: of the network that is made, or of the experiment.
            settings: everything that it is about to do, as JSON.
        """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Something was measured.

        Args:
            step: of the training; of an experiment, how many images are done.
            values: by name: ``loss``, ``lr``, ``clean``, …; of an experiment, the pooled success rate so far, as
                ``success_rate/ATTACK/SOURCE/TARGET``.
        """

    def end(self, files: Mapping[str, Path]) -> None:
        """The job has ended well.

        Args:
            files: what it wrote, by what it is; empty if nothing.
        """


class Trackers(Tracker):
    """Several trackers as one."""

    def __init__(self, *trackers: Tracker) -> None:
        self.trackers = trackers

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Tell each."""
        for tracker in self.trackers:
            tracker.begin(name, settings)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Tell each."""
        for tracker in self.trackers:
            tracker.log(step, values)

    def end(self, files: Mapping[str, Path]) -> None:
        """Tell each."""
        for tracker in self.trackers:
            tracker.end(files)


class TensorBoard(Tracker):
    """Writes what is measured where TensorBoard finds it; ``tensorboard --logdir FOLDER`` shows it.

    Args:
        folder: for the event files.

    Raises:
        WhorlError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing_extra("tracking with TensorBoard", "tensorboard", extra="tensorboard") from error
        self.writer: Any = SummaryWriter(str(folder))

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Show the settings as text."""
        shown = json.dumps(settings, indent=1, default=str)
        self.writer.add_text(name, "\n".join(f"    {line}" for line in shown.splitlines()))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve. It is on disk before the next step, so that a killed job loses none."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def end(self, files: Mapping[str, Path]) -> None:
        """Name the files, and close."""
        if files:
            self.writer.add_text("files", "\n".join(f"- {what}: `{path}`" for what, path in files.items()))
        self.writer.close()
