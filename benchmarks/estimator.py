"""Time of the gradient estimators, beside a copy, beside the convolution that peers use, and beside one input gradient.

Example:
    python benchmarks/estimator.py --device cuda

A gradient of the shape in the heading, float32 unless said otherwise. A ratio above 1 is slower than what it is
compared with. At the end stand the figures that the project holds itself to, met or not.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measure import headline, metadata, parser, peak_extra_bytes, save, settle, table
from whorl.bench.clock import Timing, significant, take_turns
from whorl.bench.compiled import replayed_gradient
from whorl.bench.sections import SIZES, prepare
from whorl.estimators import TI_SIGMA, AffineInvariant, RotationInvariant, TranslationInvariant
from whorl.geometry import blur, from_polar, gaussian_kernel, to_polar
from whorl.geometry.kernels import Weights
from whorl.models.architectures import build

Shape = tuple[int, int, int, int]
Call = Callable[[Tensor], Tensor]

SHAPES: Mapping[str, Sequence[Shape]] = {
    "cpu": [(8, 3, 224, 224)],
    "cuda": [(64, 3, 299, 299), (256, 3, 299, 299)],
    "quick": [(2, 3, 32, 32)],
}
# Batches of 3 x 299 x 299 that show whether the time grows with the images and nothing else.
BATCHES = (16, 32, 64, 128, 256)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INPUT_SETS = 4
COPY, RIVAL, GRADIENT = "copy", "15x15 depthwise convolution", "ResNet-18 input gradient"
OURS, PLAIN = "AffineInvariant", "AffineInvariant in plain torch"
TURNED = "RotationInvariant"
ALONE, NARROW = "AffineInvariant, rotations alone, 1.7", "AffineInvariant, all parts, 0.5"
NOTES = """\
- 15x15 depthwise convolution: one 2-D convolution with TranslationInvariant's kernel, as peers do it.
- AffineInvariant: as the package runs it, fused on a GPU, as sums of rows on a CPU.
- Rotations alone, 1.7: without translations and scalings, which takes less.
- All parts, 0.5: translations, scalings and rotations with a narrow kernel, which ai-best has.
- RotationInvariant: what ri- attacks have, on twice the angles: in the middle, in the first step and in the last.
- Rows that are indented are its steps in plain torch; they add up to the row above them.
- grid_sample there and back: both polar warps by torch's sampler, without the wrap at 2π: less work than ours.
- buffers: the most memory above the input at any time, result included, in units of the input's size.
  What is built once and kept (polar positions and weights) is not in it, and is named under the table."""


def cases(shape: Shape, device: torch.device) -> dict[str, Call]:
    """List what is timed, each a function of a gradient of ``shape``."""
    _, channels, height, width = shape
    ours = AffineInvariant()
    polar = ours.polar_kernel
    kernel = ours.kernel
    assert kernel is not None
    assert polar is not None

    def plain(g: Tensor) -> Tensor:
        return from_polar(blur(to_polar(blur(g, kernel)), polar, circular=True), (height, width))

    weight = gaussian_kernel(15, TI_SIGMA).to(device, torch.float32).expand(channels, 1, 15, 15).contiguous()
    return {
        COPY: torch.clone,
        RIVAL: lambda g: F.conv2d(g, weight, padding="same", groups=channels),
        "TranslationInvariant": TranslationInvariant(),
        ALONE: AffineInvariant(sigma=1.7, translation=False, scaling=False),
        NARROW: AffineInvariant(sigma=0.5),
        TURNED: RotationInvariant(),
        f"{TURNED}, 32 degrees": RotationInvariant(degrees=32.0),
        f"{TURNED}, 1.6 degrees": RotationInvariant(degrees=1.6),
        OURS: ours,
        PLAIN: plain,
        "  blur": lambda g: blur(g, kernel),
        "  to polar": to_polar,
        "  polar blur": lambda g: blur(g, polar, circular=True),
        "  from polar": lambda g: from_polar(g, (height, width)),
        "grid_sample there and back": sampled_round_trip(shape, device),
        GRADIENT: input_gradient(shape, device),
    }


def sampled_round_trip(shape: Shape, device: torch.device) -> Call:
    """Go to polar coordinates and back with ``grid_sample`` on grids made beforehand."""
    batch, _, height, width = shape
    n = max(height, width)
    down, right = (height - 1) / 2, (width - 1) / 2
    longest = math.hypot(down, right)
    radius = torch.linspace(0, longest, n)[:, None]
    angle = (torch.arange(n) * (2 * math.pi / n))[None, :]
    there = torch.stack((radius * angle.cos() / right, radius * angle.sin() / down), dim=-1)
    rows, columns = (torch.arange(height) - down)[:, None], (torch.arange(width) - right)[None, :]
    turned = torch.remainder(torch.atan2(rows, columns), 2 * math.pi) * (n / (2 * math.pi))
    back = torch.stack((turned * (2 / (n - 1)) - 1, torch.hypot(rows, columns) * (2 / longest) - 1), dim=-1)
    grids = [grid.to(device).expand(batch, -1, -1, -1) for grid in (there, back)]

    def round_trip(g: Tensor) -> Tensor:
        for grid in grids:
            g = F.grid_sample(g, grid, align_corners=True)
        return g

    return round_trip


def input_gradient(shape: Shape, device: torch.device) -> Call:
    """Take one input gradient of ResNet-18 (random weights: they do not change the time)."""
    net: nn.Module = build("torchvision:resnet18")[0].eval().requires_grad_(False).to(device)
    labels = torch.zeros(shape[0], dtype=torch.int64, device=device)

    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        loss = F.cross_entropy(net(leaf), labels, reduction="sum")
        return torch.autograd.grad(loss, leaf)[0]

    return gradient


def timed(
    calls: Mapping[str, Call | Callable[[Tensor], None]],
    inputs: Sequence[tuple[Tensor]],
    device: torch.device,
    repeats: int,
) -> dict[str, Timing]:
    """What the device needs for each call on gradients that are in no cache."""
    return take_turns(calls, inputs, device=device, warmup=2, repeats=repeats, queued=True)[0]


def measure(shape: Shape, device: torch.device, repeats: int) -> dict[str, Any]:
    """Time and weigh every case on one shape."""
    calls = cases(shape, device)
    inputs = [(torch.randn(shape, device=device),) for _ in range(INPUT_SETS)]
    print(f"{shape}: {len(calls)} cases, {repeats} rounds", file=sys.stderr)
    timings = timed(calls, inputs, device, repeats)
    x = inputs[0][0]
    rows = []
    for name, call in calls.items():
        peak = peak_extra_bytes(lambda call=call: call(x), device)  # type: ignore[misc]  # mypy cannot see the default
        rows.append(
            {
                "name": name.strip(),
                "part_of": OURS if name.startswith(" ") else None,
                **asdict(timings[name]),
                "ratios": ratios(name, timings),
                "peak_extra_buffers": significant(peak / (x.numel() * x.element_size())),
            }
        )
    return {"shape": list(shape), "dtype": "float32", "kept_bytes": kept_bytes(shape, device), "rows": rows}


def by_batch(device: torch.device, repeats: int) -> list[dict[str, Any]]:
    """Time the estimator beside a copy, for growing batches and all dtypes that it takes."""
    rows = []
    for batch in BATCHES:
        for dtype in DTYPES:
            shape = (batch, 3, 299, 299)
            inputs = [(torch.randn(shape, device=device).to(dtype),) for _ in range(INPUT_SETS)]
            timings = timed({COPY: torch.clone, OURS: AffineInvariant()}, inputs, device, repeats)
            rows.append(
                {
                    "batch": batch,
                    "dtype": str(dtype).removeprefix("torch."),
                    **asdict(timings[OURS]),
                    "copy_ms": timings[COPY].median_ms,
                    "copies": significant(timings[OURS].median_ms / timings[COPY].median_ms),
                    "us_per_image": significant(1e3 * timings[OURS].median_ms / batch),
                }
            )
    return rows


def beside_inception(device: torch.device, repeats: int) -> dict[str, Any]:
    """Time one input gradient of Inception-v3, batch 64, as the attack loop replays it; random weights do not matter.

    The loop hands the estimator float32, or bfloat16 after diverse inputs (DIM and its kin).
    """
    start = time.perf_counter()
    gradient = replayed_gradient(prepare(SIZES["cuda"], device))
    first = time.perf_counter() - start
    inputs = [(torch.randn(64, 3, 299, 299, device=device),) for _ in range(INPUT_SETS)]
    short = [(x.to(torch.bfloat16),) for (x,) in inputs]
    whole = timed({"gradient": lambda _: gradient()}, inputs, device, repeats)["gradient"]
    found: dict[str, Any] = {"prepare_s": significant(first), "gradient": asdict(whole)}
    for name, sets in (("float32", inputs), ("bfloat16", short)):
        calls: dict[str, Call] = {OURS: AffineInvariant(), TURNED: RotationInvariant()}
        for which, timing in timed(calls, sets, device, repeats).items():
            label = name if which == OURS else f"{which}, {name}"
            found[label] = {**asdict(timing), "share": significant(timing.median_ms / whole.median_ms)}
    return found


def targets(results: Mapping[str, Any], device: torch.device) -> list[dict[str, Any]]:
    """Hold what was measured against what was asked for."""
    asked: list[tuple[str, float, float]] = []
    if device.type == "cpu":
        row = next(row for row in results["cases"][0]["rows"] if row["name"] == OURS)
        asked.append(("share of a ResNet-18 input gradient", row["ratios"]["input_gradient"], 0.025))
        asked.append(("times a 15x15 depthwise convolution", row["ratios"]["depthwise_convolution"], 0.2))
    elif "batches" in results:
        rows = {row["batch"]: row for row in results["batches"] if row["dtype"] == "float32"}
        asked.append(("ms for 64x3x299x299", rows[64]["median_ms"], 0.2))
        alone = next(row for row in results["cases"][0]["rows"] if row["name"] == ALONE)
        asked.append(("the same with rotations alone", alone["median_ms"], 0.2))
        asked += [(f"copies, batch {batch}", rows[batch]["copies"], 5.0) for batch in (64, 256)]
        growth = rows[256]["us_per_image"] / rows[64]["us_per_image"]
        asked.append(("time per image, batch 256 to batch 64", significant(growth), 1.1))
        for dtype in ("bfloat16", "float32"):
            for name, key in ((OURS, dtype), (TURNED, f"{TURNED}, {dtype}")):
                share = results["inception_v3"][key]["share"]
                asked.append((f"{name}, share of an Inception-v3 input gradient, {dtype}", share, 0.015))
    return [{"what": what, "value": value, "at_most": most, "met": value <= most} for what, value, most in asked]


def ratios(name: str, timings: Mapping[str, Timing]) -> dict[str, float]:
    """Divide one median by those it is compared with."""
    to = {"copy": COPY, "depthwise_convolution": RIVAL, "input_gradient": GRADIENT}
    return {key: significant(timings[name].median_ms / timings[other].median_ms) for key, other in to.items()}


def kept_bytes(shape: Shape, device: torch.device) -> int:
    """Size of the tables that are kept for an image size, whatever the batch."""
    height, width = shape[-2:]
    if device.type == "cuda":
        from whorl.estimators.gpu import polar_tables

        return sum(table.nbytes for table in polar_tables(height, width, max(height, width), device))
    from whorl.estimators.cpu import tables
    from whorl.estimators.fast import trimmed

    ours = AffineInvariant()
    assert ours.polar_kernel is not None
    still: Weights = (1.0,)
    weights = (*(ours.kernel or (still, still))[:2], *ours.polar_kernel[:2])
    return sum(part.nbytes for step in tables(height, width, *map(trimmed, weights)) for part in step[:3])


def show(case: Mapping[str, Any]) -> str:
    """Lay one shape's results out as a table."""
    titles = ["", "median ms", "p10 to p90", "x copy", "x depthwise", "x gradient", "buffers"]
    lines = []
    for row in case["rows"]:
        to = row["ratios"]
        lines.append(
            [
                ("  " if row["part_of"] else "") + row["name"],
                f"{row['median_ms']:.4g}",
                f"{row['p10_ms']:.4g} to {row['p90_ms']:.4g}",
                f"{to['copy']:.1f}",
                f"{to['depthwise_convolution']:.2f}",
                f"{to['input_gradient']:.4f}",
                f"{row['peak_extra_buffers']:.2f}",
            ]
        )
    heading = f"{'x'.join(map(str, case['shape']))} {case['dtype']}, {case['rows'][0]['n']} repeats"
    return f"\n{heading}\n{table(titles, lines)}\nkept: {case['kept_bytes'] / 2**20:.1f} MiB"


