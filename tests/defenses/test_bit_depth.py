"""Bit depth: equal bins onto evenly spaced levels."""

from __future__ import annotations

import math

import pytest
import torch

from whorl.defenses import reduce_bits
from whorl.errors import WhorlError


def literal_level(value: float, levels: int) -> float:
    """Count the thresholds 1/levels, 2/levels, ... that the value has reached."""
    return sum(value >= i / levels for i in range(1, levels)) / (levels - 1)


@pytest.mark.parametrize("levels", [2, 4, 7, 256])
def test_matches_the_literal_definition(levels: int) -> None:
    x = torch.rand(2, 3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(levels))
    expected = [literal_level(value, levels) for value in x.flatten().tolist()]
    torch.testing.assert_close(reduce_bits(x, levels=levels).flatten(), torch.tensor(expected, dtype=torch.float64))


def test_every_eight_bit_level() -> None:
    x = (torch.arange(256) / 255).expand(1, 3, 1, 256)
    out = reduce_bits(x, levels=4)
    assert sorted(set(out.flatten().tolist())) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    expected = [math.floor(4 * min(k, 254) / 255) / 3 for k in range(256)]
    assert out[0, 0, 0].tolist() == pytest.approx(expected)


def test_half_precision() -> None:
    x = torch.rand(1, 3, 16, 16).to(torch.bfloat16)
    assert torch.equal(reduce_bits(x, levels=7), reduce_bits(x.float(), levels=7).to(torch.bfloat16))


def test_ends_and_beyond() -> None:
    x = torch.tensor([-0.5, 1.0, 1.5]).reshape(1, 3, 1, 1)
    assert reduce_bits(x).flatten().tolist() == [0, 1, 1]


@pytest.mark.parametrize("levels", [1, 257, 4.0, True])
def test_levels_out_of_range(levels: object) -> None:
    with pytest.raises(WhorlError, match=r"levels must be a whole number in \[2, 256\]"):
        reduce_bits(torch.rand(1, 3, 8, 8), levels=levels)  # type: ignore[arg-type]
