"""How long ``whorl run`` and ``whorl attack`` take from files to files, by stage, and how busy the GPU is meanwhile.

    python benchmarks/end_to_end.py --data NIPS17_FOLDER --device cuda

Both do in one process what their commands do: 500 images of 299 pixels from PNG files, an attack crafted on resnet18;
the run then evaluates three networks in the paper's twelve poses, and writes its tables and its report. Imports,
weights and the first recording of every graph are left out: networks are loaded once, and a warm-up attacks batches of
the sizes that come. Every repeat starts with an empty folder.

Stages are those that the main thread is in, seen every few milliseconds, and so add up to the wall time; what other
threads do meanwhile stands beside them. A last round runs under the profiler, which records every kernel of the GPU:
its busy seconds are divided by the wall time of the median round, and of its own.

What came out is hashed without its timings, so that two versions can be compared: the pixels of all adversarial images,
and the table of success rates.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whorl
from measure import headline, metadata, parser, save, settle, table
from stages import StageClock, gpu_watched
from whorl import runs
from whorl.bench.clock import significant
from whorl.data import load_image, save_image
from whorl.runs import networks as loading

SOURCE, TARGETS = "resnet18", ("resnet18", "mobilenet_v2", "efficientnet_lite0")
# A whole run takes seconds; what is compared differs by more than a few repeats do.
ROUNDS = 3
_TIMINGS = ("seconds",)


def make_images(folder: Path, data: str | None, count: int, side: int) -> Path:
    """Write ``count`` images as PNG files with a list of them; where there are fewer, they come again, shifted."""
    x, y, _ = whorl.load_images(data, limit=count, size=side) if data else whorl.load_samples(min(count, 20), size=side)
    rows = [("path", "label")]
    for place in range(count):
        again, first = divmod(place, len(x))
        save_image(folder / f"{place:05d}.png", x[first].roll((again, 2 * again), (-2, -1)))
        rows.append((f"{place:05d}.png", str(int(y[first]))))
    with (folder / "images.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return folder


@dataclass(frozen=True, kw_only=True)
class Command:
    """One of the two commands.

    Attributes:
        name: as one types it.
        work: does it to so many of the first images, into a folder.
    """

    name: str
    work: Callable[[int, Path], object]


def commands(images: Path, options: Any) -> list[Command]:
    """Both, as the command line calls them."""
    device = str(options.device)

    def run(count: int, out: Path) -> None:
        declared = runs.declare(
            name="end-to-end",
            sources=[options.source],
            attacks=[options.attack],
            targets=options.targets,
            data={"folder": str(images), "limit": count},
            batch_size=options.batch,
            precision=options.precision,
        )
        done = runs.run(declared, out, device=device)
        if options.report:
            from whorl.report import report_experiment, write_tables

            write_tables(done, intervals=False)
            report_experiment(done, device=device, figures=False)

    def attack(count: int, out: Path) -> None:
        source = loading.load_source([options.source], options.device)
        data = runs.Data.of(folder=str(images), limit=count)
        runs.craft(options.attack, source, data, out, batch_size=options.batch)

    return [Command(name="whorl run", work=run), Command(name="whorl attack", work=attack)]


def made_in(out: Path) -> dict[str, str]:
    """Hashes of what a command made, without its timings."""
    pixels = hashlib.sha256()
    for path in sorted((out / "adv").rglob("*.png")):
        pixels.update(path.relative_to(out).as_posix().encode())
        pixels.update((load_image(path) * 255).to(torch.uint8).numpy().tobytes())
    found = {"pixels_sha256": pixels.hexdigest()}
    if (out / "results.csv").is_file():
        with (out / "results.csv").open(newline="", encoding="utf-8") as file:
            rows = [{k: v for k, v in row.items() if k not in _TIMINGS} for row in csv.DictReader(file)]
        found["rates_sha256"] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


def timed(command: Command, count: int, device: torch.device) -> dict[str, Any]:
    """One round, by stage."""
    with tempfile.TemporaryDirectory() as folder:
        _settled(device)
        start = time.perf_counter()
        with StageClock() as clock:
            command.work(count, Path(folder, "out"))
            _settled(device)
        seconds = time.perf_counter() - start
        stages = {"main_thread": _sorted(clock.main), "other_threads": _sorted(clock.others)}
        return {"seconds": seconds, **stages, **made_in(Path(folder, "out"))}


def _sorted(spent: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 4) for name, seconds in sorted(spent.items(), key=lambda item: -item[1])}


def watched(command: Command, count: int) -> dict[str, Any]:
    """One round under the profiler."""
    with tempfile.TemporaryDirectory() as folder, gpu_watched() as busy:
        start = time.perf_counter()
        command.work(count, Path(folder, "out"))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return {
        "seconds": significant(seconds),
        "busy_seconds": significant(busy.seconds),
        "kernels": busy.kernels,
        "longest_ms": dict(busy.longest),
    }


def _settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measured(command: Command, options: Any) -> dict[str, Any]:
    """Warm up, then all rounds of a command, and the busy share."""
    count, batch = options.limit, options.batch or (64 if options.device.type == "cuda" else 8)
    with tempfile.TemporaryDirectory() as folder:
        command.work(min(count, batch + count % batch), Path(folder, "out"))
    rounds = [timed(command, count, options.device) for _ in range(options.rounds)]
    outcomes = {name: {one[name] for one in rounds} for name in ("pixels_sha256", "rates_sha256") if name in rounds[0]}
    middle = sorted(rounds, key=lambda one: one["seconds"])[(len(rounds) - 1) // 2]
    row: dict[str, Any] = {
        "command": command.name,
        "images": count,
        "median_s": significant(statistics.median(one["seconds"] for one in rounds)),
        "samples_s": [significant(one["seconds"], 6) for one in rounds],
        "main_thread_s": middle["main_thread"],
        "other_threads_s": middle["other_threads"],
        **{name: sorted(hashes) for name, hashes in outcomes.items()},  # more than one: rounds differed
    }
    if options.device.type == "cuda":
        with gpu_watched():  # the profiler's own first time
            torch.zeros(1, device=options.device)
        row["profiled"] = watched(command, count)
        row["busy_share"] = significant(row["profiled"]["busy_seconds"] / row["median_s"])
        row["busy_share_profiled"] = significant(row["profiled"]["busy_seconds"] / row["profiled"]["seconds"])
    return row


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", default=None, help="labelled images; the bundled samples without it")
    made.add_argument("--limit", type=int, default=500, help="images; where there are fewer, they come again, shifted")
    made.add_argument("--side", type=int, default=299, help="of the images, in pixels")
    made.add_argument("--attack", default="ai-best", help="which attack (default: ai-best)")
    made.add_argument("--source", default=SOURCE, help="network that it is crafted on")
    made.add_argument("--targets", nargs="+", default=TARGETS, help="networks that are evaluated")
    made.add_argument("--precision", default="full", help="in which they answer: full or bf16")
    made.add_argument("--batch", type=int, help="images at a time; as the commands have it without it")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="that count")
    made.add_argument("--only", choices=("run", "attack"), help="one of the two commands")
    made.add_argument("--no-report", dest="report", action="store_false", help="leave the run's tables and report out")
    options = settle(made, argv, "end-to-end")
    if options.quick:
        options.limit, options.side, options.rounds, options.targets = 6, 64, 1, options.targets[:1]
    # Weights are read once, and graphs belong to the network that they were recorded of.
    vars(loading)["load_model"] = functools.cache(vars(loading)["load_model"])
    with tempfile.TemporaryDirectory() as folder:
        images = make_images(Path(folder), options.data, options.limit, options.side)
        listed = [one for one in commands(images, options) if options.only in (None, one.name.removeprefix("whorl "))]
        rows = [measured(command, options) for command in listed]
    names = ("limit", "side", "attack", "source", "precision", "batch", "report")
    about = metadata(
        options.device,
        quick=options.quick,
        repeats=options.rounds,
        data=Path(options.data).name if options.data else "samples",
        targets=list(options.targets),
        **{name: getattr(options, name) for name in names},
    )
    print(headline(about))
    for row in rows:
        _print(row)
    if options.json:
        save({"metadata": about, "results": rows}, options.json)


def _print(row: dict[str, Any]) -> None:
    print(f"\n{row['command']}, {row['images']} images: {row['median_s']:g} s, the median of {row['samples_s']}")
    if "busy_share" in row:
        seen = row["profiled"]
        print(
            f"GPU at work for {seen['busy_seconds']:g} s in {seen['kernels']} kernels: {row['busy_share']:.0%} of that "
            f"time, {row['busy_share_profiled']:.0%} of {seen['seconds']:g} s under the profiler"
        )
    main, others = row["main_thread_s"], row["other_threads_s"]
    lines = [[name, f"{main.get(name, 0):.2f}", f"{others.get(name, 0):.2f}"] for name in {**main, **others}]
    print(table(["stage", "main thread, s", "other threads, s"], lines))
    print(", ".join(f"{name} {' / '.join(h[:12] for h in row[name])}" for name in row if name.endswith("sha256")))


if __name__ == "__main__":
    main()
