"""Commands in processes of their own, stopped or killed at a chosen moment, whatever else the machine is doing.

A moment is a number: so many times something was about to reach the disk, or just had (a file flushed, renamed, a query
counted). So the same moment comes in every run, nothing waits for a clock, and no moment is left out.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

# Forks of a process without threads: a fork of this one may find a lock held by a thread that it has not.
_PROCESSES = get_context("forkserver")
# What takes long to import is imported once; torch._dynamo is what an optimiser waits for.
_PROCESSES.set_forkserver_preload(
    [
        "torch._dynamo",
        "whorl.cli.attack",
        "whorl.cli.evaluate",
        "whorl.cli.gate",
        "whorl.cli.run",
        "whorl.cli.harden",
        "whorl.report",
    ]
)


class Command:
    """``whorl ARGUMENTS`` in a process of its own.

    Args:
        arguments: of the command.
        scratch: folder for what it says; one for each command.
        kill_at: the moment at which it is killed with SIGKILL; None never.
        pause_at: the moment at which it waits for ``go_on``; None never.
    """

    def __init__(
        self, *arguments: str | Path, scratch: Path, kill_at: int | None = None, pause_at: int | None = None
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.said, self.moments, self._paused = scratch / "said", scratch / "moments", scratch / "paused"
        self._go = scratch / "go"
        names = [str(argument) for argument in arguments]
        files = {"said": self.said, "moments": self.moments, "paused": self._paused, "go": self._go}
        for file in files.values():
            file.unlink(missing_ok=True)
        self.process: BaseProcess = _PROCESSES.Process(target=_run, args=(names, files, kill_at, pause_at))
        self.process.start()

    @property
    def text(self) -> str:
        """What it has said so far, on both of its outputs."""
        return self.said.read_text(encoding="utf-8", errors="replace") if self.said.exists() else ""

    def wait(self) -> int:
        """Wait for its end; gives the exit code, or minus the signal that ended it."""
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        return code

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something that it does; it must not end before."""
        while not reached():
            assert self.process.is_alive() or reached(), self.text
            time.sleep(0.01)

    def until_paused(self) -> None:
        """Wait until it pauses."""
        self.until(self._paused.exists)

    def go_on(self) -> None:
        """Let it go on."""
        self._go.touch()


def moments(*arguments: str | Path, scratch: Path) -> int:
    """Run a command to its end, and count its moments."""
    command = Command(*arguments, scratch=scratch)
    assert command.wait() == 0, command.text
    return int(command.moments.read_text())


def _run(arguments: list[str], files: dict[str, Path], kill_at: int | None, pause_at: int | None) -> None:
    said = os.open(files["said"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(said, stream)
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
    import torch

    torch.set_num_threads(1)
    with _counted(files, kill_at, pause_at):
        from whorl.cli import app

        code: Any = 0
        try:
            app(arguments, prog_name="whorl")
        except SystemExit as error:
            code = error.code
    sys.exit(code)


@contextmanager
def _counted(files: dict[str, Path], kill_at: int | None, pause_at: int | None) -> Iterator[None]:
    real: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "replace", "pwrite")}
    passed = 0

    def moment() -> None:
        nonlocal passed
        passed += 1
        if passed == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if passed == pause_at:
            files["paused"].touch()
            while not files["go"].exists():
                time.sleep(0.01)

    def hooked(name: str) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            moment()
            result = real[name](*arguments, **more)
            moment()
            return result

        return call

    for name in real:
        setattr(os, name, hooked(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        with suppress(OSError):
            files["moments"].write_text(str(passed))
