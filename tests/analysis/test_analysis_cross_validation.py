"""Choosing without fooling oneself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from whorl import WhorlError
from whorl.analysis.cross_validation import Answers, best, choose, family
from whorl.evaluation import weighted_rates

TARGETS = ("mobilenet_v2", "resnet18", "resnet50")
NAMES = ("plain", "a", "b")


def made_up(chances: list[list[float]], *, images: int = 400, poses: int = 2, seed: int = 0) -> Answers:
    """Each attack succeeds on each target with a given chance; nine of ten clean images are recognised."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.tensor(chances)
    clean = torch.rand(len(TARGETS), poses, images, generator=generator) < 0.9
    fooled = torch.rand(len(chances), len(TARGETS), poses, images, generator=generator) < p[:, :, None, None]
    names = NAMES if len(chances) == len(NAMES) else ("plain", *(f"k{i}" for i in range(1, len(chances))))
    return Answers(
        names=names,
        eligible=(False, *(True,) * (len(chances) - 1)),
        targets=TARGETS,
        clean=clean,
        success=fooled & clean,
    )


def literal_rate(clean: Tensor, success: Tensor, weights: Tensor) -> float:
    """Of one target: for each pose successes over recognised, then the mean over poses that have a rate."""
    found: list[float] = []
    for right, hit in zip(clean.tolist(), success.tolist(), strict=True):
        below = sum(w for w, r in zip(weights.tolist(), right, strict=True) if r)
        above = sum(w for w, h in zip(weights.tolist(), hit, strict=True) if h)
        found += [above / below] if below else []
    return sum(found) / len(found)


def test_rates_are_means_over_poses() -> None:
    answers = made_up([[0.5, 0.4, 0.3], [0.6, 0.5, 0.4], [0.2, 0.2, 0.2]], images=12)
    answers.clean[0, 1] = False  # a pose in which nothing is recognised has no rate
    success = answers.success & answers.clean
    weights = torch.stack((torch.ones(12), torch.arange(12) % 3))
    found = weighted_rates(answers.clean.numpy(), success.numpy(), weights.numpy())
    assert found.shape == (2, 3, 3)
    for w in range(2):
        for c in range(3):
            for t in range(3):
                expected = literal_rate(answers.clean[t], success[c, t], weights[w])
                assert float(found[w, c, t]) == pytest.approx(expected, rel=1e-5)


def test_the_best_wins_and_is_told_apart() -> None:
    chosen = choose(made_up([[0.5, 0.5, 0.5], [0.8, 0.8, 0.8], [0.6, 0.6, 0.6]]))
    assert chosen.winner == "a"
    assert [one.name for one in chosen.ranking] == ["a", "b", "plain"]
    assert chosen.ranking[0].wins == 1.0
    assert not chosen.ranking[1].level
    assert abs(chosen.optimism) < 1
    for one in chosen.judged:
        gain, (low, high) = one.over["plain"]
        assert low < gain < high
        assert low > 20


def test_each_network_s_gain_over_a_baseline_has_an_interval() -> None:
    answers = made_up([[0.5, 0.5, 0.5], [0.8, 0.6, 0.5], [0.6, 0.6, 0.6]])
    by_name = {one.name: one for one in choose(answers).ranking}
    gains = by_name["a"].over["plain"]
    for t, (gain, (low, high)) in enumerate(gains):
        literal = [literal_rate(answers.clean[t], answers.success[c, t], torch.ones(400)) for c in (1, 0)]
        assert gain == pytest.approx(100 * (literal[0] - literal[1]), abs=1e-3)
        assert low < gain < high
        assert high - low < 15
    assert gains[0][1][0] > 20  # distinguished from none where the chances are 80 and 50%
    assert gains[2][1][0] < 0 < gains[2][1][1]  # and not where they are the same
    assert by_name["a"].least_over("plain") == min(gain for gain, _ in gains) == gains[2][0]
    assert by_name["plain"].least_over("plain") == 0


def test_a_network_that_recognises_nothing_has_no_gain() -> None:
    answers = made_up([[0.5] * 3, [0.8] * 3, [0.6] * 3])
    answers.clean[1] = False
    answers = replace(answers, success=answers.success & answers.clean)
    first = choose(answers).ranking[0]
    assert math.isnan(first.over["plain"][1][0])
    assert first.least_over("plain") > 20
    answers.clean[:] = False
    nothing = choose(replace(answers, success=answers.success & answers.clean)).ranking[0]
    assert math.isnan(nothing.least_over("plain"))


def test_the_judge_does_not_see_the_network_s_family() -> None:
    """a is the best on mobilenet alone, b on both resnets: each is judged where the other would have won."""
    chosen = choose(made_up([[0.5, 0.5, 0.5], [0.9, 0.3, 0.3], [0.4, 0.8, 0.8]]))
    by_target = {one.target: one for one in chosen.judged}
    assert by_target["mobilenet_v2"].chosen == ("b",)
    assert by_target["resnet18"].chosen == by_target["resnet50"].chosen == ("a",)
    assert by_target["mobilenet_v2"].over["plain"][0] < -5
    assert chosen.winner == "b"
    assert chosen.optimism > 20


def test_the_judge_does_not_see_the_image() -> None:
    """An attack that succeeds on one fold's images alone is never chosen for them."""
    answers = made_up([[0.0] * 3, [0.5] * 3, [0.0] * 3], images=40)
    generator = torch.Generator().manual_seed(0)
    fold = torch.randperm(40, generator=generator) % 4
    answers.success[2] = answers.clean & (fold == 0)  # all of fold 0, nothing else: 25% of the images
    [first, *_] = choose(answers, folds=4, seed=0).judged
    assert first.chosen == ("a",)
    assert best(answers, (fold == 0).float(), [0, 1]) == 2


def test_among_equals_the_best_looks_better_than_it_is() -> None:
    gains = []
    for seed in range(4):
        chosen = choose(made_up([[0.5] * 3] * 30, images=60, seed=seed), resamples=200)
        gains.append(chosen.optimism)
        assert sum(one.level for one in chosen.ranking) > 10
        assert chosen.ranking[0].wins < 0.9
    assert sum(gains) / len(gains) > 1


def test_baselines_are_never_chosen() -> None:
    chosen = choose(made_up([[0.9] * 3, [0.5] * 3, [0.4] * 3]))
    assert chosen.winner == "a"
    assert chosen.ranking[0].name == "plain"
    assert chosen.ranking[0].behind[0] < -30


def test_the_same_seed_gives_the_same() -> None:
    answers = made_up([[0.5] * 3, [0.55] * 3, [0.5] * 3])
    assert choose(answers, seed=1) == choose(answers, seed=1)


def test_kin() -> None:
    assert [family(name) for name in ("resnet18", "ResNet50+jpeg", "timm:resnet50.a1")] == ["resnet"] * 3


def test_one_family_cannot_judge_itself() -> None:
    answers = made_up([[0.5] * 3, [0.6] * 3])
    alone = Answers(**(vars(answers) | {"targets": ("resnet18", "resnet34", "resnet50")}))
    with pytest.raises(WhorlError, match="two families"):
        choose(alone)
    with pytest.raises(WhorlError, match="folds must lie between 2 and"):
        choose(answers, folds=1)


def test_shapes_must_fit() -> None:
    answers = made_up([[0.5] * 3, [0.6] * 3])
    with pytest.raises(WhorlError, match="expected successes of shape"):
        Answers(**(vars(answers) | {"success": answers.success[:, :2]}))
    with pytest.raises(WhorlError, match="to choose from"):
        Answers(**(vars(answers) | {"eligible": (False, False)}))
