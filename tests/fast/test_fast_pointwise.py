"""What stands between convolutions, against literal formulas: the plain versions, and the kernels in an interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.fast import pointwise
from whorl.fast.pointwise import Activation, act_backward, bias_act, linf_step, max_pool

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
def test_gradient_of_an_activation_from_its_result(act: Activation) -> None:
    x, g = channels_last(2, 6, 5, 5).requires_grad_(), channels_last(2, 6, 5, 5, seed=1)
    out = literal(x, act)
    (expected,) = torch.autograd.grad(out, x, g)
    assert torch.equal(act_backward(g, out.detach(), act), expected)
    room = torch.zeros(2, 9, 5, 5).contiguous(memory_format=torch.channels_last)
    act_backward(g, out.detach(), act, into=room[:, 2:8])
    assert torch.equal(room[:, 2:8], expected)
    assert float(room[:, :2].abs().sum() + room[:, 8:].abs().sum()) == 0


@pytest.mark.parametrize("settings", [(3, 2, 0), (3, 2, 1), (2, 2, 0), (3, 1, 1), (3, 3, 0)], ids=str)
def test_max_pool_with_ties(settings: tuple[int, int, int]) -> None:
    x = channels_last(2, 20, 13, 15).round().clamp(0, 3)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = max_pool(ours, *settings), F.max_pool2d(theirs, *settings)
    assert torch.equal(out, expected)
    g = channels_last(*expected.shape, seed=1)
    [a], [b] = torch.autograd.grad(out, ours, g), torch.autograd.grad(expected, theirs, g)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("momentum", [0.0, 1.0, 0.9])
def test_a_step_is_the_formula(momentum: float) -> None:
    g, velocity = torch.randn(3, 3, 8, 9), torch.randn(3, 3, 8, 9)
    x = torch.rand(3, 3, 8, 9)
    eps = torch.tensor([0.1, 0.05, 0.2]).view(-1, 1, 1, 1)
    adv = (x + 0.02).clamp(0, 1)
    mean = g.abs().mean((1, 2, 3), keepdim=True)
    direction = momentum * velocity + g / mean if momentum else g
    expected = torch.minimum(torch.maximum(adv + eps / 3 * direction.sign(), x - eps), x + eps).clamp(0, 1)
    moved = velocity.clone()
    size = linf_step(g, x, eps, eps / 3, momentum, velocity=moved, adv=adv)
    torch.testing.assert_close(adv, expected)
    torch.testing.assert_close(size, mean.flatten())
    if momentum:
        torch.testing.assert_close(moved, direction)


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
        assert pointwise._by_kernel(torch.zeros(2, 3, 4, 4))
    else:
        assert not pointwise._by_kernel(torch.zeros(2, 3, 4, 4))
