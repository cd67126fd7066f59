"""The grid of poses, against asking one picture at a time."""

from __future__ import annotations

import pytest
import torch

from conftest import pictures, small_net
from whorl import WhorlError, affine
from whorl.evaluation import PAPER_POSES, Pose, success_rates
from whorl.evaluation.grid import to_8_bits


def test_the_twelve_poses_are_the_papers() -> None:
    listed = [(p.angle, p.scale, *p.shift) for p in PAPER_POSES]
    assert listed == [
        (-30, 1, 0, 0),
        (-15, 1, 0, 0),
        (0, 1, 0, 0),
        (15, 1, 0, 0),
        (30, 1, 0, 0),
        (30, 0.5, 20, 20),
        (30, 0.7, 20, 20),
        (30, 1.0, 20, 20),
        (30, 1.3, 20, 20),
        (30, 1.5, 20, 20),
        (25, 0.7, 5, 5),
        (25, 0.7, 20, 20),
    ]


def test_shifts_scale_with_the_picture() -> None:
    x = pictures(1, 3, 30, 60)
    expected = affine(x, shift=(20 * 60 / 299, 20 * 30 / 299))
    torch.testing.assert_close(Pose(shift=(20, 20)).apply(x), expected)


def test_rates_are_what_asking_one_by_one_gives() -> None:
    x, targets = pictures(10), {"a": small_net(seed=0), "b": small_net(seed=1)}
    y = targets["a"](x).argmax(1)
    adversarial = {"noise": (x + 0.1 * torch.randn_like(x)).clamp(0, 1), "none": x}
    poses = PAPER_POSES[:4]
    counts = success_rates(targets, x, adversarial, y, poses=poses, batch_size=3)
    assert set(counts) == {(a, t, p) for a in adversarial for t in targets for p in poses}
    for (attack, target, pose), count in counts.items():
        right = wrong = 0
        for i in range(10):
            clean = targets[target](pose.apply(x[i : i + 1])).argmax()
            stored = (adversarial[attack][i : i + 1] * 255).round() / 255
            answer = targets[target](pose.apply(stored)).argmax()
            right += int(clean == y[i])
            wrong += int(clean == y[i] and answer != y[i])
        assert (count.n, count.n_clean_correct, count.n_success) == (10, right, wrong)
    assert all(counts["none", t, p].n_success == 0 for t in targets for p in poses)
    assert any(counts["noise", t, p].n_success > 0 for t in targets for p in poses)


def test_rounds_and_does_not_truncate() -> None:
    assert (to_8_bits(torch.tensor([0.999, 1.0, 254.6 / 255])) * 255).tolist() == [255.0, 255.0, 255.0]


def test_shapes_must_agree() -> None:
    x = pictures(2)
    with pytest.raises(WhorlError, match="adversarial images of 'pgd' must match x"):
        success_rates({}, x, {"pgd": x[:1]}, torch.zeros(2))
