"""Time of ``dim`` and ``ai-best`` on a CPU, beside the DIM of torchattacks: a batch of eight, by turns.

    python benchmarks/cpu_loops.py

Run it alone on an idle machine: what else is busy takes cores from whoever's turn it is. Eight images of 224 pixels,
resnet18 with random weights, ten steps, as ``whorl bench --device cpu`` has them. At the end stand the ratios that the
project holds itself to, met or not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from loops import call
from measure import headline, metadata, parser, save, settle, table
from whorl.bench.clock import Timing, take_turns
from whorl.bench.peers import peer_calls
from whorl.bench.sections import SIZES, prepare

RIVAL = "torchattacks DIFGSM"
# A round takes over ten seconds on two cores.
ROUNDS = 9
_HELD = (("ai-best", "dim", 1.15), ("dim", RIVAL, 0.8))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=ROUNDS, help="that count")
    arguments = settle(made, argv, "cpu-loops")
    device = torch.device("cpu")
    size = replace(SIZES["quick" if arguments.quick else "cpu"], repeats=1 if arguments.quick else arguments.rounds)
    work = prepare(size, device)
    calls: dict[str, Callable[[], object]] = {name: call(name, work) for name in ("dim", "ai-best")}
    rivals, versions, missing = peer_calls(work)
    calls |= {f"{one.library} {one.name}": one.run for one in rivals if f"{one.library} {one.name}" == RIVAL}
    timings, _ = take_turns(calls, device=device, repeats=size.repeats)
    rows = [{"name": name, **asdict(timing)} for name, timing in timings.items()]
    about = metadata(device, **asdict(size), peers=versions)
    print(headline(about))
    lines = [
        [row["name"], *(f"{row[key]:.0f}" for key in ("median_ms", "p10_ms", "p90_ms", "first_ms"))] for row in rows
    ]
    print(table(("", "ms", "p10", "p90", "first"), lines))
    held = targets(timings)
    for row in held:
        print(f"{row['what']}: {row['value']:.3f}, at most {row['at_most']}: {'met' if row['met'] else 'missed'}")
    if arguments.json:
        save({"metadata": about, "missing": missing, "rows": rows, "targets": held}, arguments.json)


def targets(timings: Mapping[str, Timing]) -> list[dict[str, Any]]:
    """Medians over medians, of what was measured."""
    rows = []
    for name, other, most in _HELD:
        if name in timings and other in timings:
            mine, theirs = (statistics.median(timings[one].samples_ms) for one in (name, other))
            rows.append(
                {"what": f"{name} / {other}", "value": mine / theirs, "at_most": most, "met": mine <= most * theirs}
            )
    return rows


if __name__ == "__main__":
    main()
