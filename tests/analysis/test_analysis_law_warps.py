"""The inverse of a transform, and what the estimator takes for it, against literal definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import whorl
from analysis.toy_fields import smooth
from whorl.analysis.laws import Transforms, law_of_kernel, pull_back, pull_back_along_radius
from whorl.geometry.kernels import blur
from whorl.geometry.polar import steps_of


def one(angle: float = 0.0, scale: float = 1.0, shift: tuple[float, float] = (0.0, 0.0)) -> Transforms:
    turn, factor = (torch.tensor([value], dtype=torch.float64) for value in (angle, scale))
    return Transforms(turn, factor, torch.tensor([shift], dtype=torch.float64))


CASES = [one(angle=30), one(scale=0.7), one(scale=1.4), one(shift=(5, -3)), one(20, 1.2, (4.5, 2.0))]


@pytest.mark.parametrize("transform", CASES)
def test_is_the_affine_warp_by_the_inverse_matrix(transform: Transforms) -> None:
    g = torch.randn(1, 2, 19, 24, dtype=torch.float64)
    angle, scale, (right, down) = float(transform.angle), float(transform.scale), transform.shift[0].tolist()
    turn = math.radians(-angle)
    back = (
        -(math.cos(turn) * right - math.sin(turn) * down) / scale,
        -(math.sin(turn) * right + math.cos(turn) * down) / scale,
    )
    expected = whorl.affine(g, angle=-angle, scale=1 / scale, shift=back)
    assert torch.allclose(pull_back(g, transform), expected, atol=1e-10)


@pytest.mark.parametrize("transform", CASES)
def test_undoes_the_transform(transform: Transforms) -> None:
    x = smooth()
    moved = whorl.affine(x, *transform)
    error = (pull_back(moved, transform) - x)[..., 20:-20, 20:-20]
    assert float(error.abs().max()) < 0.02 * float(x.abs().max())


@pytest.mark.parametrize("transform", CASES)
def test_the_adjoint_is_the_inverse_times_the_area(transform: Transforms) -> None:
    """⟨F x, g⟩ = s²⟨x, F⁻¹ g⟩: what the paper leaves out where it takes the inverse for the adjoint."""
    x, g = smooth(seed=1), smooth(seed=2)
    left = float((whorl.affine(x, *transform) * g).sum())
    right = float((x * pull_back(g, transform)).sum()) * float(transform.scale) ** 2
    assert left == pytest.approx(right, rel=0.03, abs=0.03 * float(x.norm() * g.norm()))


def test_along_the_radius_by_nothing_is_a_rotation() -> None:
    g = torch.randn(1, 1, 21, 21, dtype=torch.float64)
    turn = one(angle=25.0, shift=(2.0, -1.0))
    turned = pull_back_along_radius(g, turn.angle, torch.zeros(1), turn.shift)
    assert torch.allclose(turned, pull_back(g, turn), atol=1e-10)


def test_along_the_radius_moves_every_ring_alike() -> None:
    down, right = torch.meshgrid(torch.arange(31.0) - 15, torch.arange(31.0) - 15, indexing="ij")
    ring = torch.hypot(right, down)[None, None].double()  # shows its own radius
    moved = pull_back_along_radius(ring, torch.zeros(1), torch.tensor([2.0]), torch.zeros(1, 2))
    inside = torch.hypot(right, down) < 12
    assert float((moved - ring - 2)[0, 0][inside].abs().max()) < 0.15
    inwards = pull_back_along_radius(ring, torch.zeros(1), torch.tensor([-3.0]), torch.zeros(1, 2))
    assert bool((inwards[0, 0][torch.hypot(right, down) < 2.9] == 0).all())


def literal_estimate(g: Tensor, estimator: whorl.AffineInvariant) -> Tensor:
    """Sum over every whole pixel of the translation kernel and every cell of the polar one, each a single warp."""
    steps = steps_of(*g.shape[-2:])
    plain, polar = estimator.kernel, estimator.polar_kernel
    assert plain is not None
    assert polar is not None
    moved, total = blur(g, plain), torch.zeros_like(g)
    for i, row in enumerate(polar.rows, start=-(len(polar.rows) // 2)):
        for j, column in enumerate(polar.columns, start=-(len(polar.columns) // 2)):
            angle, radius = torch.tensor([j * steps.angle]), torch.tensor([i * steps.radius])
            total += row * column * pull_back_along_radius(moved, angle, radius, torch.zeros(1, 2))
    return total


def test_the_lattice_adds_up_to_the_estimator() -> None:
    """On a smooth image, where interpolation costs little, only the definition is left."""
    estimator = whorl.AffineInvariant(kernel_size=5, sigma=1.2)
    g = smooth()
    assert float((literal_estimate(g, estimator) - estimator(g)).norm() / g.norm()) < 0.02
    assert law_of_kernel(estimator, 65, 65).estimator == estimator
