"""Laws of transforms, the kernels that stand for them, and the inverse of a transform."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import whorl
from analysis.toy_fields import smooth
from whorl import AffineInvariant, WhorlError
from whorl.analysis.kernel_grid import read_kernel
from whorl.analysis.laws import Transforms, law_of_kernel, law_of_range, pull_back, pull_back_along_radius, uniforms
from whorl.geometry.kernels import blur, gaussian_kernel, odd
from whorl.geometry.polar import steps_of


def test_the_steps_are_those_of_the_polar_grid() -> None:
    steps = steps_of(30, 41)
    assert steps.angle == pytest.approx(360 / 41)
    assert steps.radius == pytest.approx(math.hypot(14.5, 20) / 40)
    down, right = torch.meshgrid(torch.arange(30.0) - 14.5, torch.arange(41.0) - 20, indexing="ij")
    assert steps.typical == pytest.approx(float((down**2 + right**2).mean().sqrt()), rel=1e-6)


@pytest.mark.parametrize(
    ("sigma", "pixels"),
    [("reference", 7 / 6), ("printed", 7 / math.sqrt(3)), (0.5, 0.5)],
)
def test_a_kernel_s_law_has_its_spread(sigma: float, pixels: float) -> None:
    law, steps = law_of_kernel(AffineInvariant(sigma=sigma), 224, 224), steps_of(224, 224)
    assert law.shift == pytest.approx(pixels)
    assert law.angle == pytest.approx(pixels * steps.angle)
    # The mean square displacement of the scaling is that of the radial shift.
    assert law.scale * steps.typical == pytest.approx(pixels * steps.radius)


def test_a_part_that_is_off_has_no_width_in_the_law() -> None:
    steps = steps_of(224, 224)
    rotating = law_of_kernel(AffineInvariant(sigma=1.7, translation=False, scaling=False), 224, 224)
    still = law_of_kernel(AffineInvariant(sigma=0.5, rotation=False), 224, 224)
    assert rotating.angle == pytest.approx(1.7 * steps.angle)
    assert (rotating.shift, rotating.scale) == (0, 0)
    assert still.angle == 0
    assert still.shift == pytest.approx(0.5)
    assert still.scale * steps.typical == pytest.approx(0.5 * steps.radius)


def test_parts_that_are_off_do_not_move() -> None:
    law = law_of_kernel(AffineInvariant(translation=False, scaling=False), 64, 64)
    drawn = law.transforms(uniforms(16, 0))
    assert law.angle > 0
    assert bool((drawn.shift == 0).all())
    assert bool((drawn.scale == 1).all())


def test_the_lattice_is_drawn_by_the_kernel_s_weights() -> None:
    law = law_of_kernel(AffineInvariant(kernel_size=5, sigma=1.0, polar_sigma=2.0), 64, 64)
    angle, radius, shift = law.lattice(uniforms(4096, 1), 64, 64)
    steps = steps_of(64, 64)
    for drawn, step, sigma in (
        (angle, steps.angle, 2.0),
        (radius, steps.radius, 2.0),
        (shift[:, 0], 1.0, 1.0),
        (shift[:, 1], 1.0, 1.0),
    ):
        weights = gaussian_kernel((1, 5), sigma)[0]
        cells = (drawn / step).round().long()
        shares = torch.bincount(cells + 2, minlength=5) / len(cells)
        assert torch.allclose(shares.double(), weights, atol=5e-3)


def test_draws_of_the_law_and_of_its_lattice_go_together() -> None:
    law, u = law_of_kernel(AffineInvariant(sigma=0.5), 224, 224), uniforms(512, 0)
    steps = steps_of(224, 224)
    apart = (law.transforms(u).angle - law.lattice(u, 224, 224)[0]) / steps.angle
    assert float(apart.abs().max()) < 0.7  # half a cell, and a little more in the tails


def test_a_range_is_eot_s_and_its_kernel_covers_it() -> None:
    law, steps = law_of_range(1, 224, 224), steps_of(224, 224)
    drawn = law.transforms(uniforms(1024, 0))
    assert float(drawn.angle.abs().max()) == pytest.approx(30, rel=0.01)
    assert (float(drawn.scale.min()), float(drawn.scale.max())) == pytest.approx((0.5, 1.5), rel=0.01)
    assert float(drawn.shift.abs().max()) == pytest.approx(20 * 224 / 299, rel=0.01)
    _, columns = law.estimator.polar_kernel_size  # type: ignore[misc]  # a pair here
    assert columns * steps.angle == pytest.approx(60, abs=steps.angle)


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_a_range_beyond_eot_s_is_refused(share: float) -> None:
    with pytest.raises(WhorlError, match="must lie in"):
        law_of_range(share, 64, 64)


@pytest.mark.parametrize("text", ["wide", "0.7@x", "0.7@8", "-1", ""])
def test_a_bad_kernel_is_refused(text: str) -> None:
    with pytest.raises(WhorlError):
        read_kernel(text)


@pytest.mark.parametrize("name", ["reference", "printed"])
def test_a_named_kernel_is_read(name: str) -> None:
    assert read_kernel(name) == AffineInvariant(sigma=name)  # type: ignore[arg-type]
    assert read_kernel(f"{name}@7") == AffineInvariant(kernel_size=7, sigma=name)  # type: ignore[arg-type]


def test_weights_of_one_s_own_have_no_law() -> None:
    with pytest.raises(WhorlError, match="no law"):
        law_of_kernel(AffineInvariant(weights=gaussian_kernel(3, 1.0)), 32, 32)


def test_odd_numbers() -> None:
    assert [odd(width) for width in (0, 1, 2.9, 3.1, 14.6)] == [1, 1, 3, 3, 15]


def test_draws_follow_from_the_seed() -> None:
    assert torch.equal(uniforms(8, 4), uniforms(8, 4))
    assert not torch.equal(uniforms(8, 4), uniforms(8, 5))


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
