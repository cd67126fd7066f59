"""Who follows a job from outside: one protocol for trainings and experiments, and TensorBoard as one who speaks it.

Progress says how far a job is; a tracker is told what was measured. MLflow and Weights & Biases take ten lines each:
see the folder ``examples``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whorl.errors import missing_extra


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
