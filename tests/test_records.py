"""Settings as records: their annotations are their checks, and every fault is told at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch

from whorl import WhorlError
from whorl.errors import SettingsError
from whorl.records import Count, InOrder, Limits, Positive, Record, Registry, Share, checked


@dataclass(frozen=True, kw_only=True, repr=False)
class Blur(Record):
    width: Positive = 1.0
    share: Share = 0.5
    count: Count = 3
    kind: Literal["box", "bell"] = "bell"
    sides: tuple[int, int] = (3, 5)
    weights: tuple[Positive, ...] | None = None
    seed: int = 0
    on: bool = False


def test_what_is_meant_is_taken() -> None:
    made = Blur(width=2, sides=[1, 2], weights=np.array([1.0, 2.0]), seed=np.int64(7), on=np.bool_(True))  # type: ignore[arg-type]
    assert (made.width, type(made.width), made.sides, made.weights) == (2.0, float, (1, 2), (1.0, 2.0))
    assert (made.seed, type(made.seed), made.on, type(made.on)) == (7, int, True, bool)
    assert Blur(seed=10**30).seed == 10**30


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"width": 0}, "width must be a number above 0; got 0"),
        ({"width": True}, "a number above 0; got True"),
        ({"width": math.nan}, "a number above 0; got nan"),
        ({"width": 1e-30}, "of a size from 1e-12 to 1e\\+09; got 1e-30"),
        ({"share": 1.01}, r"a number in \[0, 1\]"),
        ({"count": 1.0}, "a whole number >= 1; got 1.0"),
        ({"kind": "Box"}, "'box' or 'bell'; got 'Box'"),
        ({"sides": (1, 2, 3)}, "a pair, each a whole number"),
        ({"weights": [1, -1]}, "several, each a number above 0, or None"),
        ({"on": 1}, "True or False; got 1"),
    ],
)
def test_what_is_not_is_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Blur(**setting)


def test_all_faults_are_told_at_once_and_unknown_settings_with_them() -> None:
    with pytest.raises(SettingsError) as told:
        Blur().with_(width=-1, count=0, witdh=2)
    assert {fault.place for fault in told.value.faults} == {("width",), ("count",), ("witdh",)}
    assert "Did you mean 'width'" in str(told.value)


def test_the_repr_shows_what_differs() -> None:
    assert repr(Blur(share=0.5)) == "Blur()"
    assert repr(Blur(width=8 / 255, seed=1)) == "Blur(width=8/255, seed=1)"


@pytest.mark.parametrize(
    ("limits", "words", "inside", "outside"),
    [
        (Limits(least=0, below=1), "a number in [0, 1)", (0, 0.99), (-0.01, 1)),
        (Limits(above=1), "a number above 1", (1.01,), (1,)),
        (Limits(most=2), "a number <= 2", (2, -5), (2.01,)),
        (Limits(below=2), "a number < 2", (1.9,), (2,)),
        (Limits(), "a number", (0,), ()),
    ],
)
def test_limits(limits: Limits, words: str, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert limits.words("a number") == words
    assert [limits.hold(value) for value in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


def test_an_annotation_says_what_is_expected() -> None:
    length = Annotated[float, Limits(above=0), "a length in millimetres"]
    assert checked("side", 3, length) == 3.0
    with pytest.raises(SettingsError, match="side must be a length in millimetres; got 0"):
        checked("side", 0, length)
    assert checked("place", "a/b", Path) == Path("a/b")
    with pytest.raises(SettingsError, match="a path"):
        checked("place", "a\0b", Path)
    assert checked("weights", torch.ones(2), torch.Tensor).shape == (2,)


def test_parts_are_found_by_name() -> None:
    parts: Registry[Any] = Registry("blur")
    parts.add(Blur)
    assert (parts.find("Blur"), list(parts), len(parts)) == (Blur, ["Blur"], 1)
    with pytest.raises(WhorlError, match="a name that no other has"):
        parts.add(Blur)
    with pytest.raises(WhorlError, match="unknown blur 'blurr'"):
        parts.find("blurr")


def test_parts_in_order_are_what_all_of_them_are() -> None:
    pure, other = type("Pure", (), {"pure": True})(), object()
    assert InOrder(pure, pure).all_are("pure")
    assert not InOrder(pure, other).all_are("pure")
    assert InOrder(1, 2) == InOrder(1, 2) != InOrder(2, 1)
