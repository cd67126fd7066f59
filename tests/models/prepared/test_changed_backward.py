"""A prepared network's changed backward pass against the same changes by hooks on a copy."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from conftest import random_images
from network_cases import MEAN, STD, net_of, stirred
from whorl.models.architectures import build
from whorl.models.backward import Backward, BackwardRule, Sites, hook
from whorl.models.families import FAMILIES, ByFamily
from whorl.models.prepared import network
from whorl.models.prepared.fold import alias
from whorl.models.prepared.layers import Convolution, Rectifier, Stem
from whorl.models.prepared.network import Prepared, distance, prepared
from whorl.models.prepared.rewrite import Statistics, rewrite

BEST = Backward(skip=0.65, rectifier=2.0, late=0.5)
CHANGES = [Backward(skip=0.4), Backward(rectifier=1.5), Backward(rectifier=1.5, late=0.5), BEST]
RULES: list[BackwardRule] = [
    *CHANGES,
    Backward(rectifier=0.7, relative=True),
    Backward(join=0.6),
    Backward(pool=0.5),
    FAMILIES["concatenations"],
    ByFamily(),
]


class Basic(nn.Module):
    """As in ResNet-18: batch norms, one rectifier called twice, added in place."""

    def __init__(self, channels: int, out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.one, self.norm_1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.two, self.norm_2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.act = nn.ReLU(inplace=True)
        plain = stride == 1 and channels == out
        self.short = None if plain else nn.Sequential(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm_2(self.two(self.act(self.norm_1(self.one(x)))))
        out += x if self.short is None else self.short(x)
        done: Tensor = self.act(out)
        return done


class Inverted(nn.Module):
    """As in MobileNetV2: wide inside, depthwise, linear at its end."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 3 * channels
        self.conv = nn.Sequential(
            nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
            nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv(x)
        return out


class Concatenated(nn.Module):
    """As in Inception: branches side by side, two of which begin with 1×1 convolutions, one after a pool."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Conv2d(channels, out, 1), nn.ReLU6()) for out in (8, 6))
        self.c = nn.Sequential(nn.Conv2d(6, 9, 3, padding=1), nn.ReLU())
        self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(channels, 5, 1), nn.ReLU6())
        self.largest = nn.MaxPool2d(3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.c(self.b(x)), self.pool(x), self.largest(x), F.max_pool2d(x, 3, 1, 1)], 1)


class Attending(nn.Module):
    """As in a vision transformer: two residuals over tokens, with a rectifier between the dense layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm_1(x)).chunk(3, -1)
        x = x + self.out((query @ key.transpose(-2, -1)).softmax(-1) @ value)
        out: Tensor = x + self.dense(self.norm_2(x))
        return out


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 12, 4, 4), nn.Sequential(Attending(12), Attending(12))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return out.mean(1)


class Before(nn.Module):
    """Norm and rectifier before the convolution, and a part that cannot be read, with a rectifier and a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm2d(channels), nn.ReLU()
        self.conv, self.same = nn.Conv2d(channels, channels, 3, padding=1), nn.Identity()
        self.inner = Basic(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.same(self.conv(self.act(self.norm(x))))
        return self.inner(x) if float(x.detach().sum()) != 0.5 else x


class Nested(nn.Module):
    """A branch that is itself a residual block, and ends in its rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Basic(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.block(x)
        return out


class Outer(nn.Module):
    """Has a part that is a black box."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.inner = nn.Conv2d(3, 6, 3), Before(6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(self.conv(x))
        return out.mean((2, 3))


NETS: dict[str, Callable[[], nn.Module]] = {
    "residual": lambda: net_of(
        nn.Conv2d(3, 6, 7, 2, 3), nn.BatchNorm2d(6), nn.ReLU(), Basic(6, 6), nn.Dropout(), Basic(6, 8, stride=2)
    ),
    "inverted": lambda: net_of(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU6(), Inverted(6), Inverted(6)),
    "concatenated": lambda: net_of(
        nn.Conv2d(3, 12, 3, 2), nn.ReLU6(), Concatenated(12), nn.MaxPool2d(3, 2, ceil_mode=True), Concatenated(46)
    ),
    "tokens": Tokens,
    "black box": Outer,
    "nested": lambda: net_of(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), Nested(), Nested()),
}
WITHOUT_BRANCHES = {"concatenated"}


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    network.forget()
    yield
    network.forget()


def answers(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and input gradient."""
    leaf = x.clone().requires_grad_()
    out = net(leaf)
    (gradient,) = torch.autograd.grad(out.square().sum(), leaf)
    return out.detach(), gradient


def hooked(net: nn.Module, backward: BackwardRule, x: Tensor) -> tuple[nn.Module, Sites]:
    """A copy with hooks, and where they are."""
    changed = alias(net)
    sites = backward.sites(changed, x)
    hook(changed, sites)
    return changed, sites


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("backward", RULES, ids=repr)
def test_a_rewritten_backward_pass_is_the_hooked_one(name: str, backward: BackwardRule) -> None:
    torch.manual_seed(0)
    net, x = stirred(NETS[name]()), random_images(2, height=24, width=24).double()
    changed, sites = hooked(net, backward, x)
    if isinstance(backward, Backward) and backward.join == 1:
        assert bool(sites.branches) == (backward.skip < 1 and name not in WITHOUT_BRANCHES)
    expected, plain = answers(changed, x), answers(net, x)
    # The changes do something, wherever there is something to change.
    assert (distance(plain[1], expected[1]) > 0.005) == any(sites)
    made = rewrite(copy.deepcopy(net), changes=sites)
    assert made is not None
    for ours, theirs in zip(answers(made.net, x), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        ("torchvision:resnet18", 64),
        ("whorl:inception_v3", 79),
        ("torchvision:mobilenet_v2", 64),
        ("timm:tf_efficientnet_lite0", 65),
        ("timm:vit_tiny_patch16_224", 224),
    ],
)
def test_real_architectures(architecture: str, size: int) -> None:
    torch.manual_seed(0)
    net = stirred(build(architecture, num_classes=10)[0])
    x = random_images(1, height=size, width=size).double()
    changed, sites = hooked(net, BEST, x)
    assert sites.branches or sites.rectifiers
    made = rewrite(copy.deepcopy(net), stem=Statistics((0.0,) * 3, (1.0,) * 3), changes=sites)
    assert made is not None
    for ours, theirs in zip(answers(made.net, x), answers(changed, x), strict=True):
        assert distance(ours, theirs) < 1e-8
    if "vit" not in architecture:
        # All of it is in the layers: no hook and no rectifier is left beside them.
        assert not any(node.op == "call_function" and "scale" in str(node.target) for node in made.net.graph.nodes)
        assert not any(isinstance(module, Rectifier) for module in made.net.modules())


