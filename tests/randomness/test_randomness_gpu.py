"""Draws by kernels: the bits of plain torch, and Box and Muller in float64 from the same bits; in Triton's interpreter.

Triton decides at its import whether it interprets, so this file is run once more, as a program.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from interpreter import check_interpreted, needs_triton
from whorl.randomness import draws, normal, substream, uniform
from whorl.randomness import gpu as fast

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EXTREMES = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), -(2**62), 0x9E3779B97F4A7C15 - 2**64, 123456789])
SHAPES = [(1024,), (1025,), (3, 19, 31), (2, 1536), (2047,)]
FEW: list[tuple[int, ...]] = [(), (1,), (4,), (3, 5)]
RANGES = [(0, 1), (-1, 1), (-1.0, 1.0), (1e-7, 1), (0.1, 0.7), (-1e6, 3.3)]
# Of a normal number's rounding: a few units in the last place of its radius, which is at most 5.8.
MOST = 3e-6


def plainly() -> AbstractContextManager[object]:
    """Where the kernels are not taken."""
    return patch.object(draws, "_on_gpu", lambda _: False)


def box_muller(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """By definition, in float64."""
    with plainly():
        first, second = (uniform(substream(keys, stream), shape).double() for stream in (0, 1))
    return torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * math.pi * second)


def check_uniform(keys: Tensor, shape: tuple[int, ...], low: float, high: float) -> None:
    drawn = uniform(keys, shape, low, high)
    with plainly():
        expected = uniform(keys.cpu(), shape, low, high)
    assert drawn.dtype == torch.float32
    assert drawn.shape == (len(keys), *shape)
    assert torch.equal(drawn.cpu(), expected), (shape, low, high)


def check_normal(keys: Tensor, shape: tuple[int, ...]) -> None:
    drawn, expected = normal(keys, shape), box_muller(keys.cpu(), shape)
    assert drawn.dtype == torch.float32
    assert drawn.shape == (len(keys), *shape)
    assert float((drawn.cpu().double() - expected).abs().max()) <= MOST, shape
    # Small ones are right as well: the angle is not rounded, as it is in plain torch.
    small = expected.abs() < 1e-2
    assert bool(small.any())
    torch.testing.assert_close(drawn.cpu().double()[small], expected[small], rtol=1e-6, atol=1e-15)


def check_all(device: str) -> None:
    """Hold the kernels against plain torch on the CPU."""
    keys = EXTREMES.to(device)
    for shape in SHAPES:
        check_uniform(keys, shape, 0.0, 1.0)
        check_normal(keys, shape)
    for few in FEW:
        check_uniform(keys, few, 0.0, 1.0)
    for low, high in RANGES:
        check_uniform(keys[:3], (1500,), low, high)
        check_uniform(keys[:3], (2,), low, high)
    # Streams of streams, of tables of keys too, and of places that lie on the device.
    for some in (keys, keys.view(2, 4), keys[None, :, None].expand(3, 8, 2)):
        for path in ((0,), (-1, 5), (torch.arange(2, device=device)[:, None, None, None], 3)):
            made = substream(some, *path)
            with plainly():
                assert torch.equal(made, substream(some, *path))
    # Keys of any stride, and none between them.
    apart = torch.stack([keys, torch.full_like(keys, 7)], dim=1)
    for some in (apart[:, 0], keys[::3], keys[3:4], keys[1:2].expand(4)):
        check_uniform(some, (1024,), 0.0, 1.0)
        check_normal(some, (1024,))
    # An image alone draws what it draws in company.
    assert torch.equal(normal(keys[2:3], (1300,)), normal(keys, (1300,))[2:3])


def taken(keys: Tensor, count: int) -> list[bool]:
    """Whether kernels drew uniform and normal numbers."""
    return [fast.uniform_on_gpu(keys, count, 0.0, 1.0) is not None, fast.normal_on_gpu(keys, count) is not None]


def interpreted() -> None:
    """Every check, where Triton interprets."""
    from whorl.randomness import gpu_kernels as randomness_kernels

    check_all("cpu")
    assert taken(EXTREMES, 1024) == [True, True]
    # Too few normal numbers for a key, however many keys; no keys; keys that are none.
    for keys, count in ((EXTREMES, 1023), (EXTREMES.repeat(1000), 30)):
        assert taken(keys, count) == [True, False]
    assert fast.mix_on_gpu(EXTREMES[:0]) is None
    for keys, count in (
        (EXTREMES, 0),
        (EXTREMES[:0], 2000),
        (EXTREMES.int(), 2000),
        (EXTREMES[None], 2000),
        (EXTREMES[:1], 2**31),
    ):
        assert taken(keys, count) == [False, False], (keys.shape, count)
    # More rows than a grid has.
    with patch.object(randomness_kernels, "_MOST_ROWS", 3):
        check_uniform(EXTREMES, (1024,), 0.0, 1.0)
    each = torch.vmap(lambda key: uniform(key[None], (1024,))[0])(EXTREMES)
    assert torch.equal(each, uniform(EXTREMES, (1024,)))


@needs_triton
def test_kernels_draw_what_plain_torch_does() -> None:
    check_interpreted(__file__)


def test_on_a_cpu_plain_torch_draws() -> None:
    with patch.object(fast, "kernels", side_effect=AssertionError("no kernels are looked for")):
        assert uniform(EXTREMES, (2000,)).shape == (len(EXTREMES), 2000)
        assert normal(EXTREMES, (2000,)).shape == (len(EXTREMES), 2000)


def test_plain_normals_are_box_and_muller() -> None:
    drawn = normal(EXTREMES, (2048,))
    assert float((drawn.double() - box_muller(EXTREMES, (2048,))).abs().max()) <= MOST


@pytest.mark.gpu
@needs_gpu
def test_kernels_draw_the_same_on_a_gpu() -> None:
    check_all("cuda")
    assert taken(EXTREMES.cuda(), 1024) == [True, True]
    assert taken(EXTREMES.cuda(), 1023) == [True, False]
    # More rows than a grid has.
    many = torch.arange(70_000, device="cuda")
    for part in (slice(0, 3), slice(65_530, 65_540), slice(-3, None)):
        assert torch.equal(uniform(many, (1024,))[part].cpu(), uniform(many[part].cpu(), (1024,)))


@pytest.mark.gpu
@needs_gpu
def test_more_numbers_than_32_bits_count() -> None:
    keys = torch.arange(2100, device="cuda")
    drawn = uniform(keys, (2**20,))
    assert drawn.numel() > 2**31
    assert torch.equal(drawn[-1:].cpu(), uniform(keys[-1:].cpu(), (2**20,)))


@pytest.mark.gpu
@needs_gpu
def test_draws_can_be_recorded() -> None:
    keys = EXTREMES.cuda()
    normal(keys, (3000,)), uniform(keys, (3000,))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = normal(keys, (3000,)), uniform(keys, (3000,))
    keys.add_(5)
    graph.replay()
    for made, now in zip(recorded, (normal(keys, (3000,)), uniform(keys, (3000,))), strict=True):
        assert torch.equal(made, now)


if __name__ == "__main__":
    vars(draws)["_on_gpu"] = lambda _: True
    interpreted()
