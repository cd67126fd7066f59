"""A rewritten network computes what the network computes; checked in float64, where rounding cannot hide a mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from conftest import pictures
from whorl.fast import network
from whorl.fast.layers import AveragePool, Concatenation, Convolution, MaxPool, SamePadded, Stem
from whorl.fast.network import Prepared, Recipe
from whorl.fast.pointwise import Pool
from whorl.fast.rewrite import Statistics, rewrite
from whorl.fast.tracing import trace
from whorl.models.architectures import build

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


class Block(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, channels: int, out: int, side: int, *, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, side, stride=stride, padding=padding, bias=False)
        self.norm = nn.BatchNorm2d(out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True)


class Normalise(nn.Module):
    """As a classifier does it."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = (torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1) for values in (mean, std))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Branches(nn.Module):
    """As in Inception: 1×1 convolutions of one input, one of them after an average pool."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b, self.c = Block(channels, 8, 1), Block(channels, 6, 1), Block(6, 9, 3, padding=1)
        self.pool = Block(channels, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pool(F.avg_pool2d(x, 3, stride=1, padding=1))
        return torch.cat([self.a(x), self.c(self.b(x)), pooled], 1)


class Residual(nn.Module):
    """As in a residual network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Block(channels, channels, 3, padding=1)
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(self.first(x)))
        out += x
        return F.relu(out)


class Shared(nn.Module):
    """What lies between a convolution and its batch norm is looked at by something else too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        out: Tensor = self.norm(z) + z.abs()
        return out.mean((2, 3))


class Overwritten(nn.Module):
    """A convolution sees its input after something else has changed that in place."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.a, self.b = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 4, 1), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.start(x) * 1.0
        same = z.clamp_(min=0.1)
        out: Tensor = self.a(z) * self.b(z) + same.mean()
        return out.mean((2, 3))


def net_of(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def stirred(net: nn.Module) -> nn.Module:
    """With batch norms that do something."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(-1.5, 1.5)
            module.bias.data.normal_(0, 0.2)
    return net.double().eval().requires_grad_(False)


NETS: dict[str, Callable[[], nn.Module]] = {
    "branches": lambda: net_of(Block(3, 12, 3, stride=2), Branches(12), nn.MaxPool2d(3, 2), Branches(22)),
    "residual": lambda: net_of(
        nn.Conv2d(3, 6, 7, stride=2, padding=3), nn.ReLU(), Residual(6), nn.Dropout(), Residual(6)
    ),
    "depthwise": lambda: net_of(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU6(), nn.Conv2d(6, 6, 3, groups=6), nn.BatchNorm2d(6)),
    "even kernel": lambda: net_of(nn.Conv2d(3, 5, 4, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    "kernel of one": lambda: net_of(nn.Conv2d(3, 5, 1, stride=2), nn.Tanh()),
    "shared": Shared,
    "overwritten": Overwritten,
}


def both(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Answers and input gradient."""
    leaf = x.clone().requires_grad_()
    out = f(leaf)
    (gradient,) = torch.autograd.grad(out.square().sum(), leaf)
    return out.detach(), gradient


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("side", [21, 22, 24])
def test_rewritten_networks_compute_the_same(name: str, side: int) -> None:
    torch.manual_seed(0)
    net, x = stirred(NETS[name]()), pictures(2, height=side, width=side + 3).double()
    expected = both(nn.Sequential(Normalise(MEAN, STD), net), x)
    for hand, merge, stem in product((True, False), (True, False), (None, Statistics(MEAN, STD))):
        made = rewrite(copy.deepcopy(net), hand=hand, merge=merge, stem=stem)
        assert made is not None
        shown = nn.Identity() if made.takes_pictures else Normalise(MEAN, STD)
        found = both(nn.Sequential(shown, made.net), x)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


_LAYERS = (Convolution, MaxPool, AveragePool, Concatenation, Stem, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d)


def layers(net: nn.Module, **settings: bool) -> list[nn.Module]:
    made = rewrite(copy.deepcopy(net), stem=Statistics(MEAN, STD), **settings)
    assert made is not None
    return [m for m in made.net.modules() if isinstance(m, _LAYERS)]


def test_what_is_folded_and_merged() -> None:
    found = layers(stirred(NETS["branches"]()))
    kinds = [type(layer) for layer in found]
    assert kinds.count(Stem) == 1
    assert kinds.count(nn.BatchNorm2d) == 0
    # the stem's own, and of each block of branches the merged one and the 3×3
    convolutions = [layer for layer in found if isinstance(layer, Convolution)]
    assert sorted(len(layer.parts) for layer in convolutions) == [1, 1, 1, 3, 3]
    pools = [[part.pool is not None for part in layer.parts] for layer in convolutions if len(layer.parts) == 3]
    assert pools == [[False, False, True]] * 2
    assert kinds.count(MaxPool) == 1
    assert kinds.count(Concatenation) == 2
    # residual: the additions and what follows them are inside
    [stem, *rest] = [layer for layer in layers(stirred(NETS["residual"]())) if isinstance(layer, Convolution)]
    assert [layer.parts[0].act for layer in (stem, *rest)] == ["relu"] * 5


def test_what_is_left_alone() -> None:
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in layers(stirred(Shared())))
    merged = [layer for layer in layers(stirred(Overwritten())) if isinstance(layer, Convolution)]
    assert all(len(layer.parts) == 1 for layer in merged)


