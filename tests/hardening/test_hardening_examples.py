"""Examples made within a training step, against the attacks of the same name and the definition of the objectives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import whorl
from hardening_cases import CLASSES, SIZE, toy
from whorl.hardening import Examples, Recipe, recipe, recipe_names
from whorl.hardening.examples import STUDENT, assign, make, perturb
from whorl.hardening.recipes import DIVERSE, objective, soft_targets

CPU = torch.device("cpu")
KINDS = {
    f"{name} {number}": kind
    for name in recipe_names()
    for number, kind in enumerate(recipe(name).examples)
    if isinstance(kind, Examples)
} | {"wide": Examples(eps=(0.0, 0.5), steps=4, reach=9.0, random_start=True)}


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def y() -> Tensor:
    return torch.arange(6) % CLASSES


def answers(x: Tensor) -> Tensor:
    return torch.log_softmax(toy()(x), dim=1).detach()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_examples_stay_in_the_ball_and_do_not_depend_on_the_batch(kind: Examples, x: Tensor, y: Tensor) -> None:
    keys = torch.arange(6)
    adv = perturb(kind, toy(), x, y, keys, like=answers(x))
    low, high = kind.eps
    distance = (adv - x).abs().flatten(1).amax(1)
    assert bool((distance <= high + 1e-6).all())
    assert 0 <= adv.min() <= adv.max() <= 1
    assert bool((distance > 0).all())
    if low < high:
        assert len(set(distance.tolist())) == 6  # each image has a radius of its own
    alone = perturb(kind, toy(), x[4:5], y[4:5], keys[4:5], like=answers(x[4:5]))
    torch.testing.assert_close(alone, adv[4:5], rtol=0, atol=2 * high if low < high else 1e-6)
    assert ((alone - adv[4:5]).abs() > 1e-5).float().mean() < 0.01  # signs of a gradient near zero may turn
    none = perturb(kind, toy(), x, y, keys, growth=0.0, like=answers(x))
    assert torch.equal(none, x)


def test_one_step_is_fgsm_and_momentum_is_mim(x: Tensor, y: Tensor) -> None:
    eps, keys = 0.05, torch.arange(6)
    fgsm = perturb(Examples(eps=(eps, eps)), toy(), x, y, keys)
    torch.testing.assert_close(fgsm, whorl.attack("fgsm", eps=eps)(toy(), x, y))
    kind = Examples(eps=(eps, eps), steps=4, reach=2.0, momentum=1.0, estimator=whorl.AffineInvariant())
    expected = whorl.attack("ai-mim", eps=eps, steps=4, alpha=eps / 2)(toy(), x, y)
    torch.testing.assert_close(perturb(kind, toy(), x, y, keys), expected)


def test_kl_leaves_the_students_own_answer(x: Tensor) -> None:
    like = answers(x)
    kind = Examples(eps=(0.05, 0.05), steps=3, reach=2.0, random_start=True, loss="kl")
    adv = perturb(kind, toy(), x, torch.zeros(6, dtype=torch.int64), torch.arange(6), like=like)
    other = perturb(kind, toy(), x, torch.ones(6, dtype=torch.int64), torch.arange(6), like=like)
    assert torch.equal(adv, other)  # labels play no part
    noise = perturb(kind.with_(reach=1e-9), toy(), x, torch.zeros(6, dtype=torch.int64), torch.arange(6), like=like)

    def apart(z: Tensor) -> float:
        return float(torch.nn.functional.kl_div(answers(z), like, log_target=True, reduction="batchmean"))

    assert apart(adv) > 2 * apart(noise) > 0


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("pool", [["a"], ["a", "b", "c"]])
def test_every_place_gets_one_kind_whoever_computes_it(name: str, pool: list[str]) -> None:
    whole = assign(recipe(name), pool, first=0, count=24, device=CPU)
    assert sorted(i for group in whole for i in group.places.tolist()) == list(range(24))
    halves = [assign(recipe(name), pool, first=first, count=12, device=CPU) for first in (0, 12)]
    dealt = {
        (first + i): (group.maker, group.kind)
        for first, half in zip((0, 12), halves, strict=True)
        for group in half
        for i in group.places.tolist()
    }
    assert dealt == {i: (group.maker, group.kind) for group in whole for i in group.places.tolist()}


def test_shares_follow_the_weights() -> None:
    first, second, *_ = recipe("alp").examples
    chosen = recipe("alp", examples=(first.with_(weight=3), second))
    groups = assign(chosen, ["a", "b"], first=0, count=80, device=CPU)
    assert {group.maker: len(group.places) for group in groups} == {STUDENT: 60, "a": 10, "b": 10}


def test_a_batch_is_made_group_by_group(x: Tensor, y: Tensor) -> None:
    makers = {"a": toy(1), STUDENT: toy()}
    chosen = recipe("ens-at", examples=(*recipe("ens-at").examples, DIVERSE))
    single, few = chosen.examples
    groups = assign(chosen, ["a"], first=0, count=6, device=CPU)
    adv = make(groups, makers, x, y, torch.arange(6))
    for kind, maker, places in ((single, "a", [0, 4]), (single, STUDENT, [2]), (few, "a", [1, 3, 5])):
        assert isinstance(kind, Examples)
        expected = perturb(kind, makers[maker], x[places], y[places], torch.tensor(places))
        assert torch.equal(adv[places], expected)


def literal_objective(chosen: Recipe, clean: Tensor, adversarial: Tensor, targets: Tensor) -> Tensor:
    """Kannan et al. (2018) and Zhang et al. (2019), image by image."""
    total = torch.zeros((), dtype=torch.float64)
    for c, a, t in zip(clean, adversarial, targets, strict=True):
        p, q = c.exp() / c.exp().sum(), a.exp() / a.exp().sum()
        on_clean, on_adversarial = -(t * p.log()).sum(), -(t * q.log()).sum()
        if chosen.objective == "trades":
            total += on_clean + chosen.strength * (p * (p / q).log()).sum()
            continue
        total += chosen.clean * on_clean + (1 - chosen.clean) * on_adversarial
        if chosen.objective == "pairing":
            total += chosen.strength * ((c - a) ** 2).mean()
    return total / len(clean)


@pytest.mark.parametrize("name", recipe_names())
def test_objectives_are_what_the_papers_write(name: str) -> None:
    clean, adversarial = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    targets = torch.softmax(clean.flip(0), dim=1)
    given = objective(recipe(name), clean, adversarial, targets)
    torch.testing.assert_close(given, literal_objective(recipe(name), clean, adversarial, targets))


def test_targets_without_a_teacher_are_the_labels() -> None:
    labels = torch.eye(3)[torch.tensor([2, 0])]
    assert torch.equal(soft_targets(None, labels, trust=0.8), labels)
