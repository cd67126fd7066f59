"""What an attack costs a process that has just begun: the first call's time, and peak memory beside the plain loop's.

Example:
    python benchmarks/first_calls.py --device cuda --network whorl:inception_v3

Every attack has a process of its own, as it is recorded and as the plain loop (``fast=False``) computes it. Network and
images are there before; imports do not count. The first call prepares the network, compiles kernels, warms up and
records; a second one replays. Peaks are those of torch's allocator over both calls above what stood before them:
``allocated`` is what tensors take, the memory of recorded graphs included, ``reserved`` what the allocator takes from
the device for that, and ``device`` what the whole device has less afterwards. On a CPU there are times alone.

Recorded attacks run one after the other. Plain ones follow together, since only their memory is of interest: their
times stand among each other's. Kernels that Triton compiled for an earlier process lie in its cache, unless
``TRITON_CACHE_DIR`` names an empty folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from loops import call
from measure import metadata, parser, save, settle, table
from whorl.bench.clock import significant
from whorl.bench.sections import SIZES, prepare

ATTACKS = ("ai-dim", "ai-best")
_MIB = 2**20


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save; or be one of the processes."""
    made = parser(__doc__)
    made.add_argument("--network", default="whorl:inception_v3", help="as torchvision:resnet18")
    made.add_argument("--side", type=int, help="of the images, in pixels (default: 299; 32 with --quick)")
    made.add_argument("--batch", type=int, help="images (default: 64; 2 with --quick)")
    made.add_argument("--attacks", nargs="+", default=list(ATTACKS), help="which presets")
    made.add_argument("--one", help="measure this one in the present process, and print it as JSON")
    made.add_argument("--plain", action="store_true", help="with --one: by the plain loop")
    arguments = settle(made, argv, "first-calls")
    size = SIZES["quick" if arguments.quick else "cuda"]
    given = {"side": arguments.side, "batch": arguments.batch}
    size = replace(size, network=arguments.network, **{k: v for k, v in given.items() if v is not None})
    if arguments.one:
        print(json.dumps(measured(arguments.one, size, arguments.device, plain=arguments.plain)))
        return
    command = [sys.executable, __file__, "--device", arguments.device.type, "--network", size.network]
    command += ["--side", str(size.side), "--batch", str(size.batch), *(["--quick"] if arguments.quick else [])]
    rows = [_finished(_begun([*command, "--one", name])) for name in arguments.attacks]
    begun = [_begun([*command, "--one", name, "--plain"]) for name in arguments.attacks]
    rows += [_finished(one) for one in begun]
    about = metadata(arguments.device, **asdict(size))
    about["triton_cache"] = "a folder of its own" if "TRITON_CACHE_DIR" in os.environ else "as it was"
    print(shown(size.name, rows))
    if arguments.json is not None:
        save({"metadata": about, "rows": rows}, arguments.json)


def measured(name: str, size: Any, device: torch.device, *, plain: bool) -> dict[str, Any]:
    """Call an attack twice."""
    work = prepare(size, device)
    run = call(name, work, **({"fast": False} if plain else {}))
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = (torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))
        free = torch.cuda.mem_get_info(device)[0]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        if gpu:
            torch.cuda.synchronize(device)
        seconds.append(significant(time.perf_counter() - start, 6))
    row: dict[str, Any] = {"name": name, "plain": plain, "first_s": seconds[0], "second_s": seconds[1]}
    if gpu:
        peaks = torch.cuda.max_memory_allocated(device) - before[0], torch.cuda.max_memory_reserved(device) - before[1]
        row |= {"allocated_mib": peaks[0] / _MIB, "reserved_mib": peaks[1] / _MIB}
        # Others may share the device with a plain loop, whose share cannot be seen.
        row["device_mib"] = None if plain else (free - torch.cuda.mem_get_info(device)[0]) / _MIB
    return row


def _begun(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _finished(begun: subprocess.Popen[str]) -> dict[str, Any]:
    printed, _ = begun.communicate()
    if begun.returncode:
        raise SystemExit(begun.returncode)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def shown(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    titles = (network, "first s", "second s", "allocated MiB", "reserved MiB")
    keys = ("first_s", "second_s", "allocated_mib", "reserved_mib")
    lines = []
    for row in rows:
        numbers = ["" if row.get(key) is None else f"{row[key]:.2f}" for key in keys]
        lines.append([row["name"] + (", plain" if row["plain"] else ""), *numbers])
    return table(titles, lines)


if __name__ == "__main__":
    main(sys.argv[1:])
