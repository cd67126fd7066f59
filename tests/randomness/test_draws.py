"""Draws belong to (seed, image, stream), and are good random numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_images
from whorl.errors import WhorlError
from whorl.randomness import image_keys, normal, substream, uniform


def splitmix(state: int) -> int:
    """One SplitMix64 output, in Python's unbounded integers."""
    mask = 2**64 - 1
    z = state & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 20))
def test_uniform_is_splitmix64(key: int, count: int) -> None:
    drawn = uniform(torch.tensor([key]), (count,))[0].tolist()
    literal = [(splitmix(key + (i + 1) * 0x9E3779B97F4A7C15) >> 40) / 2**24 for i in range(count)]
    assert drawn == literal


def test_uniform_fills_the_unit_interval() -> None:
    drawn = uniform(torch.arange(64), (4096,)).double()
    assert abs(float(drawn.mean()) - 1 / 2) < 0.003
    assert abs(float(drawn.var()) - 1 / 12) < 0.002
    counts = torch.histc(drawn, 64, 0, 1)
    expected = drawn.numel() / 64
    assert float(((counts - expected) ** 2 / expected).sum()) < 63 + 5 * (2 * 63) ** 0.5
    # neighbouring keys must not be alike
    assert float(torch.corrcoef(drawn).fill_diagonal_(0).abs().max()) < 0.1


def test_normal_has_the_right_moments() -> None:
    drawn = normal(torch.arange(64), (4096,)).double()
    assert bool(drawn.isfinite().all())
    assert abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.var()) - 1) < 0.01
    assert abs(float((drawn**4).mean()) - 3) < 0.1


def test_keys_do_not_depend_on_the_batch() -> None:
    x = random_images(5)
    alone = torch.cat([image_keys(x[i : i + 1], 3) for i in range(5)])
    assert image_keys(x, 3).tolist() == alone.tolist()
    named = image_keys(x, 3, ["a", "b", "c", "d", "e"])
    assert named[2:3].tolist() == image_keys(x[:1], 3, ["c"]).tolist()


def test_keys_differ_by_seed_image_and_stream() -> None:
    x = random_images(5)
    keys = torch.cat([image_keys(x, seed) for seed in range(3)])
    keys = torch.cat([keys, *(substream(keys, a, b) for a in (-1, 0, 1) for b in range(3))])
    assert len(set(keys.tolist())) == len(keys)


def test_substream_of_a_tensor_is_that_of_each_integer() -> None:
    keys = torch.arange(3)
    together = substream(keys[None], torch.arange(4)[:, None])
    assert together.tolist() == [substream(keys, i).tolist() for i in range(4)]


def test_wrong_number_of_ids() -> None:
    with pytest.raises(WhorlError, match="expected 5, got 2"):
        image_keys(random_images(5), 0, ["a", "b"])
