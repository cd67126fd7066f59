"""What errors say: every fault of a setting at once, names that were nearly right, and text that a terminal shows."""

from __future__ import annotations

import math
import pickle
from datetime import date

import pytest

from whorl.errors import (
    Fault,
    SettingsError,
    WhorlError,
    first_line,
    missing_extra,
    out_of_range,
    printable,
    quoted,
    reason,
    some_of,
    unknown_name,
)


def test_a_message_cannot_move_the_cursor() -> None:
    assert str(WhorlError("a\x1b[2Jb\udcffc\nd")) == "a%1B[2Jb%FFc\nd"
    assert printable("\ud800").isascii()


def test_faults_are_listed_by_where_they_are() -> None:
    faults = [Fault(("poses", 1, "my angle"), "a number", "'x'"), Fault((), "a label distinguishes two")]
    assert [fault.said() for fault in faults] == ["my angle must be a number; got 'x'", "a label distinguishes two"]
    assert str(faults[0].within("runs", 2)) == "runs[2].poses[1].'my angle': expected a number, got 'x'"
    said = str(SettingsError(faults * 30, where="mine.toml")).splitlines()
    assert said[0] == "mine.toml has 60 faults:"
    assert (len(said), said[-1].strip()) == (22, "and 40 more")


def test_an_error_of_settings_travels_between_processes() -> None:
    error = SettingsError([Fault(("eps",), "a number above 0", "-1")], where="mine.toml")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), again.faults) == (SettingsError, str(error), error.faults)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (10**500, "a number of hundreds of digits"),
        (date(2026, 1, 2), "2026-01-02"),
        ("x" * 200, None),
        ({"a": {"b": {"c": {"d": 1}}}}, "{'a': {'b': {'c': {...}}}}"),
    ],
)
def test_a_value_is_quoted_in_short(value: object, shown: str | None) -> None:
    assert quoted(value) == shown if shown else len(quoted(value)) <= 80


def test_names_that_are_near() -> None:
    assert "Did you mean 'ai-dim', 'ai-mim'? Look." in str(
        unknown_name("attack", "ai-dmi", ["ai-dim", "ai-mim", "cw"], hint="Look.")
    )
    assert str(unknown_name("norm", "x", ["linf", "l2"], hint="linf or l2.")) == "unknown norm 'x'. linf or l2."
    assert "Known: a, b." in str(unknown_name("part", "zzz", ["b", "a"], hint="Or none."))


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [
        (math.nan, math.nan, "NaN"),
        (-0.1, 1.1, "Clamp"),
        (-2.1, 2.6, "Leave the normalisation out"),
        (0.0, 255.0, "Divide by 255"),
    ],
)
def test_what_images_out_of_range_look_like(low: float, high: float, advice: str) -> None:
    assert advice in str(out_of_range(low, high))


def test_a_package_that_is_absent_and_one_that_is_broken() -> None:
    absent = ModuleNotFoundError("No module named 'art'", name="art")
    broken = ModuleNotFoundError("No module named 'six'", name="six")
    assert "art-toolbox, which is not installed" in str(missing_extra("it", "art-toolbox", error=absent, module="art"))
    for error in (broken, ImportError("libcuda is missing")):
        assert f"cannot be imported ({error})" in str(missing_extra("it", "art-toolbox", error=error, module="art"))


def test_the_first_line_of_an_error() -> None:
    assert [reason(OSError(text)) for text in ("", "\n ", "\na\nb")] == ["OSError", "OSError", "a"]
    assert first_line(ValueError("")) == "ValueError: no message"
    assert some_of(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c' and 2 more"
