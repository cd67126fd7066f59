"""Our attacks called the way torchattacks and foolbox are called."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES
from peer_libraries import needs
from whorl import WhorlError, interop

EPS = 8 / 255
ATTACK = whorl.attack("ai-pgd", eps=EPS, steps=3)


def test_torchattacks_style_is_the_same_attack(net: nn.Module, x: Tensor, y: Tensor) -> None:
    atk = interop.as_torchattacks(ATTACK, net, seed=5)
    assert torch.equal(atk(x, y), ATTACK(net, x, y, seed=5))
    assert (atk.eps, atk.steps, atk.seed, atk.targeted) == (EPS, 3, 5, False)
    assert (atk.attack, atk.get_mode(), atk.model) == ("GradientAttack", "default", net)
    with pytest.raises(AttributeError, match="eps_step"):
        _ = atk.eps_step


def test_torchattacks_style_without_labels_takes_the_models_own(net: nn.Module, x: Tensor, y: Tensor) -> None:
    atk = interop.as_torchattacks(ATTACK, net)
    assert torch.equal(atk(x), atk(x, y))


def test_torchattacks_style_targets(net: nn.Module, x: Tensor, y: Tensor) -> None:
    atk = interop.as_torchattacks(ATTACK, net)
    wanted = (y + 1) % CLASSES
    direct = ATTACK(net, x, target=wanted)
    atk.set_mode_targeted_by_label(quiet=True)
    assert torch.equal(atk(x, wanted), direct)
    with pytest.raises(WhorlError, match="needs labels"):
        atk(x)
    atk.set_mode_targeted_by_function(lambda images, labels: (labels + 1) % CLASSES)
    assert torch.equal(atk(x, y), direct)
    atk.set_mode_targeted_least_likely()
    assert torch.equal(atk(x, y), ATTACK(net, x, target=net(x).argmin(1)))
    atk.set_mode_targeted_random()
    drawn = atk.get_target_label(x, y)
    assert bool((drawn != y).all())
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < CLASSES
    assert torch.equal(drawn[2:3], atk.get_target_label(x[2:3], y[2:3]))
    atk.set_mode_default()
    assert torch.equal(atk(x, y), ATTACK(net, x, y))


def test_torchattacks_style_normalised(net: nn.Module, x: Tensor, y: Tensor) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    shape = (1, 3, 1, 1)
    m, s = torch.tensor(mean).reshape(shape), torch.tensor(std).reshape(shape)

    class Inner(nn.Module):
        """Takes normalised images, as a network without a wrapper does."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, z: Tensor) -> Tensor:
            answers: Tensor = self.net(z * s + m)
            return answers

    atk = interop.as_torchattacks(ATTACK, Inner())
    atk.set_normalization_used(mean=mean, std=std)
    adv = atk((x - m) / s, y) * s + m
    assert float((adv - x).abs().max()) <= EPS + 1e-5
    assert float((adv - ATTACK(net, x, y)).abs().mean()) < 1e-3  # signs of what is nearly zero may turn


def test_torchattacks_own_wrapper_takes_it(net: nn.Module, x: Tensor, y: Tensor) -> None:
    torchattacks = needs("torchattacks")
    ours = interop.as_torchattacks(ATTACK, net)
    both = torchattacks.MultiAttack([torchattacks.FGSM(net, eps=1 / 255), ours])
    adv = both(x, y)
    assert float((adv - x).abs().max()) <= EPS + 1e-6


def test_foolbox_style_is_the_same_attack(net: nn.Module, x: Tensor, y: Tensor) -> None:
    foolbox = needs("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    raw, clipped, success = interop.as_foolbox(ATTACK, seed=5)(model, x, y, epsilons=EPS)
    assert torch.equal(raw, ATTACK(net, x, y, seed=5))
    assert torch.equal(raw, clipped)
    assert success.tolist() == (net(clipped).argmax(1) != y).tolist()


def test_foolbox_style_for_several_bounds(net: nn.Module, x: Tensor, y: Tensor) -> None:
    foolbox = needs("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    bounds = [0.0, 2 / 255, 32 / 255]
    raws, clips, success = interop.as_foolbox(ATTACK)(model, x, foolbox.criteria.Misclassification(y), epsilons=bounds)
    assert len(raws) == len(clips) == 3
    assert success.shape == (3, len(x))
    assert not bool(success[0].any())
    for clipped, eps in zip(clips, bounds, strict=True):
        assert float((clipped - x).abs().max()) <= eps + 1e-6
    with pytest.raises(WhorlError, match="one bound at least"):
        interop.as_foolbox(ATTACK)(model, x, y, epsilons=[])


def test_foolbox_style_in_other_bounds_and_tensors(net: nn.Module, x: Tensor, y: Tensor) -> None:
    foolbox, ep = needs("foolbox"), needs("eagerpy")

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, z: Tensor) -> Tensor:
            answers: Tensor = self.net(z / 255)
            return answers

    model = foolbox.PyTorchModel(Wide().eval(), bounds=(0, 255), device="cpu")
    inputs = ep.astensor(x * 255)
    raw, clipped, success = interop.as_foolbox(ATTACK)(model, inputs, ep.astensor(y), epsilons=8.0)
    assert type(raw) is type(clipped) is type(success) is type(inputs)
    assert float((clipped.raw - x * 255).abs().max()) <= 8 + 1e-3
    assert float((clipped.raw / 255 - ATTACK(net, x, y)).abs().mean()) < 1e-3


def test_foolbox_style_targets(net: nn.Module, x: Tensor, y: Tensor) -> None:
    foolbox = needs("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    target = (y + 1) % CLASSES
    criterion = foolbox.criteria.TargetedMisclassification(target)
    _, clipped, success = interop.as_foolbox(ATTACK)(model, x, criterion, epsilons=64 / 255)
    assert success.tolist() == (net(clipped).argmax(1) == target).tolist()
    assert torch.equal(clipped, ATTACK.with_(eps=64 / 255)(net, x, target=target))
    with pytest.raises(WhorlError, match="criterion must be labels"):
        interop.as_foolbox(ATTACK)(model, x, "anything", epsilons=EPS)


def test_foolbox_style_of_an_attack_without_a_bound(net: nn.Module, x: Tensor, y: Tensor) -> None:
    foolbox = needs("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    raw, free, hit = interop.as_foolbox(whorl.attack("deepfool"))(model, x, y, epsilons=None)
    assert torch.equal(raw, free)
    assert bool(hit.all())
    raw, clipped, hit = interop.as_foolbox(whorl.attack("deepfool"))(model, x, y, epsilons=1e-3)
    assert float((clipped - x).flatten(1).norm(dim=1).max()) <= 1e-3 + 1e-6
    assert not bool(hit.all())
