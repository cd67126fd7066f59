"""Both attacks, step by step: the same images as without a page, and an end as soon as nobody waits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whorl
from ui.ui_toys import SIDE, Sleep, imagenet_toy, picture, slow, split, toy
from whorl.errors import WhorlError
from whorl.evaluation import to_8_bits
from whorl.ui.crafting import Settings, Step, craft, pairs


@pytest.mark.parametrize("eps", [12 / 255, 8 / 255], ids=["12", "8"])  # kernels may differ
@pytest.mark.parametrize("name", pairs())
def test_watching_changes_nothing(name: str, eps: float, tmp_path: Path) -> None:
    clf, chosen = toy(), picture(tmp_path)
    steps, made = split(craft(clf, chosen, Settings(attack=name, eps=eps, steps=4, seed=7)))
    x = chosen.pixels((SIDE, SIDE))
    y = clf(x).argmax(1)
    taken = 1 if name == "fgsm" else 4
    for attack in (name, f"ai-{name}"):
        plainly = whorl.attack(attack, eps=eps, steps=taken, fast=False)
        expected = plainly(clf, x, y, seed=7, ids=[chosen.id or ""])
        assert torch.equal(made.versions[attack], to_8_bits(expected))
    assert torch.equal(made.versions["clean"], x)
    assert made.attacks == (name, f"ai-{name}")
    assert [(step.attack, step.done, step.steps) for step in steps] == [
        (attack, done, taken) for attack in made.attacks for done in range(1, taken + 1)
    ]


def test_steps_tell_the_labels_probability(tmp_path: Path) -> None:
    clf, chosen = toy(), picture(tmp_path)
    steps, made = split(craft(clf, chosen, Settings(attack="mim", eps=16 / 255, steps=5)))
    before = clf(chosen.pixels((SIDE, SIDE))).softmax(1)[0, made.label]
    # MIM starts at the image, so its first step is asked about the image itself.
    assert steps[0].probability == pytest.approx(float(before))
    assert steps[4].probability < steps[0].probability


def test_an_unknown_label_is_what_the_network_says(tmp_path: Path) -> None:
    clf, chosen = toy(), picture(tmp_path, label=3)
    _, made = split(craft(clf, chosen, Settings(attack="fgsm")))
    # 3 is a class of ImageNet, and this network has others.
    assert made.label == int(clf(chosen.pixels((SIDE, SIDE))).argmax())
    assert not made.known
    assert made.label_name == clf.labels[made.label]


def test_a_known_label_is_kept_even_if_the_network_disagrees(tmp_path: Path) -> None:
    clf, chosen = imagenet_toy(), picture(tmp_path, label=243)
    assert int(clf(chosen.pixels((SIDE, SIDE))).argmax()) != 243
    _, made = split(craft(clf, chosen, Settings(attack="fgsm")))
    assert (made.label, made.known, made.label_name) == (243, True, "bull mastiff")


def test_an_attack_without_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="unknown attack 'eot'"):
        next(craft(toy(), picture(tmp_path), Settings(attack="eot")))


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("whorl-")]


def test_it_stops_when_nobody_waits(tmp_path: Path) -> None:
    running = craft(slow(), picture(tmp_path), Settings(attack="mim", steps=50))
    assert isinstance(next(running), Step)
    assert workers() == ["whorl-mim"]
    seen = Sleep.calls
    running.close()
    assert Sleep.calls <= seen + 2
    assert workers() == []


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise WhorlError("it is broken.")
        return torch.ones(len(x), 7)


def test_what_goes_wrong_in_the_thread_is_told(tmp_path: Path) -> None:
    broken = whorl.Classifier.from_module(Broken(), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=7)
    with pytest.raises(WhorlError, match="it is broken"):
        list(craft(broken, picture(tmp_path), Settings()))
    assert workers() == []
