"""What a notebook shows of a run, an evaluation and a single attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.test_rate_table import EVIL, cells, made
from whorl.evaluation import Distance, Pose, SuccessRate, rate
from whorl.runs.scores import Evaluated, Summary
from whorl.runs.single_attack import AttackResult


def attacked(**facts: Any) -> AttackResult:
    known: dict[str, Any] = {
        "attack": "dim",
        "source": "net",
        "folder": Path("runs/a"),
        "ids": ["a", "b", "c"],
        "kept": 0,
        "left_out": [],
        "counts": {},
        "reached": None,
        "grad_evals": 30,
        "seconds": 1.0,
        "queries": {},
        "success": {},
        "discarded_queries": 0,
        "trace": None,
    }
    return AttackResult(**known | facts)


def test_an_evaluation_shows_its_summaries() -> None:
    found = made(attack=EVIL)
    counts = found.counted(EVIL, "net")
    summary = Summary(
        attack=EVIL,
        target="net+jpeg",
        rate=rate(counts),
        mean=rate(counts, "mean"),
        worst_case=found.worst_case(EVIL, "net"),
        lowest=None,
        highest=None,
        pooled=SuccessRate(),
        distance=Distance(),
        versus_first=None,
    )
    done = Evaluated(ids=list(found.ids), poses=(Pose(),), cells=(), summaries=(summary,), comparisons={}, left_out=[])
    [row] = cells(done._repr_html_())
    assert row[:4] == [EVIL, "net+jpeg", "22 in 2 poses", f"{10 / 22:.1%}"]
    assert "<script" not in done._repr_html_()


def test_a_gradient_attack_shows_each_network() -> None:
    shown = attacked(counts={"net": SuccessRate(3, 2, 1, 2), "blind": SuccessRate(3, 0, 0, 0)})._repr_html_()
    assert cells(shown) == [["net", "2", "1", "50.0%"], ["blind", "0", "0", "–"]]
    assert "dim on net: 3 images" in shown


def test_a_black_box_attack_shows_its_queries() -> None:
    done = attacked(queries={"a": 1000, "b": 2000, "c": 3003}, success={"a": True, "b": True, "c": False}, source=EVIL)
    assert cells(done._repr_html_()) == [[EVIL, "3", "2", "2,001"]]
    assert "<script" not in done._repr_html_()
