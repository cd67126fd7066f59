"""A target that is watched: every image it is shown is written down before it is shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from whorl.attacks.contract import Model

_DIGITS = 20


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
        """Count, then ask."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime
        if self.on_pass is not None:
            self.on_pass(len(x))
        self.seen += len(x)
        answer: Tensor = self.model(x)
        return answer


class Ledger:
    """The queries of the work in hand, on disk, so that not even a killed process loses count.

    One line: what is in hand, and how many images were shown for it. It is overwritten in place before each pass,
    which costs a few microseconds.

    Args:
        path: of the file; made when work begins.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._file: int | None = None
        self._offset = 0

    def left_behind(self) -> tuple[str, int] | None:
        """What an earlier process was at when it ended, and its queries; None if it finished."""
        try:
            name, _, count = self.path.read_text(encoding="utf-8").rpartition(" ")
            return (name, int(count)) if name else None
        except (OSError, ValueError):  # no such file, or one that was never written whole
            return None

    def begin(self, name: str) -> None:
        """Take up a piece of work; ``name`` holds no line break."""
        self.finish()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        head = f"{name} ".encode()
        os.pwrite(self._file, head + b"0" * _DIGITS, 0)
        self.count, self._offset = 0, len(head)

    def add(self, images: int) -> None:
        """Count images that are about to be shown."""
        self.count += images
        if self._file is not None:
            os.pwrite(self._file, f"{self.count:0{_DIGITS}d}".encode(), self._offset)

    def finish(self) -> None:
        """The work is done, or given up, and its queries are written down elsewhere."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.path.unlink(missing_ok=True)
        self.count = 0
