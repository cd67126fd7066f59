"""RotationInvariant against the literal sum over turns, and what each step of an attack has of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import reference
import whorl
from conftest import CLASSES, random_images, small_net
from reference import noise, relative_error
from whorl.errors import WhorlError
from whorl.estimators import Chain, RotationInvariant, TranslationInvariant, at_step, identity
from whorl.estimators.fast import average_rotations
from whorl.geometry.kernels import ring


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (1, 1, 9, 21), (13, 1, 8, 7), (1, 2, 1, 5), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("degrees", [0.1, 3.0, 25.0, 170.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
def test_it_is_the_literal_sum_over_turns(
    shape: tuple[int, ...], degrees: float, dtype: torch.dtype, tolerance: float
) -> None:
    g = noise(*shape).to(dtype)
    out = RotationInvariant(degrees=degrees)(g)
    assert out.dtype == dtype
    assert relative_error(out, reference.rotation_average(g.double().numpy(), degrees)) < tolerance


@settings(max_examples=40, deadline=None)
@given(sigma=st.floats(0.01, 300.0), count=st.integers(1, 60))
def test_weights_around_the_circle_are_a_symmetric_law(sigma: float, count: int) -> None:
    weights = ring(sigma, count).numpy()
    assert weights.sum() == pytest.approx(1.0)
    assert np.allclose(weights[1:], weights[:0:-1], rtol=1e-9, atol=0)
    assert weights.argmax() == 0 or weights[0] == pytest.approx(weights.max())


def test_a_quarter_turn_before_is_a_quarter_turn_after() -> None:
    g, est = noise(1, 2, 16, 16), RotationInvariant(degrees=12.0)
    turned = torch.rot90(est(g), 1, (2, 3))
    assert torch.allclose(est(torch.rot90(g, 1, (2, 3))), turned, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 4, 5])
def test_on_a_cpu_the_batch_does_not_change_a_bit(count: int) -> None:
    g, est = noise(7, 3, 21, 18, dtype=torch.float32), RotationInvariant(degrees=9.0)
    assert torch.equal(est(g[:count]), est(g)[:count])


def test_it_can_be_differentiated_through() -> None:
    est = RotationInvariant(degrees=40.0)
    assert torch.autograd.gradcheck(est, noise(1, 1, 5, 4).requires_grad_())
    assert est(noise(1, 1, 5, 4, dtype=torch.float32).requires_grad_()).requires_grad


def test_no_image_gives_none() -> None:
    assert RotationInvariant()(torch.rand(0, 3, 8, 8)).shape == (0, 3, 8, 8)


def test_what_the_fast_way_does_not_serve() -> None:
    g = noise(1, 3, 8, 8, dtype=torch.float32)
    assert average_rotations(g, 2.0, 16) is not None
    for unfit in (g.double(), g.clone().requires_grad_(), g[:0], g[..., :1, :1], g.to("meta")):
        assert average_rotations(unfit, 2.0, 16) is None


@pytest.mark.parametrize("wrong", [0, -3, 181, float("nan"), "wide", True, (), (1.0, 2.0, 3.0), (5.0, 0.0)], ids=repr)
def test_degrees_that_are_none(wrong: Any) -> None:
    with pytest.raises(WhorlError, match="degrees must be a number in \\(0, 180\\], or a pair") as error:
        RotationInvariant(degrees=wrong)
    assert repr(wrong) in str(error.value)


# ---------------------------------------------------------------------------------------------------------------------
# From step to step


def test_widths_fall_by_the_same_factor() -> None:
    est = RotationInvariant(degrees=(32.0, 1.6))
    widths = [est.at(step, 10).degrees for step in range(10)]
    assert widths[0] == pytest.approx(32.0)
    assert widths[-1] == pytest.approx(1.6)
    factors = np.array(widths[1:]) / np.array(widths[:-1])
    assert np.allclose(factors, 20 ** (-1 / 9))
    assert est.at(0, 1).degrees == pytest.approx((32.0 * 1.6) ** 0.5)
    same = RotationInvariant(degrees=7.0)
    assert all(same.at(step, 4) is same for step in range(4))


def test_who_knows_of_no_steps_has_the_geometric_mean() -> None:
    g = noise(2, 3, 12, 12)
    pair, mean = RotationInvariant(degrees=(40.0, 10.0)), RotationInvariant(degrees=20.0)
    assert torch.allclose(pair(g), mean(g), rtol=0, atol=1e-14)
    x = torch.zeros(1, 1, 12, 12, dtype=torch.float64, requires_grad=True)
    (pair.wrap(nn.Identity())(x) * g[:1, :1]).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, mean(g[:1, :1]), rtol=0, atol=1e-14)


def test_a_chain_asks_its_parts() -> None:
    still, narrowing = TranslationInvariant(kernel_size=3, sigma=1.0), RotationInvariant(degrees=(30.0, 3.0))
    first = at_step(Chain(still, narrowing), 0, 4)
    assert first == Chain(still, RotationInvariant(degrees=30.0))
    assert at_step(identity, 0, 4) is identity
    never = Chain(still, RotationInvariant(degrees=3.0))
    assert at_step(never, 1, 4) is never
    g = noise(1, 3, 10, 10)
    assert torch.equal(first(g), narrowing.at(0, 4)(still(g)))


class Spy:
    """Remembers what it was asked for; scales by the step, which no sign step feels."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def at(self, step: int, steps: int) -> Any:
        self.asked.append((step, steps))
        return lambda g: g * (step + 1)

    def __call__(self, g: Tensor) -> Tensor:
        raise AssertionError("each step has its own")


