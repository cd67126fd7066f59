"""The tables of the second and the third search for three sources, and how alike noise and photographs are."""

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
_COLOURS, _LOSS = {"late": 0.0, "channels": 0.75}, {"late": 0.0, "channels": 0.75, "temperature": 2.0}
# What the third search changed of what it began with, by the words of the page.
_THIRD: Mapping[str, Mapping[str, Any]] = {
    "as it shipped": {},
    "all rectifiers": {"late": 0.0},
    "all rectifiers, channels": _COLOURS,
    "all rectifiers, temperature": {"late": 0.0, "temperature": 2.0},
    "all rectifiers, channels, temperature": _LOSS,
    "the same, sharpness 0.5": {**_LOSS, "rectifier": 0.5},
    "all rectifiers, channels, narrowing": {**_COLOURS, "narrow": 0.5},
    "the same, temperature": {**_LOSS, "narrow": 0.5},
    "the same, angles to 24°": {**_LOSS, "narrow": 0.5, "angle": 24.0},
    "scale to 1.5": {"scale": [0.5, 1.5]},
    "scale to 1.5, gain 0.8": {"scale": [0.5, 1.5], "gain": 0.8},
}


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


def _mean(row: Mapping[str, Any], eps: str, kind: str) -> list[float]:
    cells = row["rates"][eps].values()
    return [sum(each["identity" if kind == "as it is" else "poses"] for each in cells) / len(cells)]


@table("strength")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        eps, _, kind = column.removeprefix("ε ").partition(", ")
        if kind not in ("as it is", "poses"):
            return None
        source = _SOURCES[row["source"]]
        wanted = _settings(source, row["changed"], int(row["gradients"])), source, _TAGS[row["images"]]
        return _mean(next(one for one in _rows() if (one["settings"], one["source"], one["tag"]) == wanted), eps, kind)

    return cell


_BEFORE_THIRD: Mapping[str, Any] = {**_NEAR, **_RELATIVE}
_LATER: Mapping[str, Any] = {**_BEFORE_THIRD, **_LOSS, "narrow": 0.5, "angle": 24.0}
_DRAWS: Mapping[str, Any] = {"steps": 75, "samples": 4}


@table("strength-targeted")
def _() -> Cell:
    rows = [row for row in _rows() if row.get("search") == "third" and row["tag"] == "targeted"]
    begun = {"before the third search": _BEFORE_THIRD, "after it": _LATER}
    more: Mapping[str, Mapping[str, Any]] = {
        "–": {},
        "logit": {"loss": "logit"},
        "temperature 5": {"temperature": 5.0},
        "calibrated": {"loss": "calibrated"},
    }

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column not in ("as it is", "poses"):
            return None
        spent = {"300 × 1": {"steps": 300}, "75 × 4": _DRAWS}[row["steps × draws"]]
        wanted = {**begun[row["composition"]], **more[row["loss"]], **spent}
        return _mean(next(one for one in rows if one["settings"] == wanted), "16", column)

    return cell


@table("strength-third")
def _() -> Cell:
    rows = [row for row in _rows() if row.get("search") == "third" and len(row["eps"]) == len(("16", "8"))]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        eps, _, kind = column.removeprefix("ε ").partition(", ")
        if kind not in ("as it is", "poses"):
            return None
        source = _SOURCES[row["source"]]
        began = {**_NEAR, **_RELATIVE, **_OWN.get(source, {})}
        wanted = {**began, **_THIRD[row["changed"]]}, source, _TAGS[row["images"]]
        return _mean(next(one for one in rows if (one["settings"], one["source"], one["tag"]) == wanted), eps, kind)

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