def test_a_factor_lies_in_the_weights_of_the_gradient_alone() -> None:
    net, x = stirred(NETS["residual"]()), random_images(2, height=24, width=24).double()
    _, sites = hooked(net, BEST, x)
    made = rewrite(copy.deepcopy(net), changes=sites)
    assert made is not None
    found = [layer for layer in made.net.modules() if isinstance(layer, Convolution)]
    scaled = [layer for layer in found if layer.back is not None]
    assert len(scaled) == 2
    for layer in scaled:
        assert layer.back is not None
        torch.testing.assert_close(layer.back, 0.65 * layer.weight)
    # The last rectifier of three, which is called twice.
    assert [layer.parts[0].smooth for layer in found].count(2.0) == 2


def classifier(name: str = "residual", *, seed: int = 0, size: int = 24) -> whorl.Classifier:
    torch.manual_seed(seed)
    return whorl.Classifier.from_module(stirred(NETS[name]()).float(), size=size, mean=MEAN, std=STD)


def check_changed(made: nn.Module, model: nn.Module, x: Tensor) -> None:
    """Hold a prepared network in bfloat16 against the model itself, changed by hooks."""
    with BEST.applied(model, x) as changed:
        expected = answers(changed, x)
    for ours, theirs, most in zip(answers(made, x), expected, (0.02, 0.05), strict=True):
        assert distance(ours, theirs) < most


def test_a_prepared_classifier_has_the_changed_gradient() -> None:
    clf, x = classifier(), random_images(3, height=24, width=24)
    kept = prepared(clf, BEST)
    assert kept is not None
    assert kept.network is not None
    check_changed(kept.network, clf, x)
    plain = prepared(clf)
    assert plain is not None
    assert plain is not kept
    assert prepared(clf, BEST) is kept
    assert prepared(clf, Backward(late=0.3)) is plain  # which changes nothing
    assert prepared(clf, Backward(skip=0.5)) is not kept
    stem = kept.network.get_submodule("net").modules()
    assert any(isinstance(module, Stem) for module in stem)
    assert not any(module._forward_hooks for module in clf.modules())


@pytest.mark.parametrize(
    "wrong", [Sites(), Sites(rectifiers=(("net.2", 2.0), ("net.3.act", 2.0), ("net.5.act", 2.0)))], ids=repr
)
def test_a_rewrite_that_changes_something_else_is_refused(wrong: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = classifier()

    def spoiled(net: nn.Module, *, changes: Sites, **settings: Any) -> Any:
        assert changes != wrong
        return rewrite(net, changes=wrong.of("net"), **settings)

    sites = BEST.sites(alias(clf), random_images(1, height=24, width=24))
    Prepared(clf, changes=sites)
    monkeypatch.setattr("whorl.models.prepared.network.rewrite", spoiled)
    with pytest.raises(ValueError, match="answers otherwise"):
        Prepared(clf, changes=sites)
    assert prepared(clf, BEST) is None


@pytest.mark.parametrize("fuse", ["logits", "losses"])
def test_an_ensemble_of_mixed_sizes(fuse: Any) -> None:
    both = whorl.Ensemble([classifier("nested"), classifier("inverted", seed=1, size=20)], fuse=fuse)
    x = random_images(2, height=24, width=24)
    kept = prepared(both, BEST)
    assert kept is not None
    assert kept.network is not None
    check_changed(kept.network, both, x)


def test_a_network_without_branches_is_said_to_have_none_once() -> None:
    clf = classifier("concatenated")
    with pytest.warns(UserWarning, match="has no branch of the kind that"):
        assert prepared(clf, BEST) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for backward in (BEST, Backward(rectifier=2.0), ByFamily()):
            assert prepared(clf, backward) is not None


def test_threads_share_a_model_with_different_changes() -> None:
    clf, x = classifier(), random_images(3, height=24, width=24)
    expected = []
    for backward in CHANGES:
        with backward.applied(clf, x) as changed:
            expected.append(answers(changed, x)[1])
    found: dict[int, float] = {}

    def attack(place: int) -> None:
        for _ in range(3):
            kept = prepared(clf, CHANGES[place])
            assert kept is not None
            assert kept.network is not None
            found[place] = distance(answers(kept.network, x)[1], expected[place])

    threads = [threading.Thread(target=attack, args=(place,)) for place in range(len(CHANGES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(len(CHANGES)))
    assert max(found.values()) < 0.05
