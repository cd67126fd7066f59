"""Attacks on several networks at once: logits, probabilities, losses, weights, different input sizes."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from conftest import random_images, small_net

Fuse = Literal["logits", "probabilities", "losses"]


def members() -> list[nn.Module]:
    return [
        whorl.Classifier.from_module(small_net(seed=s).double(), size=(18, 18), mean=(0.0,) * 3, std=(1.0,) * 3)
        for s in range(3)
    ]


def literal_loss(fuse: str, logits: list[Tensor], weights: list[float], y: Tensor) -> Tensor:
    if fuse == "logits":
        return F.cross_entropy(sum(w * z for w, z in zip(weights, logits, strict=True)), y)  # type: ignore[arg-type]  # a sum of tensors
    if fuse == "probabilities":
        mean = sum(w * z.softmax(1) for w, z in zip(weights, logits, strict=True))
        assert isinstance(mean, Tensor)
        return F.nll_loss(mean.log(), y)
    total = sum(w * F.cross_entropy(z, y) for w, z in zip(weights, logits, strict=True))
    assert isinstance(total, Tensor)
    return total


@pytest.mark.parametrize("fuse", ["logits", "probabilities", "losses"])
@pytest.mark.parametrize("weights", [None, [3.0, 1.0, 4.0]], ids=["equal", "weighted"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
def test_one_step_follows_the_fused_gradient(fuse: Fuse, weights: list[float] | None, wrapped: bool) -> None:
    nets, x = members(), random_images(3).double()
    y = torch.tensor([0, 1, 2])
    shares = [1 / 3] * 3 if weights is None else [w / 8 for w in weights]
    leaf = x.clone().requires_grad_()
    gradient = torch.zeros_like(x)
    for i in range(3):
        loss = literal_loss(fuse, [net(leaf[i : i + 1]) for net in nets], shares, y[i : i + 1])
        gradient += torch.autograd.grad(loss, leaf)[0]
    model: nn.Module = whorl.Ensemble(nets, weights=weights, fuse=fuse)
    if wrapped:
        estimator = whorl.AffineInvariant(kernel_size=5)
        model, gradient = estimator.wrap(model), estimator(gradient)
    adv = whorl.attack("fgsm", norm="l2", eps=0.01)(model, x, y)
    direction = (adv - x) / 0.01
    expected = gradient / gradient.flatten(1).norm(dim=1)[:, None, None, None]
    inside = (x > 0.01) & (x < 0.99)  # elsewhere the box may have clipped the step
    torch.testing.assert_close(direction[inside], expected[inside], rtol=0, atol=1e-7)


def test_members_with_different_input_sizes() -> None:
    nets = [
        whorl.Classifier.from_module(small_net(seed=s), size=(side, side), mean=(0.5,) * 3, std=(0.5,) * 3)
        for s, side in enumerate((18, 24, 32))
    ]
    x = random_images(4, 3, 20, 20)
    ensemble = whorl.Ensemble(nets)
    with torch.no_grad():
        y = ensemble(x).argmax(1)
    adv, info = whorl.attack("ai-mim", eps=0.3)(ensemble, x, y, return_info=True)
    assert adv.shape == x.shape
    assert int(info.success.sum()) >= 3
