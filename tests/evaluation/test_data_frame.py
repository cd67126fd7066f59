"""Outcomes as data frames, by cell and by image."""

from __future__ import annotations

import sys
from typing import Literal

import pytest
import torch

from whorl import WhorlError
from whorl.evaluation import Outcomes, Pose

pytest.importorskip("pandas", reason="pandas is not installed; it is part of torchwhorl[pandas]")


def some(*, reached: bool = False) -> Outcomes:
    draw = torch.Generator().manual_seed(3)
    shape = (2, 3, 2, 5)  # attacks, targets, poses, images
    clean = torch.rand(shape[1:], generator=draw) < 0.7
    clean[2, 1] = False  # nothing to judge there
    return Outcomes(
        ids=tuple("abcde"),
        attacks=("weak", "strong"),
        targets=("net", "net+jpeg", "other"),
        poses=(Pose(), Pose(angle=30, blur=2)),
        clean=clean,
        adversarial=torch.rand(shape, generator=draw) < 0.4,
        reached=torch.rand(shape, generator=draw) < 0.3 if reached else None,
    )


def test_a_row_for_each_attack_target_and_pose() -> None:
    done = some()
    frame = done.to_pandas()
    assert list(frame.columns) == [
        *("attack", "target", "angle", "scale", "shift_x", "shift_y", "blur"),
        *("n", "n_clean_correct", "n_success", "asr", "accuracy"),
    ]
    assert len(frame) == 2 * 3 * 2
    [row] = frame.query("attack == 'strong' and target == 'net+jpeg' and angle == 30").to_dict("records")
    counts = done.counts["strong", "net+jpeg", Pose(angle=30, blur=2)]
    assert (row["blur"], row["n_success"], row["asr"]) == (2, counts.n_success, counts.rate)
    assert frame.query("target == 'other' and angle == 30").asr.isna().all()


@pytest.mark.parametrize("reached", [False, True])
def test_a_row_for_each_image(reached: bool) -> None:
    done = some(reached=reached)
    frame = done.to_pandas(by="image")
    assert len(frame) == 2 * 3 * 2 * 5
    assert ("reached" in frame) == reached
    for row in frame.sample(20, random_state=0).to_dict("records"):
        pose = Pose(angle=row["angle"], blur=row["blur"])
        t, p, i = done.targets.index(row["target"]), done.poses.index(pose), done.ids.index(row["id"])
        a = done.attacks.index(row["attack"])
        assert row["clean_correct"] == bool(done.clean[t, p, i])
        assert row["adversarial_correct"] == bool(done.adversarial[a, t, p, i])
        if done.reached is not None:
            assert row["reached"] == bool(done.reached[a, t, p, i])
    summed = frame.groupby(["attack", "target", "angle"], sort=False).success.sum()
    assert summed.tolist() == done.to_pandas().n_success.tolist()


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    modes: tuple[Literal["cell", "image"], ...] = ("cell", "image")
    for by in modes:
        with pytest.raises(WhorlError, match=r"DataFrame needs the package pandas.*pip install 'torchwhorl\[pandas\]'"):
            some().to_pandas(by)
