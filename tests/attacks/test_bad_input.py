"""Bad input gets one clear error, whatever the attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net
from fuzz.networks import InPlace
from whorl import WhorlError

NAMES = ["fgsm", "ai-dim", "eot", "deepfool", "cw"]
SHORT: dict[str, dict[str, Any]] = {
    "ai-dim": {"steps": 2},
    "eot": {"steps": 1, "samples": 2},
    "deepfool": {"steps": 2},
    "cw": {"steps": 2, "search_steps": 2},
}


class Poisoned(nn.Module):
    """Finite logits, a gradient of NaN or infinity for the second image alone."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.net, self.value = small_net(), value

    def forward(self, x: Tensor) -> Tensor:
        bad = torch.zeros(len(x), 1, 1, 1)
        bad[1::3] = self.value
        if x.requires_grad:
            x.register_hook(lambda g: g + bad)
        out: Tensor = self.net(x * 1)
        return out


def attack(name: str, **settings: Any) -> whorl.Attack:
    return whorl.attack(name, **{**SHORT.get(name, {}), **settings})


X, Y = random_images(3), torch.tensor([0, 1, 2])

CALLS: dict[str, tuple[Callable[[whorl.Attack, nn.Module], object], str]] = {
    "range": (lambda a, n: a(n, X * 255, Y), r"images must lie in \[0, 1\]; got values in .*Divide by 255"),
    "below range": (lambda a, n: a(n, X - 2e-4 - X.min(), Y), r"images must lie in \[0, 1\]"),
    "nan image": (lambda a, n: a(n, X * torch.nan, Y), r"images must lie in \[0, 1\]; got NaN"),
    "normalised image": (
        lambda a, n: a(n, (X - 0.45) / 0.22, Y),
        r"got values in \[-2\.\d+, 2\.\d+\], which look normalised",
    ),
    "integer image": (lambda a, n: a(n, (X * 255).byte(), Y), "floating point .* got torch.uint8"),
    "shape": (lambda a, n: a(n, X[0], Y), r"\(B, C, H, W\) tensor; got shape \(3, 18, 18\)"),
    "not a tensor": (lambda a, n: a(n, X.numpy(), Y), "tensor; got ndarray"),  # type: ignore[call-overload]
    "no pixels": (lambda a, n: a(n, X[:, :, :0], Y), r"height and width of at least 1; got shape \(3, 3, 0, 18\)"),
    "ids as text": (lambda a, n: a(n, X, Y, ids="abc"), "ids must be a list with one id per image; got str 'abc'"),
    "ids as a set": (lambda a, n: a(n, X, Y, ids={1, 2, 3}), "ids must be a list .* got set"),  # type: ignore[call-overload]
    "label too high": (lambda a, n: a(n, X, Y + 5), r"labels must lie in \[0, 6\].* got 7"),
    "label negative": (lambda a, n: a(n, X, Y - 1), "class indices from 0; got -1"),
    "target too high": (lambda a, n: a(n, X, target=Y + 5), r"labels must lie in \[0, 6\]"),
    "float labels": (lambda a, n: a(n, X, Y.float()), "y must be an integer tensor .* got torch.float32"),
    "label count": (lambda a, n: a(n, X, Y[:2]), r"one label per image, \(3,\); got \(2,\)"),
    "both": (lambda a, n: a(n, X, Y, target=Y), "either y .* or target .* got both"),
    "neither": (lambda a, n: a(n, X), "either y .* or target .* got neither"),
    "device": (lambda a, n: a(n.to("meta"), X, Y), "images are on cpu but the model is on meta"),
    "ids": (lambda a, n: a(n, X, Y, ids=["a"]), "expected 3, got 1"),
    "nan gradient": (lambda a, _: a(Poisoned(torch.nan), X, Y), "gradient must be finite; got NaN .* for image 1"),
    "infinite gradient": (
        lambda a, _: a(Poisoned(torch.inf), X, Y, ids=["one", "two", "three"]),
        "gradient must be finite; got NaN or infinity for image two",
    ),
}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("name", NAMES)
def test_bad_input(name: str, what: str) -> None:
    call, message = CALLS[what]
    with pytest.raises(WhorlError, match=message):
        call(attack(name), small_net())


@pytest.mark.parametrize("name", NAMES)
def test_what_strays_by_rounding_is_taken(name: str) -> None:
    net = small_net()
    stray = X.clone()
    stray[0, 0, 0, 0], stray[0, 0, 0, 1] = -3e-8, 1 + 9e-5
    adv = attack(name)(net, stray, Y)
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_comes_back_empty(name: str) -> None:
    adv, info = attack(name)(small_net(), X[:0], Y[:0], return_info=True)
    assert adv.shape == (0, 3, 18, 18)
    assert info.success.shape == (0,)


