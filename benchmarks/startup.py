"""How long a user waits before anything happens: importing whorl, ``whorl --help``, and a press of Tab.

Example:
    python benchmarks/startup.py

Each command runs in a process of its own, in turns with the others. Wall time is what a user waits, and grows with
whatever else the machine does; processor time does not. "besides torch" is the difference to importing torch alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from measure import HERE, headline, metadata, parser, save, settle, table
from whorl.bench.clock import Timing, take_turns

# Everything public that needs torch alone; what reads images and weights brings further packages when it is used.
CORE_NAMES = (
    "import torch, whorl; [getattr(whorl, name) for name in ('attack', 'AffineInvariant', 'RandomAffine', 'affine')]"
)

COMMANDS: Mapping[str, list[str]] = {
    "python": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "import whorl": ["-c", "import whorl"],
    "import torch, and all of whorl's core": ["-c", CORE_NAMES],
    "whorl --help": ["-m", "whorl", "--help"],
    "whorl --version": ["-m", "whorl", "--version"],
    "whorl att<Tab>": ["-m", "whorl"],
}
CORE = "all of whorl's core, besides torch"
# What the documentation promises, in seconds on a machine that does nothing else.
LIMITS: Mapping[str, float] = {"import whorl": 0.1, CORE: 0.1, "whorl --help": 0.3}


def starter(arguments: Sequence[str], environment: Mapping[str, str]) -> Callable[[], None]:
    """Make a call that runs Python once and waits for it."""

    def start() -> None:
        subprocess.run(
            [sys.executable, *arguments], env=dict(environment), stdout=subprocess.DEVNULL, check=False, timeout=300
        )

    return start


def environment(name: str) -> dict[str, str]:
    """What a process finds; a press of Tab is told by variables that the shell sets."""
    path = os.pathsep.join(filter(None, (str(HERE.parent / "src"), os.environ.get("PYTHONPATH", ""))))
    found = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    if name.endswith("<Tab>"):
        found |= {"_WHORL_COMPLETE": "complete_bash", "COMP_WORDS": "whorl att", "COMP_CWORD": "1"}
    return found


def imports_torch(name: str) -> bool:
    """Whether a command's process has torch in it when it ends."""
    code = (
        "import atexit, runpy, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr));"
        "sys.argv = sys.argv[1:]; sys.argv[0] == '-c' and exec(sys.argv[1]);"
        "sys.argv[0] == '-m' and (sys.argv.pop(0), runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMANDS[name]],
        env=environment(name),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stderr.split()[-1:] == ["True"]


def measure(repeats: int, warmup: int, device: Any) -> dict[str, tuple[Timing, float]]:
    """Wall times of each command, and the processor seconds of one run on average."""
    processor = dict.fromkeys(COMMANDS, 0.0)

    def watched(name: str) -> Callable[[], None]:
        start = starter(COMMANDS[name], environment(name))

        def run() -> None:
            before = os.times()
            start()
            after = os.times()
            spent = after.children_user - before.children_user + after.children_system - before.children_system
            processor[name] += spent

        return run

    calls = {name: watched(name) for name in COMMANDS}
    times, _ = take_turns(calls, device=device, warmup=warmup, repeats=repeats)
    return {name: (times[name], processor[name] / (1 + warmup + repeats)) for name in COMMANDS}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    options = settle(parser(__doc__), argv, "startup")
    about = metadata(options.device, quick=options.quick, repeats=options.repeats, limits_s=LIMITS)
    times = measure(options.repeats, 0, options.device)
    rows: list[dict[str, Any]] = [
        {
            "command": name,
            **asdict(timing),
            "processor_ms": round(1e3 * spent, 1),
            "imports_torch": imports_torch(name),
        }
        for name, (timing, spent) in times.items()
    ]
    torch_alone, core = times["import torch"], times["import torch, and all of whorl's core"]
    besides = {
        "command": CORE,
        "median_ms": round(core[0].median_ms - torch_alone[0].median_ms, 1),
        "processor_ms": round(1e3 * (core[1] - torch_alone[1]), 1),
    }
    print(headline(about))
    shown = [[row["command"], f"{row['median_ms']:.0f}", f"{row['processor_ms']:.0f}"] for row in (*rows, besides)]
    print(table(["what", "wall ms", "processor ms"], shown))
    waits = {row["command"]: row["median_ms"] / 1e3 for row in (*rows, besides)}
    for name, limit in LIMITS.items():
        print(f"{name}: {waits[name]:.2f} s, {'within' if waits[name] <= limit else 'OVER'} {limit:g} s")
    if options.json:
        save({"metadata": about, "results": rows, "besides_torch": besides}, options.json)


if __name__ == "__main__":
    main()
