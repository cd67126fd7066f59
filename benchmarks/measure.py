"""What the benchmarks share: timing, peak memory, what the numbers depend on, saving, plain-text tables.

The contract: a median with its spread over at least :data:`REPEATS` synchronised repeats; what is compared takes turns
in one process; everything the numbers depend on is saved beside them; losses are printed like wins.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import whorl

HERE = Path(__file__).parent
PACKAGES = ("torchvision", "timm", "pillow", "numpy")
REPEATS = 20
QUICK_REPEATS = 3
# More than any GPU's second-level cache, and long enough to write that Python can queue a call meanwhile.
_FILLER_BYTES = 1024 * 2**20

Inputs = Sequence[tuple[Tensor, ...]]


# ---------------------------------------------------------------------------------------------------------------------
# Time and memory


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds that a call took: the median and the 10th and 90th percentile of ``n`` repeats."""

    median: float
    p10: float
    p90: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Summarise repeats.

        >>> Timing.of([3.0, 1.0, 2.0])
        Timing(median=2.0, p10=1.2, p90=2.8, n=3)
        """
        samples = torch.tensor(seconds, dtype=torch.float64)
        low, middle, high = samples.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        return cls(median=middle, p10=low, p90=high, n=len(seconds))

    def record(self) -> dict[str, float | int]:
        """Give what is saved, in milliseconds."""
        return {
            "median_ms": significant(1e3 * self.median, 6),
            "p10_ms": significant(1e3 * self.p10, 6),
            "p90_ms": significant(1e3 * self.p90, 6),
            "n": self.n,
        }


def time_it(
    call: Callable[..., object],
    inputs: Inputs = ((),),
    *,
    device: torch.device,
    warmup: int = 3,
    repeats: int = REPEATS,
    queued: bool = True,
) -> Timing:
    """Time one call; see :func:`time_together`."""
    return time_together({"": call}, inputs, device=device, warmup=warmup, repeats=repeats, queued=queued)[""]


def time_together(
    calls: Mapping[str, Callable[..., object]],
    inputs: Inputs = ((),),
    *,
    device: torch.device,
    warmup: int = 3,
    repeats: int = REPEATS,
    queued: bool = True,
) -> dict[str, Timing]:
    """Time calls that take turns, so that whatever else the machine does is shared among them.

    Args:
        calls: functions by name.
        inputs: sets of arguments, taken in rotation so that no call finds its input in a cache.
        device: where they compute. A GPU is timed by events on its own clock, and waited for.
        warmup: rounds that do not count.
        repeats: rounds that do.
        queued: on a GPU, whether calls are queued behind other work, so that only device time counts (a kernel within a
            longer computation), or start on an idle device, so that launching counts too (a whole program).
    """
    samples: dict[str, list[Callable[[], float]]] = {name: [] for name in calls}
    sample = _DeviceClock(device, queued=queued) if device.type == "cuda" else _host_clock
    for count in range(warmup + repeats):
        for place, (name, call) in enumerate(calls.items()):
            seconds = sample(call, inputs[(count + place) % len(inputs)])
            if count >= warmup:
                samples[name].append(seconds)
        if sys.stderr.isatty():
            print(f"\rround {count + 1} of {warmup + repeats}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return {name: Timing.of([seconds() for seconds in taken]) for name, taken in samples.items()}


def _host_clock(call: Callable[..., object], arguments: tuple[Tensor, ...]) -> Callable[[], float]:
    start = time.perf_counter()
    call(*arguments)
    seconds = time.perf_counter() - start
    return lambda: seconds


class _DeviceClock:
    """Takes one sample; its seconds may be asked for once the device was waited for."""

    def __init__(self, device: torch.device, *, queued: bool) -> None:
        self.device = device
        self.filler = torch.empty(_FILLER_BYTES, dtype=torch.uint8, device=device) if queued else None

    def __call__(self, call: Callable[..., object], arguments: tuple[Tensor, ...]) -> Callable[[], float]:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if self.filler is not None:
            self.filler.zero_()
        else:
            torch.cuda.synchronize(self.device)
        start.record()
        call(*arguments)
        stop.record()
        return lambda: start.elapsed_time(stop) / 1e3


def peak_extra_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Measure how far allocated memory rises during a call above where it stood, the call's result included.

    Call it once before, so that what is built once and kept does not count.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would report every start and stop
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        call()
    events = watched.profiler.kineto_results.events()
    total = peak = 0
    for _, change in sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"):
        total += change
        peak = max(peak, total)
    return peak


# ---------------------------------------------------------------------------------------------------------------------
# What the numbers depend on


def metadata(device: torch.device | None = None, **settings: Any) -> dict[str, Any]:
    """Record what numbers depend on: code, versions, hardware, command; and the benchmark's own settings.

    Args:
        device: what they were taken on. None: the GPU if there is one.
        settings: taken over as they are.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "commit": _commit(),
        "whorl": whorl.__version__,
        "python": platform.python_version(),
        "packages": {"torch": str(torch.__version__)} | {name: _version(name) for name in PACKAGES},
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
            # Newer releases would rather be asked otherwise, in a way that older ones do not know.
            warnings.simplefilter("ignore")
            about["tf32_convolutions"] = torch.backends.cudnn.allow_tf32
            about["tf32_products"] = torch.backends.cuda.matmul.allow_tf32
    return about | settings


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _command() -> str:
    """The command line; of a path only the last name, as its place means nothing elsewhere."""

    def shown(argument: str) -> str:
        option, equals, value = argument.rpartition("=")
        return f"{option}{equals}{Path(value).name if Path(value).is_absolute() else value}"

    script, *arguments = sys.argv
    return shlex.join(["python", f"{HERE.name}/{Path(script).name}", *map(shown, arguments)])


