"""How a job tells how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
