"""A prepared classifier answers as it did; what is prepared, when again, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import whorl
from conftest import random_images
from network_cases import MEAN, NETS, STD, stirred
from whorl.models.prepared import network
from whorl.models.prepared.layers import Convolution
from whorl.models.prepared.network import Prepared
from whorl.models.prepared.rewrite import rewrite
from whorl.models.prepared.versions import tensors_of


def classifier() -> whorl.Classifier:
    torch.manual_seed(0)
    net = stirred(NETS["branches"]()).float()
    return whorl.Classifier.from_module(net, size=24, mean=MEAN, std=STD, resize="bicubic")


@pytest.mark.parametrize("side", [24, 31])
def test_a_prepared_classifier_answers_as_it_did(side: int) -> None:
    clf, x = classifier(), random_images(3, height=side, width=side)
    expected = clf(x)
    spread = float(expected.abs().max())
    exact = Prepared(clf, torch.float32)
    torch.testing.assert_close(exact(x), expected, rtol=1e-4, atol=1e-5)
    answer = Prepared(clf)(x)
    assert answer.dtype == torch.float32
    assert float((answer - expected).abs().max()) < 0.05 * spread
    assert torch.equal(clf(x), expected)  # the classifier itself is as it was


def test_weights_are_channels_last_and_biases_float32() -> None:
    made = Prepared(classifier())
    for layer in made.modules():
        if isinstance(layer, Convolution):
            assert layer.weight.dtype == torch.bfloat16
            assert layer.bias.dtype == torch.float32
            _, inner, rows, columns = layer.weight.shape
            assert layer.weight.stride() == (rows * columns * inner, 1, columns * inner, inner)


def test_a_rewrite_that_answers_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(net: nn.Module, **settings: Any) -> Any:
        made = rewrite(net, **settings)
        assert made is not None
        for parameter in made[0].parameters():
            parameter.data.mul_(1.05)
        return made

    monkeypatch.setattr("whorl.models.prepared.network.rewrite", spoiled)
    with pytest.raises(ValueError, match="answers otherwise: answers and gradients lie"):
        Prepared(classifier())
    assert network.prepared(classifier()) is None


def test_where_float32_is_far_from_the_truth_a_rewrite_may_be_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.models.prepared.network._TOLERANCES", (0.0, 0.0))
    monkeypatch.setattr("whorl.models.prepared.network._NO_WORSE", 100)
    Prepared(classifier())
    monkeypatch.setattr("whorl.models.prepared.network._NO_WORSE", 0)
    with pytest.raises(ValueError, match="answers otherwise"):
        Prepared(classifier())


def test_it_is_prepared_once_and_again_when_weights_change() -> None:
    clf = classifier()
    first = network.prepared(clf)
    assert first is not None
    assert network.prepared(clf) is first
    weight = next(clf.parameters())
    with torch.no_grad():
        weight.mul_(2)
    second = network.prepared(clf)
    assert second is not None
    assert second is not first
    assert second.network is not None
    x = random_images(2, height=24, width=24)
    torch.testing.assert_close(second.network(x), clf(x), rtol=0.1, atol=0.1)
    # One that keeps changing is being trained, and is used as it is.
    for _ in range(3):
        with torch.no_grad():
            weight.mul_(1.01)
        last = network.prepared(clf)
    assert last is None


def test_a_first_look_in_inference_mode_prepares_as_well() -> None:
    clf = classifier()
    with torch.inference_mode():
        first = network.prepared(clf)
    assert first is not None
    assert network.prepared(clf) is first
    assert first.network is not None
    assert not any(t.is_inference() for t in tensors_of(first.network.modules()))


def test_nothing_is_kept_of_a_model_that_is_gone() -> None:
    network.forget()
    clf = classifier()
    assert network.prepared(clf) is not None
    assert len(network._KEPT) == 1
    del clf
    assert len(network._KEPT) == 0


def test_only_what_is_known_is_prepared() -> None:
    clf = classifier()
    assert network.prepared(clf.net) is None
    assert network.prepared(classifier().double()) is None
    assert network.prepared(whorl.AffineInvariant().wrap(clf)) is None
    assert network.prepared(whorl.load_defense("jpeg", clf)) is None
    assert network.prepared(lambda x: clf(x)) is None
    hook = clf.net.register_forward_hook(lambda *_: None)
    assert network.prepared(clf) is None
    hook.remove()
    assert network.prepared(clf) is not None
    clf.net.forward = clf.net.forward
    assert network.prepared(clf) is None
