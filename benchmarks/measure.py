"""What the benchmarks share beside the clock of ``whorl.bench``: peak memory, command line, saving, plain-text tables.

The clock's contract, with at least :data:`REPEATS` repeats; and losses are printed like wins.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from whorl.bench import clock
from whorl.files import write_file

HERE = Path(__file__).parent
REPEATS = 20
QUICK_REPEATS = 3


# ---------------------------------------------------------------------------------------------------------------------
# Memory


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
    return {**clock.metadata(device), "command": _command(), "commit": _commit(), **settings}


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
    write_file(path, json.dumps(_finite(results), indent=2, allow_nan=False) + "\n")
    print(f"saved {path.name}", file=sys.stderr)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def in_short(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Settings in a line, sorted, without what is as usual.

    >>> in_short({"skip": 0.5, "pace": 5.0, "sigma": 0.25}, {"skip": 1.0, "pace": 5.0, "sigma": 0.0})
    'sigma=0.25 skip=0.5'
    """
    shown = {name: value for name, value in sorted(settings.items()) if usual[name] != value}
    return " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items())


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
