"""Convolutions whose kernels are laid out in advance: the definition in float64, whatever their shape."""

from __future__ import annotations

import gc
import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from conftest import small_net
from whorl.models.backward import Backward
from whorl.models.prepared import fold as module
from whorl.models.prepared.fold import Blocks, KeptConvolution, Packed, fold_copy, folded, packs

LAST = torch.channels_last
# channels, answers, kernel, stride, padding, height, width
SHAPES: list[tuple[Any, ...]] = [
    (3, 8, 7, 2, 3, 32, 24),  # first layers that halve their images, on blocks
    (3, 8, 3, 2, 1, 16, 16),
    (1, 8, 5, 2, 2, 16, 12),
    (4, 8, 4, 2, 1, 16, 12),
    (2, 8, 2, 2, 0, 16, 12),
    (3, 8, 3, 2, 0, 17, 17),  # and one that leaves a pixel
    (3, 8, 3, 2, 1, 17, 16),
    (16, 24, 3, 1, 1, 9, 11),
    (16, 24, 3, 2, 1, 9, 12),
    (16, 8, 1, 1, 0, 7, 7),
    (16, 8, 1, 2, 0, 8, 9),
    (8, 16, 5, 3, 2, 17, 19),
    (6, 4, (3, 5), (1, 2), (1, 2), 9, 12),
    (6, 4, 3, 1, 2, 5, 5),
]


def literal(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """A convolution as a sum over the kernel's pixels, in float64."""
    (above, before), weight = (int(by) for by in conv.padding), conv.weight.double()
    padded = F.pad(x.double(), [before, before, above, above])
    (down, right), (high, wide) = conv.stride, weight.shape[2:]
    rows, columns = ((padded.shape[2] - high) // down + 1, (padded.shape[3] - wide) // right + 1)
    answer = torch.zeros(len(x), len(weight), rows, columns, dtype=torch.float64)
    for i in range(high):
        for j in range(wide):
            seen = padded[:, :, i : i + down * rows : down, j : j + right * columns : right][:, :, :rows, :columns]
            answer = answer + torch.einsum("bchw,kc->bkhw", seen, weight[:, :, i, j])
    return answer if conv.bias is None else answer + conv.bias.double()[:, None, None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("last", [False, True])
def test_values_and_gradients_are_the_definition_s(shape: tuple[Any, ...], bias: bool, last: bool) -> None:
    if not packs():
        pytest.skip("this torch lays out no kernels in advance")
    channels, answers, kernel, stride, padding, height, width = shape
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, answers, kernel, stride, padding, bias=bias).requires_grad_(False)
    kept = KeptConvolution(conv, conv.weight, conv.bias)
    x = torch.randn(2, channels, height, width)
    x = x.contiguous(memory_format=LAST) if last else x
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    out, expected = kept(leaf), literal(conv, exact)
    assert kept.packed is not None, "it went another way"
    weights = torch.randn(expected.shape, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(out, leaf, weights.float())
    (exact_gradient,) = torch.autograd.grad(expected, exact, weights)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-4, atol=1e-4)
    assert gradient.is_contiguous(memory_format=LAST if last and channels > 1 else torch.contiguous_format)


def test_first_layers_go_on_blocks() -> None:
    if not packs():
        pytest.skip("this torch lays out no kernels in advance")
    found = []
    for channels, answers, kernel, stride, padding, height, width in SHAPES[:7]:
        weight, shape = torch.randn(answers, channels, kernel, kernel), torch.Size((1, channels, height, width))
        found.append(Packed(weight, None, shape, (stride, stride), (padding, padding)).blocks)
    assert [one is not None for one in found] == [True] * 5 + [False] * 2
    assert isinstance(found[0], Blocks)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 8, 3, dilation=2),
        nn.Conv2d(8, 8, 3, padding="same"),
        nn.Conv2d(8, 8, 1, padding=1),
        nn.Conv2d(8, 8, 3).double(),
    ],
    ids=str,
)
def test_what_is_not_laid_out_is_computed_as_it_was(conv: nn.Conv2d) -> None:
    kept = KeptConvolution(conv, conv.weight, conv.bias)
    x = torch.rand(1, 8, 9, 9, dtype=conv.weight.dtype)
    assert torch.equal(kept(x), conv(x))
    assert kept.packed is None


