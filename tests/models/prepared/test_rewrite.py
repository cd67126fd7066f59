"""A rewritten network computes what the network computes; checked in float64, where rounding cannot hide a mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import random_images
from network_cases import MEAN, NETS, STD, Block, Overwritten, Shared, stirred
from whorl.models.architectures import build
from whorl.models.prepared.layers import AveragePool, Concatenation, Convolution, MaxPool, SamePadded, Stem
from whorl.models.prepared.rewrite import Statistics, rewrite, trace


class Normalise(nn.Module):
    """As a classifier does it."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = (torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1) for values in (mean, std))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


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
    net, x = stirred(NETS[name]()), random_images(2, height=side, width=side + 3).double()
    expected = both(nn.Sequential(Normalise(MEAN, STD), net), x)
    for stem in (None, Statistics(MEAN, STD)):
        made = rewrite(copy.deepcopy(net), stem=stem)
        assert made is not None
        shown = nn.Identity() if made.takes_images else Normalise(MEAN, STD)
        found = both(nn.Sequential(shown, made.net), x)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


_LAYERS = (Convolution, MaxPool, AveragePool, Concatenation, Stem, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d)


def layers(net: nn.Module) -> list[nn.Module]:
    made = rewrite(copy.deepcopy(net), stem=Statistics(MEAN, STD))
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
    x = random_images(2).double()
    torch.testing.assert_close(made.net(x), net(x))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in made.net.modules())


@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        ("torchvision:resnet18", 64),
        ("torchvision:inception_v3", 79),
        ("whorl:inception_v3", 79),
        ("torchvision:mobilenet_v2", 64),
        ("timm:tf_efficientnet_lite0", 65),
    ],
)
@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_real_architectures_compute_the_same(architecture: str, size: int) -> None:
    torch.manual_seed(0)
    net = stirred(build(architecture, num_classes=10)[0])
    x = random_images(1, height=size, width=size).double()
    expected = both(nn.Sequential(Normalise(MEAN, STD), net), x)
    made = rewrite(copy.deepcopy(net), stem=Statistics(MEAN, STD))
    assert made is not None
    assert not any(isinstance(module, nn.BatchNorm2d) for module in made.net.modules())
    padded = any(isinstance(module, SamePadded) for module in made.net.modules())
    assert made.takes_images == (not padded)
    shown = nn.Identity() if made.takes_images else Normalise(MEAN, STD)
    found = both(nn.Sequential(shown, made.net), x)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-9


# ---------------------------------------------------------------------------------------------------------------------
# Concatenations


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
    # torch takes numpy's word too, which its stub does not know.
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
    net, x = stirred(Joined(how)), random_images(2, height=15, width=17).double()
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
    made.net(random_images(2, height=15, width=17).double())
    [(a, b, pooled, whole)] = seen
    assert a.data_ptr() == whole.data_ptr()
    assert b.data_ptr() == whole[:, 5:].data_ptr()
    # The plain max pool cannot write elsewhere; the kernel can.
    assert pooled.data_ptr() != whole[:, 9:].data_ptr()
    assert torch.equal(torch.cat([a, b, pooled], 1), whole)
