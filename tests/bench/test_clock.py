"""Calls take turns on all their inputs, and one that may fail does not stop the rest. No test asks how fast it is."""

from __future__ import annotations

import pytest
import torch

from whorl.bench.clock import metadata, take_turns

CPU = torch.device("cpu")


def test_calls_take_turns_and_a_failing_one_does_not_stop_the_rest() -> None:
    order: list[str] = []

    def bad() -> None:
        order.append("bad")
        raise RuntimeError("out of order")

    told: list[int] = []
    calls = {"a": lambda: order.append("a"), "bad": bad, "b": lambda: order.append("b")}
    timings, failed = take_turns(calls, device=CPU, repeats=3, warmup=1, may_fail=["bad"], tell=told.append)
    assert order == ["a", "bad", "b"] + ["a", "b"] * 4
    assert {name: timing.n for name, timing in timings.items()} == {"a": 3, "b": 3}
    assert str(failed["bad"]) == "out of order"
    assert told == [1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="out of order"):
        take_turns(calls, device=CPU, repeats=1)


def test_some_calls_get_fewer_rounds() -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    timings, _ = take_turns(calls, device=CPU, repeats=4, fewer={"a": 2}, queued=True)
    assert "".join(order) == "abababab" + "bb"
    assert {name: timing.n for name, timing in timings.items()} == {"a": 2, "b": 4}


def test_calls_see_all_inputs() -> None:
    seen: list[tuple[str, int]] = []
    calls = {name: lambda x, name=name: seen.append((name, int(x))) for name in ("a", "b")}
    inputs = [(torch.tensor(i),) for i in range(2)]
    timings, _ = take_turns(calls, inputs, device=CPU, warmup=0, repeats=4)
    assert [name for name, _ in seen] == ["a", "b"] * 5
    assert set(seen[2:]) == {(name, i) for name in ("a", "b") for i in (0, 1)}
    assert {name: timing.n for name, timing in timings.items()} == {"a": 4, "b": 4}
    assert all(timing.p10_ms <= timing.median_ms <= timing.p90_ms for timing in timings.values())


def test_what_numbers_depend_on() -> None:
    about = metadata(CPU, size=5)
    assert (about["device"], about["size"], about["torch"]) == ("cpu", 5, str(torch.__version__))
    assert about["packages"].keys() >= {"torch", "timm", "numpy"}
    assert about["hardware"]
