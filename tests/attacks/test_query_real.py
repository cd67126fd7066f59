"""Black-box attacks on real weights: each beats noise of full strength at equal queries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attacks.blackbox.score.noise import NoiseSearch
from whorl.attacks.objectives import margin

# Of a network that works at 96 pixels a query is five times cheaper. There noise is strong: at 16/255 it alone fools
# most of these images, and an attack whose steps are eps/10 has not even reached the ball's surface after 1,000
# queries. At 4/255 noise is as weak as it is at 16/255 on networks that stand up to it.
SIDE, EPS, BUDGET, COUNT = 96, 4 / 255, 1500, 4


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    loaded = whorl.load_model("mobilenet_v2")
    return whorl.Classifier.from_module(loaded.net, size=SIDE, mean=loaded.mean, std=loaded.std, num_classes=1000)


@pytest.fixture(scope="module")
def photographs(clf: whorl.Classifier) -> tuple[Tensor, Tensor, list[str]]:
    """Four photographs that the network gets right."""
    x, y, ids = whorl.load_samples(size=SIDE)
    right = (clf(x).argmax(1) == y).nonzero()[:COUNT, 0].tolist()
    return x[right], y[right], [ids[i] for i in right]


@pytest.fixture(scope="module")
def noise(clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]) -> tuple[int, float]:
    """How many images noise fools, and the mean margin of its best draws."""
    x, y, ids = photographs
    adv, info = NoiseSearch(eps=EPS, budget=BUDGET)(clf, x, y, ids=ids, return_info=True)
    return int(info.success.sum()), float(margin(clf(adv), y).mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", whorl.attack_names(kind="score"))
def test_a_score_based_attack_beats_noise(
    name: str, clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]], noise: tuple[int, float]
) -> None:
    x, y, ids = photographs
    guide: dict[str, Any] = {"surrogate": whorl.load_model("resnet18")} if name == "prgf" else {}
    adv, info = whorl.attack(name, eps=EPS, budget=BUDGET, **guide)(clf, x, y, ids=ids, return_info=True)
    assert info.queries is not None
    assert int(info.queries.max()) <= BUDGET
    fooled, best = noise
    assert int(info.success.sum()) > fooled
    assert float(margin(clf(adv), y).mean()) > best


@pytest.mark.slow
@pytest.mark.parametrize("name", whorl.attack_names(kind="decision"))
def test_a_decision_based_attack_beats_noise(
    name: str, clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, ids = photographs[0][:2], photographs[1][:2], photographs[2][:2]
    # Noise alone: the nearest of as many bisected images of noise as the budget pays for, thirteen queries each.
    starts = [whorl.attack("evolutionary", budget=13)(clf, x, y, ids=ids, seed=seed) for seed in range(46)]
    blended = torch.stack([(start - x).flatten(1).norm(dim=1) for start in starts]).amin(0)
    adv, info = whorl.attack(name, budget=46 * 13)(clf, x, y, ids=ids, return_info=True)
    assert bool(info.success.all())
    assert bool((clf(adv).argmax(1) != y).all())
    assert bool(((adv - x).flatten(1).norm(dim=1) < blended).all())
