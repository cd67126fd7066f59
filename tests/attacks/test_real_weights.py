"""Every preset on a real network and real photographs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attacks.objectives import margin
from whorl.evaluation.attacked_images import to_8_bits

SHORT: dict[str, dict[str, int]] = {
    "eot": {"steps": 4, "samples": 2},
    "deepfool": {"steps": 5, "candidates": 2},
    "cw": {"steps": 10, "search_steps": 3},
}


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    return whorl.load_model("mobilenet_v2")


@pytest.fixture(scope="module")
def photographs(clf: whorl.Classifier) -> tuple[Tensor, Tensor, list[str]]:
    """Three photographs that the network gets right."""
    x, y, ids = whorl.load_samples(8)
    right = (clf(x).argmax(1) == y).nonzero()[:3, 0].tolist()
    return x[right], y[right], [ids[i] for i in right]


@pytest.mark.parametrize("name", [*whorl.attack_names(kind="gradient"), *whorl.attack_names(kind="minimal")])
def test_every_white_box_attack_fools_a_real_network(
    name: str, clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, ids = photographs
    short = {} if "fgsm" in name else SHORT.get(name, {"steps": 4})
    if name == "cw":
        short = {**short, "initial_c": 1}
    adv = whorl.attack(name, **short)(clf, x, y, ids=ids)
    if name in whorl.attack_names(kind="gradient"):
        # eps is a whole number of 8-bit steps, so the bound survives the rounding exactly; the smallest
        # perturbations that the other attacks find would not survive it at all
        adv = to_8_bits(adv)
        assert float((adv - x).abs().max()) <= 16 / 255 + 1e-6
    assert int((clf(adv).argmax(1) != y).sum()) >= 2


@pytest.mark.parametrize("name", [*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision")])
def test_every_black_box_attack_goes_on_from_a_transfer_attack(
    name: str, clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, ids = photographs[0][:1], photographs[1][:1], photographs[2][:1]
    start = whorl.attack("fgsm")
    score = name in whorl.attack_names(kind="score")
    short = {"samples": 4} if score else {"bisections": 4}
    atk = whorl.attack(name, init=start, surrogate=clf, budget=20, **short)
    adv, info = atk(clf, x, y, ids=ids, return_info=True)
    assert info.queries is not None
    assert bool(info.success.all())
    assert torch.equal(clf(adv).argmax(1) != y, info.success)
    # The start is fooling already: one query says so, and labels alone bring it nearer.
    if score:
        assert info.queries.tolist() == [1]
    else:
        assert float((adv - x).norm()) < float((start(clf, x, y, ids=ids) - x).norm())


def test_nes_beats_noise_on_a_real_network(
    clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, ids = photographs[0][:2], photographs[1][:2], photographs[2][:2]
    eps, budget = 4 / 255, 295
    nes = whorl.attack("nes", eps=eps, samples=20, budget=budget, learning_rate=eps / 4, chunk=16)
    adv, info = nes(clf, x, y, ids=ids, return_info=True)
    assert info.queries is not None
    assert int(info.queries.max()) <= budget
    generator = torch.Generator().manual_seed(0)
    noise = torch.full(y.shape, -torch.inf)
    with torch.no_grad():
        for _ in range(budget):
            # At the corners of the ball, where noise is strongest.
            corner = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
            noise = torch.maximum(noise, margin(clf((x + eps * corner).clamp(0, 1)), y))
        reached = margin(clf(adv), y)
    assert bool((reached > noise).all())


def test_batches_of_one_and_three_agree(clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]) -> None:
    x, y, ids = photographs
    attack = whorl.attack("ai-dim", steps=3)
    whole = attack(clf, x, y, ids=ids)
    alone = torch.cat([attack(clf, x[i : i + 1], y[i : i + 1], ids=ids[i : i + 1]) for i in range(3)])
    # float32 sums in another order turn the sign of gradients near zero, and of those alone
    assert float(((whole - alone).abs() > 1e-6).float().mean()) < 0.02


def test_a_wrapped_real_network_under_plain_pgd_is_ai_pgd(
    clf: whorl.Classifier, photographs: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, _ = photographs
    wrapped = whorl.attack("pgd", steps=3)(whorl.AffineInvariant().wrap(clf), x, y, seed=1)
    assert torch.equal(wrapped, whorl.attack("ai-pgd", steps=3, fast=False)(clf, x, y, seed=1))
