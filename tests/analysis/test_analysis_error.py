"""g₁, g₂ and the constants where they are known in closed form, and the corollaries."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from analysis.toy_fields import SIDE, Linear, Quadratic, framed
from conftest import random_images, small_net
from whorl import AffineInvariant, WhorlError
from whorl.analysis import error
from whorl.analysis.error import OTHERS, STEPS, Draws, LawMeasurement, measure
from whorl.analysis.expectations import Bounds, bounds
from whorl.analysis.laws import Law, law_of_kernel, law_of_range, uniforms

SHIFTS = AffineInvariant(kernel_size=5, kind="uniform", rotation=False, scaling=False)


def law(estimator: AffineInvariant, side: int = SIDE) -> Law:
    return law_of_kernel(estimator, side, side)


def labels(count: int) -> Tensor:
    return torch.arange(count) % 3


@pytest.mark.parametrize("made", [law_of_range(0.3, SIDE, SIDE), law(AffineInvariant(kernel_size=5, sigma=1.0))])
def test_of_a_linear_network_the_gradient_s_place_does_not_matter(made: Law) -> None:
    net, x, y = Linear(), framed(2), labels(2)
    [found] = measure(net, [(x, y)], [made], Draws(count=32), loss="logit")
    assert float(found.bounds.distance.max()) < 1e-9 * float(found.bounds.c3.min())
    assert float(found.bounds.c1.max()) < 1e-9
    assert torch.allclose(found.bounds.cosine, torch.ones(2, dtype=torch.float64))
    assert torch.allclose(found.bounds.distance_bound(), torch.zeros(2, dtype=torch.float64), atol=1e-7)
    assert torch.allclose(found.bounds.cosine_bound(), torch.ones(2, dtype=torch.float64))
    assert found.gram.cosine("g1", "g2") == pytest.approx(1)
    assert found.gram.cosine("adjoint", "truth") == pytest.approx(1)
    assert found.gram.relative("adjoint", "truth") == pytest.approx(0, abs=1e-6)


def test_of_a_linear_network_the_truth_is_the_mean_adjoint() -> None:
    """Literally: the gradient of the mean over all draws of the loss of the transformed image."""
    net, x, y = Linear(), framed(2), labels(2)
    made = law_of_range(0.5, SIDE, SIDE)
    [found] = measure(net, [(x, y)], [made], Draws(count=16, seed=3), loss="logit")
    leaf = x.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for half in (6, 7):  # 2·seed and the one after
        for angle, scale, shift in zip(*made.transforms(uniforms(8, half)), strict=True):
            seen = whorl.affine(leaf, float(angle), float(scale), (float(shift[0]), float(shift[1])))
            total = total - net(seen).gather(1, y[:, None]).sum() / 16
    total.backward()
    assert leaf.grad is not None
    assert torch.allclose(found.gram.lengths[:, 0], leaf.grad.flatten(1).norm(dim=1), rtol=1e-6)


def test_of_a_quadratic_loss_under_whole_shifts_all_constants_are_known() -> None:
    """∇J(x) = a·x, and shifts within a black frame keep lengths: c₁ = a, g₂ = a·x̂, g₁ = a·E[F⁻¹ x̂]."""
    a, x = 2.5, framed(3)
    net, y = Quadratic(a), torch.zeros(3, dtype=torch.int64)
    # Draws at the middle of five equal parts of each axis are whole pixels.
    middle = (torch.arange(5, dtype=torch.float64) + 0.5) / 5
    shifts = torch.cartesian_prod(middle, middle)
    whole = (shifts * 5 - 2.5).round()
    made = law(SHIFTS)
    u = torch.cat((torch.full((25, 2), 0.5, dtype=torch.float64), shifts), dim=1)
    assert torch.allclose(made.transforms(u).shift, whole)
    moved = [torch.roll(x, (int(down), int(right)), dims=(2, 3)) for right, down in whole.tolist()]
    back = [torch.roll(x, (-int(down), -int(right)), dims=(2, 3)) for right, down in whole.tolist()]
    g1, g2 = a * torch.stack(back).mean(0), a * x
    apart = torch.stack([(one - x).flatten(1).norm(dim=1) for one in moved])
    known = bounds(g1, g2, apart, a * apart)
    ask = error._Gradient(net, x, y, "logit")
    plain = ask.at(x)
    half = error._one_half(ask, x, plain, made, u, at_once=7)
    assert torch.allclose(half.means["g1"], g1)
    assert torch.allclose(half.means["g2"], g2)
    assert torch.allclose(half.displaced, apart)
    assert torch.allclose(half.changed, a * apart)
    measured = bounds(half.means["g1"], half.means["g2"], half.displaced, half.changed)
    assert torch.allclose(measured.c1, torch.full((3,), a, dtype=torch.float64))
    assert torch.allclose(measured.c2, apart.mean(0))
    assert torch.allclose(measured.c3, g1.flatten(1).norm(dim=1))  # a mean of copies is shorter than one of them
    assert torch.allclose(measured.distance, known.distance)
    assert torch.allclose(measured.cosine, known.cosine)
    # Shifts by whole pixels are what the kernel does, edge to edge in a black frame: no step after g₁ costs anything.
    estimate = SHIFTS(plain)
    for name in ("g1", "adjoint", "linear", "lattice"):
        assert torch.allclose(half.means[name], estimate, atol=1e-9), name


def test_the_adjoint_of_a_whole_shift_is_its_inverse() -> None:
    x = framed(2)
    [found] = measure(Quadratic(1.0), [(x, labels(2))], [law(SHIFTS)], Draws(count=8), loss="logit")
    assert found.gram.cosine("g2", "truth") > 0.99


@pytest.fixture(scope="module")
def on_a_network() -> tuple[list[LawMeasurement], nn.Module, Tensor, Tensor]:
    net = small_net().double()
    x = random_images(4, height=24, width=24).double()
    y = net(x).argmax(1)
    laws = [law_of_range(share, 24, 24) for share in (0.01, 0.3)]
    laws += [law_of_kernel(AffineInvariant(kernel_size=5, sigma=0.8), 24, 24, "mine")]
    return measure(net, [(x[:3], y[:3]), (x[3:], y[3:])], laws, Draws(count=32)), net, x, y


def test_the_corollaries_hold_on_a_network(
    on_a_network: tuple[list[LawMeasurement], nn.Module, Tensor, Tensor],
) -> None:
    for one in on_a_network[0]:
        assert one.held()["same"] == (4, 4)
        b = one.bounds
        assert bool((b.distance <= b.mean_distance + 1e-12).all())
        assert bool((b.mean_distance <= b.distance_bound() + 1e-12).all())
        assert bool((b.cosine_bound() <= b.cosine + 1e-12).all())


def test_small_transforms_cost_less(on_a_network: tuple[list[LawMeasurement], nn.Module, Tensor, Tensor]) -> None:
    small, large, _ = on_a_network[0]
    assert small.gram.cosine("g1", "g2") > 0.99 > large.gram.cosine("g1", "g2")
    assert float(small.bounds.c2.max()) < float(large.bounds.c2.min())


def test_the_estimate_is_the_estimator_s(on_a_network: tuple[list[LawMeasurement], nn.Module, Tensor, Tensor]) -> None:
    found, net, x, y = on_a_network
    leaf = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(net(leaf), y, reduction="sum").backward()
    assert leaf.grad is not None
    estimate = found[2].law.estimator(leaf.grad)
    at = found[2].gram.names.index("estimate")
    assert torch.allclose(found[2].gram.lengths[:, at], estimate.flatten(1).norm(dim=1))
    assert set(found[2].gram.names) == {*STEPS, *OTHERS}


def test_a_image_s_figures_do_not_depend_on_its_batch(
    on_a_network: tuple[list[LawMeasurement], nn.Module, Tensor, Tensor],
) -> None:
    found, net, x, y = on_a_network
    [alone] = measure(net, [(x[1:2], y[1:2])], [found[1].law], Draws(count=32, per_pass=5))
    assert torch.allclose(alone.bounds.c1, found[1].bounds.c1[1:2], rtol=1e-9)
    assert torch.allclose(alone.gram.products[0], found[1].gram.products[1], rtol=1e-7, atol=1e-12)


def test_single_precision_tells_the_same(on_a_network: tuple[list[LawMeasurement], nn.Module, Tensor, Tensor]) -> None:
    found, _, x, y = on_a_network
    [rounded] = measure(small_net(), [(x.float(), y)], [found[1].law], Draws(count=32))
    for one, other in pairwise(STEPS):
        assert rounded.gram.cosine(one, other) == pytest.approx(found[1].gram.cosine(one, other), abs=2e-3)


def test_a_source_s_gradient_is_held_against_the_model_s_truth() -> None:
    """Of two linear networks: the cosine of their weights, each averaged."""
    made = law(SHIFTS)
    one, other = Linear(), Linear()
    with torch.no_grad():
        other.w.copy_(one.w + 0.7 * torch.randn(one.w.shape, generator=torch.Generator().manual_seed(8)).double())
    x, y = framed(2), labels(2)
    [found] = measure(one, [(x, y)], [made], Draws(count=64), loss="logit", estimators={"mine": SHIFTS}, source=other)
    mine, its = (SHIFTS(-net.w[y].detach()).flatten(1) for net in (other, one))
    expected = torch.nn.functional.cosine_similarity(mine, its).mean()
    at = found.gram.names.index("mine")
    assert torch.allclose(found.gram.lengths[:, at], mine.norm(dim=1))
    assert found.gram.cosine("mine", "estimate") == pytest.approx(float(expected), abs=1e-6)
    step = torch.nn.functional.cosine_similarity(mine.sign(), its).mean()
    assert found.gram.cosine("sign of mine", "estimate") == pytest.approx(float(step), abs=1e-6)


def test_a_constant_from_elsewhere_can_fail() -> None:
    """Otherwise a check that c₁ holds for other images or draws would say nothing."""
    one = torch.ones(2, dtype=torch.float64)
    made = Bounds(c1=torch.tensor([1.0, 0.01]), c2=one, c3=one, distance=0.5 * one, mean_distance=one, cosine=0.5 * one)
    assert made.c1_of_others().tolist() == pytest.approx([0.01, 1.0])
    first, second = made.holds(made.c1_of_others())
    assert first.tolist() == [False, True]
    assert second.tolist() == [False, True]


def test_a_transform_that_moves_nothing_costs_nothing() -> None:
    g = torch.ones(1, 1, 2, 2)
    assert bounds(g, g, torch.zeros(3, 1), torch.zeros(3, 1)).c1.tolist() == [0.0]


@pytest.mark.parametrize("draws", [0, 3, 5])
def test_draws_come_in_two_halves(draws: int) -> None:
    with pytest.raises(WhorlError, match="even number from 4"):
        measure(Linear(), [(framed(1), labels(1))], [law(SHIFTS)], Draws(count=draws))


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(WhorlError, match="expected images and laws"):
        measure(Linear(), [], [law(SHIFTS)])


@pytest.mark.gpu
def test_a_gpu_tells_the_same() -> None:
    net = small_net()
    x = random_images(3, height=24, width=24)
    y = net(x).argmax(1)
    made = law_of_range(0.1, 24, 24)
    [here] = measure(net, [(x, y)], [made], Draws(count=16))
    [there] = measure(net.cuda(), [(x.cuda(), y.cuda())], [made], Draws(count=16))
    assert torch.allclose(here.bounds.distance, there.bounds.distance, rtol=1e-3)
    for name in (*STEPS, *OTHERS):
        assert there.gram.cosine(name, "truth") == pytest.approx(here.gram.cosine(name, "truth"), abs=2e-3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda logits: logits * torch.nan, "must return finite logits"),
        (lambda logits: logits.detach(), "must pass a gradient on to its input"),
        (lambda logits: logits + 0 * (logits - logits.detach()).sqrt(), "the gradient must be finite"),
    ],
)
def test_what_no_gradient_can_be_measured_of_is_an_error(spoil: Any, message: str) -> None:
    net, x = small_net().double(), framed(2)
    for model, source in ((lambda x: spoil(net(x)), None), (net, lambda x: spoil(net(x)))):
        with pytest.raises(WhorlError, match=message):
            measure(model, [(x, labels(2))], [law(SHIFTS)], Draws(count=4), source=source, estimators={"ai": SHIFTS})
