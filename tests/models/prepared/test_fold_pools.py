"""Max pooling with channels side by side is torch's max pooling, bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from whorl.models.prepared.fold import pool

LAYERS = [
    nn.MaxPool2d(3, 2, 1),
    nn.MaxPool2d(2),
    nn.MaxPool2d((3, 2), (2, 1), (1, 0)),
    nn.MaxPool2d(3, 2, ceil_mode=True),
    nn.MaxPool2d(2, 1, dilation=3),
]


def value_and_gradient(layer: nn.Module | None, x: Tensor, of: nn.MaxPool2d) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    out = pool(of, leaf) if layer is None else layer(leaf)
    weights = torch.rand(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    return out.detach(), torch.autograd.grad(out, leaf, weights)[0]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_values_and_gradients_are_torchs(layer: nn.MaxPool2d, dtype: torch.dtype, last: bool) -> None:
    noise = torch.randn(3, 19, 13, 16, generator=torch.Generator().manual_seed(0))
    # Whole numbers, and none below zero: most windows have ties, which decide where a gradient goes.
    x = noise.mul(2).round().relu().to(dtype)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    for ours, theirs in zip(value_and_gradient(None, x, layer), value_and_gradient(layer, x, layer), strict=True):
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)


def test_what_is_not_finite_stays_so() -> None:
    x = torch.zeros(1, 8, 6, 6)
    x[0, 2, 3, 3], x[0, 5, 1, 1] = torch.nan, torch.inf
    layer = nn.MaxPool2d(3, 2, 1)
    torch.testing.assert_close(pool(layer, x), layer(x), rtol=0, atol=0, equal_nan=True)


def test_a_single_image_without_a_batch() -> None:
    x = torch.rand(8, 9, 9)
    assert torch.equal(pool(nn.MaxPool2d(2), x), nn.MaxPool2d(2)(x))
