"""Draw the image of docs/hardening.md from benchmarks/results/hardening-cuda.json.

Run from anywhere: python docs/figures/hardening_figure.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whorl.hardening.bars import Bar, Block, draw_bars

HERE = Path(__file__).parent
MEASURED = HERE.parents[1] / "benchmarks" / "results" / "hardening-cuda.json"
SHORT = {"efficientnet_lite0": "lite0", "mobilenet_v2": "mobilenet"}
UPRIGHT, POSED = "identity from resnet18", "twelve poses from resnet18"


def main() -> None:
    """Draw clean accuracy, dim as the images are, and ai-dim over the poses, before and after."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    blocks = [
        block("clean accuracy, as they are", measured[UPRIGHT], "dim", clean=True),
        block("fooled by dim, as they are", measured[UPRIGHT], "dim"),
        block("fooled by ai-dim, mean over 12 poses", measured[POSED], "ai-dim"),
    ]
    subtitle = f"{measured['metadata']['n']} NIPS17 images; attacks crafted on resnet18. Fooled: lower is better."
    draw_bars(blocks, HERE / "hardening.png", title="What hardening bought", subtitle=subtitle)


def block(title: str, cells: list[dict[str, Any]], attack: str, *, clean: bool = False) -> Block:
    """One pair of bars a hardened network: its original, and itself."""
    targets = sorted({cell["target"] for cell in cells})
    bars = {}
    for name in targets:
        base, _, recipe = name.partition(".")
        if recipe:
            before, after = (share(cells, target, attack, clean=clean) for target in (base, name))
            bars[f"{SHORT[base]} {recipe}"] = (Bar(before, "original", faint=True), Bar(after, "hardened"))
    return Block(title=title, bars=bars)


def share(cells: list[dict[str, Any]], target: str, attack: str, *, clean: bool) -> float:
    """Accuracy, or the success rate of an attack, in [0, 1] as a mean over the poses."""
    own = [cell for cell in cells if cell["target"] == target and cell["attack"] == attack]
    part, whole = ("n_clean_correct", "n") if clean else ("n_success", "n_clean_correct")
    return sum(float(cell[part] / cell[whole]) for cell in own) / len(own)


if __name__ == "__main__":
    main()
