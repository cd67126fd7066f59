"""The page behind defences: rates and differences by their definition, and which photographs and poses they are of."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import comb
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks/results/behind-defences-cpu.json"
BARE = "efficientnet_lite2"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import doc_behind_defences

    yield doc_behind_defences
    for name in [name for name in sys.modules if name.startswith("doc_") and name != "doc_pages"]:
        sys.modules.pop(name)


def outcomes(target: str, cell: str, *, poses: bool) -> Any:
    """(poses, n) bool, of the file."""
    from judge import unpacked

    data = json.loads(DATA.read_text(encoding="utf-8"))
    if not poses and target in data["recognised_as_they_are"]:
        return unpacked(data["recognised_as_they_are"][target][cell], 1)
    found = unpacked(data["recognised"][target][cell], len(data["poses"]))
    shown = [i for i, p in enumerate(data["poses"]) if poses or p == {"angle": 0, "scale": 1, "shift": [0, 0]}]
    return found[shown]


def share(target: str, cell: str, *, poses: bool) -> float:
    """Of the clean images that are recognised, those that are not once they are attacked."""
    clean, attacked = (outcomes(target, name, poses=poses) for name in ("clean", cell))
    return float((clean & ~attacked).sum() / clean.sum())


@pytest.mark.parametrize("target", [BARE, "mobilenet_v2.ens-at"])
@pytest.mark.parametrize("images", ["poses", "as they are"])
def test_rates_and_differences_follow_from_the_outcomes(page: ModuleType, images: str, target: str) -> None:
    poses = images == "poses"
    rates = {cell: share(target, cell, poses=poses) for cell in ("resnet18-dim-16", "resnet18-ai-best-16")}
    ensemble = share(target, "ensemble-dim-16", poses=poses)
    assert page.success(images, target, "resnet18", "dim")[0] == pytest.approx(100 * rates["resnet18-dim-16"])
    gain = page.gains(images)["ai-best over dim", "resnet18", target]
    assert gain.difference == pytest.approx(rates["resnet18-ai-best-16"] - rates["resnet18-dim-16"], abs=1e-6)
    several = page.several(images)["ensemble over resnet18", "dim", target]
    assert several.difference == pytest.approx(ensemble - rates["resnet18-dim-16"], abs=1e-6)


@pytest.mark.parametrize("defence", ["jpeg", "randmix"])
def test_a_defence_is_held_against_the_bare_network(page: ModuleType, defence: str) -> None:
    target, cell = f"{BARE}+{defence}", "ensemble-ai-dim-16"
    known = outcomes(target, "clean", poses=False) & outcomes(BARE, "clean", poses=False)
    behind, bare = (~outcomes(name, cell, poses=False)[known] for name in (target, BARE))
    found = page.behind("as they are")["ensemble", "ai-dim", target]
    assert found.difference == pytest.approx(behind.mean() - bare.mean(), abs=1e-6)
    fewer, more = int((bare & ~behind).sum()), int((behind & ~bare).sum())
    mcnemar = 2 * sum(comb(fewer + more, k) for k in range(min(fewer, more) + 1)) / 2 ** (fewer + more)
    assert replace(found, adjusted=None).p_value == pytest.approx(min(1, mcnemar))
    assert page.recognised("as they are", target) == outcomes(target, "clean", poses=False).sum()


def test_both_forms_of_images_as_they_are_agree(page: ModuleType) -> None:
    """Behind a defence, where they were evaluated alone and among the poses."""
    from judge import unpacked

    data = json.loads(DATA.read_text(encoding="utf-8"))
    compared = 0
    for target in data["recognised_as_they_are"]:
        for cell, kept in (data["recognised"].get(target) or {}).items():
            row = data["poses"].index({"angle": 0, "scale": 1, "shift": [0, 0]})
            among = unpacked(kept, len(data["poses"]))[row]
            assert np.array_equal(among, outcomes(target, cell, poses=False)[0, : kept["n"]])
            compared += kept["n"]
    assert compared


def test_what_lacks_photographs_is_on_no_table(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = {"n": 8, "bits": "AAAAAAAAAAAAAAAA"}
    data = {
        "poses": [{"angle": 30, "scale": 1, "shift": [0, 0]}] * 12,
        "ids": [*"abcdefgh"],
        "recognised": {BARE: {"clean": bits}, f"{BARE}+jpeg": {"clean": {**bits, "n": 7}}, f"{BARE}+bitdepth": {}},
        "recognised_as_they_are": {f"{BARE}+randmix": {"clean": bits}},
    }
    monkeypatch.setattr(page, "read", lambda name: data)
    assert page.targets("poses") == (BARE,)
    assert page.targets("as they are") == (BARE, f"{BARE}+randmix")


def test_verdicts_count_both_sides(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from whorl.evaluation import Comparison

    ahead, behind = Comparison(n=9, b=9, c=0, difference=0.3), Comparison(n=9, b=0, c=9, difference=-0.3)
    level = Comparison(n=9, b=1, c=1, difference=0.0)
    found = {("x over y", "resnet18", "a+b"): ahead, ("x over y", "ensemble", "a+b"): behind}
    found |= {("x over y", "resnet18", "a.b"): level, ("y over z", "resnet18", "a"): ahead}
    monkeypatch.setitem(page.KINDS, "gains", lambda images: found)
    assert page.verdicts("gains", "poses") == [2, 4, 1]
    assert page.verdicts("gains", "poses", "x over y") == [1, 3, 1]
    assert page.verdicts("gains", "poses", "x over y", which="+") == [1, 2, 1]
    assert page.verdicts("gains", "poses", second="ensemble") == [0, 1, 1]
