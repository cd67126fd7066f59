"""Which synthetic images spread a network's activations as photographs do: what a relative sharpness relies on.

    python benchmarks/spreads.py --data NIPS17_FOLDER

For each network and each probe, over the inputs of all rectifiers: the geometric mean of the spread on the probe, as a
share of that on the photographs, and the factor by which one rectifier departs from it (one standard deviation).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from judge import Data
from whorl.models import spreads
from whorl.models.backward import rectifies

NAMES = ("resnet18", "mobilenet_v2", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "inception_v3")


def noise(power: float) -> Callable[[tuple[int, int]], Tensor]:
    """Images whose amplitudes fall with the frequency to some power, otherwise as whorl's."""

    def make(size: tuple[int, int]) -> Tensor:
        return spreads.coloured(3, size, power)

    return make


PROBES: Mapping[str, Callable[[tuple[int, int]], Tensor]] = {
    "white noise": lambda size: torch.rand(4, 3, *size, generator=torch.Generator().manual_seed(0)),
    "1/f": noise(1.0),
    "1/f^1.25, whorl's": lambda size: spreads.probe(3, size),
    "1/f^1.5": noise(1.5),
}


def measured(model: nn.Module, x: Tensor) -> Tensor:
    """Spreads of what goes into each rectifier, (rectifiers,)."""
    rectifiers = [module for module in model.modules() if rectifies(module)]
    found = spreads.rectifier_spreads(model, rectifiers, x)
    return torch.tensor([found[module] for module in rectifiers if module in found], dtype=torch.float64)


def compared(model: whorl.Classifier, photographs: Tensor) -> dict[str, Any]:
    """Every probe beside the photographs, and these one by one beside all of them."""
    truth = measured(model, photographs)
    ratios = {probe: (measured(model, make(model.size)) / truth).log() for probe, make in PROBES.items()}
    ratios["one photograph"] = torch.cat([(measured(model, one) / truth).log() for one in photographs.split(1)])
    rows = {name: {"mean": math.exp(r.mean()), "factor": math.exp(r.std())} for name, r in ratios.items()}
    return {"least": float(truth.min()), "most": float(truth.max()), "rectifiers": len(truth), "probes": rows}


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--networks", default=",".join(NAMES))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "spreads-cpu.json")
    options = parser.parse_args()
    found = {}
    for name in options.networks.split(","):
        model = whorl.load_model(name)
        data = Data.load(options.data, options.n, model.size[0], "cpu")
        found[name] = compared(model, data.x)
        print(name, json.dumps(found[name]), flush=True)
    options.json.write_text(
        json.dumps({"n": options.n, "torch": torch.__version__, "networks": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
