"""How a training tells how far it is, as :mod:`whorl.runs` does, which needs more than a bare GPU machine has."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""

Say = Callable[[dict[str, float]], None]
"""Called with each measurement: step, steps, seconds, loss, lr and held-out accuracies."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
