"""How a job says how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

from whorl.errors import printable

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many of it are done, and how many there are."""


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def notice(line: str) -> None:
    """Print one line for the person at the terminal, on standard error."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(f"whorl: {printable(line)}", markup=False)
