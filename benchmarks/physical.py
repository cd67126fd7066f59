"""Photographs of prints: how fast they are read and scored, in how much memory; and table 5 with a simulated camera.

Examples:
    python benchmarks/physical.py speed --device cpu
    python benchmarks/physical.py table5 --run runs/table5 --clean NIPS17 --workers 8 --json table5.json

``speed`` makes twelve-megapixel photographs of a page of the bundled samples with the simulated camera and scores them
as ``whorl physical score`` does. ``table5`` needs a run folder of the attacks that the table compares; nothing is
printed or photographed, and the table says so.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from measure import metadata, save, table
from whorl import paper
from whorl.bench.clock import Timing
from whorl.data import load_samples, save_image
from whorl.errors import WhorlError
from whorl.physical import (
    PRESETS,
    PageLayout,
    PrintedSheet,
    Rehearsal,
    arrange,
    collect,
    photograph,
    printed,
    score,
    table5,
)
from whorl.physical.pdf import render_pages
from whorl.physical.rehearsal import SETTINGS
from whorl.physical.simulation import SIMULATED
from whorl.runs.networks import load_targets

DISTINCT = 6


def sample_sheet(folder: Path) -> PrintedSheet:
    """One full page: nine photographs, each twice."""
    x, y, ids = load_samples(9)
    for image, label, name in zip(x, y.tolist(), ids, strict=True):
        for version in ("clean", "copy"):
            save_image(folder / version / str(label) / f"{name}.png", image)
    return arrange(collect(folder / "copy", clean=folder / "clean"), PageLayout())


def make_photos(sheet: PrintedSheet, folder: Path, count: int, width: int, height: int) -> int:
    """Write photographs: a few that differ, each in many files with other bytes after their end.

    Returns:
        How many differ.
    """
    folder.mkdir(parents=True)
    pixels = next(render_pages(sheet, dpi=600))
    files = []
    for number in range(min(count, DISTINCT)):
        camera = PRESETS[SETTINGS[number % 3]].with_(width=width, height=height, tilt=[0, 20][number // 3 % 2])
        inked = printed(pixels, sheet.layout, camera)
        files.append(photograph(inked, sheet.layout, camera, name=str(number)).file)
    for number in range(count):
        # What follows a JPEG's end is not read, but makes it another file.
        (folder / f"{number:04d}.jpg").write_bytes(files[number % len(files)] + number.to_bytes(4, "big"))
    return len(files)


def measure_speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Score many photographs; time each, and watch the memory."""
    device = torch.device(arguments.device)
    targets = load_targets([arguments.model], device=device)
    with tempfile.TemporaryDirectory() as place:
        sheet = sample_sheet(Path(place) / "images")
        width, height = arguments.pixels
        # In another process: the memory that it takes is not the score's.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            distinct = pool.submit(make_photos, sheet, Path(place) / "photos", arguments.photos, width, height).result()
        ticks: list[float] = []
        peaks: list[int] = []

        def watch(*_: object) -> None:
            ticks.append(time.perf_counter())
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

        done = score([Path(place) / "photos"], [sheet], targets, progress=watch)
    each = [1e3 * (later - earlier) for earlier, later in pairwise(ticks)]
    timing, warm = Timing.of(each, each[0]), min(len(peaks) - 1, 10)
    images, seconds = len(done.captures), ticks[-1] - ticks[0]
    return {
        "photos": arguments.photos,
        "distinct": distinct,
        "megapixels": round(width * height / 1e6, 1),
        "identified": images,
        "unread": len(done.unread),
        "photo": asdict(timing),
        "images_per_second": round(images / seconds, 2),
        "photos_per_second": round(arguments.photos / seconds, 3),
        "peak_mib_after_10": round(peaks[warm] / 1024),
        "peak_mib_at_the_end": round(peaks[-1] / 1024),
    }


