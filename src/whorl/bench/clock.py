"""Time calls that take turns: a median with its spread, on the device's own clock; and what such numbers depend on.

The contract: a median with its spread over synchronised repeats; what is compared takes turns in one process;
everything the numbers depend on stands beside them.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import whorl
from whorl.models.zoo import find_device
from whorl.runs.folder import environment

Call = Callable[..., object]

# Clock cycles for which the device is kept busy before a queued call: about 1 ms, and at most 0.15 s.
_SHORTEST_LEAD, _LONGEST_LEAD = 2**21, 2**28
# More than any GPU's second-level cache.
_FILLER_BYTES = 1024 * 2**20


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Milliseconds that a call took: the median and the 10th and 90th percentile of ``n`` repeats; the first call's.

    ``samples_ms`` has every repeat, in order, so that whatever is said of them can be recomputed.
    """

    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    first_ms: float
    samples_ms: tuple[float, ...] = field(repr=False)

    @classmethod
    def of(cls, samples: Sequence[float], first: float) -> Timing:
        """Summarise repeats.

        >>> Timing.of([3.0, 1.0, 2.0], 9.0)
        Timing(median_ms=2.0, p10_ms=1.2, p90_ms=2.8, n=3, first_ms=9.0)
        """
        values = torch.tensor(samples, dtype=torch.float64)
        low, middle, high = values.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        median, p10, p90, begun = (significant(value, 6) for value in (middle, low, high, first))
        every = tuple(significant(sample, 6) for sample in samples)
        return cls(median_ms=median, p10_ms=p10, p90_ms=p90, n=len(samples), first_ms=begun, samples_ms=every)


def significant(value: float, digits: int = 4) -> float:
    """Round to so many significant digits.

    >>> significant(1234.5678)
    1235.0
    """
    return float(f"{value:.{digits}g}")


# wide: the ways in which whole programs, kernels and peers that may fail are timed
def take_turns(
    calls: Mapping[str, Call],
    inputs: Sequence[tuple[Any, ...]] = ((),),
    *,
    device: torch.device,
    repeats: int,
    warmup: int = 1,
    fewer: Mapping[str, int] | None = None,
    queued: bool = False,
    may_fail: Collection[str] = (),
    tell: Callable[[int], None] | None = None,
) -> tuple[dict[str, Timing], dict[str, Exception]]:
    """Time calls in turns, so that whatever else the machine does is shared among them.

    Args:
        calls: functions by name.
        inputs: sets of arguments, taken in rotation so that no call finds its input in a cache.
        device: where they compute; it is waited for before and after each.
        repeats: rounds that count.
        warmup: rounds before those, after the first call of all.
        fewer: names that are left out after so many rounds that count.
        queued: whether to time what the device needs once it has all its orders (a kernel within a longer computation),
            not how long they take to give (a whole program). On a CPU that is the same.
        may_fail: names that are left out where they fail; the failure of any other is raised.
        tell: told after each round how many there were.

    Returns:
        Timings; what went wrong with the others.
    """
    first: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    failed: dict[str, Exception] = {}
    clock = _Clock(device, cold=queued and len(inputs) > 1)
    leads = dict.fromkeys(calls, _SHORTEST_LEAD if queued else 0)
    for turn in range(1 + warmup + repeats):
        for place, (name, call) in enumerate(calls.items()):
            if name in failed or turn - warmup > (fewer or {}).get(name, repeats):
                continue
            given = inputs[(turn + place) % len(inputs)]
            try:
                if turn == 0:
                    taken, _ = clock.sample(call, given, 0)  # the first time is what one waits for, whatever takes it
                else:
                    taken, leads[name] = clock.sample(call, given, leads[name])
            except Exception as error:
                if name not in may_fail:
                    raise
                failed[name] = error
                continue
            first.setdefault(name, taken)
            if turn > warmup:
                samples.setdefault(name, []).append(taken)
        if tell is not None:
            tell(turn + 1)
    kept = {name: Timing.of(taken, first[name]) for name, taken in samples.items() if name not in failed}
    return kept, failed


class _Clock:
    """Takes samples on a device; ``cold`` ones find nothing of theirs in a GPU's cache."""

    def __init__(self, device: torch.device, *, cold: bool) -> None:
        self.device = device
        filled = cold and device.type == "cuda"
        self.filler = torch.empty(_FILLER_BYTES, dtype=torch.uint8, device=device) if filled else None

    def sample(self, call: Call, given: tuple[Any, ...], lead: int) -> tuple[float, int]:
        """Milliseconds of a call; and how many cycles of something else before it were enough to give all orders in."""
        if self.device.type != "cuda":
            start = time.perf_counter()
            call(*given)
            return 1e3 * (time.perf_counter() - start), lead
        while True:
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize(self.device)
            if self.filler is not None:
                self.filler.zero_()
            if lead:
                torch.cuda._sleep(lead)
            began.record()
            call(*given)
            ended.record()
            # A call that waits for the device by itself, or has more orders than it can hold, is never early enough.
            early = not began.query()
            torch.cuda.synchronize(self.device)
            if not lead or early or lead >= _LONGEST_LEAD:
                return float(began.elapsed_time(ended)), lead
            lead *= 2


def metadata(device: torch.device | None = None, **settings: Any) -> dict[str, Any]:
    """Record what numbers depend on: versions and hardware; and the settings.

    Args:
        device: what they were taken on. None: the GPU if there is one.
        settings: taken over as they are.
    """
    device = device or find_device()
    about: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "whorl": whorl.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "packages": environment(device)["versions"],
        "device": str(device),
        "hardware": _processor(),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        about["hardware"] = torch.cuda.get_device_name(device)
        about["host"] = _processor()
        about["cuda"] = torch.version.cuda
        about["cudnn"] = torch.backends.cudnn.version()
        with warnings.catch_warnings():
            # Newer releases have another call for it, one that older ones do not know.
            warnings.simplefilter("ignore")
            about["tf32_convolutions"] = torch.backends.cudnn.allow_tf32
            about["tf32_products"] = torch.backends.cuda.matmul.allow_tf32
    return about | settings


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
