"""Average pools of our own against torch's in float64, and where they take their place in a network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.models.prepared.layers import AveragePool
from whorl.models.prepared.pointwise import Pool
from whorl.models.prepared.rewrite import rewrite

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

    made = rewrite(Pools().eval())
    assert made is not None
    kinds = [type(module) for module in made[0].modules()]
    assert kinds.count(AveragePool) == 3
    assert kinds.count(nn.AvgPool2d) == 0
