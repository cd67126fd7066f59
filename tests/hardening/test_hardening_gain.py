"""The gain of hardening, counted and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import whorl
from hardening_cases import CLASSES, SIZE, toy, toy_images
from whorl.errors import WhorlError
from whorl.evaluation import FEWEST, PAPER_POSES, Pose, SuccessRate, success_rates
from whorl.hardening.gain import draw, measure_gain


def test_the_comparison_counts_as_the_evaluation_does() -> None:
    images = toy_images(28, seed=3)
    x = torch.nn.functional.interpolate(images.pixels / 255, (SIZE, SIZE), mode="bilinear")
    y, ids = images.labels, list(images.ids)
    batches = [(x[i : i + 14], y[i : i + 14], ids[i : i + 14]) for i in (0, 14)]
    seen: list[int] = []
    gain = measure_gain(
        (toy(0), toy(2)),
        toy(1),
        batches,
        attacks=("fgsm", "ai-mim"),
        eps=0.1,
        progress=lambda stage, done, total: seen.append(done),
    )
    adv = {name: whorl.attack(name, eps=0.1)(toy(1), x, y, ids=ids) for name in ("fgsm", "ai-mim")}
    counts = success_rates({"a": toy(0), "b": toy(2)}, x, adv, y, poses=PAPER_POSES)
    assert seen == [14, 28]
    assert (gain.n, gain.poses) == (28, 12)
    for row in gain.rows:
        for place, target in enumerate("ab"):
            assert row.identity[place].value == counts[row.attack, target, Pose()].rate
            rates = [counts[row.attack, target, pose] for pose in PAPER_POSES]
            defined = [count.rate for count in rates if count.n_clean_correct]
            assert row.means[place].value == pytest.approx(sum(defined) / len(defined))
            # On both networks ten images must be recognised in a pose for it to count.
            known = [[counts[row.attack, one, pose] for pose in PAPER_POSES] for one in "ab"]
            kept = [own for own in zip(*known, strict=True) if all(one.n_clean_correct >= FEWEST for one in own)]
            pooled = sum((own[place] for own in kept), SuccessRate())
            assert kept
            assert (row.pooled[place].n, row.pooled[place].successes) == (pooled.n_clean_correct, pooled.n_success)
            assert gain.clean[place] == counts[row.attack, target, Pose()].clean_accuracy
    record = json.loads(json.dumps(gain.record(), allow_nan=False))
    assert record["attacks"]["fgsm"]["identity"]["hardened"] == gain.rows[0].identity[1].value
    changes = [row.pooled[1].value - row.pooled[0].value for row in gain.rows]
    assert [row.change.difference for row in gain.rows] == pytest.approx(changes)
    assert all(row.change.adjusted is not None for row in gain.rows)
    with pytest.raises(WhorlError, match="at least one attack"):
        measure_gain((toy(0), toy(2)), toy(1), batches, attacks=())


def test_the_comparison_can_be_drawn(tmp_path: Path) -> None:
    images = toy_images(CLASSES)
    x = torch.nn.functional.interpolate(images.pixels / 255, (SIZE, SIZE), mode="bilinear")
    gain = measure_gain(
        (toy(0), toy(2)), toy(1), [(x, images.labels, images.ids)], attacks=("fgsm",), poses=[Pose(angle=20)]
    )
    draw(gain, tmp_path / "comparison.html")
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert f"The gain of hardening: {gain.hardened}" in page
    assert "fooled, pooled over 1 poses" in page
    with pytest.raises(WhorlError, match="cannot write"):
        draw(gain, tmp_path / "comparison.html" / "below" / "a.html")
