"""Draw the image of docs/hardening.md from benchmarks/results/hardening-cuda.json.

Run from anywhere: python docs/figures/hardening_figure.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from whorl.report import Drawing, bars, save_charts
from whorl.report.export import titled

HERE = Path(__file__).parent
MEASURED = HERE.parents[1] / "benchmarks" / "results" / "hardening-cuda.json"
SHORT = {"efficientnet_lite0": "lite0", "mobilenet_v2": "mobilenet"}
UPRIGHT, POSED = "identity from resnet18", "twelve poses from resnet18"


def main() -> None:
    """Draw clean accuracy, dim as the images are, and ai-dim over the poses, before and after."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    groups = {
        "clean accuracy": pairs(measured[UPRIGHT], "dim", clean=True),
        "fooled by dim": pairs(measured[UPRIGHT], "dim"),
        "fooled by ai-dim, 12 poses": pairs(measured[POSED], "ai-dim"),
    }
    title = f"Gain of hardening: {measured['metadata']['n']} NIPS17 images, attacks crafted on resnet18"
    chart = Drawing(name="hardening", title=title, alt="", figure=bars(groups))
    [path] = save_charts({HERE / "hardening.png": titled(chart).update_layout(width=1000)})
    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


def pairs(cells: list[dict[str, Any]], attack: str, *, clean: bool = False) -> dict[str, dict[str, float]]:
    """One pair of bars a hardened network: its original, and itself."""
    found = {}
    for name in sorted({cell["target"] for cell in cells}):
        base, _, recipe = name.partition(".")
        if recipe:
            before, after = (share(cells, target, attack, clean=clean) for target in (base, name))
            found[f"{SHORT[base]} {recipe}"] = {"original": before, "hardened": after}
    return found


def share(cells: list[dict[str, Any]], target: str, attack: str, *, clean: bool) -> float:
    """Accuracy, or the success rate of an attack, in [0, 1] as a mean over the poses."""
    own = [cell for cell in cells if cell["target"] == target and cell["attack"] == attack]
    part, whole = ("n_clean_correct", "n") if clean else ("n_success", "n_clean_correct")
    return sum(float(cell[part] / cell[whole]) for cell in own) / len(own)


if __name__ == "__main__":
    main()