@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_inception_is_made_of_own_layers_alone() -> None:
    found = layers(build("torchvision:inception_v3", num_classes=10)[0].eval())
    kinds = [type(layer) for layer in found]
    # all four max pools, modules and functions; nine average pools behind 1×1 convolutions; eleven concatenations
    assert kinds.count(MaxPool) == 4
    assert kinds.count(Concatenation) == 11
    assert not {AveragePool, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d} & set(kinds)
    parts = [part for layer in found if isinstance(layer, Convolution) for part in layer.parts]
    assert sum(part.pool is not None for part in parts) == 9
    made = rewrite(build("torchvision:inception_v3", num_classes=10)[0].eval())
    assert made is not None
    assert not any(node.target is torch.cat for node in made.net.graph.nodes)


class Joined(nn.Module):
    """Concatenates two convolutions and a max pool, in one of several ways."""

    def __init__(self, how: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.start, self.a, self.b = Block(3, 6, 3), Block(6, 5, 3, stride=2), Block(6, 4, 3, stride=2)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        z = self.start(x)
        return self.how(self.a(z), self.b(z), F.max_pool2d(z, kernel_size=3, stride=2)).mean((2, 3))


JOINED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], bool]] = {
    "cat": (lambda a, b, c: torch.cat([a, b, c], 1), True),
    "concat, axis": (lambda a, b, c: torch.concat((c, a, b), axis=-3), True),  # type: ignore[call-arg]
    "nested": (lambda a, b, c: torch.cat([a, torch.cat([c, b], dim=1)], dim=1), True),
    "seen by another": (lambda a, b, c: torch.cat([a, b, c], 1) + a.mean(), False),
    "twice the same": (lambda a, b, c: torch.cat([a, b, c, a], 1), False),
    "other axis": (lambda a, b, c: torch.cat([a[:, :4], b, c[:, :4]], 2), False),
    "other kinds": (lambda a, b, c: torch.cat([a, b.tanh(), c], 1), False),
    "overwritten": (lambda a, b, c: torch.cat([a, b, c], 1).mul_(2.0), False),
    "overwritten as a view": (lambda a, b, c: torch.cat([a, b, c], 1).flatten(2).unsqueeze(3).sub_(1.0), False),
}


@pytest.mark.parametrize("name", JOINED)
def test_what_is_concatenated_is_written_where_it_belongs(name: str) -> None:
    torch.manual_seed(0)
    how, fused = JOINED[name]
    net, x = stirred(Joined(how)), pictures(2, height=15, width=17).double()
    made = rewrite(copy.deepcopy(net))
    assert made is not None
    assert any(isinstance(module, Concatenation) for module in made.net.modules()) == fused
    for ours, theirs in zip(both(made.net, x), both(net, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    # Twice in a row, and two at a time: a room is not kept.
    first, second = made.net(x), made.net(x + 0.1)
    torch.testing.assert_close(first, net(x))
    torch.testing.assert_close(second, net(x + 0.1))


def test_concatenated_pieces_are_not_copied() -> None:
    """What comes out of the layers lies in the concatenation already, and gradients go back as views."""
    torch.manual_seed(0)
    made = rewrite(stirred(Joined(JOINED["cat"][0])))
    assert made is not None
    seen: list[tuple[Any, ...]] = []
    [layer] = [module for module in made.net.modules() if isinstance(module, Concatenation)]
    layer.register_forward_hook(lambda _, given, out: seen.append((*given[1:], out)))
    made.net(pictures(2, height=15, width=17).double())
    [(a, b, pooled, whole)] = seen
    assert a.data_ptr() == whole.data_ptr()
    assert b.data_ptr() == whole[:, 5:].data_ptr()
    # The plain max pool cannot write elsewhere; the kernel can.
    assert pooled.data_ptr() != whole[:, 9:].data_ptr()
    assert torch.equal(torch.cat([a, b, pooled], 1), whole)


def test_a_graph_that_cannot_be_read() -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3)) if float(x.sum()) > 0 else x.amax((2, 3))

    assert trace(Choosing()) is None

    class Silent(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            z = x * 1.0
            z.clamp_(min=0.1)  # nothing in the graph says that the next line sees this
            return z.mean((2, 3))

    assert rewrite(Silent()) is None
    # As a part it stays what it is, and the rest is rewritten.
    net = stirred(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Choosing()))
    made = rewrite(copy.deepcopy(net))
    assert made is not None
    x = pictures(2).double()
    torch.testing.assert_close(made.net(x), net(x))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in made.net.modules())


