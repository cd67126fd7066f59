"""Estimators as objects: precision, memory, settings, what they refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from estimator_cases import ESTIMATORS, Function, own
from reference import noise
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant, Chain, TranslationInvariant, identity


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
            kind(15)  # type: ignore[call-arg]  # what the test is about


def test_readable_repr() -> None:
    assert repr(AffineInvariant(sigma=0.8)) == "AffineInvariant(sigma=0.8)"
    assert repr(AffineInvariant(sigma=8 / 255)) == "AffineInvariant(sigma=8/255)"
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