def test_images_of_another_shape_get_a_layout_of_their_own() -> None:
    conv = nn.Conv2d(3, 4, 3, 2, 1)
    kept = KeptConvolution(conv, conv.weight, conv.bias)
    for side in (8, 9, 8):
        x = torch.rand(1, 3, side, side)
        torch.testing.assert_close(kept(x), conv(x), rtol=1e-4, atol=1e-5)


def test_copies_share_a_layout_and_what_is_sent_lays_out_for_itself() -> None:
    conv = nn.Conv2d(3, 4, 3).requires_grad_(False)
    kept = KeptConvolution(conv, conv.weight, conv.bias)
    x = torch.rand(1, 3, 8, 8)
    expected = kept(x)
    copy, sent = deepcopy(kept), pickle.loads(pickle.dumps(kept))  # noqa: S301 - our own
    assert copy.packed is kept.packed
    assert copy is not kept
    assert not any(isinstance(part, nn.Module) for one in (kept, copy) for part in vars(one).values())
    assert sent.packed is None
    assert torch.equal(copy(x), expected)
    assert torch.equal(sent(x), expected)


def test_without_those_operations_everything_is_computed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "packs", lambda: False)
    conv = nn.Conv2d(3, 4, 3)
    kept = KeptConvolution(conv, conv.weight, conv.bias)
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(kept(x), conv(x))
    assert kept.packed is None


class Residual(nn.Module):
    """A network with a branch, rectifiers, a pool and normalisations: all that a backward pass is changed at."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.norm, self.relu, self.head = nn.BatchNorm2d(8), nn.ReLU(), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.relu(x + self.norm(self.branch(x)))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def residual() -> whorl.Classifier:
    torch.manual_seed(0)
    net = Residual()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for value in (layer.running_mean, layer.weight, layer.bias):
                assert value is not None
                nn.init.normal_(value)
    return whorl.Classifier.from_module(net, size=16, mean=(0.5,) * 3, std=(0.25,) * 3)


def input_gradient(model: nn.Module, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).square().sum(), leaf)
    return gradient


@pytest.mark.parametrize("backward", [Backward(), Backward(skip=0.5, rectifier=2.0, pool=0.3)], ids=str)
def test_a_changed_backward_pass_is_the_same_when_folded(backward: Backward) -> None:
    clf, x = residual(), torch.rand(3, 3, 16, 16)
    with backward.applied(clf, x) as plain:
        expected = input_gradient(plain, x)
    with backward.applied(clf, x) as changed:
        copy = folded(clf) if changed is clf else changed
        if changed is not clf:
            fold_copy(changed)
        assert "forward" in vars(copy.net.norm)
        torch.testing.assert_close(input_gradient(copy, x), expected, rtol=1e-4, atol=1e-5)
    assert backward.changes == (not torch.allclose(expected, input_gradient(clf, x), rtol=1e-3))


def test_members_of_an_ensemble_are_folded() -> None:
    both = whorl.Ensemble([residual(), residual()])
    copy, x = folded(both), torch.rand(2, 3, 16, 16)
    assert all("forward" in vars(member.net.norm) for member in copy.models)
    torch.testing.assert_close(copy(x), both(x), rtol=1e-4, atol=1e-5)


def test_an_image_s_gradient_does_not_depend_on_the_others() -> None:
    copy, x = folded(residual()), torch.rand(3, 3, 16, 16)
    assert torch.equal(input_gradient(copy, x)[1:2], input_gradient(copy, x[1:2]))
    plain = whorl.Classifier.from_module(small_net(), size=18, mean=(0.5,) * 3, std=(0.25,) * 3)
    x, y = torch.rand(3, 3, 18, 18), torch.tensor([0, 1, 2])
    attack = whorl.attack("mim", steps=3)
    assert torch.equal(attack(plain, x, y, ids=["a", "b", "c"])[:1], attack(plain, x[:1], y[:1], ids=["a"]))


def laid_out() -> list[object]:
    """All that is there, of whichever network."""
    return [one for one in gc.get_objects() if type(one) in (KeptConvolution, Packed)]


@pytest.mark.parametrize("name", ["pgd", "dim", "ai-best"])
def test_what_an_attack_laid_out_goes_with_it(name: str) -> None:
    """At once, and not when the collector comes: it does not see how large a network is."""
    clf, x, y = residual(), torch.rand(4, 3, 16, 16), torch.zeros(4, dtype=torch.long)
    gc.collect()
    others = laid_out()
    gc.disable()
    try:
        whorl.attack(name, steps=2)(clf, x, y)
        left = [one for one in laid_out() if not any(one is other for other in others)]
    finally:
        gc.enable()
    assert not left