def _commit() -> str | None:
    """The commit that is checked out, marked where tracked files differ from it; None outside a repository."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


# ---------------------------------------------------------------------------------------------------------------------
# Command line, saving, tables


def parser(description: str | None) -> argparse.ArgumentParser:
    """Make a command line with the options that all benchmarks have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto is a GPU if there is one")
    made.add_argument("--repeats", type=int, help=f"repeats of every measurement, at least {REPEATS}, the default")
    made.add_argument("--json", type=Path, help="where to save (default: benchmarks/results/NAME-DEVICE.json)")
    made.add_argument("--quick", action="store_true", help="tiny and few, to see that it runs; saved only with --json")
    return made


def settle(made: argparse.ArgumentParser, argv: Sequence[str] | None, name: str) -> argparse.Namespace:
    """Read a command line, and fill in what follows from it: device, repeats, where to save (None: nowhere)."""
    arguments = made.parse_args(argv)
    gpu = torch.cuda.is_available()
    if arguments.device == "cuda" and not gpu:
        made.error("--device cuda: torch sees no GPU here. Use --device cpu.")
    # With its number, as tensors know theirs.
    arguments.device = torch.device("cuda:0" if gpu and arguments.device != "cpu" else "cpu")
    if arguments.repeats is None:
        arguments.repeats = QUICK_REPEATS if arguments.quick else REPEATS
    if arguments.repeats < (1 if arguments.quick else REPEATS):
        made.error(f"--repeats must be at least {REPEATS}, or 1 with --quick; got {arguments.repeats}.")
    if arguments.json is None and not arguments.quick:
        arguments.json = HERE / "results" / f"{name}-{arguments.device.type}.json"
    return arguments


def save(results: Mapping[str, Any], path: Path) -> None:
    """Write results as JSON, with null for what is not a number; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(_finite(results), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print(f"saved {path.name}", file=sys.stderr)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of text: the first column to the left, numbers to the right.

    >>> print(table(["what", "ms"], [["copy", "1.5"], ["blur", "12"]]))
    what   ms
    ---------
    copy  1.5
    blur   12
    """
    lines = [list(titles), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        shown.append("  ".join(cells).rstrip())
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([shown[0], rule, *shown[1:]])


def headline(about: Mapping[str, Any]) -> str:
    """Say in one line where numbers were taken."""
    parts = [about["hardware"], f"{about['threads']} threads" if about["device"] == "cpu" else f"CUDA {about['cuda']}"]
    return ", ".join([*parts, f"torch {about['packages']['torch']}", f"Python {about['python']}", about["date"]])


def significant(value: float, digits: int = 4) -> float:
    """Round to so many significant digits.

    >>> significant(1234.5678)
    1235.0
    """
    return float(f"{value:.{digits}g}")
