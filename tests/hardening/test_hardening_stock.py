"""Examples that whole attacks craft ahead: what they are, when they are made, and that a stopped run has them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from hardening_cases import CLASSES, SIZE, TINY, same, toy, toy_images
from whorl.attacks.gradient import GradientAttack
from whorl.errors import WhorlError
from whorl.hardening import CraftedExamples, Examples, Recipe, Training, harden, recipe
from whorl.hardening.stock import Stock
from whorl.hardening.student import make_student
from whorl.hardening.trainer import Trainer
from whorl.progress import Tracker

MIM = CraftedExamples(attack=GradientAttack(momentum=1.0, steps=3), eps=(0.02, 0.08), versions=2, lasts=1)
COUNT = 24


@pytest.fixture
def x() -> Tensor:
    return torch.rand(COUNT, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def stock_of(x: Tensor, *kinds: CraftedExamples, pool: tuple[int, ...] = (1,)) -> Stock:
    """A stock whose crops are the images as they are."""
    keys = torch.arange(100, 100 + COUNT)
    networks = {f"toy{seed}": toy(seed) for seed in pool}
    chosen = Recipe(name="crafted", examples=kinds)
    return Stock(chosen, networks, lambda places, _: x[places], torch.arange(COUNT) % CLASSES, keys, (SIZE, SIZE))


def test_a_perturbation_is_what_the_attack_makes_in_whole_steps_of_8_bits(x: Tensor) -> None:
    eps = 10 / 255
    stock = stock_of(x, MIM.with_(eps=(eps, eps)))
    stock.prepare(0, range(20))
    adv = whorl.attack("mim", steps=3, eps=eps)(toy(1), x, torch.arange(COUNT) % CLASSES)
    expected = ((adv - x) * 255).round()
    assert torch.equal(stock.perturbations[0, :20].float(), expected[:20])
    assert not stock.perturbations[0, 20:].any()  # of images that are held out
    assert not stock.perturbations[1].any()  # of a version whose turn has not come
    places, slots = torch.arange(20), torch.zeros(20, dtype=torch.int64)
    shown = stock.perturbed(x[:20], places, slots, torch.tensor(1.0))
    torch.testing.assert_close(shown, whorl.evaluation.to_8_bits(adv[:20]), rtol=0, atol=1.01 / 255)
    assert torch.equal(stock.perturbed(x[:20], places, slots, torch.tensor(0.0)), x[:20])


def test_each_image_has_a_radius_of_its_own_and_each_version_another(x: Tensor) -> None:
    stock = stock_of(x, MIM)
    stock.prepare(1, range(COUNT))
    radii = stock.perturbations.abs().flatten(2).amax(2).float() / 255
    assert bool((radii >= 0.02 - 0.5 / 255).all())
    assert bool((radii <= 0.08 + 0.5 / 255).all())
    assert len(set(radii[0].tolist())) > 8
    assert not torch.equal(radii[0], radii[1])


def test_images_are_dealt_out_to_networks_and_kinds_in_another_way_for_each_version(x: Tensor) -> None:
    eps = 10 / 255
    few, many = (MIM.with_(eps=(eps, eps), attack=MIM.attack.with_(steps=steps)) for steps in (2, 6))
    stock = stock_of(x, few.with_(weight=2), many, pool=(1, 2))
    stock.prepare(1, range(COUNT))
    y = torch.arange(COUNT) % CLASSES
    made = torch.stack(
        [
            ((whorl.attack("mim", steps=steps, eps=eps)(toy(seed), x, y) - x) * 255).round()
            for seed in (1, 2)
            for steps in (2, 6)
        ]
    )
    for version in (0, 1):
        kept = (stock.perturbations[version].float() == made).flatten(2).all(2)
        assert bool((kept.sum(0) == 1).all())
        assert kept.sum(1).tolist() == [8, 4, 8, 4]
    assert not torch.equal(stock.perturbations[0], stock.perturbations[1])


def test_versions_follow_each_other_and_do_not_depend_on_when_the_run_began(x: Tensor) -> None:
    kind = MIM.with_(attack=whorl.attack("dim", steps=2), versions=2, lasts=3)
    step_by_step, at_once = stock_of(x, kind), stock_of(x, kind)
    places, seen = torch.arange(COUNT), []
    for epoch in range(12):
        step_by_step.prepare(epoch, range(COUNT))
        seen.append(sorted(step_by_step.made.values()))
        slots = set(step_by_step.shown(places, epoch).slots.tolist())
        assert slots == {version % 2 for version in seen[-1]}
    assert seen == [[0]] * 3 + [[0, 1]] * 3 + [[1, 2]] * 3 + [[2, 3]] * 3
    at_once.prepare(11, range(COUNT))
    assert torch.equal(at_once.perturbations, step_by_step.perturbations)
    first, second = step_by_step.shown(places, 11), at_once.shown(places, 11)
    assert torch.equal(first.slots, second.slots)
    assert torch.equal(first.keys, second.keys)
    assert not torch.equal(first.slots, step_by_step.shown(places, 10).slots)


def test_a_batch_has_the_crops_that_were_attacked() -> None:
    chosen = Recipe(name="short", examples=(MIM, Examples(makers="pool", eps=(0.05, 0.05))))
    training = Training(batch=12, held_out=10, trust=0.0, mix=1.0)
    trainer = Trainer(make_student(toy()), {"toy1": toy(1)}, [], toy_images(), chosen, training)
    plain = Trainer(make_student(toy()), {"toy1": toy(1)}, [], toy_images(), chosen, training.with_(mix=0.0))
    for step in (0, 7):
        trainer.fill(step)
        plain.fill(step)
        (x, y, _, keys), unmixed = trainer.batch(), plain.batch()
        adv = trainer.examples(x, y, keys)
        distance = (adv - x).abs().flatten(1).amax(1)
        assert distance[1::2].tolist() == pytest.approx([0.05] * 6, abs=1e-6)
        assert bool((distance[::2] > 0.015).all())
        assert not torch.equal(x, unmixed.x)
        # Of a blend, too, the perturbation is the one that was crafted on the crop.
        stock, crafted = trainer.stock, trainer.crafted
        assert stock is not None
        assert crafted.tolist() == [0, 2, 4, 6, 8, 10]
        again = stock.crops(trainer.inputs.chosen[crafted], trainer.inputs.crops[crafted])
        assert torch.equal(again, unmixed.x[crafted])


class Stops(Exception):  # noqa: N818 - nothing is wrong
    """Ends a run from within."""


class Stopping(Tracker):
    """Ends a run after a step."""

    def log(self, step: int, values: Any) -> None:
        del values
        if step == 14:
            raise Stops


def test_a_stopped_run_crafts_anew_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    chosen = recipe("best-at", examples=(MIM.with_(versions=2, lasts=1), *recipe("best-at").examples[1:]))
    settings = TINY | {"steps": 20, "reports": 20, "checkpoints": 5, "pool": [toy(1), toy(2)]}
    whole = harden(toy(), toy_images(), chosen, **settings)
    with pytest.raises(Stops):
        harden(toy(), toy_images(), chosen, out=tmp_path, track=Stopping(), **settings)
    resumed = harden(toy(), toy_images(), chosen, out=tmp_path, **settings)
    assert same(resumed.learned, whole.learned)


def test_the_recipe_shows_the_strongest_attack_of_the_pool() -> None:
    kind = recipe("best-at").examples[0]
    assert isinstance(kind, CraftedExamples)
    assert kind.attack == whorl.attack("ai-best")
    assert kind.makers == "pool"
    assert recipe("best-at").needs_pool


def test_what_cannot_be_crafted_is_refused() -> None:
    with pytest.raises(WhorlError, match="must have norm='linf'; got 'l2'"):
        CraftedExamples(attack=GradientAttack(norm="l2"))
    with pytest.raises(WhorlError, match=r"eps must be \(lowest, highest\)"):
        CraftedExamples(eps=(0.2, 0.1))
