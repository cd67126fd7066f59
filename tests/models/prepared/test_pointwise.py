"""What stands between convolutions, against literal formulas: the plain versions, and the kernels in an interpreter."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference import soft_step
from whorl.models.prepared import pointwise
from whorl.models.prepared.layers import (
    Concatenation,
    Convolution,
    Geometry,
    OutputPart,
    Rectifier,
    Room,
    _Convolution,
    _Unshuffle,
)
from whorl.models.prepared.pointwise import (
    Activation,
    AveragePoolFunction,
    Pool,
    Window,
    act_backward,
    average_pool,
    average_pool_backward,
    bias_act,
    max_pool,
)
from whorl.models.prepared.rewrite import Statistics, rewrite

ACTS: tuple[Activation, ...] = ("none", "relu", "relu6")


def literal(x: Tensor, act: Activation) -> Tensor:
    return {"none": x, "relu": F.relu(x), "relu6": F.relu6(x)}[act]


def channels_last(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(shape, generator=generator)).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("width", [5, 48])
def test_bias_and_activation(act: Activation, width: int) -> None:
    whole, residual, bias = channels_last(2, width + 7, 5, 6), channels_last(2, width, 5, 6, seed=1), torch.randn(width)
    part = whole[:, 3 : 3 + width]
    for extra in (None, residual):
        expected = literal(part + bias[:, None, None] + (0 if extra is None else extra), act)
        out = bias_act(part, bias, act, extra, reuse=False)
        torch.testing.assert_close(out, expected)
        assert out.is_contiguous(memory_format=torch.channels_last)
    before = whole.clone()
    bias_act(part, bias, act, reuse=True)
    assert torch.equal(whole, before)  # a part of something larger is never overwritten


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("width", [3, 48, 288])
def test_bias_and_activation_into_a_range_of_channels(act: Activation, width: int) -> None:
    x, bias, residual = channels_last(2, width, 3, 5), torch.randn(width), channels_last(2, width, 3, 5, seed=1)
    whole, inner = channels_last(2, width + 9, 3, 5, seed=2), slice(4, 4 + width)
    before = whole.clone()
    # What is added may be a range of channels too.
    added = channels_last(2, width + 2, 3, 5, seed=3)
    added[:, 1:-1] = residual
    made = bias_act(x, bias, act, added[:, 1:-1], into=whole[:, inner])
    torch.testing.assert_close(whole[:, inner], literal(x + bias[:, None, None] + residual, act))
    assert made.data_ptr() == whole[:, inner].data_ptr()
    assert torch.equal(whole[:, :4], before[:, :4])
    assert torch.equal(whole[:, 4 + width :], before[:, 4 + width :])


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("width", [3, 6, 48, 288])
def test_gradient_of_an_activation_from_its_result(act: Activation, width: int) -> None:
    x, g = channels_last(2, width, 3, 5).requires_grad_(), channels_last(2, width, 3, 5, seed=1)
    out = literal(x, act)
    (expected,) = torch.autograd.grad(out, x, g)
    out = out.detach()
    # All three may be ranges of channels of something wider, or in plain memory.
    wide = [channels_last(2, width + 5, 3, 5, seed=seed) for seed in (2, 3)]
    for one, values in zip(wide, (g, out), strict=True):
        one[:, 2:-3] = values
    givens = [(g, out), (wide[0][:, 2:-3], out), (wide[0][:, 2:-3], wide[1][:, 2:-3]), (g.contiguous(), out)]
    for gradient, result in givens:
        made = act_backward(gradient, result, act)
        assert torch.equal(made, expected)
        room = torch.zeros(2, width + 3, 3, 5).contiguous(memory_format=torch.channels_last)
        act_backward(gradient, result, act, into=room[:, 2:-1])
        assert torch.equal(room[:, 2:-1], expected)
        assert float(room[:, :2].abs().sum() + room[:, -1:].abs().sum()) == 0
        if act != "none":
            assert made.is_contiguous(memory_format=torch.channels_last)


def smooth_by_definition(x: Tensor, act: Activation, sharpness: float) -> Tensor:
    """Derivative of x·sigmoid(βx) at zero, and at six of the same from the other side: by autograd, in float64."""
    return soft_step(x, sharpness) * (soft_step(6 - x, sharpness) if act == "relu6" else 1)


@pytest.mark.parametrize("act", ["relu", "relu6"])
@pytest.mark.parametrize("width", [3, 48, 288])
@pytest.mark.parametrize("sharpness", [0.5, 2.0, 30.0])
def test_gradient_of_a_smooth_rectifier(act: Activation, width: int, sharpness: float) -> None:
    x, g = channels_last(2, width, 3, 5), channels_last(2, width, 3, 5, seed=1)
    x[0, 0, 0, :3] = torch.tensor([0.0, 1e4, -1e4])
    expected = g * smooth_by_definition(x, act, sharpness)
    wide = [channels_last(2, width + 5, 3, 5, seed=seed) for seed in (2, 3)]
    for one, values in zip(wide, (g, x), strict=True):
        one[:, 2:-3] = values
    for gradient, seen in [(g, x), (wide[0][:, 2:-3], wide[1][:, 2:-3]), (g.contiguous(), x)]:
        made = act_backward(gradient, seen, act, smooth=sharpness)
        torch.testing.assert_close(made.double(), expected, rtol=2e-5, atol=2e-5)
        room = torch.zeros(2, width + 3, 3, 5).contiguous(memory_format=torch.channels_last)
        act_backward(gradient, seen, act, into=room[:, 2:-1], smooth=sharpness)
        assert torch.equal(room[:, 2:-1], made)
        assert float(room[:, :2].abs().sum() + room[:, -1:].abs().sum()) == 0


@pytest.mark.parametrize("act", ACTS)
def test_what_goes_into_an_activation_is_kept(act: Activation) -> None:
    bias, residual = torch.randn(48), channels_last(2, 48, 3, 5, seed=1)
    for extra in (None, residual):
        x = channels_last(2, 48, 3, 5)
        total = x + bias[:, None, None] + (0 if extra is None else extra)
        apart = torch.zeros(2, 50, 3, 5).contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(bias_act(x, bias, act, extra, before=apart[:, 1:-1]), literal(total, act))
        torch.testing.assert_close(apart[:, 1:-1], total)
        assert float(apart[:, 0].abs().sum() + apart[:, -1].abs().sum()) == 0
        # In its own place, where nobody else needs it.
        torch.testing.assert_close(bias_act(x, bias, act, extra, before=x), literal(total, act))
        torch.testing.assert_close(x, total)


@pytest.mark.parametrize("pool_index", [0, 1, 4])
def test_average_pool_with_a_smooth_rectifier(pool_index: int) -> None:
    pool, x, bias = POOLS[pool_index], channels_last(2, 48, 5, 6), torch.randn(48)
    leaf = x.clone().requires_grad_()
    total = F.avg_pool2d(leaf, *pool) + bias[:, None, None]
    before = torch.zeros(total.shape[0], 50, *total.shape[2:]).contiguous(memory_format=torch.channels_last)
    out = average_pool(x, pool, bias, "relu6", before=before[:, 1:-1])
    torch.testing.assert_close(out, F.relu6(total.detach()))
    torch.testing.assert_close(before[:, 1:-1], total.detach())
    g = channels_last(*total.shape, seed=1)
    (expected,) = torch.autograd.grad(total, leaf, (g * smooth_by_definition(total, "relu6", 2.0)).float())
    made = average_pool_backward(g, before[:, 1:-1], pool, x.shape, "relu6", smooth=2.0)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_passes_where_a_value_is_not_a_number() -> None:
    """As torch has it."""
    out, g = channels_last(1, 4, 2, 2), channels_last(1, 4, 2, 2, seed=1)
    out[0, 1, 0, 0] = float("nan")
    assert torch.equal(act_backward(g, out, "relu"), torch.ops.aten.threshold_backward(g, out, 0))


WINDOWS = [
    Window(3, 2),
    Window(3, 2, 1),
    Window(2, 2),
    Window(3, 1, 1),
    Window(3, 3),
    Window(3, 2, 0, ceil_mode=True),
    Window(2, 2, 1, ceil_mode=True),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("width", "share"), [(3, 0.0), (48, 0.0), (48, 0.3)])
def test_max_pool_with_ties(window: Window, width: int, share: float) -> None:
    x = channels_last(1, width, 6, 9).round().clamp(0, 3)
    kernel, stride, padding, ceil_mode = window
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = max_pool(ours, window, share), F.max_pool2d(theirs, kernel, stride, padding, ceil_mode=ceil_mode)
    assert torch.equal(out, expected)
    assert window.shape(x) == expected.shape
    g = channels_last(*expected.shape, seed=1)
    wide = channels_last(expected.shape[0], width + 4, *expected.shape[2:], seed=2)
    wide[:, 1:-3] = g
    (b,) = torch.autograd.grad(expected, theirs, g)
    sums = F.avg_pool2d(theirs, kernel, stride, padding, ceil_mode=ceil_mode, divisor_override=1)
    (whole,) = torch.autograd.grad(sums, theirs, g.contiguous())
    b = (1 - share) * b + share * whole / kernel**2
    for gradient in (g, wide[:, 1:-3]):
        (a,) = torch.autograd.grad(out, ours, gradient, retain_graph=True)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


POOLS = [
    Pool((3, 3), (1, 1), (1, 1)),
    Pool((3, 3), (1, 1), (1, 1), counted=False),
    Pool((2, 2), (2, 2)),
    Pool((3, 2), (2, 1), (1, 0)),
    Pool((3, 3), (2, 2), (1, 1), ceil_mode=True),
    Pool((3, 3), (2, 2), (1, 1), ceil_mode=True, counted=False),
    Pool((5, 5), (1, 1), (2, 2), divisor=3),
    Pool((1, 3), (1, 1), (0, 1)),
    Pool((2, 2), (3, 3), (0, 1)),
]


POOLED: list[tuple[Pool, int, Activation]] = [(POOLS[0], 48, "none"), (POOLS[0], 288, "relu")]
POOLED += [(pool, 3 if place % 2 else 48, "relu6" if place % 3 else "relu") for place, pool in enumerate(POOLS)]


@pytest.mark.parametrize(("pool", "width", "act"), POOLED, ids=str)
def test_average_pool_with_bias_and_activation(pool: Pool, width: int, act: Activation) -> None:
    height, columns = (2, 3) if width > 200 else (5, 6)
    wide, bias = channels_last(2, width + 5, height, columns), torch.randn(width)
    x = wide[:, 2:-3]
    leaf = x.clone().requires_grad_()
    expected = literal(F.avg_pool2d(leaf, *pool) + bias[:, None, None], act)
    batch, _, *sides = expected.shape
    room = torch.zeros(batch, width + 6, *sides).contiguous(memory_format=torch.channels_last)
    out = average_pool(x, pool, bias, act)
    average_pool(x, pool, bias, act, into=room[:, 4:-2])
    for made in (out, room[:, 4:-2]):
        torch.testing.assert_close(made, expected.detach())
    assert float(room[:, :4].abs().sum() + room[:, -2:].abs().sum()) == 0
    assert out.is_contiguous(memory_format=torch.channels_last)

    gradients = channels_last(batch, width + 1, *sides, seed=1)
    (backwards,) = torch.autograd.grad(expected, leaf, gradients[:, 1:])
    into = torch.zeros(batch, width + 4, *x.shape[2:]).contiguous(memory_format=torch.channels_last)
    # The mask is the result's own, which at the edge of rounding need not be the formula's.
    whole = average_pool_backward(gradients[:, 1:], room[:, 4:-2], pool, x.shape, act)
    average_pool_backward(gradients[:, 1:].contiguous(), out, pool, x.shape, act, into=into[:, 3:-1])
    for made in (whole, into[:, 3:-1]):
        torch.testing.assert_close(made, backwards)
    assert float(into[:, :3].abs().sum() + into[:, -1:].abs().sum()) == 0


@pytest.mark.parametrize("pool", POOLS[:5], ids=str)
def test_average_pool_alone(pool: Pool) -> None:
    leaf, same = (channels_last(1, 20, 6, 5).requires_grad_() for _ in range(2))
    out, expected = AveragePoolFunction.apply(leaf, pool), F.avg_pool2d(same, *pool)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(out, expected)
    g = channels_last(*expected.shape, seed=1)
    [a], [b] = torch.autograd.grad(out, leaf, g), torch.autograd.grad(expected, same, g)
    torch.testing.assert_close(a, b)


def test_a_convolution_in_parts_that_sit_in_a_room() -> None:
    """Pooled, activated, and in one tensor with others; values and gradient against the operations one by one."""
    x, weight, bias = channels_last(2, 6, 5, 6), channels_last(16, 6, 1, 1, seed=1) / 8, torch.randn(16)
    parts = [OutputPart(3, "relu"), OutputPart(8, "none"), OutputPart(5, "relu6", Pool((3, 3), (1, 1), (1, 1)))]
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    room = Room((2, 3, 5))
    seats = ((room, 1), None, (room, 2))
    outs = _Convolution.apply(ours, weight, bias, None, Geometry(), parts, seats)  # type: ignore[no-untyped-call]
    assert room.whole is not None
    assert torch.equal(room.whole[:, 2:], torch.cat([outs[0], outs[2]], 1))
    a, b, c = F.conv2d(theirs, weight).split([3, 8, 5], 1)
    shifts = [shift[:, None, None] for shift in bias.split([3, 8, 5])]
    plainly = (F.relu(a + shifts[0]), b + shifts[1], F.relu6(F.avg_pool2d(c, 3, 1, 1) + shifts[2]))
    g = [channels_last(*one.shape, seed=seed) for seed, one in enumerate(plainly, start=2)]
    for made, expected in zip(outs, plainly, strict=True):
        torch.testing.assert_close(made, expected)
    [made], [expected] = torch.autograd.grad(outs, ours, g), torch.autograd.grad(plainly, theirs, g)
    torch.testing.assert_close(made, expected)


def test_a_convolution_with_smooth_rectifiers_and_factors() -> None:
    """In parts, pooled, in a room, and with a residual; the gradient against the operations one by one."""
    x, weight, bias = channels_last(2, 6, 5, 6), channels_last(13, 6, 1, 1, seed=1) / 8, torch.randn(13)
    window = Pool((3, 3), (1, 1), (1, 1))
    parts = [OutputPart(8, "relu", smooth=2.0, scale=0.5), OutputPart(5, "relu6", window, smooth=1.0)]
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    room = Room((8, 5))
    outs = Convolution(weight, bias, Geometry(), parts)(ours, seats=((room, 0), (room, 1)))
    a, b = F.conv2d(theirs, weight).split([8, 5], 1)
    shifts = [shift[:, None, None] for shift in bias.split([8, 5])]
    totals = (a + shifts[0], F.avg_pool2d(b, 3, 1, 1) + shifts[1])
    torch.testing.assert_close(outs[0], F.relu(totals[0]))
    torch.testing.assert_close(outs[1], F.relu6(totals[1]))
    g = [channels_last(*one.shape, seed=seed) for seed, one in enumerate(totals, start=2)]
    slopes = smooth_by_definition(totals[0], "relu", 2.0) * 0.5, smooth_by_definition(totals[1], "relu6", 1.0)
    changed = [(one * slope).float() for one, slope in zip(g, slopes, strict=True)]
    [made], [expected] = torch.autograd.grad(outs, ours, g), torch.autograd.grad(totals, theirs, changed)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)

    extra, same = (channels_last(2, 13, 5, 6, seed=5).requires_grad_() for _ in range(2))
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out = Convolution(weight, bias, Geometry(), [OutputPart(13, "relu", smooth=2.0, scale=0.25)])(ours, extra)
    branch = F.conv2d(theirs, weight, bias)
    total = branch + same
    torch.testing.assert_close(out, F.relu(total))
    slope = (channels_last(*total.shape, seed=6) * smooth_by_definition(total, "relu", 2.0)).float()
    found = torch.autograd.grad(out, (ours, extra), channels_last(*total.shape, seed=6))
    # The factor is the branch's, not the shortcut's.
    (through,) = torch.autograd.grad(branch, theirs, 0.25 * slope)
    for one, right in zip(found, (through, slope), strict=True):
        torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (2, 7, 5)], ids=str)
def test_a_rectifier_that_stands_alone(shape: tuple[int, ...]) -> None:
    x = (4 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    out, g = Rectifier("relu6", 2.0)(x), torch.randn(shape)
    assert torch.equal(out, F.relu6(x))
    (made,) = torch.autograd.grad(out, x, g)
    torch.testing.assert_close(made.double(), g * smooth_by_definition(x, "relu6", 2.0), rtol=1e-4, atol=1e-5)


class Mixed(nn.Module):
    """A first layer of stride 2, and a block with all that branches have: 1×1, 3×3, both pools, in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a, self.b = nn.Conv2d(3, 16, 3, 2), nn.Conv2d(16, 8, 1), nn.Conv2d(16, 6, 1)
        self.c, self.d = nn.Conv2d(6, 5, 3, padding=1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x).relu()
        pooled = self.d(F.avg_pool2d(z, 3, stride=1, padding=1)).relu()
        whole = torch.cat([self.a(z).relu(), self.c(self.b(z).relu()).relu(), pooled, F.max_pool2d(z, 3, 1, 1)], 1)
        return whole.mean((2, 3))


