"""A peer's attack as one of ours: the ball, the batch, the seed, what it leaves behind, and what it refuses."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import random_images, small_net
from peer_libraries import needs
from whorl import WhorlError, interop
from whorl.interop.harness import PeerNetwork, own_randomness, seed_of

EPS = 16 / 255
# One attack of each library that follows gradients and draws random numbers, with few steps.
RANDOM: dict[str, dict[str, Any]] = {
    "torchattacks:VMIFGSM": {"steps": 2, "N": 2},
    "torchattack:PGD": {"steps": 2},
    "foolbox:LinfPGD": {"steps": 2},
    "art:PGD": {"steps": 2, "num_random_init": 1},
    "pyautoattack:apgd-ce": {"steps": 3},
}
COSTS = {"torchattacks:VMIFGSM": 6, "torchattack:PGD": 2, "foolbox:LinfPGD": 2, "art:PGD": 2, "pyautoattack:apgd-ce": 4}

every_library = pytest.mark.parametrize("name", RANDOM)


def made(name: str, **settings: Any) -> interop.Peer:
    needs(name.partition(":")[0])
    return interop.peer(name, **{**RANDOM.get(name, {}), **settings})


@torch.no_grad()
def loss(net: nn.Module, x: Tensor, y: Tensor) -> float:
    return float(nn.functional.cross_entropy(net(x), y))


@pytest.fixture
def x() -> Tensor:
    return random_images(3)


@pytest.fixture
def y(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        truth: Tensor = net(x).argmax(1)
    return truth


@every_library
def test_it_stays_in_the_ball_and_raises_the_loss(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    adv, info = made(name)(net, x, y, return_info=True)
    assert adv.shape == x.shape
    assert adv.dtype == x.dtype
    assert 0 <= float(adv.min()) <= float(adv.max()) <= 1
    assert float((adv - x).abs().max()) <= EPS + 1e-6
    assert loss(net, adv, y) > loss(net, x, y)
    assert info.success.tolist() == (net(adv).argmax(1) != y).tolist()


@every_library
def test_gradients_are_counted(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    _, info = made(name)(net, x, y, return_info=True)
    assert info.grad_evals is not None
    assert info.grad_evals.tolist() == [COSTS[name]] * 3


@every_library
def test_it_does_not_depend_on_the_batch(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack, ids = made(name), ["a", "b", "c"]
    together = attack(net, x, y, seed=3, ids=ids)
    turned = attack(net, x.flip(0), y.flip(0), seed=3, ids=ids[::-1]).flip(0)
    alone = attack(net, x[1:2], y[1:2], seed=3, ids=ids[1:2])
    assert torch.equal(together, turned)
    assert torch.equal(together[1:2], alone)


@every_library
def test_the_seed_and_the_id_decide(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack, ids = made(name), ["a", "b", "c"]
    torch.manual_seed(1)
    first = attack(net, x, y, seed=3, ids=ids)
    torch.manual_seed(2)
    assert torch.equal(first, attack(net, x, y, seed=3, ids=ids))
    assert not torch.equal(first, attack(net, x, y, seed=4, ids=ids))
    assert not torch.equal(first, attack(net, x, y, seed=3, ids=["d", "e", "f"]))


@every_library
def test_it_leaves_generators_and_parameters_alone(name: str, x: Tensor) -> None:
    net = small_net()
    for parameter in net.parameters():
        parameter.requires_grad_(True)
    with torch.no_grad():
        y = net(x).argmax(1)
    attack = made(name)
    attack(net, x[:1], y[:1])  # whatever a library does on its first use
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    copy = x.clone()
    attack(net, x, y)
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())
    assert torch.equal(x, copy)


@every_library
def test_the_estimator_is_used(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    seen: list[int] = []

    def watched(gradient: Tensor) -> Tensor:
        seen.append(len(gradient))
        return gradient

    plain = made(name)(net, x, y)
    assert torch.equal(made(name, estimator=watched)(net, x, y), plain)
    assert sum(seen) == 3 * COSTS[name]
    assert not torch.equal(made(name, estimator="ai")(net, x, y), plain)


@pytest.mark.parametrize("name", [name for name in RANDOM if not name.startswith("pyautoattack")])
def test_targets_are_reached_for(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    target = (y + 1) % 7
    adv = made(name)(net, x, target=target)
    assert loss(net, adv, target) < loss(net, x, target)


@pytest.mark.parametrize("name", ["pyautoattack:apgd-ce", "torchattacks:DeepFool", "torchattack:FDA"])
def test_a_target_is_refused_where_there_is_none(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    with pytest.raises(WhorlError, match="no targeted form"):
        made(name)(net, x, target=y)


def test_a_batch_in_one_call(net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack = made("torchattacks:VMIFGSM", batched=True)
    adv, info = attack(net, x, y, seed=3, ids=["a", "b", "c"], return_info=True)
    assert torch.equal(adv, attack(net, x, y, seed=3, ids=["a", "b", "c"]))
    assert info.grad_evals is not None
    assert info.grad_evals.tolist() == [6, 6, 6]
    assert not torch.equal(adv[:1], attack(net, x[:1], y[:1], seed=3, ids=["a"]))  # as the docstring warns


@pytest.mark.parametrize(
    ("name", "settings", "norm"),
    [
        ("foolbox:L2PGD", {"eps": 0.5, "steps": 2}, "l2"),
        ("art:PGD", {"eps": 0.5, "norm": "l2", "steps": 2}, "l2"),
        ("torchattacks:PGDL2", {"eps": 0.5, "steps": 2}, "l2"),
        ("torchattacks:APGD", {"eps": 0.5, "norm": "l2", "steps": 3}, "l2"),
        ("torchattack:PGDL2", {"eps": 0.5, "steps": 2}, "l2"),
        ("pyautoattack:apgd-ce", {"eps": 0.5, "norm": "l2", "steps": 3}, "l2"),
        ("torchattacks:PIFGSM", {"eps": 4 / 255, "steps": 2}, "linf"),
    ],
)
def test_other_balls(name: str, settings: dict[str, Any], norm: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack = interop.peer(name, **settings)
    assert attack.norm == norm
    delta = (attack(net, x, y) - x).flatten(1)
    size = delta.norm(dim=1) if norm == "l2" else delta.abs().amax(1)
    assert float(size.max()) <= settings["eps"] + 1e-5
    assert float(size.min()) > 0.5 * settings["eps"]


def test_an_attack_without_a_bound(net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack = made("foolbox:L2DeepFoolAttack", steps=20)
    assert attack.eps is None
    adv, info = attack(net, x, y, return_info=True)
    assert bool(info.success.all())
    cut = attack.with_(eps=0.01)(net, x, y)
    assert float((cut - x).flatten(1).norm(dim=1).max()) <= 0.01 + 1e-6 < float((adv - x).flatten(1).norm(dim=1).max())


def test_settings_in_either_words() -> None:
    assert interop.peer("art:pgd", steps=7, alpha=0.01).settings == (("eps_step", 0.01), ("max_iter", 7))
    assert interop.peer("foolbox:linfpgd", steps=7, alpha=0.01).settings == (("abs_stepsize", 0.01), ("steps", 7))
    changed = interop.peer("torchattacks:vmifgsm", N=2, steps=3, estimator="ti").with_(eps=0.1, steps=5)
    assert (changed.name, changed.eps) == ("torchattacks:VMIFGSM", 0.1)
    assert changed.settings == (("N", 2), ("steps", 5))
    assert changed.estimator == whorl.TranslationInvariant()
    assert interop.peer("foolbox:L2PGD", eps=1, norm="l2", alpha=0.1).norm == "l2"
    assert "eps=16/255, estimator=AffineInvariant(sigma='reference')" in repr(
        interop.peer("torchattacks:fgsm", estimator="ai")
    )


def test_the_number_of_classes_is_the_networks(net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack = made("torchattacks:APGDT", steps=2)  # left to itself it takes ten classes
    assert attack(net, x, y).shape == x.shape


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("torchatacks:FGSM", {}, "unknown library 'torchatacks'. Did you mean 'torchattack"),
        ("torchattacks:VMIFSGM", {}, "unknown attack of torchattacks 'VMIFSGM'. Did you mean 'vmifgsm'"),
        ("torchattacks:FGSM", {"step": 3}, "unknown setting 'step'"),
        ("torchattacks:FGSM", {"seed": 3}, "unknown setting 'seed'"),
        ("torchattacks:FGSM", {"eps": -1}, "eps must be a number >= 0; got -1"),
        ("torchattacks:FGSM", {"estimator": "affine"}, "unknown estimator 'affine'"),
        ("foolbox:L2PGD", {}, "foolbox:L2PGD needs eps, the radius of its l2 ball"),
        ("foolbox:LinfPGD", {"norm": "l2"}, "unknown setting 'norm'"),
    ],
)
def test_what_cannot_be_is_said(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WhorlError) as caught:
        interop.peer(name, **settings)
    assert message in str(caught.value)


def test_a_bad_value_is_said_when_the_attack_is_made(net: nn.Module, x: Tensor, y: Tensor) -> None:
    with pytest.raises(WhorlError, match=r"art:PGD cannot be made with .*max_iter"):
        made("art:PGD", steps=-1)(net, x, y)


def test_a_layer_is_found_inside_what_is_wrapped_around_it(net: nn.Module, x: Tensor, y: Tensor) -> None:
    clf = whorl.Classifier.from_module(small_net(), size=18, mean=(0.5,) * 3, std=(0.5,) * 3)
    adv = made("torchattack:FIA", feature_layer_cfg="3", steps=1, num_ens=1)(clf, x, clf(x).argmax(1))
    assert 0 < float((adv - x).abs().max()) <= EPS + 1e-6
    with pytest.raises(WhorlError, match="needs feature_layer_cfg to know where"):
        made("torchattack:FIA")(net, x, y)
    with pytest.raises(WhorlError, match="unknown layer 'layer9'"):
        made("torchattack:FIA", feature_layer_cfg="layer9")(net, x, y)


def test_what_a_library_lacks_is_named(net: nn.Module, x: Tensor, y: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(WhorlError, match="needs the package numba, which is not installed"):
        made("foolbox:L2BrendelBethgeAttack")(net, x, y)
    with pytest.raises(WhorlError, match="has no untargeted form"):
        made("foolbox:GenAttack", steps=1)(net, x, y)


def test_an_estimator_without_a_gradient_is_refused(net: nn.Module, x: Tensor, y: Tensor) -> None:
    with pytest.raises(WhorlError, match="takes no input gradient"):
        made("torchattacks:GN", estimator="ai")(net, x, y)
    assert made("torchattacks:GN")(net, x, y).shape == x.shape


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    with pytest.raises(WhorlError, match=r"needs the package torchattacks.*pip install 'torchwhorl\[interop\]'"):
        interop.peer("torchattacks:FGSM")


class Stray(nn.Module):
    """Peers that misbehave, as a library's attack class is made: on a network, then called on a batch."""

    supported_mode: tuple[str, ...] = ()

    def __init__(self, model: nn.Module, eps: float = 0.1, shift: float = 0.5) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.shift


