"""The estimator on other polar grids."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from analysis.toy_fields import smooth
from whorl import AffineInvariant, WhorlError
from whorl.analysis.laws import Transforms, law_of_kernel, pull_back
from whorl.estimators.polar_grids import PolarGridInvariant
from whorl.runs.settings import build_attack

SETTINGS: list[dict[str, Any]] = [
    {},
    {"sigma": 0.5},
    {"kind": "uniform", "kernel_size": 7},
    {"sigma": "printed", "polar_kernel_size": (9, 5)},
    {"translation": False, "rotation": False},
    {"scaling": False, "polar_sigma": 2.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("size", [(32, 32), (31, 20)], ids=str)
def test_on_the_estimator_s_grid_it_is_the_estimator(settings: dict[str, Any], size: tuple[int, int]) -> None:
    g = torch.randn(2, 3, *size, dtype=torch.float64)
    assert torch.allclose(PolarGridInvariant(**settings)(g), AffineInvariant(**settings)(g), atol=1e-9)


def scaled_average(g: Tensor, spread: float) -> Tensor:
    """E[F⁻¹ g] over scalings s = exp(z·spread), z standard normal, each a single warp."""
    total, weights = torch.zeros_like(g), 0.0
    for z in torch.linspace(-4, 4, 81).tolist():
        weight = float(torch.exp(torch.tensor(-z * z / 2)))
        factor = torch.tensor([z * spread]).exp().double()
        total += weight * pull_back(g, Transforms(torch.zeros(1), factor, torch.zeros(1, 2)))
        weights += weight
    return total / weights


def test_a_logarithmic_grid_scales_exactly() -> None:
    settings: dict[str, Any] = {
        "translation": False,
        "rotation": False,
        "polar_sigma": 6.0,
        "polar_kernel_size": (51, 1),
    }
    g = smooth(seed=4)
    spread = law_of_kernel(AffineInvariant(**settings), 65, 65).scale
    wanted = scaled_average(g, spread)
    error = {
        spacing: float((PolarGridInvariant(**settings, spacing=spacing, finer=2)(g) - wanted).norm() / wanted.norm())
        for spacing in ("linear", "log")
    }
    assert error["log"] < 0.01
    assert error["linear"] > 5 * error["log"]


def test_a_finer_grid_loses_less() -> None:
    """Turned by nothing, the estimator should give back what it got."""
    g = torch.randn(1, 1, 48, 48, dtype=torch.float64)
    lost = []
    for finer in (1, (1, 6), (4, 12)):
        there_and_back = PolarGridInvariant(kernel_size=1, finer=finer)(g)
        lost.append(float((there_and_back - g).norm() / g.norm()))
    assert lost[0] > 1.1 * lost[1] > 1.1 * 1.1 * lost[2]


def test_keeps_a_constant() -> None:
    """All of it on a logarithmic grid; a linear one is 0 beyond its first row, and so dims the centre."""
    g = torch.ones(1, 2, 41, 41, dtype=torch.float64)
    settings: dict[str, Any] = {"finer": 2, "kernel_size": 5, "sigma": 0.8}
    kept = PolarGridInvariant(spacing="log", **settings)(g)[..., 8:-8, 8:-8]
    assert torch.allclose(kept, torch.ones_like(kept), atol=1e-6)
    linear = PolarGridInvariant(**settings)(g)
    assert torch.allclose(linear[..., 10, 10:-10], g[..., 10, 10:-10], atol=1e-6)
    assert 0.5 < float(linear[0, 0, 20, 20]) < 0.8


def test_keeps_dtype_and_does_not_depend_on_the_batch() -> None:
    g = torch.randn(3, 3, 24, 24)
    estimator = PolarGridInvariant(spacing="log")
    assert estimator(g.half()).dtype == torch.float16
    assert torch.allclose(estimator(g)[1:2], estimator(g[1:2]), atol=1e-6)


def test_a_grid_that_was_first_asked_for_in_inference_mode_serves_outside() -> None:
    estimator = PolarGridInvariant(finer=3)
    with torch.inference_mode():
        estimator(torch.rand(1, 3, 19, 19))
    x = torch.rand(1, 3, 19, 19, requires_grad=True)
    estimator(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"spacing": "cubic"}, "'linear' or 'log'"), ({"finer": 0}, "whole number in"), ({"sigma": -1.0}, "sigma")],
)
def test_bad_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(WhorlError, match=problem):
        PolarGridInvariant(**settings)


def test_a_declaration_can_name_it() -> None:
    attack = build_attack("dim", {"estimator": {"type": "PolarGridInvariant", "spacing": "log", "finer": [1, 6]}})
    assert attack.estimator == PolarGridInvariant(spacing="log", finer=(1, 6))  # type: ignore[attr-defined]


def test_wraps_a_network(net: nn.Module, x: Tensor, y: Tensor) -> None:
    estimator = PolarGridInvariant(finer=2)
    gradients = []
    for module in (net, estimator.wrap(net)):
        leaf = x.clone().requires_grad_()
        torch.nn.functional.cross_entropy(module(leaf), y).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert torch.allclose(estimator(gradients[0]), gradients[1], atol=1e-7)


def test_attacks_take_it(net: nn.Module, x: Tensor, y: Tensor) -> None:
    adv = whorl.attack("mim", steps=2, estimator=PolarGridInvariant(spacing="log"))(net, x, y)
    assert float((adv - x).abs().max()) <= 16 / 255 + 1e-6
