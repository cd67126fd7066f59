"""Several threads attack one model at once: everyone gets what they get alone, and the model is as before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images
from whorl.attacks.contract import Attack, held_in_eval
from whorl.evaluation import recognised


class Block(nn.Module):
    """A residual block with all that a careless attack could spoil: statistics, dropout, an in-place rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.drop(self.act(self.norm(self.conv(x))))
        return out


def network() -> nn.Module:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(stem, Block(), Block(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES))


def at_once(attacks: Sequence[Attack], net: nn.Module, x: Tensor, y: Tensor) -> list[list[Tensor]]:
    """What each attack makes in a thread of its own, three times, with its place as seed."""
    together = Barrier(len(attacks))

    def run(place: int) -> list[Tensor]:
        together.wait()
        return [attacks[place](net, x, y, seed=place) for _ in range(3)]

    with ThreadPoolExecutor(len(attacks)) as pool:
        return list(pool.map(run, range(len(attacks))))


NAMES = ["ai-best", "pgd", "ai-best", "mim", "ram", "dim", "ai-best", "fgsm"]


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_attacks_at_once_are_attacks_alone(training: bool) -> None:
    net = network().train(training)
    before = copy.deepcopy(net.state_dict())
    x = random_images(4)
    with held_in_eval(net), torch.no_grad():
        y = net(x).argmax(1)
    attacks = [whorl.attack(name, **({} if name == "fgsm" else {"steps": 4})) for name in NAMES]
    alone = [attack(net, x, y, seed=i) for i, attack in enumerate(attacks)]
    for expected, mine in zip(alone, at_once(attacks, net, x, y), strict=True):
        for adv in mine:
            assert torch.equal(adv, expected)
    assert all(module.training == training for module in net.modules())
    assert not any(module._forward_hooks for module in net.modules())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_evaluation_holds_eval_mode_too() -> None:
    net, x = network().train(), random_images(4)
    before = copy.deepcopy(net.state_dict())
    with held_in_eval(net), torch.no_grad():
        y = net(x).argmax(1)
    assert bool(recognised({"mine": net}, x, y).all())
    assert net.training
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
