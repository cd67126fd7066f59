"""Networks that torch compiled ahead: scripted, frozen, made for inference."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import whorl
from conftest import CLASSES, random_images, small_net
from whorl import WhorlError
from whorl.models.backward import Backward

X, Y = random_images(3), torch.tensor([0, 1, 2])
SHORT = {"fgsm": {}, "ai-dim": {"steps": 2}, "deepfool": {"steps": 2}, "cw": {"steps": 2, "search_steps": 1}}


def scripted() -> torch.jit.ScriptModule:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)
    )
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made: torch.jit.ScriptModule = torch.jit.script(net.eval())
    return made


def frozen() -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made: torch.jit.ScriptModule = torch.jit.freeze(scripted())
    return made


def wrapped(net: nn.Module) -> whorl.Classifier:
    return whorl.Classifier.from_module(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3)


@pytest.mark.parametrize("compiled", [scripted, frozen])
@pytest.mark.parametrize("name", SHORT)
def test_a_script_module_is_attacked_as_the_network_it_was(name: str, compiled: Callable[[], nn.Module]) -> None:
    made = whorl.attack(name, **SHORT[name])
    plain, net = scripted(), compiled()
    y = plain(X).argmax(1)
    expected = made(plain, X, y)
    assert not torch.equal(expected, X) or name == "cw"
    torch.testing.assert_close(made(net, X, y), expected, atol=2e-3, rtol=0)
    assert made(wrapped(net), X, y).shape == X.shape
    assert made(whorl.Ensemble([wrapped(net), wrapped(plain)]), X, y).shape == X.shape


@pytest.mark.parametrize("compiled", [scripted, frozen])
def test_an_estimator_wraps_a_script_module(compiled: Callable[[], nn.Module]) -> None:
    plain, net = (whorl.AffineInvariant().wrap(made) for made in (scripted(), compiled()))
    torch.testing.assert_close(net(X), plain(X), atol=1e-4, rtol=1e-4)
    attack = whorl.attack("pgd", steps=2)
    torch.testing.assert_close(attack(net, X, Y), attack(plain, X, Y), atol=2e-3, rtol=0)


def test_a_changed_backward_pass_needs_the_network_itself() -> None:
    with pytest.raises(WhorlError, match="must not be a ScriptModule"):
        whorl.attack("ai-best", steps=1)(frozen(), X, Y)
    assert whorl.attack("ai-best", steps=1, backward=Backward())(frozen(), X, Y).shape == X.shape


class Detached(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = small_net()(x.detach())
        return out


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.arange(float(CLASSES)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(x), -1)


@pytest.mark.parametrize("net", [Detached(), Constant()], ids=lambda net: type(net).__name__)
@pytest.mark.parametrize("name", SHORT)
def test_a_network_without_a_gradient_says_so(name: str, net: nn.Module) -> None:
    with pytest.raises(WhorlError, match="must pass a gradient on to its input; got none"):
        whorl.attack(name, **SHORT[name])(net, X, net(X).argmax(1))


@pytest.mark.parametrize("name", SHORT)
def test_a_network_that_fails_says_on_what(name: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(5, CLASSES))
    with pytest.raises(
        WhorlError, match=r"failed on torch.float32 images of shape \(3, 3, 18, 18\): RuntimeError: mat1"
    ):
        whorl.attack(name, **SHORT[name])(net, X, Y)
