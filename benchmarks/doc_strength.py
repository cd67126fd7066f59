"""The tables of the second search: what it found for three sources, and how alike noise and photographs are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from doc_tables import Cell, table

_FILE = Path(__file__).parent / "results" / "strength-cuda.jsonl"
_SOURCES = {"ResNet-18": "resnet18", "EfficientNet-Lite0": "efficientnet_lite0", "Inception-v3": "inception_v3"}
_NEAR = {"near": 0.2, "kind": "plain", "calm": False, "cooling": 0.2}
_RELATIVE = {"rectifier": 0.7, "relative": True}
_OWN: Mapping[str, Mapping[str, Any]] = {
    "efficientnet_lite0": {**_RELATIVE, "late": 0.0, "skip": 0.5},
    "inception_v3": {**_RELATIVE, "join": 0.8, "pool": 0.5},
}
_TAGS = {"chosen by": "choose", "fresh": "fresh"}


@cache
def _rows() -> list[dict[str, Any]]:
    return [row for row in map(json.loads, _FILE.read_text().splitlines()) if "settings" in row]


def _settings(source: str, what: str, gradients: int) -> dict[str, Any]:
    tried: dict[str, Mapping[str, Any]] = {
        "before": {},
        "near draws, cooling": _NEAR,
        "near draws, cooling, pace 10": {**_NEAR, "pace": 10.0},
        "relative sharpness": _RELATIVE,
        "the family's rule": _OWN.get(source, {}),
        "near draws, cooling, the family's rule": {**_NEAR, **_OWN.get(source, {})},
    }
    return {**tried[what]} if gradients == 10 else {**tried[what], "steps": gradients}


@table("strength")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        eps, _, kind = column.removeprefix("ε ").partition(", ")
        if kind not in ("as it is", "poses"):
            return None
        source = _SOURCES[row["source"]]
        wanted = _settings(source, row["changed"], int(row["gradients"])), source, _TAGS[row["images"]]
        found = next(one for one in _rows() if (one["settings"], one["source"], one["tag"]) == wanted)
        cells = found["rates"][eps].values()
        return [sum(each["identity" if kind == "as it is" else "poses"] for each in cells) / len(cells)]

    return cell


@table("spreads")
def _() -> Cell:
    networks = json.loads((_FILE.parent / "spreads-cpu.json").read_text())["networks"]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        found = networks[row["network"]]
        if column == "network":
            return None
        if column == "spreads on photographs":
            return [found["least"], found["most"]]
        return [found["probes"][column]["mean"], found["probes"][column]["factor"]]

    return cell
