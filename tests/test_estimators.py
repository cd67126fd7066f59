"""Estimators: against the literal sums of DESIGN §4, against true averages of transformed gradients, and wrapped."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import reference
from reference import Array, noise
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant, Chain, TranslationInvariant, identity
from whorl.geometry.polar import polar_plan

Size = int | tuple[int, int]
Function = Callable[[Tensor], Tensor]


# ---------------------------------------------------------------------------------------------------------------------
# Equal to the literal sums


@dataclass(frozen=True)
class Kernel:
    """The settings that ask for a kernel, and the kernel they should give."""

    label: str
    settings: dict[str, Any]
    weights: Array

    def polar_settings(self) -> dict[str, Any]:
        names = {"kernel_size": "polar_kernel_size", "sigma": "polar_sigma", "weights": "polar_weights"}
        return {names[key]: value for key, value in self.settings.items()}


def gaussian(size: Size, sigma: str | float) -> Kernel:
    label = f"gaussian {size} {sigma if isinstance(sigma, str) else round(sigma, 3)}"
    return Kernel(label, {"kernel_size": size, "sigma": sigma}, reference.gaussian(size, sigma))


def uniform(size: Size) -> Kernel:
    return Kernel(f"uniform {size}", {"kernel_size": size, "kind": "uniform"}, reference.uniform(size))


def own(rows: int, cols: int, *, separable: bool) -> Kernel:
    """Somebody's own lopsided kernel."""
    rng = np.random.default_rng(7)
    p = np.outer(rng.random(rows), rng.random(cols)) if separable else rng.random((rows, cols))
    p = p / p.sum()
    label = f"own {'separable' if separable else 'non-separable'} {rows}x{cols}"
    return Kernel(label, {"weights": torch.from_numpy(p)}, p)


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
    # Edges of what a picture can be: a kernel wider than it, a single line, a single pixel.
    Case((9, 12), 2, gaussian(31, "printed")),
    Case((5, 4), 1, own(15, 13, separable=False)),
    Case((1, 8), 1, gaussian(3, "printed")),
    Case((8, 1), 1, uniform((3, 5))),
    Case((2, 2), 1, uniform(3)),
    Case((1, 1), 3, gaussian(3, "printed")),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def worst_relative_error(out: Tensor, expected: Array) -> float:
    """The largest of ‖out - expected‖ / ‖expected‖ over images and channels."""
    difference = np.linalg.norm(out.double().numpy() - expected, axis=(-2, -1))
    return float(np.max(difference / np.linalg.norm(expected, axis=(-2, -1))))


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


def test_defaults_are_the_papers_15_by_15_kernels() -> None:
    g = noise(1, 3, 33, 33)
    p = reference.gaussian(15, 7 / 6)
    assert worst_relative_error(AffineInvariant()(g), reference.affine_average(g.numpy(), p, p)) < 1e-10
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
# The paper's claim: a shift of the polar picture is a transform of the gradient


def waves(seed: int, radius: float, spread: float) -> Callable[[Array, Array], Array]:
    """A smooth random field, known at every point: twelve waves of 8 to 16 px under a window.

    The window is a disc of the given radius, or, where spread > 0, a ring of that radius and that spread.
    """
    rng = np.random.default_rng(seed)
    direction, phase, length = rng.uniform(0, 2 * math.pi, 12), rng.uniform(0, 2 * math.pi, 12), rng.uniform(8, 16, 12)

    def at(right: Array, down: Array) -> Array:
        value = np.zeros_like(right)
        for angle, start, wave in zip(direction, phase, length, strict=True):
            along = right * math.cos(angle) + down * math.sin(angle)
            value += np.cos(2 * math.pi * along / wave + start)
        distance = np.hypot(right, down)
        window = (
            np.exp(-((distance - radius) ** 2) / (2 * spread**2)) if spread else np.exp(-((distance / radius) ** 8))
        )
        value *= window
        return value

    return at


def axes(height: int, width: int) -> tuple[Array, Array]:
    down, right = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    return right, down


def cosine(a: Array, b: Array) -> float:
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


