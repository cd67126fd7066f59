"""The reader of TensorFlow Lite files: what is in the real one, and that damaged ones are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whorl.artifacts import fetch
from whorl.errors import WhorlError
from whorl.models.inception import read_quantised_inception
from whorl.models.networks import NETWORKS
from whorl.models.tflite import QuantisedGraph, read_tflite


@pytest.fixture(scope="module")
def path() -> Path:
    [path] = fetch(NETWORKS["inception_v3"].artifact).values()
    return path


@pytest.fixture(scope="module")
def graph(path: Path) -> QuantisedGraph:
    return read_tflite(path)


@pytest.fixture(scope="module")
def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture(scope="module")
def structure(graph: QuantisedGraph, content: bytes) -> list[int]:
    """Which bytes are not a tensor's data."""
    structural = np.ones(len(content), bool)
    for tensor in graph.tensors:
        if tensor.data is not None:
            start = content.find(tensor.data.numpy().tobytes())
            structural[start : start + tensor.data.nbytes] = False
    places: list[int] = structural.nonzero()[0].tolist()
    return places


def test_the_real_file(graph: QuantisedGraph) -> None:
    kinds = Counter(step.kind for step in graph.operators)
    assert kinds == {"convolution": 95, "concatenation": 15, "average pool": 10, "max pool": 4, "reshape": 1}
    assert Counter((step.padding, step.stride) for step in graph.operators if step.kind == "convolution") == {
        ("SAME", (1, 1)): 87,
        ("VALID", (1, 1)): 3,
        ("VALID", (2, 2)): 5,
    }
    start, end = graph.tensors[graph.input], graph.tensors[graph.output]
    assert (start.name, start.shape, start.range()) == ("input", (1, 299, 299, 3), (-1.0, 127 / 128))
    assert (end.name, end.shape, end.zero_point) == ("output", (1, 1001), 53)
    first = graph.operators[0]
    kernel, bias, out = (graph.tensors[number] for number in (*first.inputs[1:], first.output))
    assert kernel.shape == (32, 3, 3, 3)
    assert out.name.endswith("Conv2d_1a_3x3/Relu")
    # The file also says which numbers its integers were made from; to half a step they are what it reads as.
    assert kernel.values().min() == pytest.approx(-5.721980571746826, abs=kernel.scale)
    assert kernel.values().max() == pytest.approx(5.494680404663086, abs=kernel.scale)
    assert out.range() == pytest.approx((0, 15.14148235321045), rel=1e-5)
    assert bias.dtype == torch.int32
    assert bias.scale == pytest.approx((start.scale or 0) * (kernel.scale or 0))
    with pytest.raises(WhorlError, match="must be a quantised constant"):
        out.values()
    with pytest.raises(WhorlError, match="must be quantised to uint8"):
        bias.range()


@pytest.mark.parametrize("content", [b"", b"TFL3", b"\0" * 64, b"\x18\0\0\0TFL3" + b"\xff" * 64, b"\xff" * 64])
def test_what_is_no_such_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "graph.lite"
    with pytest.raises(WhorlError, match="there is no file"):
        read_tflite(path)
    path.write_bytes(content)
    with pytest.raises(WhorlError, match="not a TensorFlow Lite file"):
        read_tflite(path)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_file_that_was_cut_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.lite"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 64))])
    with pytest.raises(WhorlError, match="not a TensorFlow Lite file"):
        read_tflite(path)


def flipped(content: bytes, structure: list[int], data: st.DataObject) -> bytes:
    """The file with some bits of its tables and lists the other way round."""
    damaged = bytearray(content)
    for place, bit in data.draw(st.lists(st.tuples(st.sampled_from(structure), st.integers(0, 7)), min_size=1)):
        damaged[place] ^= 1 << bit
    return bytes(damaged)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_tables_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, structure: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.lite"
    path.write_bytes(flipped(content, structure, data))
    try:
        graph = read_tflite(path)
    except WhorlError:
        return
    numbers = {number for step in graph.operators for number in (*step.inputs, step.output)}
    assert numbers <= set(range(len(graph.tensors)))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_damaged_network_is_converted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, structure: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "converted.lite"
    path.write_bytes(flipped(content, structure, data))
    try:
        state = read_quantised_inception(path)
    except WhorlError:
        return
    assert len(state) == 2 * 95