def test_a_whole_network() -> None:
    torch.manual_seed(0)
    net, mean, std = Mixed().requires_grad_(False), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    made = rewrite(copy.deepcopy(net), stem=Statistics(mean, std))
    assert made is not None
    assert made.takes_images
    assert sum(isinstance(layer, Concatenation) for layer in made.net.modules()) == 1
    ours, theirs = (torch.rand(2, 3, 11, 13, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    shift, scale = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    out, expected = made.net(ours.requires_grad_()), net((theirs.requires_grad_() - shift) / scale)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    g = torch.randn(out.shape)
    [a], [b] = torch.autograd.grad(out, ours, g), torch.autograd.grad(expected, theirs, g)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("sides", [(9, 12), (10, 11)], ids=str)
def test_blocks_of_a_image_as_channels(padding: int, sides: tuple[int, int]) -> None:
    """Against the definition, pixel by pixel; from an image that is part of a larger one, to where a kernel ends."""
    whole = torch.randn(2, 3, sides[0] + 2, sides[1] + 1, generator=torch.Generator().manual_seed(0))
    x, mean = whole[:, :, : sides[0], : sides[1]], torch.tensor([0.1, -0.2, 0.3]).view(1, 3, 1, 1)
    rows, columns = ((side + 2 * padding - 3) // 2 + 2 for side in sides)
    leaf = x.clone().requires_grad_()
    padded = F.pad(leaf - mean, (padding, padding + 2, padding, padding + 2))
    blocks = torch.zeros(2, 16, rows, columns)
    for c in range(3):
        for down in (0, 1):
            for right in (0, 1):
                part = padded[:, c, down : down + 2 * rows : 2, right : right + 2 * columns : 2]
                blocks = blocks.index_copy(1, torch.tensor([4 * c + 2 * down + right]), part[:, None])
    ours = x.detach().requires_grad_()
    out = _Unshuffle.apply(ours, mean, (16, rows, columns), padding, torch.empty(()))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(out, blocks)
    g = channels_last(2, 16, rows, columns, seed=1)
    [a], [b] = torch.autograd.grad(out, ours, g), torch.autograd.grad(blocks, leaf, g)
    torch.testing.assert_close(a, b)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="is in it already")
def test_the_kernels_do_the_same_in_the_interpreter() -> None:
    """The tests above once more, in a process where Triton interprets its kernels on the CPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(Path(__file__))]
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_interpreter_is_really_used() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        assert pointwise.kernels() is not None
        assert pointwise.by_kernel(torch.zeros(2, 3, 4, 4))
    else:
        assert not pointwise.by_kernel(torch.zeros(2, 3, 4, 4))
    assert not pointwise.by_kernel(torch.zeros(2, 3, 4, 4, dtype=torch.float64))  # the kernels would round it
