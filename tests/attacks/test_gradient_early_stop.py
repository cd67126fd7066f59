"""Early stop: an image that is done leaves the batch, and the others get what they get without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net


class Counting(nn.Module):
    """A network that counts the images it sees."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.seen = net, 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        out: Tensor = self.net(x)
        return out


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 1.0}, {"optimizer": "adam"}, {"norm": "l2", "eps": 2.0}], ids=str
)
@pytest.mark.parametrize("targeted", [False, True])
def test_each_image_ends_as_it_does_alone(settings: dict[str, Any], targeted: bool) -> None:
    net, x = Counting(small_net().double()), random_images(8).double()
    truth = net(x).argmax(1)
    labels = (truth + 1) % CLASSES if targeted else truth
    attack = whorl.GradientAttack(**{"eps": 0.1, "steps": 12, "alpha": 0.01, "early_stop": True, **settings})

    def run(x: Tensor, labels: Tensor) -> tuple[Tensor, whorl.AttackInfo]:
        if targeted:
            return attack(net, x, target=labels, return_info=True)
        return attack(net, x, labels, return_info=True)

    net.seen = 0
    whole, info = run(x, labels)
    assert info.grad_evals is not None
    # What is counted is what the network saw, but for the last look at who succeeded.
    assert net.seen == int(info.grad_evals.sum()) + len(x)
    assert int(info.grad_evals.min()) < 12
    for i in range(len(x)):
        alone, told = run(x[i : i + 1], labels[i : i + 1])
        torch.testing.assert_close(alone[0], whole[i], rtol=0, atol=1e-9)
        assert told.grad_evals is not None
        assert told.grad_evals[0] == info.grad_evals[i]


def test_when_all_are_done_nothing_more_is_computed() -> None:
    net, x = Counting(small_net()), random_images(4)
    wrong = (net(x).argmax(1) + 1) % CLASSES
    net.seen = 0
    adv = whorl.attack("mim", early_stop=True)(net, x, wrong)
    assert torch.equal(adv, x)
    assert net.seen == 4


def test_an_answer_of_nan_is_no_success() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(x)
            return out + torch.tensor([0.0, torch.nan, 0.0])[: len(x), None]

    x = random_images(3)
    y = small_net()(x).argmax(1)
    with pytest.raises(whorl.WhorlError, match="NaN or infinity for image 1"):
        whorl.attack("mim", early_stop=True)(Broken(), x, y)
