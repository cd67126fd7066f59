"""Inception-v3 against the quantised file computed operator by operator in float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import nn

import whorl
from conftest import random_images
from whorl.artifacts import fetch
from whorl.errors import WhorlError
from whorl.models import inception, load_model
from whorl.models.architectures import imagenet_labels
from whorl.models.inception import read_quantised_inception
from whorl.models.networks import NETWORKS
from whorl.models.prepared.network import Prepared, prepared
from whorl.models.tflite import Operator, QuantisedGraph, read_tflite

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def path() -> Path:
    [path] = fetch(NETWORKS["inception_v3"].artifact).values()
    return path


@pytest.fixture(scope="module")
def graph(path: Path) -> QuantisedGraph:
    return read_tflite(path)


def windows(x: Array, size: tuple[int, int], step: Operator, fill: float) -> Array:
    """TensorFlow's windows of a (H, W, C) image: (rows, columns, C, height, width)."""
    pads = []
    for side, kernel, stride in zip(x.shape, size, step.stride, strict=False):
        out = -(-side // stride)
        whole = max((out - 1) * stride + kernel - side, 0) if step.padding == "SAME" else 0
        pads.append((whole // 2, whole - whole // 2))  # the odd one goes to the end
    padded = np.pad(x, (*pads, (0, 0)), constant_values=fill)
    return sliding_window_view(padded, size, axis=(0, 1))[:: step.stride[0], :: step.stride[1]]


def computed(graph: QuantisedGraph, image: Array) -> dict[str, Array]:
    """All activations by name, as the definition of each operator has them, clamped to what 8 bits hold."""
    known: dict[int, Array] = {graph.input: image}
    for step in graph.operators:
        x = known[step.inputs[0]]
        if step.kind == "convolution":
            kernel, bias = (graph.tensors[number].values().numpy() for number in step.inputs[1:])
            seen = windows(x, (kernel.shape[1], kernel.shape[2]), step, 0.0)
            made = np.tensordot(seen, kernel, ([2, 3, 4], [3, 1, 2])) + bias
        elif step.kind == "max pool":
            made = windows(x, step.window, step, -np.inf).max((3, 4))
        elif step.kind == "average pool":
            made = np.nanmean(windows(x, step.window, step, np.nan), (3, 4))  # of the pixels inside
        elif step.kind == "concatenation":
            made = np.concatenate([known[number] for number in step.inputs], step.axis - 1)  # without the batch
        else:
            made = x.reshape(-1)
        known[step.output] = made.clip(*graph.tensors[step.output].range())
    return {graph.tensors[number].name: made for number, made in known.items()}


def test_every_block_computes_what_the_file_says(graph: QuantisedGraph) -> None:
    clf = load_model("inception_v3", dtype=torch.float64)
    x = random_images(1, height=299, width=299).double()
    names = [name for name, _ in clf.net.named_children() if name.startswith(("Conv", "Mixed"))]
    seen: dict[str, torch.Tensor] = {}
    for name in names:
        clf.net.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: seen.update({name: out}))
    logits = clf(x)[0]
    known = computed(graph, 2 * x[0].permute(1, 2, 0).numpy() - 1)
    limits = {tensor.name: tensor.range()[1] for tensor in graph.tensors if tensor.dtype == torch.uint8}
    for name in names:
        end = f"InceptionV3/InceptionV3/{name}/{'Relu' if name.startswith('Conv') else 'concat'}"
        expected, ours = torch.from_numpy(known[end]).permute(2, 0, 1), seen[name][0]
        assert ours.shape == expected.shape
        # Channels of the module have units of their own: of each, a multiple.
        unit = (ours * expected).sum((1, 2)) / ours.square().sum((1, 2)).clamp_min(1e-12)
        torch.testing.assert_close(ours * unit[:, None, None], expected, rtol=1e-4, atol=1e-4)
        if name.startswith("Conv"):
            assert unit[unit > 0].tolist() == pytest.approx([limits[end] / 6] * int((unit > 0).sum()), rel=1e-4)
    assert sum(bool((made >= limits[name]).any()) for name, made in known.items()) >= 3  # the clamps are needed
    low, high = graph.tensors[graph.output].range()
    torch.testing.assert_close(logits.clamp(low, high), torch.from_numpy(known["output"][1:]), rtol=1e-4, atol=1e-4)


def test_the_classifier() -> None:
    clf = load_model("Inception-v3")
    assert (clf.name, clf.size, clf.mean, clf.std) == ("inception_v3", (299, 299), (0.5,) * 3, (0.5,) * 3)
    assert clf.labels == imagenet_labels()
    assert clf.weights_sha256 == "054925b3cfc1edf48640a862a42cd58dd43bf20f2a2d40b38e949bbe05d1e4c6"
    assert {type(layer) for layer in clf.net.modules() if not list(layer.children())} == {
        nn.Conv2d,
        nn.ReLU6,
        nn.MaxPool2d,
        nn.AvgPool2d,
        nn.AdaptiveAvgPool2d,
        nn.Flatten,
        nn.Linear,
    }


def test_preparing_takes_all_of_it() -> None:
    clf = load_model("inception_v3")
    made = Prepared(clf, torch.float32)  # raises where answers or gradients differ
    assert made.takes_images
    assert not any(
        isinstance(layer, nn.Conv2d | nn.ReLU6 | nn.MaxPool2d | nn.AvgPool2d) for layer in made.net.modules()
    )
    kept = prepared(clf)
    assert kept is not None
    x, _, _ = whorl.load_samples(2)
    assert kept.network is not None
    with torch.no_grad():
        assert torch.equal(kept.network(x).argmax(1), clf(x).argmax(1))


def test_an_attack_fools_it() -> None:
    clf = load_model("inception_v3")
    x, y, _ = whorl.load_samples(2)
    adv = whorl.attack("ai-mim", steps=2)(clf, x, y)
    with torch.no_grad():
        assert (clf(x).argmax(1) == y).all()
        assert (clf(adv).argmax(1) != y).all()


@pytest.mark.parametrize("change", ["stride", "padding", "fused", "missing", "order", "range"])
def test_another_network_is_refused(
    graph: QuantisedGraph, path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    steps, tensors = list(graph.operators), list(graph.tensors)
    at = next(place for place, step in enumerate(steps) if step.kind == "concatenation")
    if change == "stride":
        steps[2] = replace(steps[2], stride=(2, 2))
    elif change == "padding":
        steps[2] = replace(steps[2], padding="VALID")
    elif change == "fused":
        steps[at] = replace(steps[at], fused=1)
    elif change == "missing":
        del steps[2]
    elif change == "order":
        steps.append(steps.pop(2))
    else:
        place = steps[at].output
        tensors[place] = replace(tensors[place], scale=(tensors[place].scale or 0) / 2)
    made = replace(graph, operators=tuple(steps), tensors=tuple(tensors))
    monkeypatch.setattr(inception, "read_tflite", lambda _: copy.copy(made))
    with pytest.raises(WhorlError, match="must hold TF-slim's Inception-v3"):
        read_quantised_inception(path)


def test_without_npm_the_error_names_the_other_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WhorlError, match=r"Install Node\.js(.|\n)*load 'inc_v3'"):
        load_model("inception_v3")
