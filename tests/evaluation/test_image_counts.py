"""Counts image by image: what fits together, and how they are resampled, joined and cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whorl import WhorlError
from whorl.evaluation import ImageCounts, rate
from whorl.evaluation.image_counts import percentile_interval, resampled, weighted_rates


def made_up(poses: int = 5, images: int = 60) -> ImageCounts:
    generator = np.random.default_rng(0)
    eligible = generator.random((poses, images)) < 0.7
    return ImageCounts(eligible, eligible & (generator.random((poses, images)) < 0.6))


def test_more_resamples_than_fit_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = made_up()
    whole = rate(counts).interval
    monkeypatch.setattr("whorl.evaluation.image_counts._KEPT", 60 * 150)
    assert len(counts.drawn("pooled", 1000)) == 1000
    assert rate(counts).interval == pytest.approx(whole, abs=0.01)


def test_counts_must_fit() -> None:
    with pytest.raises(WhorlError, match=r"twice the same; got \(1, 2\) and \(2, 2\)"):
        ImageCounts(np.ones((1, 2)), np.ones((2, 2)))
    with pytest.raises(WhorlError, match="more often than it counts"):
        ImageCounts(np.zeros((1, 2)), np.ones((1, 2)))


def test_joined_poses_are_those_of_the_parts() -> None:
    first, second = made_up(3), made_up(2)
    whole = ImageCounts.joined([first, second])
    assert np.array_equal(whole.eligible, np.concatenate((first.eligible, second.eligible)))
    assert whole.at(np.array([True] * 3 + [False] * 2)) == first
    with pytest.raises(WhorlError, match="counts of the same images"):
        ImageCounts.joined([first, made_up(3, 59)])


def test_some_pose_fools_whom_any_pose_fools() -> None:
    clean = torch.tensor([[True, True, False], [True, False, False]])
    still = torch.tensor([[True, False, True], [False, True, True]])
    some = ImageCounts.of(clean, still).any_pose()
    assert (some.eligible.tolist(), some.success.tolist()) == ([[1, 1, 0]], [[1, 1, 0]])


def test_a_resample_has_as_many_images_and_weighs_them() -> None:
    counts = np.concatenate(list(resampled(12, 50, seed=0)))
    assert counts.shape == (50, 12)
    assert (counts.sum(1) == 12).all()
    own = made_up(2, 12)
    found = weighted_rates(own.eligible, own.success, counts.astype(np.float64))
    expected = ((counts @ own.success.T) / (counts @ own.eligible.T)).mean(1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_interval_of_draws_leaves_out_what_is_undefined() -> None:
    draws = torch.tensor([*range(101), *[torch.nan] * 7], dtype=torch.float64)
    assert percentile_interval(draws) == pytest.approx((2.5, 97.5))
