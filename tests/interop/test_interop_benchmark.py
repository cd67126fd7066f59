"""The peers' table runs from end to end, on a toy network and toy images."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cli.toy_networks import classifier
from conftest import random_images, small_net
from peer_libraries import needs
from whorl.data import save_image
from whorl.interop import library_names

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOY, OTHER = "python:cli.toy_networks:small", "python:cli.toy_networks:other"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module; its name would hide nothing of ours, but is not on the path either."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("benchmark_of_peers", BENCHMARKS / "interop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    x = random_images(4)
    labels = classifier(small_net(), "small")(x).argmax(1).tolist()
    for i, (image, label) in enumerate(zip(x, labels, strict=True)):
        save_image(tmp_path / "data" / str(label) / f"{i}.png", image)
    return tmp_path / "data"


def test_the_table(benchmark: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for library in library_names():
        needs(library)
    saved = tmp_path / "saved.json"
    asked = ("--source", TOY, "--targets", f"{TOY},{OTHER}", "--size", "18", "--batch-size", "3", "--device", "cpu")
    benchmark.main([*asked, "--data", str(data), "--json", str(saved), "--markdown"])
    results = json.loads(saved.read_text())
    assert [result["library"] for result in results["results"]] == library_names()
    assert results["metadata"]["n"] == 4
    assert results["metadata"]["left_out"] == {}
    printed = capsys.readouterr().out
    for result in results["results"]:
        [own, _] = result["targets"]
        assert own["mean_success_rate"].keys() == {"plain", "affine-invariant"}
        assert own["mean_success_rate"]["plain"] > 0
        assert len(own["counts"]) == 2 * 12
        assert f"| {result['library']} {result['version']} {result['attack']} | {TOY} |" in printed


def test_a_missing_library_is_left_out(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchattack", None)
    there, missing = benchmark.importable(benchmark.ROWS)
    assert "torchattack" not in {row.library for row in there}
    assert list(missing) == ["torchattack"]
