"""Weighted sums of rows in one pass over memory, on a CPU: what a linear resampling is once its places are known."""

from __future__ import annotations

from typing import NamedTuple

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
        return F.embedding_bag(self.row, x, self.start, mode="sum", per_sample_weights=self.weight)
