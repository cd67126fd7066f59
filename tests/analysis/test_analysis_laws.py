"""Laws of transforms, and the kernels that stand for them."""

from __future__ import annotations

import math

import pytest
import torch

from whorl import AffineInvariant, WhorlError
from whorl.analysis.kernel_grid import read_kernel
from whorl.analysis.laws import law_of_kernel, law_of_range, uniforms
from whorl.estimators import CALIBRATED_ROTATION
from whorl.geometry.kernels import CALIBRATED_SIGMA, gaussian_kernel, odd
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


def test_the_calibrated_kernel_s_law_turns_alone_and_where_it_cannot_it_moves() -> None:
    steps = steps_of(224, 224)
    turning, still = (law_of_kernel(AffineInvariant(rotation=rotation), 224, 224) for rotation in (True, False))
    assert turning.angle == pytest.approx(CALIBRATED_ROTATION * steps.angle)
    assert (turning.shift, turning.scale) == (0, 0)
    assert still.angle == 0
    assert still.shift == pytest.approx(CALIBRATED_SIGMA)
    assert still.scale * steps.typical == pytest.approx(CALIBRATED_SIGMA * steps.radius)


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


@pytest.mark.parametrize("name", ["calibrated", "reference", "printed"])
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