@pytest.mark.parametrize(
    ("shift", "message"),
    [(float("nan"), "finite"), (2.0, r"must return images in \[0, 1\]"), (0.5, "must stay within eps = 0.1")],
)
def test_what_a_peer_returns_is_checked(
    shift: float, message: str, net: nn.Module, y: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchattacks = needs("torchattacks")
    monkeypatch.setattr(torchattacks, "FGSM", Stray)
    with pytest.raises(WhorlError, match=message):
        interop.peer("torchattacks:FGSM", eps=0.1, shift=shift)(net, torch.full((3, 3, 18, 18), 0.2), y)


def test_labels_must_be_classes(net: nn.Module, x: Tensor) -> None:
    with pytest.raises(WhorlError, match="labels must lie in"):
        made("foolbox:LinfPGD")(net, x, torch.tensor([0, 1, 7]))


def test_double_precision_and_a_bare_function(x: Tensor, y: Tensor, net: nn.Module) -> None:
    adv = made("foolbox:LinfPGD")(lambda z: net(z.float()).to(z.dtype), x.double(), y)
    assert adv.dtype == torch.float64


def test_randomness_is_given_back_after_an_error() -> None:
    before = torch.get_rng_state()

    def fails() -> None:
        with own_randomness(seed_of([5])):
            torch.rand(3)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert torch.equal(before, torch.get_rng_state())


def test_a_look_without_gradients_is_not_counted(net: nn.Module, x: Tensor) -> None:
    seen = PeerNetwork(net, whorl.identity, x)
    watched = x.clone().requires_grad_()
    with torch.no_grad():
        seen(watched)
    assert seen.passes.rows == []
    seen(watched).sum().backward()
    assert seen.passes.rows == [3]


@pytest.mark.parametrize("library", interop.library_names())
def test_every_name_can_be_looked_up(library: str) -> None:
    needs(library)
    names = interop.peer_names(library)
    assert len(names) > 5
    assert all(name.startswith(f"{library}:") for name in names)
