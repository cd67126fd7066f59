"""What a training measures as it goes."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[dict[str, float]], None]
"""Called with each measurement: step, steps, seconds, loss, lr and held-out accuracies."""
