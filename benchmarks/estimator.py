"""Time of the gradient estimators, beside a copy, beside the convolution that peers use, and beside one input gradient.

Example:
    python benchmarks/estimator.py --device cuda

Everything is fp32 on a gradient of the shape in the heading. A ratio above 1 is slower than what it is compared with.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measure import (
    Timing,
    headline,
    metadata,
    parser,
    peak_extra_bytes,
    save,
    settle,
    significant,
    table,
    time_together,
)
from whorl.estimators import TI_SIGMA, AffineInvariant, TranslationInvariant
from whorl.geometry import blur, from_polar, gaussian_kernel, to_polar
from whorl.models.architectures import build

Shape = tuple[int, int, int, int]
Call = Callable[[Tensor], Tensor]

SHAPES: Mapping[str, Sequence[Shape]] = {
    "cpu": [(8, 3, 224, 224)],
    "cuda": [(64, 3, 299, 299), (256, 3, 299, 299)],
    "quick": [(2, 3, 32, 32)],
}
INPUT_SETS = 4
COPY, RIVAL, GRADIENT = "copy", "15x15 depthwise convolution", "ResNet-18 input gradient"
NOTES = """\
- 15x15 depthwise convolution: one 2-D convolution with TranslationInvariant's kernel, as peers do it.
- Rows that are indented are AffineInvariant's steps; they add up to it.
- grid_sample there and back: both polar warps by torch's sampler, without the wrap at 2π: less work than ours.
- buffers: the most memory above the input at any time, result included, in units of the input's size.
  What is built once and kept (polar positions and weights) is not in it, and is named under the table."""


def cases(shape: Shape, device: torch.device) -> dict[str, Call]:
    """List what is timed, each a function of a gradient of ``shape``."""
    _, channels, height, width = shape
    ours = AffineInvariant()
    translation, polar = ours.kernel, ours.polar_kernel
    assert translation is not None
    assert polar is not None
    weight = gaussian_kernel(15, TI_SIGMA).to(device, torch.float32).expand(channels, 1, 15, 15).contiguous()
    return {
        COPY: torch.clone,
        RIVAL: lambda g: F.conv2d(g, weight, padding="same", groups=channels),
        "TranslationInvariant": TranslationInvariant(),
        "AffineInvariant": ours,
        "  translation blur": lambda g: blur(g, translation),
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


def measure(shape: Shape, device: torch.device, repeats: int) -> dict[str, Any]:
    """Time and weigh every case on one shape."""
    calls = cases(shape, device)
    inputs = [(torch.randn(shape, device=device),) for _ in range(INPUT_SETS)]
    print(f"{shape}: {len(calls)} cases, {repeats} rounds", file=sys.stderr)
    timings = time_together(calls, inputs, device=device, repeats=repeats)
    x = inputs[0][0]
    rows = []
    for name, call in calls.items():
        peak = peak_extra_bytes(lambda call=call: call(x), device)  # type: ignore[misc]  # mypy cannot see the default
        rows.append(
            {
                "name": name.strip(),
                "part_of": "AffineInvariant" if name.startswith(" ") else None,
                **timings[name].record(),
                "ratios": ratios(name, timings),
                "peak_extra_buffers": significant(peak / (x.numel() * x.element_size())),
            }
        )
    return {"shape": list(shape), "dtype": "float32", "kept_bytes": kept_bytes(shape, device), "rows": rows}


def ratios(name: str, timings: Mapping[str, Timing]) -> dict[str, float]:
    """Divide one median by those it is compared with."""
    to = {"copy": COPY, "depthwise_convolution": RIVAL, "input_gradient": GRADIENT}
    return {key: significant(timings[name].median / timings[other].median) for key, other in to.items()}


def kept_bytes(shape: Shape, device: torch.device) -> int:
    """Size of the plan that the polar warps keep for a picture size, whatever the batch."""
    from whorl.geometry.polar import polar_plan

    plan = polar_plan(shape[-2], shape[-1], device, torch.float32)
    return sum(tensor.numel() * tensor.element_size() for taps in plan for tensor in taps)


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


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    arguments = settle(parser(__doc__), argv, "estimator")
    device = arguments.device
    about = metadata(device, quick=arguments.quick, repeats=arguments.repeats, input_sets=INPUT_SETS)
    print(headline(about))
    results = []
    for shape in SHAPES["quick" if arguments.quick else device.type]:
        results.append(measure(shape, device, arguments.repeats))
        print(show(results[-1]), flush=True)
    print(f"\n{NOTES}")
    if arguments.json:
        save({"benchmark": "estimator", "metadata": about, "cases": results}, arguments.json)


if __name__ == "__main__":
    main()
