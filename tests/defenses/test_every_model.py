"""Every network with real weights behind every defence, on a real photograph."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from whorl.data import load_samples
from whorl.defenses import defense_names, load_defense
from whorl.models import Classifier, load_model, model_names

# Enough draws to go through the averaging; the full ten of randmix would only take longer.
FEW = {"resize-pad": {"samples": 2}, "randmix": {"samples": 2}}


@cache
def network(name: str) -> Classifier:
    return load_model(name)


@pytest.mark.parametrize("defense", defense_names())
@pytest.mark.parametrize("model", model_names("offline"))
def test_forward_and_input_gradient(model: str, defense: str) -> None:
    x, y, _ = load_samples(1)
    defended = load_defense(defense, network(model), **FEW.get(defense, {}))
    x.requires_grad_()
    logits = defended(x)
    assert logits.shape == (1, 1000)
    assert logits.isfinite().all()
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, y), x)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0
    assert defended.name == f"{model}+{defense}"


@pytest.mark.parametrize("model", model_names("offline"))
def test_samples_are_recognised(model: str) -> None:
    x, y, _ = load_samples()
    with torch.inference_mode():
        right = (network(model)(x).argmax(1) == y).sum()
    assert right >= 16