SETTINGS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: whorl.attack("ai-dmi"),
        r"unknown attack 'ai-dmi'. Did you mean 'ai-dim', 'ai-mim'.*`whorl attacks` lists all",
    ),
    (lambda: whorl.attack("zzzzzz"), "unknown attack 'zzzzzz'. Known: ai-best, ai-dim"),
    (lambda: whorl.attack_names(kind="grad"), "unknown kind of attack 'grad'"),  # type: ignore[arg-type]
    (
        lambda: whorl.attack("pgd", epsilon=0.1),
        "unknown setting 'epsilon'. Did you mean 'eps'.*GradientAttack has: eps, steps",
    ),
    (lambda: whorl.attack("pgd", eps=-0.1), "eps must be a number >= 0"),
    (lambda: whorl.attack("pgd", eps=float("nan")), "eps must be a number >= 0"),
    (lambda: whorl.attack("pgd", eps=[0.1, -1.0]), "eps must be a number >= 0"),
    (lambda: whorl.attack("pgd", eps=[0.1, 0.2])(small_net(), X, Y), "one per image, 3; got 2"),
    (lambda: whorl.attack("pgd", steps=0), "steps must be a whole number >= 1; got 0"),
    (lambda: whorl.attack("pgd", samples=1.5), "samples must be a whole number"),
    (lambda: whorl.attack("pgd", chunk=0), "chunk must be a whole number"),
    (lambda: whorl.attack("pgd", alpha=0.0), "alpha must be a number above 0"),
    (lambda: whorl.attack("pgd", momentum=-1.0), "momentum must be a number in"),
    (lambda: whorl.attack("pgd", norm="l1"), "norm must be 'linf' or 'l2'; got 'l1'"),
    (lambda: whorl.attack("pgd", loss="mse"), "loss must be 'ce', .*; got 'mse'"),
    (lambda: whorl.attack("pgd", optimizer="sgd"), "optimizer must be 'sign' or 'adam'; got 'sgd'"),
    (lambda: whorl.attack("pgd", estimator="ai"), "estimator must be anything that maps"),
    (lambda: whorl.attack("pgd", input="di"), "input must be anything that maps"),
    (lambda: whorl.attack("deepfool", candidates=0), "candidates must be a whole number >= 1"),
    (lambda: whorl.attack("deepfool", overshoot=-1), "overshoot must be a number >= 0"),
    (lambda: whorl.attack("deepfool", eps=0.1), "unknown setting 'eps'"),
    (lambda: whorl.attack("cw", steps=0), "steps must be a whole number"),
    (lambda: whorl.attack("cw", learning_rate=0), "learning_rate must be a number above 0"),
    (lambda: whorl.attack("cw", confidence=-1), "confidence must be a number >= 0"),
    (lambda: whorl.AffineInvariant(kernel_size=4), "kernel_size must be odd"),
    (lambda: whorl.AffineInvariant(kind="box"), "kind must be 'gaussian' or 'uniform'; got 'box'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_bad_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


def test_a_model_that_returns_something_else() -> None:
    with pytest.raises(WhorlError, match=r"must return \(3, classes\) logits; got \(3, 3, 18, 18\)"):
        whorl.attack("pgd")(nn.Identity(), X, Y)


def test_labels_at_the_edge_are_fine() -> None:
    whorl.attack("fgsm")(small_net(), X, torch.tensor([0, CLASSES - 1, 0]))


@pytest.mark.parametrize("answer", [None, (torch.zeros(3, CLASSES),), {"logits": torch.zeros(3, CLASSES)}], ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_no_tensor(name: str, answer: object) -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> object:
            return answer

    with pytest.raises(WhorlError, match=rf"must return a tensor of logits; got {type(answer).__name__}"):
        attack(name)(Odd(), X, Y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (lambda g: g[:, :1], r"a gradient of shape \(3, 3, 18, 18\); got \(3, 1, 18, 18\)"),
        (lambda g: None, "a gradient of shape .* got NoneType"),
        (lambda g: g * torch.nan, "must be finite; got NaN or infinity for image 0, 1, 2"),
    ],
)
def test_an_estimator_that_returns_no_gradient(estimator: Any, message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        whorl.GradientAttack(steps=2, estimator=estimator)(small_net(), X, Y)


@pytest.mark.parametrize("seed", [None, 1.5, "1", True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(WhorlError, match="seed must be a whole number"):
        whorl.attack("pgd", steps=1)(small_net(), X, Y, seed=seed)


def test_a_seed_of_numpy_is_one_too() -> None:
    net, made = small_net(), whorl.attack("pgd", steps=1)
    assert torch.equal(made(net, X, Y, seed=np.int64(7)), made(net, X, Y, seed=7))  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["nes", "spsa", "nattack", "boundary", "evolutionary"])
def test_a_target_that_works_in_place_moves_nothing(name: str) -> None:
    settings = {"budget": 100, **({"samples": 10} if name in ("nes", "spsa", "nattack") else {})}
    x = X.clone()
    made = whorl.attack(name, **settings)
    assert torch.equal(made(InPlace(), x, Y), made(small_net(), X, Y))
    assert torch.equal(x, X)


class Normalising(nn.Module):
    """Normalises what it is given in place, as many do, and may then spoil it where autograd does not see it."""

    def __init__(self, *, spoils: bool) -> None:
        super().__init__()
        self.net, self.spoils = small_net(), spoils

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.1
        x.div_(0.9)
        out: Tensor = self.net(x * 1)
        if self.spoils:
            x.data.zero_()
        return out


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net((x - 0.1) / 0.9)
        return out


@pytest.mark.parametrize("spoils", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "pgd"])
def test_a_source_that_works_in_place_moves_nothing(name: str, spoils: bool) -> None:
    x = X.clone()
    made = attack(name)
    assert torch.equal(made(Normalising(spoils=spoils), x, Y), made(Normalised(), X, Y))
    assert torch.equal(x, X)
