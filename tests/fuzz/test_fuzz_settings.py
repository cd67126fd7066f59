"""Settings in Python: a value of its type and range is taken as it is, anything else is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import whorl
from fuzz.harness import Verdict, fuzz, judge, tried
from fuzz.values import PARTS, SETTINGS, known, python_values
from whorl.estimators import ESTIMATORS
from whorl.transforms import TRANSFORMS

FAMILY = "settings"
NAMED = [(attack, name) for attack, settings in SETTINGS.items() for name in settings]
IN_PARTS = [(part, name) for part, (_, settings) in PARTS.items() for name in settings]

# What the issue lists, and what was found beside it.
LISTED: list[tuple[str, dict[str, Any], Verdict]] = [
    ("pgd", {"eps": True}, "error"),
    ("pgd", {"random_start": "no"}, "error"),
    ("pgd", {"random_start": 1}, "error"),
    ("pgd", {"norm": 2}, "error"),
    ("pgd", {"alpha": float("inf")}, "error"),
    ("pgd", {"alpha": 1e300}, "error"),
    ("pgd", {"eps": 16}, "error"),
    ("pgd", {"eps": 16, "norm": "l2"}, "works"),
    ("pgd", {"eps": "16/255"}, "error"),
    ("pgd", {"steps": np.int64(3)}, "works"),
    ("pgd", {"steps": 3.0}, "error"),
    ("pgd", {"momentum": np.float32(1)}, "works"),
    ("pgd", {"epsilon": 0.1}, "error"),
    ("pgd", {"self": 1}, "error"),
    ("pgd", {"name": "dim"}, "error"),
    ("pgd", {"estimator": whorl.AffineInvariant}, "error"),
    ("pgd", {"estimator": "ai"}, "error"),
    ("pgd", {"input": 3}, "error"),
    ("pgd", {"loss": 3}, "error"),
    ("nes", {"samples": 3}, "error"),
    ("nes", {"budget": 3}, "error"),
    ("nes", {"init": "nowhere"}, "error"),
    ("boundary", {"walk": 3}, "error"),
    ("boundary", {"bisections": -1}, "error"),
    ("no-such-attack", {}, "error"),
    ("\x1b[31mpgd", {}, "error"),
    ("", {}, "error"),
    ("torchattacks:", {}, "error"),
    ("nolibrary:PGD", {}, "error"),
]


@pytest.mark.parametrize(("name", "settings", "verdict"), LISTED, ids=[f"{n!r} {s!r:.50}" for n, s, _ in LISTED])
def test_listed(name: str, settings: dict[str, Any], verdict: Verdict) -> None:
    judge(lambda: whorl.attack(name, **settings), verdict)


@pytest.mark.parametrize("name", [None, 3, b"pgd", ["pgd"]], ids=repr)
def test_a_name_is_text(name: Any) -> None:
    judge(lambda: whorl.attack(name), "error")


KERNELS: list[tuple[dict[str, Any], Verdict]] = [
    ({"kernel_size": 10**9 + 1}, "error"),
    ({"kernel_size": 4}, "error"),
    ({"kernel_size": (3, 5)}, "works"),
    ({"kernel_size": True}, "error"),
    ({"kernel_size": -3}, "error"),
    ({"sigma": 0}, "error"),
    ({"sigma": float("nan")}, "error"),
    ({"sigma": "wide"}, "error"),
    ({"weights": torch.zeros(3, 3)}, "error"),
    ({"weights": torch.full((3, 3), torch.nan)}, "error"),
    ({"weights": torch.ones(3)}, "error"),
    ({"weights": torch.ones(3, 3)}, "works"),
    ({"weights": [[1.0]]}, "error"),
    ({"scaling": 0}, "error"),
]


@pytest.mark.parametrize(("settings", "verdict"), KERNELS, ids=[repr(s)[:50] for s, _ in KERNELS])
def test_kernels(settings: dict[str, Any], verdict: Verdict) -> None:
    judge(lambda: whorl.AffineInvariant(**settings), verdict)


@fuzz(0.16, which=st.sampled_from(NAMED), value=python_values)
def test_a_setting_of_an_attack(which: tuple[str, str], value: Any) -> None:
    attack, name = which
    allowed = SETTINGS[attack][name](value)
    if name == "loss" and callable(value):
        return  # anything that can be called may be a loss
    made = judge(lambda: whorl.attack(attack, **{name: value}), _verdict(allowed, value))
    if made is not None and isinstance(value, bool | int | float | str):
        assert getattr(made, name) == value


@fuzz(0.08, which=st.sampled_from(IN_PARTS), value=python_values)
def test_a_setting_of_a_part(which: tuple[str, str], value: Any) -> None:
    part, name = which
    kind, settings = PARTS[part]
    if isinstance(value, list | tuple | np.ndarray) and name in ("degrees", "kernel_size"):
        return  # a pair will do there
    make: Any = (TRANSFORMS if kind == "input" else ESTIMATORS).find(part)
    if name == "kernel_size" and isinstance(value, int) and value > 15:
        return  # large kernels are allowed, and slow
    judge(lambda: make(**{name: value}), _verdict(settings[name](value), value))


@fuzz(0.04, which=st.lists(st.sampled_from(NAMED), min_size=2, max_size=4, unique=True), values=st.data())
def test_every_fault_of_a_call_is_said(which: list[tuple[str, str]], values: Any) -> None:
    attack = which[0][0]
    names = [name for of, name in which if of == attack]
    settings = {name: values.draw(python_values, label=name) for name in names}
    if not all(known(value) and not callable(value) for value in settings.values()):
        return
    if "eps" in settings and "norm" in settings:
        return  # how large it may be depends on the norm
    wrong = [name for name in names if not SETTINGS[attack][name](settings[name])]
    _, refusal = tried(lambda: whorl.attack(attack, **settings))
    assert (refusal is not None) == bool(wrong)
    assert all(f"{name} must be" in str(refusal) for name in wrong), refusal


def _verdict(allowed: bool, value: Any) -> Verdict:
    return ("works" if allowed else "error") if known(value) else "either"