# Symmetric and lopsided: the lopsided one tells clockwise from anticlockwise and larger from smaller.
LINES = {
    "gaussian": reference.gaussian((1, 15), "printed").ravel(),
    "uniform": reference.uniform((1, 9)).ravel(),
    "lopsided": np.arange(1.0, 8.0) / 28,
}
FIELD_SIZES = [(128, 128), (97, 131)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("size", FIELD_SIZES, ids=str)
def test_rotation_alone_averages_rotated_gradients(size: tuple[int, int], line: str, seed: int) -> None:
    """Column v of the kernel is a rotation by 2πv/n, exactly; the fields fade out before the border."""
    weights = LINES[line]
    right, down = axes(*size)
    gradient = waves(seed, radius=0.75 * min(size) / 2, spread=0)
    average = np.zeros(size)
    for v, weight in enumerate(weights, start=-(len(weights) // 2)):
        cos, sin = math.cos(2 * math.pi * v / max(size)), math.sin(2 * math.pi * v / max(size))
        average += weight * gradient(cos * right - sin * down, sin * right + cos * down)
    plain = gradient(right, down)
    estimator = AffineInvariant(polar_weights=torch.from_numpy(weights[None, :]), translation=False, scaling=False)
    out = estimator(torch.from_numpy(plain)[None, None])[0, 0].numpy()
    assert cosine(out, average) > 0.999
    assert np.linalg.norm(out) == pytest.approx(np.linalg.norm(average), rel=0.08)  # two interpolations smooth a little
    assert cosine(plain, average) < 0.9  # the average is not what it started from
    if line == "lopsided":
        mirrored = AffineInvariant(
            polar_weights=torch.from_numpy(weights[None, ::-1].copy()), translation=False, scaling=False
        )
        assert cosine(mirrored(torch.from_numpy(plain)[None, None])[0, 0].numpy(), average) < 0.9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("size", FIELD_SIZES, ids=str)
def test_scaling_alone_averages_scaled_gradients(size: tuple[int, int], line: str, seed: int) -> None:
    """Row u of the kernel moves every radius by u·Δ (Δ = R/(n-1)); a scaling by s moves radius r by (s-1)·r.

    The two agree at r = uΔ/(s-1), to first order around it. So the paper's claim has a meaning for what lies around one
    radius r0, with s = 1 + uΔ/r0: the fields here are rings around r0 with a spread of r0/5.
    """
    weights = LINES[line]
    right, down = axes(*size)
    middle = 0.6 * min(size) / 2
    gradient = waves(seed, radius=middle, spread=middle / 5)
    average = np.zeros(size)
    for u, weight in enumerate(weights, start=-(len(weights) // 2)):
        scale = 1 + u * reference.radius_step(*size) / middle
        average += weight * gradient(scale * right, scale * down)
    plain = gradient(right, down)
    estimator = AffineInvariant(polar_weights=torch.from_numpy(weights[:, None]), translation=False, rotation=False)
    out = estimator(torch.from_numpy(plain)[None, None])[0, 0].numpy()
    assert cosine(out, average) > 0.99
    assert np.linalg.norm(out) == pytest.approx(np.linalg.norm(average), rel=0.12)
    assert cosine(plain, average) < 0.985
    if line == "lopsided":
        mirrored = AffineInvariant(
            polar_weights=torch.from_numpy(weights[::-1, None].copy()), translation=False, rotation=False
        )
        assert cosine(mirrored(torch.from_numpy(plain)[None, None])[0, 0].numpy(), average) < 0.95


def test_a_part_alone_takes_its_share_of_the_gaussian() -> None:
    g = noise(1, 1, 40, 40)
    line = reference.gaussian((1, 15), 7 / 6)
    rotation = AffineInvariant(kernel_size=15, translation=False, scaling=False)(g)
    scaling = AffineInvariant(kernel_size=15, translation=False, rotation=False)(g)
    assert worst_relative_error(rotation, reference.polar_average(g.numpy(), line)) < 1e-10
    assert worst_relative_error(scaling, reference.polar_average(g.numpy(), line.T)) < 1e-10


# ---------------------------------------------------------------------------------------------------------------------
# Properties

ESTIMATORS: dict[str, Function] = {
    "ti": TranslationInvariant(kernel_size=5, sigma=1.0),
    "ti uniform": TranslationInvariant(kernel_size=(3, 5), kind="uniform"),
    "ai": AffineInvariant(kernel_size=5, sigma="printed"),
    "ai uniform": AffineInvariant(kernel_size=3, kind="uniform"),
    "ai own": AffineInvariant(**own(3, 5, separable=False).settings, **own(5, 3, separable=False).polar_settings()),
    "rotation": AffineInvariant(kernel_size=5, sigma=1.5, translation=False, scaling=False),
    "scaling": AffineInvariant(kernel_size=5, sigma=1.5, translation=False, rotation=False),
    "chain": Chain(TranslationInvariant(kernel_size=3, sigma=1.0), AffineInvariant(kernel_size=3, sigma=0.8)),
    "identity": identity,
}
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


# ---------------------------------------------------------------------------------------------------------------------
# The object


@pytest.mark.parametrize("name", ["ti", "ai", "ai own", "chain"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(name: str, dtype: torch.dtype) -> None:
    g = noise(2, 3, 20, 20).to(dtype)
    out = ESTIMATORS[name](g)
    assert out.dtype == dtype
    assert torch.equal(out, ESTIMATORS[name](g.float()).to(dtype))


@pytest.mark.parametrize("name", ["ti", "ai", "ai own"])
def test_autocast_does_not_lower_the_precision(name: str) -> None:
    g = noise(2, 3, 20, 20, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ESTIMATORS[name](g)
    assert torch.equal(inside, ESTIMATORS[name](g))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_leaves_its_input_alone(name: str) -> None:
    g = noise(2, 3, 16, 16, dtype=torch.float32)
    before = g.clone()
    ESTIMATORS[name](g)
    assert torch.equal(g, before)


@pytest.mark.parametrize("name", ["ti", "ti uniform", "ai", "ai own"])
@pytest.mark.parametrize("layout", ["channels_last", "sliced", "expanded"])
def test_memory_layout_does_not_matter(name: str, layout: str) -> None:
    g = noise(2, 3, 12, 14)
    same = {
        "channels_last": g.to(memory_format=torch.channels_last),
        "sliced": torch.stack((g, -g), dim=-1)[..., 0],
        "expanded": g[:1].expand(2, -1, -1, -1),
    }[layout]
    out = ESTIMATORS[name](same)
    assert torch.allclose(out, ESTIMATORS[name](same.contiguous()), rtol=0, atol=1e-14)


def test_chain_applies_left_to_right() -> None:
    first = TranslationInvariant(**own(3, 5, separable=False).settings)
    second = AffineInvariant(kernel_size=5, sigma="printed")
    g = noise(1, 2, 14, 14)
    assert torch.equal(Chain(first, second)(g), second(first(g)))
    assert not torch.allclose(Chain(second, first)(g), second(first(g)), rtol=0, atol=1e-6)
    assert torch.equal(Chain(first)(g), first(g))
    assert torch.equal(Chain(Chain(first, second), identity)(g), second(first(g)))


def test_identity_gives_back_what_it_got() -> None:
    g = noise(1, 2, 5, 6)
    assert torch.equal(identity(g), g)
    assert torch.equal(AffineInvariant(translation=False, rotation=False, scaling=False)(g), g)


@pytest.mark.parametrize("name", ["kernel_size", "sigma", "something_new"])
@pytest.mark.parametrize("estimator", [TranslationInvariant(), AffineInvariant()], ids=["ti", "ai"])
def test_frozen(estimator: Any, name: str) -> None:
    with pytest.raises((AttributeError, TypeError)):
        setattr(estimator, name, 3)


def test_settings_are_keywords() -> None:
    for kind in (TranslationInvariant, AffineInvariant):
        with pytest.raises(TypeError):
            kind(15)  # type: ignore[call-arg]


def test_readable_repr() -> None:
    text = repr(AffineInvariant(kernel_size=7, sigma="printed", scaling=False))
    assert text.startswith("AffineInvariant(")
    for part in ("kernel_size=7", "printed", "scaling=False"):
        assert part in text
    assert "kernel_size=9" in repr(TranslationInvariant(kernel_size=9))
    chain = repr(Chain(TranslationInvariant(kernel_size=9), AffineInvariant(sigma=0.7)))
    assert chain.startswith("Chain(")
    assert chain.index("TranslationInvariant(kernel_size=9") < chain.index("AffineInvariant(")
    assert "0.7" in chain
    own_text = repr(AffineInvariant(**own(31, 31, separable=False).settings))
    assert "\n" not in own_text
    assert len(own_text) < 300
    assert " at 0x" not in repr(identity)
    assert "identity" in repr(identity).lower()


@pytest.mark.parametrize("kind", [TranslationInvariant, AffineInvariant])
@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel_size": 4},
        {"kernel_size": 0},
        {"kernel_size": (3, 2)},
        {"sigma": 0.0},
        {"sigma": -1.0},
        {"sigma": "papers"},
        {"kind": "gausian"},
        {"weights": torch.ones(2, 3)},
        {"weights": torch.ones(3)},
    ],
    ids=str,
)
def test_settings_without_meaning_are_refused_at_once(kind: Callable[..., Function], wrong: dict[str, Any]) -> None:
    with pytest.raises(WhorlError):
        kind(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"polar_kernel_size": 4}, {"polar_sigma": 0.0}, {"polar_weights": torch.ones(2, 3)}], ids=str
)
def test_polar_settings_without_meaning_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(WhorlError):
        AffineInvariant(**wrong)


@pytest.mark.parametrize(
    "g", [torch.ones(3, 8, 8), torch.ones(1, 3, 8, 8, dtype=torch.int64)], ids=["3 axes", "integers"]
)
@pytest.mark.parametrize("kind", [TranslationInvariant, AffineInvariant])
def test_gradients_of_another_shape_or_kind_are_refused(kind: Callable[..., Function], g: Tensor) -> None:
    with pytest.raises(WhorlError):
        kind()(g)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_travels_to_another_process_and_copies(name: str) -> None:
    g = noise(1, 2, 10, 10)
    expected = ESTIMATORS[name](g)
    assert torch.equal(pickle.loads(pickle.dumps(ESTIMATORS[name]))(g), expected)  # noqa: S301 - our own bytes
    assert torch.equal(copy.deepcopy(ESTIMATORS[name])(g), expected)


# ---------------------------------------------------------------------------------------------------------------------
# Cost


class Operations(TorchDispatchMode):
    """Writes down the name of every operation that runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operations(function: Callable[[], object]) -> set[str]:
    seen = Operations()
    with seen:
        function()
    return seen.names


@pytest.mark.parametrize("name", ["ti", "ai", "ai own", "chain"])
def test_the_second_call_builds_nothing_and_asks_the_device_nothing(name: str) -> None:
    estimator, g = ESTIMATORS[name], noise(1, 3, 25, 31, dtype=torch.float32)
    estimator(g)
    before = polar_plan.cache_info()
    seen = operations(lambda: estimator(g))
    assert polar_plan.cache_info().misses == before.misses
    assert seen
    rebuilding = {
        "exp",
        "cos",
        "sin",
        "atan2",
        "sqrt",
        "hypot",
        "arange",
        "linspace",
        "floor",
        "linalg_svd",
        "_linalg_svd",
    }
    waiting = {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "allclose"}
    assert not seen & (rebuilding | waiting)


def test_the_probe_of_operations_sees_what_it_should() -> None:
    assert {"arange", "exp", "_local_scalar_dense"} <= operations(lambda: float(torch.arange(3).float().exp()[0]))


def peak_extra_bytes(function: Callable[[], object]) -> int:
    """How far the allocator's total rises above where it stood, result included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    events = record.profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    total = peak = 0
    for _, change in sorted(changes):
        total += change
        peak = max(peak, total)
    return peak


def test_the_probe_of_memory_sees_what_it_should() -> None:
    x = torch.ones(1000, 100)
    size = x.numel() * 4
    assert 3 * size <= peak_extra_bytes(lambda: (x + 1) * (x + 2)) < 3.1 * size
    assert peak_extra_bytes(lambda: x.mul_(1)) < 0.1 * size


HUNGRY: dict[str, Function] = {
    "ti": TranslationInvariant(),
    "ai": AffineInvariant(),
    "ai uniform": AffineInvariant(kernel_size=31, kind="uniform"),
    "ai own": AffineInvariant(**own(5, 5, separable=False).settings, **own(5, 5, separable=False).polar_settings()),
    "polar only": AffineInvariant(translation=False),
}


@pytest.mark.parametrize("name", HUNGRY)
@pytest.mark.parametrize("shape", [(8, 3, 128, 128), (1, 1, 224, 224)], ids=str)
def test_needs_at_most_three_more_buffers(name: str, shape: tuple[int, ...]) -> None:
    estimator = HUNGRY[name]
    g = noise(*shape, dtype=torch.float32)
    estimator(g)
    peak = peak_extra_bytes(lambda: estimator(g))
    buffer = g.numel() * g.element_size()
    assert buffer <= peak <= 3 * buffer + 16 * 1024  # a kernel or two is no buffer


# ---------------------------------------------------------------------------------------------------------------------
# Wrapped around a module


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    net(torch.zeros(1, 3, 20, 24))
    return net.to(dtype)


def run(net: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of a loss at the input."""
    x = x.clone().requires_grad_()
    out = net(x)
    out.float().square().sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


WRAPPED = {name: ESTIMATORS[name] for name in ("ti", "ai", "ai own", "rotation", "chain", "identity")}


def wrap(name: str, net: nn.Module) -> nn.Module:
    estimator: Any = WRAPPED[name]
    wrapped = estimator.wrap(net)
    assert isinstance(wrapped, nn.Module)
    return wrapped


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_forward_is_the_same_and_the_gradient_is_the_estimate(name: str) -> None:
    net, x = network(), noise(3, 3, 20, 24, dtype=torch.float32)
    out, gradient = run(net, x)
    wrapped_out, wrapped_gradient = run(wrap(name, net), x)
    assert torch.equal(wrapped_out, out)
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapping_leaves_the_gradients_of_the_parameters_alone(name: str) -> None:
    x = noise(2, 3, 20, 24, dtype=torch.float32)
    plain, inner = network(), network()
    run(plain, x)
    run(wrap(name, inner), x)
    for expected, parameter in zip(plain.parameters(), inner.parameters(), strict=True):
        assert expected.grad is not None
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, expected.grad)


def test_wrapped_parameters_learn_where_the_input_needs_no_gradient() -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    torch.sum(wrap("ai", net)(x)).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())
    assert x.grad is None


def test_wrapped_module_shares_parameters_and_mode() -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5))
    wrapped = wrap("ai", net)
    assert {id(p) for p in wrapped.parameters()} == {id(p) for p in net.parameters()}
    wrapped.eval()
    assert not net[1].training
    wrapped.train()
    assert net[1].training
    wrapped.double()
    assert net[0].weight.dtype == torch.float64


def test_wrapping_twice_estimates_twice() -> None:
    net, x = network(), noise(1, 3, 20, 24, dtype=torch.float32)
    _, gradient = run(net, x)
    _, twice = run(wrap("ti", wrap("ai own", net)), x)
    assert torch.equal(twice, ESTIMATORS["ti"](ESTIMATORS["ai own"](gradient)))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_wrapped_without_gradients(name: str, mode: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    with mode():
        out = wrap(name, net)(x.clone().requires_grad_())
    assert not out.requires_grad
    assert torch.equal(out, net(x))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("backward_inside", [False, True])
def test_wrapped_under_autocast(name: str, backward_inside: bool) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)

    def run_autocast(net: nn.Module) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(leaf)
            if backward_inside:
                out.float().square().sum().backward()
        if not backward_inside:
            out.float().square().sum().backward()
        assert leaf.grad is not None
        return out.detach(), leaf.grad

    out, gradient = run_autocast(net)
    wrapped_out, wrapped_gradient = run_autocast(wrap(name, net))
    assert out.dtype == wrapped_out.dtype == torch.bfloat16
    assert torch.equal(wrapped_out, out)
    assert wrapped_gradient.dtype == torch.float32
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_wrapped_in_other_precisions(name: str, dtype: torch.dtype) -> None:
    net, x = network(dtype), noise(2, 3, 20, 24, dtype=dtype)
    out, gradient = run(net, x)
    wrapped_out, wrapped_gradient = run(wrap(name, net), x)
    assert torch.equal(wrapped_out, out)
    assert wrapped_gradient.dtype == dtype
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_under_function_transforms(name: str) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    wrapped = wrap(name, net)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return torch.sum(module(x) ** 2)

    plain = torch.func.grad(functools.partial(loss, net))(x)
    estimated = torch.func.grad(functools.partial(loss, wrapped))(x)
    assert torch.equal(estimated, WRAPPED[name](plain))
    assert torch.equal(run(wrapped, x)[1], estimated)  # nothing of the transform stays behind in a cache


@pytest.mark.parametrize("name", ["ti", "ai", "ai own"])
def test_wrapped_gradient_through_autograd_grad(name: str) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32).requires_grad_()
    (plain,) = torch.autograd.grad(net(x).square().sum(), x)
    (estimated,) = torch.autograd.grad(wrap(name, net)(x).square().sum(), x)
    assert torch.equal(estimated, WRAPPED[name](plain))


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    polar_plan.cache_clear()
    yield
    torch._dynamo.reset()


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler"
)


def check_compiled(name: str, net: nn.Module, backend: str) -> None:
    x = noise(2, 3, 20, 24, dtype=torch.float32)
    compiled = torch.compile(wrap(name, net), backend=backend, fullgraph=True)
    compiled_out, compiled_gradient = run(compiled, x)  # before anything else, so that it builds its own grids
    out, gradient = run(net, x)
    assert torch.allclose(compiled_out, out, rtol=1e-4, atol=1e-6)
    expected = WRAPPED[name](gradient)
    assert (compiled_gradient - expected).norm() < 1e-5 * expected.norm()
    parameters = [parameter.grad for parameter in net.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in parameters)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ai", "ai own"])
def test_wrapped_compiles(name: str) -> None:
    check_compiled(name, network(), "aot_eager")


@needs_compiler
@pytest.mark.usefixtures("fresh_compiler")
def test_wrapped_compiles_to_machine_code() -> None:
    check_compiled("ai", nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 24, 5)), "inductor")


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ti", "chain"])
def test_estimator_compiles(name: str) -> None:
    g = noise(2, 3, 20, 24, dtype=torch.float32)
    inside = torch.compile(ESTIMATORS[name], backend="aot_eager", fullgraph=True)(g)
    assert torch.allclose(inside, ESTIMATORS[name](g), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ti", "ai", "ai own"])
def test_a_compiled_estimator_holds_its_grids_and_kernels_ready(name: str) -> None:
    """What the compiler takes in is what runs at every step: it must not hold the building of a grid."""
    called: set[str] = set()

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        called.update(getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes)
        return graph.forward

    g = noise(1, 3, 20, 24, dtype=torch.float32)
    compiled: Any = torch.compile(ESTIMATORS[name], backend=look)
    assert torch.allclose(compiled(g), ESTIMATORS[name](g), rtol=1e-5, atol=1e-6)
    assert called
    assert not called & {"exp", "cos", "sin", "atan2", "hypot", "arange", "linspace", "floor", "tensor", "svd"}


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_once_for_all_steps() -> None:
    """A second call of the same shape is not compiled again, and a new shape gives the right answer."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(ESTIMATORS["ai"], backend=counter, dynamic=False)
    for seed in range(3):
        g = noise(1, 3, 20, 20, seed=seed, dtype=torch.float32)
        assert torch.allclose(compiled(g), ESTIMATORS["ai"](g), rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1
    g = noise(1, 3, 12, 30, dtype=torch.float32)
    assert torch.allclose(compiled(g), ESTIMATORS["ai"](g), rtol=1e-5, atol=1e-6)


def test_a_compiled_network_takes_pictures_of_any_size() -> None:
    torch._dynamo.reset()
    estimator = AffineInvariant(kernel_size=5)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    compiled = torch.compile(estimator.wrap(net), backend="aot_eager", fullgraph=True, dynamic=True)
    for side in (16, 20, 24):
        x = torch.rand(2, 3, side, side, requires_grad=True)
        (plain,) = torch.autograd.grad(net(x).sum(), x)
        (estimated,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(estimated, estimator(plain))
    torch._dynamo.reset()
