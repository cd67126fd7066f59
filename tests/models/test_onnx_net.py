from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from conftest import random_images
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models import load_model

WEIGHT = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def write_graph(path: Path, shape: list[Any], dtype: int = onnx.TensorProto.FLOAT) -> Path:
    """A graph that averages each channel and multiplies by a matrix."""
    helper = onnx.helper
    weight = helper.make_tensor("weight", dtype, WEIGHT.shape, WEIGHT.astype(helper.tensor_dtype_to_np_dtype(dtype)))
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
        ],
        "small",
        [helper.make_tensor_value_info("image", dtype, shape)],
        [helper.make_tensor_value_info("logits", dtype, [shape[0], 5])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("batch", ["n", 1, 2, 5])
def test_answers_queries(tmp_path: Path, batch: str | int) -> None:
    path = write_graph(tmp_path / "net.onnx", [batch, 3, 18, 18])
    clf = load_model(f"onnx:{path}?mean=0.1,0.2,0.3&std=0.5,0.5,0.5")
    x = random_images(5)
    expected = (x.mean(dim=(2, 3)) - torch.tensor([0.1, 0.2, 0.3])) / 0.5 @ torch.from_numpy(WEIGHT)
    torch.testing.assert_close(clf(x), expected)
    assert clf.num_classes == 5
    assert clf.weights_sha256 == sha256_of(path)


def test_gets_plain_images_of_the_size_it_asks_for(tmp_path: Path) -> None:
    clf = load_model(f"onnx:{write_graph(tmp_path / 'net.onnx', ['n', 3, 12, 20])}")
    assert (clf.size, clf.mean, clf.std) == ((12, 20), (0, 0, 0), (1, 1, 1))
    assert clf(random_images(2, height=31)).shape == (2, 5)


def test_half_precision_graphs(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "net.onnx", ["n", 3, 18, 18], onnx.TensorProto.FLOAT16)
    assert load_model(f"onnx:{path}")(random_images(1)).dtype == torch.float32


def test_has_no_gradients_and_says_so(tmp_path: Path) -> None:
    clf = load_model(f"onnx:{write_graph(tmp_path / 'net.onnx', ['n', 3, 18, 18])}")
    x = random_images(1).requires_grad_()
    with pytest.raises(WhorlError, match=r"no gradients.*score-based"):
        clf(x)
    with torch.no_grad():
        assert clf(x).shape == (1, 5)


def test_a_graph_that_takes_any_size_needs_one(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "net.onnx", ["n", 3, "h", "w"])
    with pytest.raises(WhorlError, match=r"Append \?size"):
        load_model(f"onnx:{path}")
    assert load_model(f"onnx:{path}?size=18").size == (18, 18)


def test_refuses_what_it_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="no ONNX file"):
        load_model(f"onnx:{tmp_path / 'nowhere.onnx'}")
    (tmp_path / "garbage.onnx").write_bytes(b"garbage")
    with pytest.raises(WhorlError, match="not a usable ONNX model"):
        load_model(f"onnx:{tmp_path / 'garbage.onnx'}")
    path = write_graph(tmp_path / "flat.onnx", ["n", 3, 18])
    with pytest.raises(WhorlError, match=r"one floating-point \(B, C, H, W\) input; got image"):
        load_model(f"onnx:{path}")
    path = write_graph(tmp_path / "net.onnx", ["n", 3, 18, 18])
    with pytest.raises(WhorlError, match="leave dtype out"):
        load_model(f"onnx:{path}", dtype=torch.float16)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(WhorlError, match=r"whorl\[onnx\]"):
        load_model(f"onnx:{tmp_path / 'net.onnx'}")
