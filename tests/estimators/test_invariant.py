"""Estimators: against the literal sums of DESIGN §4, and what holds for any gradient."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from estimator_cases import ESTIMATORS, Kernel, axes, gaussian, own, uniform, worst_relative_error
from reference import Array, noise
from whorl.estimators import AffineInvariant, TranslationInvariant

# ---------------------------------------------------------------------------------------------------------------------
# Equal to the literal sums


@dataclass(frozen=True, eq=False)
class Case:
    size: tuple[int, int]
    channels: int
    kernel: Kernel
    polar: Kernel | None = None
    parts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        off = [f"no {part}" for part, on in self.parts.items() if not on]
        names = [self.kernel.label, *([self.polar.label] if self.polar else []), *off]
        return f"{self.size[0]}x{self.size[1]}x{self.channels} {', '.join(names)}"

    def gradient(self, dtype: torch.dtype) -> Tensor:
        return noise(2, self.channels, *self.size, dtype=torch.float32).to(dtype)

    def affine(self) -> AffineInvariant:
        polar = {"polar_weights": self.kernel.settings["weights"]} if "weights" in self.kernel.settings else {}
        return AffineInvariant(
            **self.kernel.settings, **(self.polar.polar_settings() if self.polar else polar), **self.parts
        )

    @functools.cache  # noqa: B019 - one table, made once
    def expected_affine(self) -> Array:
        p, q = self.kernel.weights, (self.polar or self.kernel).weights
        return reference.affine_average(self.gradient(torch.float64).numpy(), p, q, **self.parts)

    @functools.cache  # noqa: B019
    def expected_translation(self) -> Array:
        return reference.average_of_shifts(self.gradient(torch.float64).numpy(), self.kernel.weights)


def every_combination_of_parts() -> Iterator[dict[str, Any]]:
    for number in range(7):  # 7 is all three on, which the other cases are
        yield {"translation": bool(number & 1), "rotation": bool(number & 2), "scaling": bool(number & 4)}


CASES = [
    Case((224, 224), 3, gaussian(15, "reference")),
    Case((224, 224), 1, gaussian(15, "printed")),
    Case((224, 224), 2, uniform(3)),
    Case((224, 224), 4, gaussian(1, "reference")),
    Case((224, 224), 1, own(15, 15, separable=False)),
    Case((224, 224), 1, gaussian(31, 7 / 3)),
    Case((299, 299), 3, gaussian(15, "reference")),
    Case((299, 299), 1, gaussian(31, "printed")),
    Case((299, 299), 2, gaussian(3, "reference")),
    Case((299, 299), 4, gaussian(1, "printed")),
    Case((299, 299), 1, gaussian(15, 0.5)),
    Case((224, 224), 3, gaussian(15, "reference")),
    Case((97, 131), 2, gaussian((31, 3), "reference")),
    Case((131, 97), 1, gaussian(15, "printed"), gaussian((5, 15), "reference")),
    Case((131, 97), 1, gaussian(15, "reference"), gaussian(15, "printed")),
    *(Case((64, 64), 2, gaussian(15, "reference"), parts=parts) for parts in every_combination_of_parts()),
    Case((97, 131), 4, gaussian(3, "printed")),
    Case((97, 131), 3, gaussian(15, "reference")),
    Case((97, 131), 1, gaussian(31, "reference")),
    Case((97, 131), 2, uniform(15)),
    Case((97, 131), 1, uniform(31)),
    Case((97, 131), 3, uniform(1)),
    Case((97, 131), 2, gaussian((5, 9), "reference")),
    Case((97, 131), 2, gaussian((9, 5), "printed")),
    Case((97, 131), 1, gaussian((1, 15), "printed")),
    Case((131, 97), 1, uniform((31, 3))),
    Case((97, 131), 2, own(7, 5, separable=True)),
    Case((131, 97), 4, own(5, 7, separable=False)),
    Case((97, 131), 1, own(3, 15, separable=False)),
    Case((97, 131), 2, gaussian(15, "reference"), gaussian((3, 31), 2.0)),
    Case((97, 131), 2, own(3, 3, separable=True), own(5, 7, separable=False)),
    *(
        Case((60, 97), 1, own(3, 5, separable=False), own(7, 5, separable=False), parts=parts)
        for parts in every_combination_of_parts()
    ),
    *(Case((64, 64), 2, gaussian(15, "printed"), parts=parts) for parts in every_combination_of_parts()),
    # Edges of what an image can be: a kernel wider than it, a single line, a single pixel.
    Case((9, 12), 2, gaussian(31, "printed")),
    Case((5, 4), 1, own(15, 13, separable=False)),
    Case((1, 8), 1, gaussian(3, "printed")),
    Case((8, 1), 1, uniform((3, 5))),
    Case((2, 2), 1, uniform(3)),
    Case((1, 1), 3, gaussian(3, "printed")),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_affine_invariant_equals_the_literal_sums(case: Case, dtype: torch.dtype) -> None:
    out = case.affine()(case.gradient(dtype))
    assert out.dtype == dtype
    assert out.shape == (2, case.channels, *case.size)
    assert worst_relative_error(out, case.expected_affine()) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if not case.parts and case.polar is None], ids=str)
def test_translation_invariant_equals_the_literal_sum(case: Case, dtype: torch.dtype) -> None:
    out = TranslationInvariant(**case.kernel.settings)(case.gradient(dtype))
    assert out.dtype == dtype
    assert worst_relative_error(out, case.expected_translation()) < TOLERANCE[dtype]


def test_the_default_is_the_papers_with_the_kernel_of_the_authors_code() -> None:
    g = noise(1, 3, 33, 33)
    p = reference.gaussian(15, 7 / 6)
    assert worst_relative_error(AffineInvariant()(g), reference.affine_average(g.numpy(), p, p)) < 1e-10
    assert repr(AffineInvariant()) == "AffineInvariant(sigma='reference')"
    assert AffineInvariant() == AffineInvariant(sigma="reference", kernel_size=15)


def test_the_kernels_are_described_apart() -> None:
    g = noise(1, 3, 33, 33)
    p, q = reference.gaussian(15, 1.0), reference.gaussian(15, 2.0)
    around = AffineInvariant(sigma=1.0, polar_sigma=2.0)
    assert worst_relative_error(around(g), reference.affine_average(g.numpy(), p, q)) < 1e-10
    weights = torch.rand(3, 3, dtype=torch.float64)
    assert AffineInvariant(weights=weights).kernel == AffineInvariant(weights=weights, sigma=1.0).kernel
    assert AffineInvariant(kind="uniform").kernel is not None


@pytest.mark.parametrize(("preset", "width"), [("reference", 7 / 6), ("printed", 7 / math.sqrt(3))])
def test_the_papers_15_by_15_kernels_are_presets(preset: Any, width: float) -> None:
    g = noise(1, 3, 33, 33)
    p = reference.gaussian(15, width)
    estimate = AffineInvariant(sigma=preset)(g)
    assert worst_relative_error(estimate, reference.affine_average(g.numpy(), p, p)) < 1e-10
    other = AffineInvariant(sigma="printed" if preset == "reference" else "reference")
    assert worst_relative_error(estimate, other(g).numpy()) > 0.1


def test_the_translation_invariant_default_is_the_published_one() -> None:
    g = noise(1, 3, 33, 33)
    p = reference.gaussian(15, 7 / 3)
    assert worst_relative_error(TranslationInvariant()(g), reference.average_of_shifts(g.numpy(), p)) < 1e-10


def test_own_weights_are_used_as_they_are() -> None:
    g = noise(1, 1, 16, 16)
    p = np.array([[0.5, 2.0, -1.0]])  # sums to 1.5
    weights = torch.from_numpy(p)
    moved, turned = TranslationInvariant(weights=weights), AffineInvariant(weights=weights, polar_weights=weights)
    assert worst_relative_error(moved(g), reference.average_of_shifts(g.numpy(), p)) < 1e-12
    assert worst_relative_error(turned(g), reference.affine_average(g.numpy(), p, p)) < 1e-12


@pytest.mark.parametrize(
    "kernel",
    [gaussian((3, 9), "printed"), gaussian(7, 0.8), uniform((5, 3)), own(5, 3, separable=False)],
    ids=lambda k: k.label,
)
def test_the_polar_kernel_is_the_translation_kernel_unless_told(kernel: Kernel) -> None:
    g = noise(1, 1, 16, 20)
    expected = reference.affine_average(g.numpy(), kernel.weights, kernel.weights)
    assert worst_relative_error(AffineInvariant(**kernel.settings)(g), expected) < 1e-10


def test_named_sigmas_follow_the_polar_size() -> None:
    g = noise(1, 1, 30, 30)
    estimator = AffineInvariant(kernel_size=15, sigma="printed", polar_kernel_size=(3, 7))
    expected = reference.affine_average(
        g.numpy(), reference.gaussian(15, "printed"), reference.gaussian((3, 7), "printed")
    )
    assert worst_relative_error(estimator(g), expected) < 1e-10


@settings(max_examples=20, deadline=None)
@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    half=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    separable=st.booleans(),
    parts=st.fixed_dictionaries({part: st.booleans() for part in ("translation", "rotation", "scaling")}),
    seed=st.integers(0, 1000),
)
def test_affine_invariant_equals_the_literal_sums_for_any_shape(
    height: int, width: int, half: tuple[int, int], separable: bool, parts: dict[str, Any], seed: int
) -> None:
    g = noise(1, 2, height, width, seed=seed)
    kernel = own(2 * half[0] + 1, 2 * half[1] + 1, separable=separable)
    expected = reference.affine_average(g.numpy(), kernel.weights, kernel.weights, **parts)
    estimator = AffineInvariant(**kernel.settings, **kernel.polar_settings(), **parts)
    np.testing.assert_allclose(estimator(g).numpy(), expected, rtol=0, atol=1e-11)


# ---------------------------------------------------------------------------------------------------------------------
# Properties

sizes = st.tuples(st.integers(2, 16), st.integers(2, 16))
seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=8, deadline=None)
@given(size=sizes, seed=seeds, a=st.floats(-10, 10), b=st.floats(-10, 10))
def test_linear(name: str, size: tuple[int, int], seed: int, a: float, b: float) -> None:
    estimator = ESTIMATORS[name]
    g, h = noise(2, 2, 2, *size, seed=seed)
    together = estimator(a * g + b * h)
    assert torch.allclose(together, a * estimator(g) + b * estimator(h), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=6, deadline=None)
@given(size=sizes, seed=seeds, batch=st.integers(2, 5))
def test_images_and_channels_do_not_touch_each_other(name: str, size: tuple[int, int], seed: int, batch: int) -> None:
    estimator = ESTIMATORS[name]
    g = noise(batch, 3, *size, seed=seed, dtype=torch.float32)
    g[0] *= 1e6
    g[:, 1] *= 1e3
    together = estimator(g)
    for i in range(batch):
        for c in range(3):
            alone = estimator(g[i : i + 1, c : c + 1])
            peak = float(g[i, c].abs().max())
            assert torch.allclose(together[i, c], alone[0, 0], rtol=0, atol=2e-6 * peak)


@settings(max_examples=15, deadline=None)
@given(
    n=st.sampled_from([4, 8, 12, 16, 20]),
    k=st.sampled_from([1, 3, 5, 7]),
    kind=st.sampled_from(["gaussian", "uniform"]),
    turns=st.integers(1, 3),
    seed=seeds,
)
def test_quarter_turns_commute_where_the_angles_divide_by_four(
    n: int, k: int, kind: str, turns: int, seed: int
) -> None:
    g = noise(1, 2, n, n, seed=seed)
    estimator = AffineInvariant(kernel_size=k, sigma=1.3, kind=kind)  # type: ignore[arg-type]
    turned = estimator(torch.rot90(g, turns, (2, 3)))
    assert torch.allclose(turned, torch.rot90(estimator(g), turns, (2, 3)), rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(height=st.integers(2, 16), width=st.integers(1, 8), k=st.sampled_from([1, 3, 5]), seed=seeds)
def test_mirrored_gradients_give_mirrored_estimates(height: int, width: int, k: int, seed: int) -> None:
    estimator = AffineInvariant(kernel_size=k, sigma="printed")
    g = noise(1, 1, height, 2 * width, seed=seed)
    assert torch.allclose(estimator(g.flip(2)), estimator(g).flip(2), rtol=0, atol=1e-12)
    if max(height, 2 * width) % 2 == 0:  # else no angle lies opposite to 0
        assert torch.allclose(estimator(g.flip(3)), estimator(g).flip(3), rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(down=st.integers(-4, 4), right=st.integers(-4, 4), seed=seeds)
def test_translation_invariant_moves_with_the_gradient_and_keeps_its_sum(down: int, right: int, seed: int) -> None:
    estimator = TranslationInvariant(**own(5, 7, separable=False).settings)
    g = torch.zeros(1, 2, 22, 24, dtype=torch.float64)
    g[..., 7:15, 8:16] = noise(1, 2, 8, 8, seed=seed)
    out = estimator(g)
    moved = estimator(g.roll((down, right), dims=(2, 3)))
    assert torch.allclose(moved, out.roll((down, right), dims=(2, 3)), rtol=0, atol=1e-13)
    assert torch.allclose(out.sum((2, 3)), g.sum((2, 3)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [40, 41])
def test_constants(n: int) -> None:
    one = torch.ones(1, 1, n, n, dtype=torch.float64)
    right, down = axes(n, n)
    distance = torch.from_numpy(np.hypot(right, down))
    step = reference.radius_step(n, n)
    rim = (n - 1) / 2 - 1.5
    blurred = TranslationInvariant(kernel_size=5, sigma=1.0)(one)
    assert torch.allclose(blurred[..., 2:-2, 2:-2], one[..., 2:-2, 2:-2], rtol=0, atol=1e-12)
    assert float(blurred[0, 0, 0, 0]) < 0.9  # zeros outside
    turned = AffineInvariant(kernel_size=7, sigma=2.0, translation=False, scaling=False)(one)[0, 0]
    assert (turned[distance < rim] - 1).abs().max() < 1e-12
    scaled = AffineInvariant(kernel_size=7, sigma=2.0, translation=False, rotation=False)(one)[0, 0]
    ring = (distance > 4 * step) & (distance < rim - 4 * step)
    assert ring.sum() > 100
    assert (scaled[ring] - 1).abs().max() < 1e-12


def test_nothing_comes_from_below_radius_zero() -> None:
    weights = np.array([0.1, 0.2, 0.3, 0.25, 0.15])[:, None]
    estimator = AffineInvariant(polar_weights=torch.from_numpy(weights), translation=False, rotation=False)
    out = estimator(torch.ones(1, 1, 21, 21, dtype=torch.float64))
    # Zero-padded in r: of the centre's five radii -2..2, only 0, 1 and 2 are there.
    assert float(out[0, 0, 10, 10]) == pytest.approx(0.3 + 0.25 + 0.15, abs=1e-12)