def show_batches(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the times by batch out as a table."""
    titles = ["3x299x299", "dtype", "median ms", "copy ms", "copies", "us an image"]
    lines = [
        [
            f"batch {row['batch']}",
            row["dtype"],
            f"{row['median_ms']:.4g}",
            f"{row['copy_ms']:.4g}",
            f"{row['copies']:.2f}",
            f"{row['us_per_image']:.3g}",
        ]
        for row in rows
    ]
    return table(titles, lines)


def show_targets(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the targets out as a table."""
    titles = ["AffineInvariant", "measured", "at most", ""]
    lines = [
        [row["what"], f"{row['value']:.4g}", f"{row['at_most']:g}", "" if row["met"] else "missed"] for row in rows
    ]
    return table(titles, lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    arguments = settle(made, argv, "estimator")
    device = arguments.device
    about = metadata(device, quick=arguments.quick, repeats=arguments.repeats, input_sets=INPUT_SETS)
    print(headline(about))
    results = []
    for shape in SHAPES["quick" if arguments.quick else device.type]:
        results.append(measure(shape, device, arguments.repeats))
        print(show(results[-1]), flush=True)
    print(f"\n{NOTES}")
    found: dict[str, Any] = {"benchmark": "estimator", "metadata": about, "cases": results}
    if device.type == "cuda" and not arguments.quick:
        found["batches"] = by_batch(device, arguments.repeats)
        print(f"\n{show_batches(found['batches'])}", flush=True)
        found["inception_v3"] = beside_inception(device, arguments.repeats)
    found["targets"] = targets(found, device)
    print(f"\n{show_targets(found['targets'])}")
    if arguments.json:
        save(found, arguments.json)


if __name__ == "__main__":
    main()
