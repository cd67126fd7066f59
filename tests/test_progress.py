"""Long work speaks: how much there is before it starts, how far it is within a batch; and no result changes by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from cli.toy_networks import classifier
from conftest import random_images, small_net
from hardening_cases import TINY, same, toy, toy_images
from runs.test_black_box import Counted
from whorl import runs
from whorl.attacks.contract import AttackCost
from whorl.data import Images
from whorl.hardening import harden

Said = list[tuple[str, int, int]]
STEP_BY_STEP: dict[str, dict[str, Any]] = {
    "eot": {"steps": 12, "samples": 10},
    "pgd": {"steps": 120},
    "ai-best": {"steps": 120},
    "cw": {"search_steps": 3, "steps": 50},
}


def images(count: int = 4) -> runs.Loaded:
    x = random_images(count)
    return runs.Loaded(Images(x, small_net()(x).argmax(1), [f"p{i}" for i in range(count)]))


def crafted(name: str, out: Path, **options: Any) -> tuple[Said, dict[str, bytes]]:
    said: Said = []
    settings = STEP_BY_STEP.get(name, {})
    runs.craft(
        name,
        classifier(small_net(), "small"),
        images(),
        out,
        settings=settings,
        batch_size=2,
        progress=lambda *line: said.append(line),
        **options,
    )
    return said, {path.name: path.read_bytes() for path in sorted((out / "adv").rglob("*.png"))}


def after_the_checks(said: Said) -> Said:
    """What is said once the source has been found to recognise something."""
    assert said[:2] == [("checking the sources", 0, 1), ("checking the sources", 1, 1)]
    return said[2:]


@pytest.mark.parametrize("name", STEP_BY_STEP)
def test_an_attack_says_what_it_costs_and_how_far_it_is(name: str, tmp_path: Path) -> None:
    said = after_the_checks(crafted(name, tmp_path)[0])
    cost = whorl.attack(name, **STEP_BY_STEP[name]).cost
    assert cost is not None
    first, done, total = said[0]
    assert re.fullmatch(rf"{name} on small \({cost.most} gradients an image, about \S+ (s|min|h)\)", first)
    assert (done, total) == (0, 4)  # before it starts
    assert said[-1] == (first, 4, 4)
    # Each of the two batches counts up to its end, and says no more than that.
    within = [(place, done) for place, (stage, done, _) in enumerate(said) if stage != first]
    assert {said[place][::2] for place, _ in within} == {(f"{name}, this batch, gradients", cost.most)}
    starts = [i for i, (_, done) in enumerate(within) if i == 0 or done <= within[i - 1][1]]
    assert len(starts) == 2
    # Carlini and Wagner's attack may rest early, and then skips what is left of a round.
    assert len(within) > {"eot": 20, "cw": 10}.get(name, 230)


@pytest.mark.parametrize("name", STEP_BY_STEP)
def test_nobody_listening_changes_no_image(name: str, tmp_path: Path) -> None:
    _, heard = crafted(name, tmp_path / "heard")
    x, y, ids = images().images
    alone = whorl.attack(name, **STEP_BY_STEP[name])(classifier(small_net(), "small"), x[:2], y[:2], ids=ids[:2])
    runs.craft(
        name,
        classifier(small_net(), "small"),
        images(),
        tmp_path / "unheard",
        settings=STEP_BY_STEP[name],
        batch_size=2,
    )
    unheard = {path.name: path.read_bytes() for path in sorted((tmp_path / "unheard" / "adv").rglob("*.png"))}
    assert heard == unheard
    kept = whorl.data.load_image(next((tmp_path / "heard" / "adv").rglob("p1.png")))
    assert torch.equal(kept, (alone[1] * 255).round() / 255)


def test_short_attacks_say_nothing_more(tmp_path: Path) -> None:
    said = after_the_checks(crafted("fgsm", tmp_path)[0])
    assert {stage for stage, _, _ in said} == {"fgsm on small"}


@pytest.mark.parametrize("name", ["nes", "boundary"])
def test_queries_are_counted_and_none_is_spent_on_an_estimate(name: str, tmp_path: Path) -> None:
    said: Said = []
    target = Counted()
    settings = {"budget": 200} | ({"samples": 20, "eps": 2 / 255} if name == "nes" else {})
    done = runs.query(
        name, target, images(), tmp_path, settings=settings, batch_size=2, progress=lambda *line: said.append(line)
    )
    assert said[0] == (f"{name} on counted (200 queries an image)", 0, 4)
    assert sum(done.queries.values()) == target.seen
    within = [done for stage, done, total in said if (stage, total) == (f"{name}, this batch, queries", 200)]
    assert len(within) > 5
    assert max(within) < 200


def test_a_costs_words() -> None:
    assert str(AttackCost(2500, "gradients")) == "2,500 gradients an image"
    assert whorl.attack("eot").cost == AttackCost(2500, "gradients")
    assert whorl.attack("cw").cost == AttackCost(9000, "gradients")
    assert whorl.attack("nes").cost == AttackCost(10_000, "queries")


def test_a_training_says_how_long_it_takes_and_how_far_a_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*said_to: Said) -> dict[str, torch.Tensor]:
        done = harden(
            toy(0),
            toy_images(),
            "ens-at",
            pool=[toy(1)],
            progress=(lambda *line: said_to[0].append(line)) if said_to else (lambda *_: None),
            **TINY,
        )
        return done.learned

    quiet = trained()
    monkeypatch.setattr("whorl.hardening.job._LONG", 8)
    said: Said = []
    assert same(trained(said), quiet)  # the step that was timed was undone
    [stage] = {stage for stage, _, _ in said if stage.startswith("training (")}
    assert re.fullmatch(r"training \(8 steps, about \d+ s\)", stage)
    assert [done for one, done, _ in said if one == stage] == list(range(9))
    assert ("training, examples of this step", 6, 12) in said
