"""Time of the recorded attack loops, beside the plain loop: first call, median, peak memory, waits for the device.

Example:
    python benchmarks/loops.py --device cuda --network whorl:inception_v3 --profile

Random weights, which do for throughput, and a batch of noise, as ``whorl bench`` has them. All attacks take turns. A
plain loop is the same attack with ``fast=False``. On a CPU nothing is recorded.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # it is there, and what events have
from torch.profiler import ProfilerActivity, profile

import whorl
from measure import metadata, parser, peak_extra_bytes, save, settle, table
from whorl.attacks.gradient import GradientAttack
from whorl.bench.clock import take_turns
from whorl.bench.peers import Workload
from whorl.bench.sections import SIZES, prepare
from whorl.models.prepared.network import prepared

ATTACKS = ("dim", "ai-dim", "ri-dim", "ram", "ai-ram", "ai-best")
# The plain loops take long, and are there for a factor and for their memory.
PLAIN = ("ai-dim", "ai-best")
_PLAIN_REPEATS = 3
_KERNELS = 30


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--network", default="whorl:inception_v3", help="as torchvision:resnet18")
    made.add_argument("--side", type=int, help="of the images, in pixels (default: 299; 32 with --quick)")
    made.add_argument("--batch", type=int, help="images (default: 64; 2 with --quick)")
    made.add_argument("--attacks", nargs="+", default=list(ATTACKS), help="which presets")
    made.add_argument("--profile", action="store_true", help="also list the kernels of ai-dim and ai-best")
    arguments = settle(made, argv, "loops")
    size = SIZES["quick" if arguments.quick else "cuda"]
    given = {"side": arguments.side, "batch": arguments.batch}
    size = replace(size, network=arguments.network, **{k: v for k, v in given.items() if v is not None})
    work = prepare(size, arguments.device)
    results = measured(work, arguments.attacks, arguments.device, arguments.repeats)
    settings = asdict(size) | {"quick": arguments.quick, "repeats": arguments.repeats}
    results["metadata"] = metadata(arguments.device, **settings)
    print(shown(size.name, results["rows"]), flush=True)
    if arguments.json is not None:
        save(results, arguments.json)
    if arguments.profile:
        print(shown_kernels({name: kernels(call(name, work)) for name in PLAIN if name in arguments.attacks}))


def call(name: str, work: Workload, **settings: Any) -> Callable[[], object]:
    """One attack on the whole batch."""
    attack = whorl.attack(name, steps=work.steps, **settings)

    def run() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a network without residual branches says so
            return attack(work.model, work.x, work.y)

    return run


def measured(work: Workload, names: Sequence[str], device: torch.device, repeats: int) -> dict[str, Any]:
    """Rows of every attack, and of the plain loops of some."""
    calls = {name: call(name, work) for name in names}
    plain = {f"{name}, plain": call(name, work, fast=False) for name in PLAIN if name in names}
    few = dict.fromkeys(plain, min(_PLAIN_REPEATS, repeats))
    timings, _ = take_turns(calls | plain, device=device, repeats=repeats, fewer=few)
    rows = []
    for name, run in (calls | plain).items():
        memory = peak_extra_bytes(run, device)
        row = {"name": name, **asdict(timings[name]), "peak_extra_mib": memory / 2**20, "waits": waits(run, device)}
        if name in calls:
            one = call(name, replace(work, steps=1))
            one()
            # Beyond what a single step waits for: what the loop itself does.
            row["waits_in_loop"] = row["waits"] - waits(one, device)
            row["way"] = way(name, work)
        rows.append(row)
    return {"rows": rows}


def way(name: str, work: Workload) -> str:
    """How an attack was computed: where a network cannot be prepared, or a step not recorded, nothing else says so."""
    if not work.x.is_cuda:
        return "step by step"
    attack = whorl.attack(name)
    assert isinstance(attack, GradientAttack)
    kept = prepared(work.model, attack.source_backward)
    if kept is None:
        return "step by step, not prepared"
    graphs = [loop.recorded is not None and loop.recorded.graph is not None for loop in kept.loops.values()]
    return "recorded" if graphs and all(graphs) else "step by step, prepared"


def waits(run: Callable[[], object], device: torch.device) -> int:
    """How often a call makes the host wait for the device, as torch counts it."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught)


def kernels(run: Callable[[], object]) -> list[dict[str, Any]]:
    """The kernels that take most of a call's time on a GPU: milliseconds in all, and how often."""
    run()
    there = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CUDA if there else ProfilerActivity.CPU]) as watched:
        run()
        if there:
            torch.cuda.synchronize()
    spent: dict[str, list[float]] = {}
    for event in watched.events():
        if event.device_type == DeviceType.CUDA:
            spent.setdefault(event.name, []).append(event.time_range.elapsed_us())
    listed = sorted(spent.items(), key=lambda item: -sum(item[1]))
    total = {"name": "all", "ms": sum(map(sum, spent.values())) / 1e3, "count": sum(map(len, spent.values()))}
    rows = [{"name": name[:90], "ms": sum(times) / 1e3, "count": len(times)} for name, times in listed[:_KERNELS]]
    return [total, *rows]


def shown(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    titles = (network, "ms", "p10", "p90", "first", "peak MiB", "waits", "in the loop", "way")
    lines = []
    for row in rows:
        numbers = [f"{row[key]:.2f}" for key in ("median_ms", "p10_ms", "p90_ms", "first_ms", "peak_extra_mib")]
        lines.append(
            [str(row["name"]), *numbers, str(row["waits"]), str(row.get("waits_in_loop", "")), row.get("way", "")]
        )
    return table(titles, lines)


def shown_kernels(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The kernels of each attack as tables."""
    return "\n\n".join(
        table((name, "ms", "count"), [(str(row["name"]), f"{row['ms']:.3f}", str(row["count"])) for row in rows])
        for name, rows in found.items()
    )


if __name__ == "__main__":
    main(sys.argv[1:])
