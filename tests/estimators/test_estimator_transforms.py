"""The paper's claim: a shift of the polar image is a transform of the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import reference
from estimator_cases import axes, worst_relative_error
from reference import Array, noise
from whorl.estimators import AffineInvariant


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
    rotation = AffineInvariant(kernel_size=15, sigma="reference", translation=False, scaling=False)(g)
    scaling = AffineInvariant(kernel_size=15, sigma="reference", translation=False, rotation=False)(g)
    assert worst_relative_error(rotation, reference.polar_average(g.numpy(), line)) < 1e-10
    assert worst_relative_error(scaling, reference.polar_average(g.numpy(), line.T)) < 1e-10