@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        ("torchvision:resnet18", 64),
        ("torchvision:inception_v3", 79),
        ("torchvision:mobilenet_v2", 64),
        ("timm:tf_efficientnet_lite0", 65),
    ],
)
@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_real_architectures_compute_the_same(architecture: str, size: int) -> None:
    torch.manual_seed(0)
    net = stirred(build(architecture, num_classes=10)[0])
    x = pictures(1, height=size, width=size).double()
    expected = both(nn.Sequential(Normalise(MEAN, STD), net), x)
    made = rewrite(copy.deepcopy(net), stem=Statistics(MEAN, STD))
    assert made is not None
    assert not any(isinstance(module, nn.BatchNorm2d) for module in made.net.modules())
    padded = any(isinstance(module, SamePadded) for module in made.net.modules())
    assert made.takes_pictures == (not padded)
    shown = nn.Identity() if made.takes_pictures else Normalise(MEAN, STD)
    found = both(nn.Sequential(shown, made.net), x)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-9


# ---------------------------------------------------------------------------------------------------------------------
# Classifiers


def classifier() -> whorl.Classifier:
    torch.manual_seed(0)
    net = stirred(NETS["branches"]()).float()
    return whorl.Classifier.from_module(net, size=24, mean=MEAN, std=STD, resize="bicubic")


@pytest.mark.parametrize("side", [24, 31])
def test_a_prepared_classifier_answers_as_it_did(side: int) -> None:
    clf, x = classifier(), pictures(3, height=side, width=side)
    expected = clf(x)
    spread = float(expected.abs().max())
    exact = Prepared(clf, Recipe(dtype=torch.float32))
    torch.testing.assert_close(exact(x), expected, rtol=1e-4, atol=1e-5)
    for recipe in (Recipe(), Recipe(fold=False), Recipe(stem=False, merge=False), Recipe(hand=False)):
        answer = Prepared(clf, recipe)(x)
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

    monkeypatch.setattr("whorl.fast.network.rewrite", spoiled)
    with pytest.raises(ValueError, match="answers otherwise: answers and gradients lie"):
        Prepared(classifier())
    assert network.prepared(classifier()) is None


def test_where_float32_is_far_from_the_truth_a_rewrite_may_be_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.fast.network._TOLERANCES", (0.0, 0.0))
    monkeypatch.setattr("whorl.fast.network._NO_WORSE", 100)
    Prepared(classifier())
    monkeypatch.setattr("whorl.fast.network._NO_WORSE", 0)
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
    x = pictures(2, height=24, width=24)
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
    assert not any(t.is_inference() for t in network._tensors(first.network.modules()))


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


POOLS: list[dict[str, Any]] = [
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": (1, 3), "stride": 1, "padding": (0, 1)},
    {"kernel_size": 2, "stride": 1, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False},
    {"kernel_size": 5, "stride": 1, "padding": 2, "divisor_override": 3},
]


def pool_of(
    kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None
) -> Pool:
    kernel, step, edge = ((v, v) if isinstance(v, int) else v for v in (kernel_size, stride, padding))
    return Pool(kernel, step, edge, ceil_mode, count_include_pad, divisor_override)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", POOLS, ids=str)
def test_average_pools_and_their_gradients_equal_the_plain_ones(given: dict[str, Any], device: str) -> None:
    settings = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None, **given}
    x = torch.randn(2, 5, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = x.clone().requires_grad_()
    expected = F.avg_pool2d(plain, **settings)
    g = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (backwards,) = torch.autograd.grad(expected, plain, g)
    last = x.to(device).contiguous(memory_format=torch.channels_last).requires_grad_()
    out = AveragePool(pool_of(**settings))(last)
    (made,) = torch.autograd.grad(out, last, g.to(device))
    assert torch.allclose(out.cpu(), expected, rtol=0, atol=1e-12)
    assert torch.allclose(made.cpu(), backwards, rtol=0, atol=1e-12)


def test_padded_average_pools_are_replaced_wherever_they_stand() -> None:
    class Pools(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool, self.plain = nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.plain(F.avg_pool2d(self.pool(self.conv(x)), kernel_size=2, padding=1))
            return out.flatten(1)

    made = rewrite(Pools().eval(), merge=False, hand=False, stem=None)
    assert made is not None
    kinds = [type(module) for module in made[0].modules()]
    assert kinds.count(AveragePool) == 2
    assert kinds.count(nn.AvgPool2d) == 1