@pytest.mark.parametrize("extra", [{}, {"early_stop": True}, {"fast": False}], ids=str)
def test_a_loop_asks_for_every_step(extra: dict[str, Any]) -> None:
    net, x, spy = small_net(), random_images(2), Spy()
    # Towards a class that three small steps do not reach, so that nobody stops early.
    far = net(x).argmin(1)
    whorl.attack("mim", eps=1e-4, steps=3, estimator=spy, **extra)(net, x, target=far)
    assert spy.asked == [(0, 3), (1, 3), (2, 3)]


def test_an_attack_is_the_loop_written_out() -> None:
    """Three steps by hand: gradient, the step's rotations, momentum, sign, box."""
    net, x, y = small_net().double(), random_images(2).double(), torch.tensor([0, CLASSES - 1])
    widths, eps, steps = (50.0, 2.0), 12 / 255, 3
    made = whorl.attack("mim", eps=eps, steps=steps, estimator=RotationInvariant(degrees=widths))(net, x, y)
    adv, velocity = x.clone(), torch.zeros_like(x)
    for width in (50.0, 10.0, 2.0):
        leaf = adv.clone().requires_grad_()
        loss = nn.functional.cross_entropy(net(leaf), y, reduction="sum")
        (g,) = torch.autograd.grad(loss, leaf)
        g = torch.from_numpy(reference.rotation_average(g.numpy(), width))
        velocity = velocity + g / g.abs().mean((1, 2, 3), keepdim=True)
        adv = (adv + 5 * eps / steps * velocity.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    assert (made - adv).abs().max() < 1e-9


@pytest.mark.parametrize("base", ["fgsm", "pgd", "mim", "dim"])
def test_the_presets_of_ours_narrow_from_step_to_step_and_with_eps(base: str) -> None:
    attack: Any = whorl.attack(f"ri-{base}")
    assert attack == whorl.attack(base, estimator=RotationInvariant(degrees=(32.0, 1.6), at_eps=16 / 255))
    assert repr(attack.estimator) == "RotationInvariant(degrees=(32.0, 1.6), at_eps=16/255)"
    own = whorl.AffineInvariant()
    assert whorl.attack(f"ri-{base}", estimator=own) == whorl.attack(base, estimator=own)


@settings(deadline=None)
@given(st.floats(1e-4, 1.0))
def test_the_width_follows_eps_in_proportion_and_ends_where_it_was_chosen(eps: float) -> None:
    made = RotationInvariant(at_eps=16 / 255).for_eps(eps)
    share = min(1.0, eps * 255 / 16)
    assert made.degrees == pytest.approx((32 * share, 1.6 * share))
    assert made.for_eps(eps / 2) is made  # it is for no eps any more
    assert RotationInvariant(at_eps=16 / 255).for_eps(eps) is made


@pytest.mark.parametrize("at_eps", [0.0, -1.0, float("inf"), float("nan")])
def test_an_eps_to_be_for_is_above_zero(at_eps: float) -> None:
    with pytest.raises(WhorlError, match="at_eps must be a number above 0"):
        RotationInvariant(at_eps=at_eps)


def test_without_an_eps_of_its_own_it_is_for_any() -> None:
    wide = RotationInvariant()
    assert wide.for_eps(1 / 255) is wide
    assert RotationInvariant(at_eps=0.1).for_eps(0.0).degrees == (32.0, 1.6)


def test_a_declaration_gives_a_list() -> None:
    from whorl.runs.settings import build_attack

    made: Any = build_attack("dim", {"estimator": {"type": "RotationInvariant", "degrees": [20, 2]}})
    assert made.estimator == RotationInvariant(degrees=(20.0, 2.0))
