"""Weighted sums of rows on a CPU, in one pass over memory; and separable resampling made of them.

An output line is a weighted sum of two or three lines, for each image in its own way. As products with matrices that
are nearly all zero, the same takes several times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Sums(NamedTuple):
    """Which rows to sum, with which weights, for every row of the result."""

    row: Tensor
    """(M,) integer."""
    weight: Tensor
    """(M,) floating."""
    start: Tensor
    """(N,) integer: where the result's rows begin in ``row``."""
    rows: int
    """How many rows there are to sum."""

    def of(self, x: Tensor) -> Tensor:
        """Sum rows of ``x``, (rows, anything)."""
        # Not by autocast, which knows embedding_bag among what it may lower.
        with torch.autocast("cpu", enabled=False):
            return F.embedding_bag(self.row, x, self.start, mode="sum", per_sample_weights=self.weight)


class Lines(NamedTuple):
    """How the lines of a batch's planes are made of their lines, and how gradients go back.

    A plane is one channel of one image; a line is one of its rows, or of its columns.
    """

    there: Sums
    back: Sums


def lines(source: Tensor, weight: Tensor, channels: int) -> Lines:
    """Say how lines are made, for B images of ``side`` lines.

    Args:
        source: (B, side, taps) int64: lines of the same plane that an output line is made of, rising.
        weight: (B, side, taps), float32 or float64; 0 for a ``source`` outside the image.
        channels: of the images; all are treated the same.

    >>> made = lines(torch.tensor([[[0], [0], [1], [1]]]), torch.full((1, 4, 1), 0.5), channels=1)
    >>> made.there.of(torch.tensor([[2.0], [4.0], [6.0], [8.0]])).tolist()
    [[1.0], [1.0], [2.0], [2.0]]
    >>> made.back.of(torch.tensor([[2.0], [4.0], [6.0], [8.0]])).tolist()
    [[3.0], [7.0], [0.0], [0.0]]
    """
    batch, side, taps = source.shape
    source, weight = source.clamp(0, side - 1).flatten(1), weight.flatten(1)
    # Stable, so that gradients are summed in the order of the lines that they come from.
    order = source.argsort(dim=1, stable=True)
    used = source.new_zeros(batch, side).scatter_add_(1, source, torch.ones_like(source))
    plane = torch.arange(batch * channels, device=source.device).view(batch, channels, 1)

    def sums(row: Tensor, weight: Tensor, start: Tensor) -> Sums:
        rows = (row[:, None] + plane * side).flatten()
        weights = weight[:, None].expand(-1, channels, -1).flatten()
        return Sums(rows, weights, (start[:, None] + plane * (side * taps)).flatten(), batch * channels * side)

    evenly = torch.arange(0, side * taps, taps, device=source.device).expand(batch, -1)
    there = sums(source, weight, evenly)
    return Lines(there, sums(order // taps, weight.gather(1, order), used.cumsum(1) - used))


def resample(x: Tensor, rows: Lines, columns: Lines) -> Tensor:
    """Resample each image of a batch. Differentiable, any number of times.

    Args:
        x: (B, C, H, W), float32 or float64, on a CPU.
        rows: how rows are made, in x's dtype.
        columns: how columns are made, of what the rows became.

    Returns:
        (B, C, H, W).
    """
    out: Tensor = _Resampled.apply(x, rows, columns)  # type: ignore[no-untyped-call]  # torch's own
    return out


class _Resampled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Lines, columns: Lines) -> Tensor:
        ctx.lines = rows, columns
        return _made(_made(x, rows.there).mT, columns.there).mT.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Returned.apply(*gradients, *ctx.lines), None, None  # type: ignore[no-untyped-call]  # torch's own


class _Returned(torch.autograd.Function):
    """The transpose of :class:`_Resampled`."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, rows: Lines, columns: Lines) -> Tensor:
        ctx.lines = rows, columns
        return _made(_made(gradient.mT, columns.back).mT, rows.back)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Resampled.apply(*gradients, *ctx.lines), None, None  # type: ignore[no-untyped-call]  # torch's own


def _made(x: Tensor, sums: Sums) -> Tensor:
    return sums.of(x.reshape(sums.rows, x.shape[-1])).view(x.shape)
