"""Values that a hostile user gives, and a reference that says which of them a setting may take.

The reference shares nothing with the product: it is the meaning of each setting, spelled out.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

Allows = Callable[[Any], bool]

SMALLEST, LARGEST = 1e-12, 1e9


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def whole(least: int, most: float = LARGEST) -> Allows:
    return lambda value: is_whole(value) and least <= value <= most


def number(least: float, most: float = LARGEST) -> Allows:
    return lambda value: is_number(value) and math.isfinite(value) and least <= value <= most


def above(low: float, most: float = LARGEST) -> Allows:
    smallest = SMALLEST if low == 0 else -math.inf
    return lambda value: is_number(value) and low < value <= most and value >= smallest


def choice(*choices: str) -> Allows:
    return lambda value: isinstance(value, str) and value in choices


def optional(allows: Allows) -> Allows:
    return lambda value: value is None or allows(value)


def radius(value: Any) -> bool:
    """One number from 0 to 1, or one for each image."""
    if isinstance(value, list | tuple | np.ndarray):
        return np.ndim(np.asarray(value, dtype=object)) == 1 and all(number(0, 1)(one) for one in value)
    if isinstance(value, torch.Tensor):
        return value.dim() <= 1 and value.dtype != torch.bool and radius(value.tolist())
    return number(0, 1)(value)


LOSSES = choice("ce", "margin", "logit", "relative")
SETTINGS: dict[str, dict[str, Allows]] = {
    "pgd": {
        "eps": radius,
        "steps": whole(1),
        "alpha": optional(above(0)),
        "pace": above(0),
        "norm": choice("linf", "l2"),
        "loss": LOSSES,
        "samples": whole(1),
        "momentum": number(0, 100),
        "optimizer": choice("sign", "adam"),
        "random_start": flag,
        "early_stop": flag,
        "chunk": optional(whole(1)),
        "fast": optional(flag),
    },
    "ai-best": {"temperature": above(0), "overshoot": above(0)},
    "deepfool": {"steps": whole(1), "candidates": whole(1), "overshoot": number(0)},
    "cw": {
        "steps": whole(1),
        "search_steps": whole(1),
        "learning_rate": above(0),
        "initial_c": above(0),
        "confidence": number(0),
    },
    "nes": {
        "eps": above(0, 1),
        "norm": choice("linf", "l2"),
        "loss": LOSSES,
        "sigma": above(0),
        "learning_rate": optional(above(0)),
        "plateau": optional(whole(1)),
        "least_rate": above(0),
        "rounded": flag,
        "chunk": optional(whole(1)),
        "trace": flag,
    },
    "boundary": {"eps": optional(above(0)), "tries": whole(1), "rounded": flag, "trace": flag},
}
PARTS: dict[str, tuple[str, dict[str, Allows]]] = {
    "DiverseInput": ("input", {"probability": number(0, 1), "largest": lambda v: number(1, 2)(v) and v < 2}),
    "Gain": ("input", {"lowest": above(0, 1)}),
    "Mirror": ("input", {"probability": number(0, 1)}),
    "CompressedGradient": ("estimator", {"power": above(0, 1)}),
    "SharedChannels": ("estimator", {"share": number(0, 1)}),
    "AffineInvariant": (
        "estimator",
        {
            "kernel_size": lambda v: is_whole(v) and 1 <= v <= 15 and v % 2 == 1,
            "rotation": flag,
            "kind": choice("gaussian", "uniform"),
        },
    ),
    "RotationInvariant": ("estimator", {"degrees": above(0, 180), "at_eps": optional(above(0))}),
}

_DECIMAL = r"([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE]-?[0-9]{1,2})?"


def fraction(text: str) -> Fraction | None:
    """What a fraction or a decimal means; None where it is neither."""
    parts = [part.strip() for part in text.split("/")]
    if len(parts) > 2 or not all(re.fullmatch(_DECIMAL, part) for part in parts):
        return None
    numbers = [Fraction(part) for part in parts]
    return None if len(numbers) == 2 and numbers[1] == 0 else numbers[0] / (numbers[1:] or [Fraction(1)])[0]


class Odd:
    """An object whose repr is a page of escapes."""

    def __repr__(self) -> str:
        return "\x1b[31m<odd>\n" * 50


IN_FILES: list[Any] = [
    *(True, False, "no", "yes", "", "linf", "l2", "ce", "sign", "adam", "gaussian", "a\x1b[31mb", "x" * 5000, "\x00"),
    *(0, 1, 2, 3, 5, -1, 4, 2**31, 10**30, -(10**30), 0.0, -0.0, 0.5, 1.0, 2.0, 1.5, -0.1, 1e-300, 1e300, 180.0, 181),
    *(math.nan, math.inf, -math.inf, [], [1, 2], [0.1, 0.2], [True], [[1]], ["a"], [[[[[1]]]]]),
    *(datetime.date(1979, 5, 27), datetime.time(7, 32), datetime.datetime(1979, 5, 27, 7, 32)),
]
"""Values that TOML can hold."""
IN_PYTHON: list[Any] = [
    *(None, np.int64(3), np.float32(0.5), np.float64("nan"), np.bool_(True), np.array([0.1, 0.2]), b"", b"16", (1, 2)),
    *(
        torch.tensor(0.1),
        torch.tensor([0.1, 2.0]),
        torch.tensor([True]),
        1 + 2j,
        Fraction(1, 2),
        object(),
        Odd(),
        {},
        {1},
    ),
    *(type, int, print, range(3), float, Ellipsis, {"type": "AffineInvariant"}),
]

file_values = st.one_of(
    st.sampled_from(IN_FILES),
    st.floats(),
    st.floats(0, 1),
    st.integers(-3, 20),
    st.integers(),
    st.text(max_size=8),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
python_values = st.one_of(file_values, st.sampled_from(IN_PYTHON))


def known(value: Any) -> bool:
    """Whether the reference has an opinion: numbers of other kinds than Python's and numpy's it leaves aside."""
    return not isinstance(value, Fraction | complex | np.complexfloating) and not (
        isinstance(value, list | tuple | np.ndarray) and len(value) == 0
    )