def measure_table5(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make table 5 from a run folder."""
    device = torch.device(arguments.device)
    groups = collect(arguments.run, clean=arguments.clean, limit=arguments.limit)
    sheet = arrange(groups, PageLayout())
    targets = load_targets(arguments.model.split(","), arguments.defense.split(","), device=device, seed=arguments.seed)
    start = time.perf_counter()

    def show(stage: str, done: int, total: int) -> None:
        print(f"{stage}: {done}/{total}, {time.perf_counter() - start:.0f} s", flush=True)

    done = table5(
        sheet,
        targets,
        Rehearsal(size=(arguments.pixels[0], arguments.pixels[1]), seed=arguments.seed),
        workers=arguments.workers,
        folder=arguments.folder,
        progress=show,
    )
    rows: list[dict[str, Any]] = []
    for setting in SETTINGS:
        for (version, target), line in done.lines(setting).items():
            counts = line.counts
            rows.append(
                {
                    "setting": setting,
                    "images": version,
                    "target": target,
                    "n": counts.n,
                    "n_clean_correct": counts.n_clean_correct,
                    "n_success": counts.n_success,
                    "n_adversarial_correct": counts.n_adversarial_correct,
                    "accuracy": round(100 * counts.accuracy, 2),
                    "asr": round(100 * counts.rate, 2),
                    "interval": [round(100 * edge, 2) for edge in counts.interval()],
                }
            )
    versions = {row["images"]: None for row in rows}
    best = [version for version in versions if version.partition(" ")[0] == "ai-dim"]
    compared = [
        {"setting": setting, "target": target.name, "first": first, "second": second}
        | {"p_value": comparison.p_value, "b": comparison.b, "c": comparison.c}
        for setting in SETTINGS
        for target in targets
        for first in best
        for second in versions
        if second not in ("clean", first)
        for comparison in [done.compared(setting, first, second, target.name)]
    ]
    return {
        "note": SIMULATED,
        "images": len(groups),
        "pages": sheet.pages,
        "identified": {setting: round(done.identified(setting), 5) for setting in SETTINGS},
        "paper": {row: [pose[0] for pose in figures] for row, figures in paper.load("table5").printed["white"].items()},
        "rows": rows,
        "compared": compared,
        "seconds": round(time.perf_counter() - start, 1),
    }


def show_table5(results: dict[str, Any]) -> str:
    """Lay table 5 out: recognition accuracy and success rate in percent, versions by settings."""
    lines = []
    for target in dict.fromkeys(row["target"] for row in results["rows"]):
        own = {(row["images"], row["setting"]): row for row in results["rows"] if row["target"] == target}
        order = ["clean", *paper.load("table5").rows]
        # In the paper's order; what it does not have comes last.
        places = {name: place for place, name in enumerate(order)}
        versions = sorted({name for name, _ in own}, key=lambda name: (places.get(name.partition(" ")[0], 99), name))
        titles = [f"{target}, n = {results['images']}", *SETTINGS, *(f"{setting} success" for setting in SETTINGS)]
        cells = [
            [name]
            + [f"{own[name, setting]['accuracy']:.1f}" for setting in SETTINGS]
            + ["" if name == "clean" else f"{own[name, setting]['asr']:.1f}" for setting in SETTINGS]
            for name in versions
        ]
        lines.append(table(titles, cells))
    return "\n\n".join([*lines, results["note"]])


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "table5"))
    parser.add_argument("--model", default="resnet18", help="network to evaluate; for table5 several, joined by commas")
    parser.add_argument("--defense", default="none", help="for table5: defences before each, joined by commas")
    parser.add_argument("--photos", type=int, default=200, help="for speed: how many")
    parser.add_argument("--pixels", type=int, nargs=2, default=(3000, 4000), help="width and height of a photograph")
    parser.add_argument("--run", type=Path, help="for table5: run folder with the attacks")
    parser.add_argument("--clean", type=Path, help="for table5: the clean images, if they moved")
    parser.add_argument("--limit", type=int, help="for table5: take the first so many images")
    parser.add_argument("--folder", type=Path, help="for table5: folder that lets it go on where it stopped")
    parser.add_argument("--workers", type=int, default=1, help="for table5: processes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to save the results")
    arguments = parser.parse_args(argv)
    if arguments.what == "table5" and arguments.run is None:
        parser.error("table5 needs --run: a run folder of the attacks to compare")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    arguments = parse(argv)
    try:
        results = measure_speed(arguments) if arguments.what == "speed" else measure_table5(arguments)
    except WhorlError as error:
        raise SystemExit(f"error: {error}") from error
    print(
        show_table5(results)
        if arguments.what == "table5"
        else table(["", ""], [[k, str(v)] for k, v in results.items()])
    )
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("what", "model", "defense", "workers", "seed")}
        about = metadata(torch.device(arguments.device), pixels=list(arguments.pixels), **settings)
        save({"metadata": about, "results": results}, arguments.json)


if __name__ == "__main__":
    main()
