"""``est.wrap(model)`` inside every library, on real weights: one step of theirs is the sign of our estimate."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from peer_libraries import needs

EPS = 16 / 255
SIDE = 96
EST = whorl.AffineInvariant()

Run = Callable[[nn.Module, Tensor, Tensor], Tensor]


def torchattacks_fgsm(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    adv: Tensor = import_module("torchattacks").FGSM(net, eps=EPS)(x, y)
    return adv


def torchattack_fgsm(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    adv: Tensor = import_module("torchattack").FGSM(net, device=x.device, eps=EPS)(x, y)
    return adv.detach()


def foolbox_fgsm(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    foolbox = import_module("foolbox")
    attack = foolbox.attacks.LinfFastGradientAttack()
    adv: Tensor = attack(foolbox.PyTorchModel(net, bounds=(0, 1), device=x.device), x, y, epsilons=EPS)[1]
    return adv


def art_fgsm(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    classifier = import_module("art.estimators.classification").PyTorchClassifier(
        model=net,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=1000,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = import_module("art.attacks.evasion").FastGradientMethod(classifier, eps=EPS)
    return torch.from_numpy(attack.generate(x.numpy(), y.numpy()))


ONE_STEP: dict[str, Run] = {
    "torchattacks": torchattacks_fgsm,
    "torchattack": torchattack_fgsm,
    "foolbox": foolbox_fgsm,
    "art": art_fgsm,
}


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    return whorl.load_model("resnet18")


@pytest.fixture(scope="module")
def photographs(clf: whorl.Classifier) -> tuple[Tensor, Tensor]:
    """Two photographs, small, and what the network takes them for."""
    x = whorl.load_samples(2, size=SIDE).x
    with torch.no_grad():
        return x, clf(x).argmax(1)


def literal_step(net: nn.Module, x: Tensor, y: Tensor, estimator: whorl.Estimator) -> Tensor:
    """Fast gradient sign by its definition, one image at a time."""
    steps = []
    for image, label in zip(x.split(1), y.split(1), strict=True):
        seen = image.clone().requires_grad_()
        [gradient] = torch.autograd.grad(F.cross_entropy(net(seen), label), seen)
        steps.append((image + EPS * estimator(gradient).sign()).clamp(0, 1))
    return torch.cat(steps)


def agreement(a: Tensor, b: Tensor) -> float:
    """Share of the values in which two images agree; the sign of what is nearly zero is anyone's guess."""
    return float(((a - b).abs() < 1e-5).float().mean())


@pytest.mark.parametrize("library", ONE_STEP)
def test_a_step_of_theirs_takes_our_gradient(
    library: str, clf: whorl.Classifier, photographs: tuple[Tensor, Tensor]
) -> None:
    needs(library)
    x, y = photographs
    adv = ONE_STEP[library](EST.wrap(clf).eval(), x, y)
    assert agreement(adv, literal_step(clf, x, y, EST)) > 0.999
    assert agreement(adv, literal_step(clf, x, y, whorl.identity)) < 0.9
    assert bool((clf(adv).argmax(1) != y).all())


def roughness(delta: Tensor) -> float:
    """How much neighbouring pixels of a perturbation differ, for its size."""
    return float((delta[..., 1:] - delta[..., :-1]).abs().mean() / delta.abs().mean())


def test_autoattack_takes_our_gradient(clf: whorl.Classifier, photographs: tuple[Tensor, Tensor]) -> None:
    pyautoattack = needs("pyautoattack")
    x, y = (part[:1] for part in photographs)
    made = {}
    for name, net in {"plain": clf, "wrapped": EST.wrap(clf).eval()}.items():
        attack = pyautoattack.AutoAttack(net, norm="Linf", eps=EPS, version="custom", attacks=["apgd-ce"], seed=0)
        attack.apgd.n_restarts, attack.apgd.n_iter = 1, 3
        made[name], _ = attack.run_standard_evaluation(x, y, batch_size=1)
        assert bool((clf(made[name]).argmax(1) != y).all())
        assert float((made[name] - x).abs().max()) <= EPS + 1e-6
    # What was averaged over translations, rotations and scalings changes less from pixel to pixel.
    assert roughness(made["wrapped"] - x) < 0.8 * roughness(made["plain"] - x)
