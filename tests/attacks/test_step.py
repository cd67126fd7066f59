"""The one step against its formula, on buffers and off; and listeners that follow the loop."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net
from whorl.attacks import Followed, GradientAttack, Taken
from whorl.attacks.step import State, Step
from whorl.attacks.step_gpu import move_in_place
from whorl.errors import WhorlError


def literal(
    g: Tensor, state: State, x: Tensor, eps: Tensor, alpha: Tensor, momentum: float, norm: str
) -> tuple[Tensor, Tensor]:
    """Momentum, update and projection, image by image."""
    images, velocities = [], []
    for i in range(len(x)):
        direction = g[i] / g[i].abs().mean() + momentum * state.velocity[i] if momentum else g[i]
        unit = direction.sign() if norm == "linf" else direction / direction.square().sum().sqrt()
        change = state.adv[i] + alpha[i] * unit - x[i]
        if norm == "linf":
            change = change.clamp(-float(eps[i]), float(eps[i]))
        else:
            change = change * min(1.0, float(eps[i]) / float(change.square().sum().sqrt()))
        images.append((x[i] + change).clamp(0, 1))
        velocities.append(direction if momentum else state.velocity[i])
    return torch.stack(images), torch.stack(velocities)


def case(norm: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, State]:
    generator = torch.Generator().manual_seed(3)
    g, velocity, x = (torch.randn(3, 3, 8, 9, generator=generator).to(dtype) for _ in range(3))
    x = x.sigmoid()
    eps = torch.tensor([0.1, 0.05, 0.2], dtype=dtype).view(-1, 1, 1, 1) * (1 if norm == "linf" else 5)
    return g, x, eps, eps / 3, State((x + 0.02).clamp(0, 1), velocity, torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("momentum", [0.0, 1.0, 0.9])
def test_a_step_is_the_formula(momentum: float, norm: str) -> None:
    g, x, eps, alpha, state = case(norm, torch.float64)
    step = Step(x, eps, alpha, steps=1, momentum=momentum, norm=norm)  # type: ignore[arg-type]  # one of two
    adv, velocity = literal(g, state, x, eps, alpha, momentum, norm)
    taken = step(state, g, 0)
    torch.testing.assert_close(taken.adv, adv)
    torch.testing.assert_close(taken.velocity, velocity)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("momentum", [0.0, 1.0, 0.9])
def test_on_buffers_it_is_the_formula_too(momentum: float, norm: str) -> None:
    g, x, eps, alpha, state = case(norm, torch.float32)
    # What the buffers held when the step was made does not matter.
    step = Step(torch.zeros_like(x), eps, alpha, steps=1, momentum=momentum, norm=norm)  # type: ignore[arg-type]
    step.x.copy_(x)
    adv, velocity = literal(g, state, x, eps, alpha, momentum, norm)
    size = move_in_place(step, state, g, alpha)
    torch.testing.assert_close(state.adv, adv)
    torch.testing.assert_close(size, g.abs().mean((1, 2, 3)))
    if momentum:
        torch.testing.assert_close(state.velocity, velocity)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="is in it already")
def test_the_kernel_does_the_same_in_the_interpreter() -> None:
    """The test of buffers once more, in a process where Triton interprets its kernels on the CPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(Path(__file__))]
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "-k", "buffers"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_estimator_knows_the_step_it_is_in() -> None:
    asked: list[tuple[int, int]] = []

    class Narrowing:
        def __call__(self, gradient: Tensor) -> Tensor:
            return gradient

        def at(self, step: int, steps: int) -> Narrowing:
            asked.append((step, steps))
            return self

    net, x = small_net(), random_images(2)
    whorl.GradientAttack(steps=3, estimator=Narrowing(), fast=False)(net, x, net(x).argmax(1))
    assert asked == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("name", ["pgd", "ai-dim", "ai-best"])
@pytest.mark.filterwarnings("ignore:.*no residual branch")
def test_a_listener_sees_every_step_and_changes_nothing(name: str) -> None:
    net, x = small_net(), random_images(3)
    y = net(x).argmax(1)
    attack = whorl.attack(name, steps=4)
    assert isinstance(attack, GradientAttack)
    seen: list[Taken] = []
    adv = Followed(attack, seen.append)(net, x, y, seed=5)
    assert torch.equal(adv, attack.with_(fast=False)(net, x, y, seed=5))
    assert [(taken.index, taken.of) for taken in seen] == [(i, 4) for i in range(4)]
    assert torch.equal(seen[-1].adv, adv)
    assert all(taken.logits.shape == (3, CLASSES) for taken in seen)


def test_what_a_listener_sees_is_the_answer_before_the_step() -> None:
    net, x = small_net(), random_images(2)
    y = net(x).argmax(1)
    seen: list[Taken] = []
    Followed(GradientAttack(steps=2), seen.append)(net, x, y)
    torch.testing.assert_close(seen[0].logits, net(x))
    torch.testing.assert_close(seen[1].logits, net(seen[0].adv))


def test_a_listener_that_raises_ends_the_attack_and_leaves_the_network() -> None:
    net = nn.Sequential(small_net(), nn.Dropout(0.5)).train()
    x = random_images(2)

    def stop(taken: Taken) -> None:
        if taken.index == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Followed(GradientAttack(steps=9), stop)(net, x, torch.zeros(2, dtype=torch.int64))
    assert net.training
    assert net[1].training


def test_a_batch_that_shrinks_cannot_be_followed() -> None:
    with pytest.raises(WhorlError, match="early_stop=True"):
        Followed(GradientAttack(early_stop=True), lambda _: None)
