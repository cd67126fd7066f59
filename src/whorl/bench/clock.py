"""Time calls that take turns: a median with its spread, on the device's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Call = Callable[[], object]

# Clock cycles for which the device is kept busy before a queued call: about 1 ms, and at most 0.15 s.
_SHORTEST_LEAD, _LONGEST_LEAD = 2**21, 2**28


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Milliseconds that a call took: the median and the 10th and 90th percentile of ``n`` repeats; the first call's."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    first_ms: float

    @classmethod
    def of(cls, samples: list[float], first: float) -> Timing:
        """Summarise repeats.

        >>> Timing.of([3.0, 1.0, 2.0], 9.0)
        Timing(median_ms=2.0, p10_ms=1.2, p90_ms=2.8, n=3, first_ms=9.0)
        """
        values = torch.tensor(samples, dtype=torch.float64)
        low, middle, high = values.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        parts = (float(f"{value:.5g}") for value in (middle, low, high))
        median, p10, p90 = parts
        return cls(median_ms=median, p10_ms=p10, p90_ms=p90, n=len(samples), first_ms=float(f"{first:.5g}"))


def take_turns(
    calls: Mapping[str, Call],
    *,
    device: torch.device,
    repeats: int,
    warmup: int = 1,
    fewer: Mapping[str, int] | None = None,
    queued: bool = False,
    tell: Callable[[int], None] | None = None,
) -> tuple[dict[str, Timing], dict[str, Exception]]:
    """Time calls in turns, so that whatever else the machine does is shared among them.

    Args:
        calls: functions by name. One that fails is left out.
        device: where they compute; it is waited for before and after each.
        repeats: rounds that count.
        warmup: rounds before those, after the first call of all.
        fewer: names that are left out after so many rounds that count.
        queued: whether to time what the device needs once it has all its orders, not how long they take to give. On a
            CPU that is the same.
        tell: told after each round how many there were.

    Returns:
        Timings; what went wrong with the others.
    """
    first: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    failed: dict[str, Exception] = {}
    leads = dict.fromkeys(calls, _SHORTEST_LEAD if queued else 0)
    for turn in range(1 + warmup + repeats):
        for name, call in calls.items():
            if name in failed or turn - warmup > (fewer or {}).get(name, repeats):
                continue
            try:
                if turn == 0:
                    taken, _ = _sample(call, device, 0)  # the first time is what one waits for, whatever takes it
                else:
                    taken, leads[name] = _sample(call, device, leads[name])
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and must not stop the rest
                failed[name] = error
                continue
            first.setdefault(name, taken)
            if turn > warmup:
                samples.setdefault(name, []).append(taken)
        if tell is not None:
            tell(turn + 1)
    kept = {name: Timing.of(taken, first[name]) for name, taken in samples.items() if name not in failed}
    return kept, failed


def _sample(call: Call, device: torch.device, lead: int) -> tuple[float, int]:
    """Milliseconds of a call; and how many cycles of something else before it were enough to give all orders in."""
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start), lead
    while True:
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        if lead:
            torch.cuda._sleep(lead)
        began.record()
        call()
        ended.record()
        # A call that waits for the device by itself, or has more orders than it can hold, is never early enough.
        early = not began.query()
        torch.cuda.synchronize(device)
        if not lead or early or lead >= _LONGEST_LEAD:
            return float(began.elapsed_time(ended)), lead
        lead *= 2
