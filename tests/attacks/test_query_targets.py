"""Whatever answers can be attacked: a classifier, a defended one, an ONNX file, a function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import whorl
from blackbox import Watched, labels_of
from cli.toy_networks import classifier
from conftest import random_images, small_net

NAMES = [*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision")]
every_attack = pytest.mark.parametrize("name", [name for name in NAMES if name != "prgf"])


class Rounding(nn.Module):
    """Sees images in 8 bits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.model((x * 255).round() / 255)
        return answer


def short(name: str, budget: int = 250) -> whorl.Attack:
    samples = {"samples": 20} if name in whorl.attack_names(kind="score") else {}
    return whorl.attack(name, budget=budget, **samples)


@every_attack
@pytest.mark.parametrize("defense", whorl.defense_names())
def test_behind_every_defence(name: str, defense: str) -> None:
    x = random_images(4)
    target = Watched(whorl.load_defense(defense, classifier(small_net(), "small"), seed=3))
    y = labels_of(target, x)
    target.seen = 0
    budget = 30 if name in whorl.attack_names(kind="decision") else 90
    adv, info = short(name, budget)(target, x, y, ids=list("abcd"), return_info=True)
    assert info.queries is not None
    assert int(info.queries.sum()) == target.seen
    assert int(info.queries.max()) <= budget
    # A random defence draws by the image, so what was found adversarial is so whenever it is asked again.
    assert torch.equal(info.success, labels_of(target, adv) != y)
    again = short(name, budget)(target, x, y, ids=list("abcd"))
    assert torch.equal(adv, again)


def test_a_random_defence_draws_anew_for_every_query() -> None:
    x = random_images(1).expand(50, -1, -1, -1)
    probes = (x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    net = classifier(small_net(), "small")
    defended = whorl.load_defense("resize-pad", net)
    with torch.no_grad():
        spread, plain = defended(probes).std(0).mean(), net(probes).std(0).mean()
    assert float(spread) > 20 * float(plain)


def write_linear(path: Path, classes: int = 7, side: int = 18) -> Path:
    """A linear classifier as an ONNX file."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).normal(size=(3 * side * side, classes)).astype(np.float32)
    weight -= weight.mean(0)  # or how bright an image is would decide alone
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
        ],
        "linear",
        [helper.make_tensor_value_info("image", kind, ["n", 3, side, side])],
        [helper.make_tensor_value_info("logits", kind, ["n", classes])],
        [helper.make_tensor("weight", kind, weight.shape, weight)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@every_attack
def test_an_onnx_file(name: str, tmp_path: Path) -> None:
    target = Watched(whorl.load_model(f"onnx:{write_linear(tmp_path / 'net.onnx')}"))
    x = random_images(4)
    y = labels_of(target, x)
    target.seen = 0
    adv, info = short(name)(target, x, y, return_info=True)
    assert info.queries is not None
    assert int(info.queries.sum()) == target.seen
    assert torch.equal(info.success, labels_of(target, adv) != y)
    assert int(info.success.sum()) >= 3


@every_attack
def test_a_function(name: str) -> None:
    net, x, seen = small_net(), random_images(4), 0

    def service(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        # Through numpy, as over a wire: nothing of the graph is left.
        return torch.from_numpy(net(torch.from_numpy(images.numpy())).numpy())

    y = labels_of(net, x)
    adv, info = short(name)(service, x, y, return_info=True)
    assert info.queries is not None
    assert int(info.queries.sum()) == seen
    assert torch.equal(adv, short(name)(net, x, y))


@pytest.mark.gpu
@every_attack
@pytest.mark.parametrize("defense", ["none", *whorl.defense_names()])
def test_on_a_gpu(name: str, defense: str) -> None:
    net: nn.Module = classifier(small_net(), "small").cuda()
    target = Watched(net if defense == "none" else whorl.load_defense(defense, net))
    x = random_images(4).cuda()
    y = labels_of(target, x)
    target.seen = 0
    adv, info = short(name, 90)(target, x, y, ids=list("abcd"), return_info=True)
    assert info.queries is not None
    assert int(info.queries.sum()) == target.seen
    assert adv.device == x.device
    assert torch.equal(info.success, labels_of(target, adv) != y)


@pytest.mark.parametrize("name", ["nes", "spsa"])
def test_a_target_that_rounds_to_8_bits_does_not_stop_an_attack(name: str) -> None:
    """Draws of a quarter level around a clean image all look the same to it; the first step is then a random one."""
    x, target = random_images(4), Rounding(small_net())
    y = labels_of(target, x)
    adv, info = short(name, 2000)(target, x, y, ids=list("abcd"), return_info=True)
    assert ((adv - x).abs().amax((1, 2, 3)) > 0.5 / 255).all()
    assert info.success.all()
