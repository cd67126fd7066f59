"""Tables of the rivals' pages are what the definitions say, on made-up outcomes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NETWORKS = ("one", "two", "one.hardened")
N, POSES = 40, ({"angle": 0.0, "scale": 1.0, "shift": [0, 0]}, {"angle": 30.0, "scale": 1.0, "shift": [0, 0]})
# How likely an attack's image is still recognised, or a class reached.
LEFT = {"bsr/10": 0.7, "ops/10": 0.4, "ops/published": 0.45, "eot/2500": 0.5, "ai-best/10": 0.1, "ai-max/200": 0.02}
REACHED = {"logit/published": 0.6, "cfm/published": 0.3, "ai-best/300": 0.9, "ai-max/200": 0.1}


def made_up(chances: dict[str, float], *, targeted: bool) -> dict[str, Any]:
    from judge import packed

    generator = np.random.default_rng(0)

    def stored(chance: float) -> dict[str, Any]:
        return {"n": N, "bits": packed(generator.random((len(POSES), N)) < chance)}

    labels = {f"{name}-16": chance for name, chance in chances.items()}
    cells = {name: {"clean": stored(0.8), **{k: stored(c) for k, c in labels.items()}} for name in NETWORKS}
    cost = {label: {"gradients": [3, 5] * (N // 2), "seconds": [1.0, 3.0], "batch": N // 2} for label in labels}
    about = {"poses": list(POSES), "ids": [str(i) for i in range(N)], "recognised": cells, "cost": cost}
    return {**about, **({"classes": [0] * N} if targeted else {})}


@pytest.fixture
def doc_rivals(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import doc_rivals

    files = {
        doc_rivals.UNTARGETED: made_up(LEFT, targeted=False),
        doc_rivals.TARGETED: made_up(REACHED, targeted=True),
    }
    monkeypatch.setattr(doc_rivals, "read", files.__getitem__)
    yield doc_rivals
    for name in [name for name in sys.modules if name.startswith("doc_") and name != "doc_pages"]:
        sys.modules.pop(name)


def literal(module: ModuleType, label: str, kind: str, poses: list[int]) -> float:
    """Of what a network recognises clean, the share that it no longer does; then the mean over networks."""
    found, rates = module._found(module.UNTARGETED), []
    for name in [one for one in NETWORKS if kind == "all" or ("." in one) == (kind == "hardened")]:
        clean, after = found.recognised(name, "clean"), found.recognised(name, label)
        cases = [(p, i) for p in poses for i in range(N) if clean[p][i]]
        rates.append(sum(not after[p][i] for p, i in cases) / len(cases))
    return 100 * sum(rates) / len(rates)


@pytest.mark.parametrize("kind", ["all", "plain", "hardened"])
@pytest.mark.parametrize(("images", "poses"), [("poses", [0, 1]), ("as it is", [0])])
def test_rates_and_leads_are_means_over_networks(
    doc_rivals: ModuleType, kind: str, images: str, poses: list[int]
) -> None:
    ours, theirs = (literal(doc_rivals, label, kind, poses) for label in ("ai-max/200-16", "ops/published-16"))
    assert doc_rivals.rated("ai-max/200-16", kind, images)[0] == pytest.approx(ours, abs=1e-4)
    found = doc_rivals.over_ops()[images, kind]
    assert 100 * found.difference == pytest.approx(ours - theirs, abs=1e-4)
    assert found.adjusted is not None
    assert doc_rivals.ops_goal_is_met(images, kind)


def test_tables_have_what_the_rows_name(doc_rivals: ModuleType) -> None:
    tables = sys.modules["doc_tables"].TABLES
    cell = tables["rivals"]("published")
    assert cell({"attack": "OPS"}, "gradients") == [4.0]
    shown = cell({"attack": "ai-best, ours"}, "poses, plain")
    assert shown[0] == pytest.approx(literal(doc_rivals, "ai-best/10-16", "plain", [0, 1]), abs=1e-4)
    assert shown[1] <= shown[0] <= shown[2]
    assert tables["rivals-leads"]("8", "ai-max/200", "published")({"over": "OPS"}, "poses, plain") == []  # not measured
    assert doc_rivals.rivals("10", "16") == ["bsr/10-16", "ops/10-16"]
    assert doc_rivals.rivals("published", "16") == ["ops/published-16", "eot/2500-16"]
    over = tables["rivals-leads"]("16", "ai-max/200", "published")({"over": "eot"}, "poses, hardened")
    assert over.marks == "✓"
    assert doc_rivals.ahead_and_behind("ai-best/10", "10", "16", "poses", "plain") == [2, 0]
    row = {"ours": "ai-best", "gradients": "10", "rivals": "about 10"}
    assert tables["rivals-tally"]()(row, "poses, plain ✓") == [2]
    met = tables["rivals-ops"]()({"images": "poses", "networks": "hardened"}, "met")
    assert (tuple(met), met.marks) == ((), "✓")


def test_where_ours_is_behind_is_said(doc_rivals: ModuleType) -> None:
    assert ("ops/published-16", "poses", "plain") in doc_rivals.behind("bsr/10", "published", "16")
    assert doc_rivals.behind("ai-max/200", "10", "16") == []


def test_targeted_attacks_are_held_against_the_best_rival(doc_rivals: ModuleType) -> None:
    assert {doc_rivals.best_rival(images, kind) for images, kind in doc_rivals.GOALS} == {"logit/published-16"}
    found = doc_rivals._found(doc_rivals.TARGETED)
    hits = 100 * np.mean([found.recognised(name, "ai-best/300-16") for name in NETWORKS[:2]])
    tables = sys.modules["doc_tables"].TABLES
    row = {"attack": "ai-best, ours", "gradients": "300"}
    assert tables["targeted"]()(row, "poses, plain")[0] == pytest.approx(hits, abs=1e-4)
    each = 100 * found.recognised("one", "ai-best/300-16")[0].mean()
    assert tables["targeted-networks"]("identity")(row, "one")[0] == pytest.approx(each, abs=1e-4)
    lead = tables["targeted-best"]()(row, "as it is, all")
    assert (lead.marks, len(lead)) == ("✓", 4)
    assert tables["targeted-best"]()({"attack": "ai-max", "gradients": "200"}, "poses, all").marks == "✗"
