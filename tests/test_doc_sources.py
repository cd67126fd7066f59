"""Goals on the page of other sources: the mean over networks by its definition, and what is met and missed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from whorl.evaluation import Comparison

ROOT = Path(__file__).parents[1]


@pytest.fixture
def doc_sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import doc_sources

    yield doc_sources
    for name in [name for name in sys.modules if name.startswith("doc_") and name != "doc_pages"]:
        sys.modules.pop(name)


def test_networks_are_of_another_family_or_hardened(doc_sources: ModuleType) -> None:
    assert doc_sources.networks("efficientnet_lite0", "plain") == ("resnet18", "mobilenet_v2", "inception_v3")
    assert len(doc_sources.networks("resnet18", "plain")) == len(doc_sources.networks("inception_v3", "plain")) == 5
    assert doc_sources.networks("resnet18", "all")[5:] == doc_sources.networks("resnet18", "hardened")


def test_a_mean_is_over_networks_of_pooled_rates(doc_sources: ModuleType) -> None:
    from judge import unpacked

    data = json.loads((ROOT / "benchmarks/results/held-out-efficientnet_lite0-cuda.json").read_text())
    n, leads, alike = doc_sources.photographs(8, "efficientnet_lite0"), [], []
    for name in doc_sources.networks("efficientnet_lite0", "plain"):
        cells = data["recognised"][name]
        clean, ours, eot = (unpacked(cells[c], len(data["poses"]))[:, :n] for c in ("clean", "ai-best-8", "eot-8"))
        leads.append(((clean & ~ours).sum() - (clean & ~eot).sum()) / clean.sum())
        by_pose = ((clean & ~ours).sum(1) - (clean & ~eot).sum(1)) / clean.sum(1)
        alike.append(by_pose.mean())
    for images, expected in (("poses", leads), (doc_sources.ALIKE, alike)):
        found = doc_sources.mean_less_eot("efficientnet_lite0", "8", "10", images, "plain")
        assert found.difference == pytest.approx(np.mean(expected), abs=1e-6)
        assert found.interval[0] <= found.difference <= found.interval[1]


def test_differences_from_eot_agree_with_plain_numpy(doc_sources: ModuleType) -> None:
    import recompute_held_out as plain

    data = json.loads((ROOT / "benchmarks/results/held-out-inception_v3-cuda.json").read_text())
    ours = sys.modules["doc_outcomes"].gain("efficientnet_lite1", "ai-best", "eot", 8, source="inception_v3")
    n = doc_sources.photographs(8, "inception_v3")
    expected = plain.compared(data, "efficientnet_lite1", "ai-best-8", "eot-8", n)
    assert (ours.difference, *ours.interval) == pytest.approx(expected[:3], abs=1e-5)
    assert ours.p_value == pytest.approx(expected[3], rel=1e-6)


@pytest.mark.parametrize(
    ("difference", "low", "goal", "holds"),
    [
        (0.002, -0.009, "interval above -1", True),
        (0.002, -0.011, "interval above -1", False),
        (-0.0299, -0.05, "difference from -3", True),
        (-0.031, -0.05, "difference from -3", False),
        (0.0, -0.01, "difference from 0", True),
        (-0.0001, -0.01, "difference from 0", False),
    ],
)
def test_a_goal_is_met_or_missed(
    doc_sources: ModuleType, monkeypatch: pytest.MonkeyPatch, difference: float, low: float, goal: str, holds: bool
) -> None:
    found = Comparison(n=100, b=1, c=1, difference=difference, interval=(low, 0.01))
    monkeypatch.setattr(doc_sources, "mean_less_eot", lambda *_: found)
    figures, met = doc_sources.met("resnet18", "10", "poses", "16", "all", goal)
    assert (figures, met) == ([100 * difference, 100 * low, 1.0], holds)
    cell = sys.modules["doc_tables"].TABLES["sources-goals"]()
    row = {"gradients": "10", "images": "poses", "ε": "16", "networks": "all", "must hold": goal}
    assert cell(row, "resnet18").marks == ("✓" if holds else "✗")
    assert cell(row, "must hold") is None


def test_no_network_may_be_behind(doc_sources: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    behind, level = Comparison(n=9, b=0, c=9, difference=-0.1), Comparison(n=9, b=1, c=1, difference=0.0)
    networks = doc_sources.networks("resnet18", "all")
    found = {(name, eps, "poses"): level for name in networks for eps in ("16", "8")}
    monkeypatch.setattr(doc_sources, "less_eot", lambda *_: {**found, (networks[0], "8", "poses"): behind})
    goal = "behind EOT on none"
    assert doc_sources.met("resnet18", "10", "poses", "16 and 8", "all", goal) == ([1, 20], False)
    assert doc_sources.met("resnet18", "10", "poses", "16", "all", goal) == ([0, 10], True)
    assert doc_sources.behind_eot("resnet18", "10", "poses") == [networks[0]]


def test_an_attack_that_was_not_measured_takes_no_photographs_away(doc_sources: ModuleType) -> None:
    from doc_data import HeldOut

    data = {"poses": [], "settings": {"a-16": {}, "b-16": {}}, "recognised": {}}
    data["recognised"] = {t: {"clean": {"n": 9}, "a-16": {"n": n}, "a-8": {"n": 2}} for t, n in (("x", 7), ("y", 5))}
    assert HeldOut(data).n(16, ("x", "y")) == 5
