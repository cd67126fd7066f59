"""Sums of lines against the matrices that they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from whorl.geometry.sums import lines, resample


def matrix(source: Tensor, weight: Tensor) -> Tensor:
    """(B, side, side), entry by entry."""
    batch, side, taps = source.shape
    made = torch.zeros(batch, side, side, dtype=weight.dtype)
    for b in range(batch):
        for line in range(side):
            for tap in range(taps):
                s = int(source[b, line, tap])
                if 0 <= s < side:
                    made[b, line, s] += weight[b, line, tap]
    return made


def taps(side: int, seed: int) -> tuple[Tensor, Tensor]:
    """Any lines at all, some of them outside, where they weigh nothing."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(-2, side + 2, (3, side, 4), generator=generator).sort(2).values
    weight = torch.randn(3, side, 4, generator=generator, dtype=torch.float64)
    return source, weight.where((source >= 0) & (source < side), 0)


def test_it_is_the_product_with_both_matrices_and_back() -> None:
    (rows, row_weight), (columns, column_weight) = taps(7, 0), taps(5, 1)
    x = torch.randn(3, 2, 7, 5, dtype=torch.float64).requires_grad_()
    out = resample(x, lines(rows, row_weight, 2), lines(columns, column_weight, 2))
    down, across = matrix(rows, row_weight)[:, None], matrix(columns, column_weight)[:, None]
    torch.testing.assert_close(out, down @ x @ across.mT, rtol=0, atol=1e-13)
    g = torch.randn_like(x)
    (back,) = torch.autograd.grad(out, x, g)
    torch.testing.assert_close(back, down.mT @ g @ across, rtol=0, atol=1e-13)


def test_autocast_does_not_lower_it() -> None:
    (rows, row_weight), (columns, column_weight) = taps(7, 0), taps(5, 1)
    x = torch.randn(3, 2, 7, 5)
    made = lines(rows, row_weight.float(), 2), lines(columns, column_weight.float(), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = resample(x, *made)
    assert torch.equal(inside, resample(x, *made))
