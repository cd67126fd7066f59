"""Draw the figures of docs/frontier.md, and print how far ``ai-best`` is from EOT, from benchmarks/results.

    python docs/figures/frontier_figures.py

Needs ``pip install torchwhorl[figures]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"
SOURCES = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}
EPS = (16.0, 8.0, 4.0)
# Rows whose kernel is part of the page's comparison, by the name that they have there.
NAMES = {"dim+turn32-1.6": "ri-dim", "dim+ai0.5": "dim, σ 0.5", "ram+ai0.5": "ram, σ 0.5"}


def distance(part: Mapping[str, Any], name: str, other: str, eps: str) -> tuple[float, float, float]:
    """How far one candidate is above another, in points, with the 95% interval over resampled images.

    The rates shown count each pose alike. Which poses an image was fooled in is not kept, only in how many, so the
    resamples pool the poses; the interval is moved to the difference that is shown.
    """
    targets = part["asked"]["targets"]
    both = [part["rows"][one]["eps"][eps] for one in (name, other)]
    count = part["asked"]["n"]
    drawn = torch.randint(count, (2000, count), generator=torch.Generator().manual_seed(0))
    weights = torch.zeros(2000, count).scatter_add_(1, drawn, torch.ones(2000, count))
    found = [_pooled(rates["fooled"], part["known"], targets, weights) for rates in both]
    whole = [_pooled(rates["fooled"], part["known"], targets, torch.ones(1, count)) for rates in both]
    shown = float(both[0]["mean"] - both[1]["mean"])
    moved = found[0] - found[1] - (whole[0] - whole[1]) + shown
    low, high = moved.quantile(torch.tensor([0.025, 0.975])).tolist()
    return shown, low, high


def _pooled(fooled: Mapping[str, str], known: Mapping[str, str], targets: Sequence[str], weights: Tensor) -> Tensor:
    """(B,) percent, the mean over targets, for (B, N) weights of the images."""
    rates = [100 * (weights @ _counts(fooled[t])) / (weights @ _counts(known[t])) for t in targets]
    return torch.stack(rates).mean(0)


def _counts(digits: str) -> Tensor:
    return torch.tensor([float(int(digit, 16)) for digit in digits])


def _by_page(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows under the names of the page: ``dim+ai0.5/10`` is ``dim, σ 0.5/10``."""
    split = ((name.rpartition("/"), row) for name, row in rows.items())
    return {f"{NAMES.get(base, base)}/{gradients}": row for (base, _, gradients), row in split}


def main() -> None:
    """Draw both, and print the distances."""
    sys.path.insert(0, str(BENCHMARKS))
    from frontier_figure import draw

    for source, title in SOURCES.items():
        late = json.loads((RESULTS / f"frontier-{source}.json").read_text(encoding="utf-8"))["late"]
        draw(_by_page(late["rows"]), EPS, HERE / f"frontier-{source}.png", source=title)
        for eps in ("16", "8"):
            for name in ("ai-best/10", "ai-best/50"):
                shown, low, high = distance(late, name, "eot/2500", eps)
                told = f"{title}, ε = {eps}/255, {name} above EOT: {shown:+.1f} ({low:+.1f} to {high:+.1f})"
                print(told)  # noqa: T201 - a script, and this is its answer


if __name__ == "__main__":
    main()
