"""The benchmarks run and save what they promise. No test here asks how fast anything is."""

from __future__ import annotations

import base64
import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
TIMED = {"median_ms", "p10_ms", "p90_ms", "n"}
DESCRIBED = {
    "date",
    "command",
    "commit",
    "whorl",
    "python",
    "packages",
    "device",
    "hardware",
    "threads",
    "quick",
    "repeats",
}


def run(script: str, folder: Path, *options: str, path: str = "") -> tuple[str, dict[str, Any]]:
    """Run a benchmark quickly, from another folder; give what it printed and what it saved."""
    saved = folder / "out" / "results.json"
    command = [sys.executable, str(BENCHMARKS / script), "--quick", "--device", "cpu", "--json", str(saved), *options]
    paths = os.pathsep.join(part for part in (path, str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]
    return done.stdout, json.loads(saved.read_text())


def check_contract(results: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    about = results["metadata"]
    assert about.keys() >= DESCRIBED
    assert about["packages"]["torch"] == torch.__version__
    assert about["command"].startswith("python benchmarks/")
    assert str(ROOT) not in json.dumps(results)
    for row in rows:
        assert row.keys() >= TIMED
        assert 0 < row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
        assert row["n"] == about["repeats"] == len(row["samples_ms"])
        assert row["median_ms"] == pytest.approx(median(row["samples_ms"]), rel=1e-4)


def test_estimator(tmp_path: Path) -> None:
    printed, results = run("estimator.py", tmp_path)
    [case] = results["cases"]
    rows = {row["name"]: row for row in case["rows"]}
    check_contract(results, case["rows"])
    assert str(tmp_path) not in json.dumps(results)
    ours = {"TranslationInvariant", "AffineInvariant", "AffineInvariant, all parts, 0.5"}
    assert {"copy", "15x15 depthwise convolution", *ours} <= rows.keys()
    parts = [name for name, row in rows.items() if row["part_of"] == "AffineInvariant"]
    assert parts == ["blur", "to polar", "polar blur", "from polar"]
    compared = {
        "copy": rows["copy"],
        "depthwise_convolution": rows["15x15 depthwise convolution"],
        "input_gradient": rows["ResNet-18 input gradient"],
    }
    for name, row in rows.items():
        assert name in printed
        assert row["ratios"].keys() == compared.keys()
        for key, other in compared.items():
            assert row["ratios"][key] == pytest.approx(row["median_ms"] / other["median_ms"], rel=1e-3)
    assert rows["copy"]["peak_extra_buffers"] == pytest.approx(1, abs=0.01)
    assert rows["AffineInvariant"]["peak_extra_buffers"] <= 3.01


def test_loops(tmp_path: Path) -> None:
    printed, results = run("loops.py", tmp_path, "--attacks", "dim", "ai-best", "--network", "torchvision:resnet18")
    rows = {row["name"]: row for row in results["rows"]}
    assert list(rows) == ["dim", "ai-best", "ai-best, plain"]
    check_contract(results, results["rows"])
    assert all(name in printed for name in rows)
    assert all(row["peak_extra_mib"] > 0 for row in rows.values())
    assert {row.get("way") for row in rows.values()} == {"step by step", None}


def test_cpu_loops(tmp_path: Path) -> None:
    printed, results = run("cpu_loops.py", tmp_path)
    check_contract(results, results["rows"])
    assert [row["name"] for row in results["rows"]][:2] == ["dim", "ai-best"]
    assert all(f"{row['what']}: {row['value']:.3f}" in printed for row in results["targets"])


def test_first_calls(tmp_path: Path) -> None:
    printed, results = run("first_calls.py", tmp_path, "--attacks", "dim", "--network", "torchvision:resnet18")
    assert [(row["name"], row["plain"]) for row in results["rows"]] == [("dim", False), ("dim", True)]
    assert all(row["first_s"] > 0 and row["second_s"] > 0 for row in results["rows"])
    assert "dim, plain" in printed
    assert results["metadata"]["network"] == "torchvision:resnet18"


def test_precision(tmp_path: Path) -> None:
    printed, results = run("precision.py", tmp_path)
    assert len(results["metadata"]["weights_sha256"]["resnet18"]) == 64
    rates = {row["attack"]: row for row in results["rates"]}
    assert rates.keys() == results["seconds_crafting"].keys() == {"mim fast", "mim plain"}
    for precision, outcomes in results["outcomes"].items():
        assert len(outcomes) == 2 * 2  # attacks, poses
        n = len(results["metadata"]["ids"])
        for way in rates:
            shown = [
                (unpacked(row["recognised"]["clean"], 1, n), unpacked(row["recognised"]["adversarial"], 1, n))
                for row in outcomes
                if row["attack"] == way
            ]
            each = [(clean & ~made).sum() / clean.sum() for clean, made in shown if clean.any()]
            assert rates[way][precision] == pytest.approx(100 * np.mean(each))
    by_attack, by_evaluation = results["targets"]
    assert by_attack["value"] == pytest.approx(abs(rates["mim fast"]["full"] - rates["mim plain"]["full"]))
    assert by_evaluation["value"] == pytest.approx(max(abs(row["bf16"] - row["full"]) for row in rates.values()))
    for target in results["targets"]:
        assert target["met"] == (target["value"] <= target["at_most"])
        assert f"{target['what']}: {target['value']:.2f}" in printed


def test_end_to_end(tmp_path: Path) -> None:
    printed, results = run("end_to_end.py", tmp_path, "--attack", "fgsm", "--source", "mobilenet_v2", "--limit", "3")
    assert results["metadata"].keys() >= DESCRIBED
    made, crafted = results["results"]
    assert [made["command"], crafted["command"]] == ["whorl run", "whorl attack"]
    assert made["pixels_sha256"] == crafted["pixels_sha256"]  # the same images, whichever command
    assert len(made["rates_sha256"]) == 1
    for row in (made, crafted):
        assert row["command"] in printed
        assert len(row["samples_s"]) == results["metadata"]["repeats"]
        assert {"crafting", "storing"} <= row["main_thread_s"].keys() | row["other_threads_s"].keys()
        # Seen from beside it, the main thread is always somewhere: its stages make up the round.
        assert sum(row["main_thread_s"].values()) == pytest.approx(row["samples_s"][0], rel=0.2)


def test_success_per_second(tmp_path: Path) -> None:
    options = ("--goal", "0.01", "--only", "ai-best;EOT, draw by draw")
    printed, results = run("success_per_second.py", tmp_path, *options)
    rows = {(row["contender"], row["precision"]): row for row in results["rows"]}
    assert rows.keys() >= {("ai-best", "as it comes"), ("EOT, draw by draw", "given bf16")}
    n, poses = len(results["ids"]), len(results["poses"])
    clean = unpacked(results["clean"], poses, n)
    for row in results["rows"]:
        fooled = clean & ~unpacked(row["recognised"], poses, n)
        assert row["pooled"] == pytest.approx(fooled.sum() / clean.sum(), rel=1e-4)
        assert row["gradients"] >= 1
    for row in results["summary"]:
        measured = [one for one in results["rows"] if one["contender"] == row["contender"]]
        assert row["reached"] == (row["mean"] >= 0.01)
        assert row["contender"] in printed
        assert row["rung"] in {one["rung"] for one in measured}
    # Run again, it measures nothing anew.
    _, again = run("success_per_second.py", tmp_path, *options)
    assert again["rows"] == results["rows"]


def unpacked(text: str, *shape: int) -> Any:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    return bits[: shape[0] * shape[1]].reshape(shape).astype(bool)


# ---------------------------------------------------------------------------------------------------------------------
# What they share


@pytest.fixture(scope="module")
def measure() -> Iterator[Any]:
    """benchmarks/measure.py, which only the scripts beside it can import by name."""
    spec = importlib.util.spec_from_file_location("measure", BENCHMARKS / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["measure"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["measure"]


def test_the_examples_hold(measure: Any) -> None:
    assert doctest.testmod(measure).failed == 0


def test_peak_memory_counts_the_result_and_what_was_freed(measure: Any) -> None:
    x = torch.ones(1000, 100)
    buffers = measure.peak_extra_bytes(lambda: (x + 1) * (x + 2), torch.device("cpu")) / (4 * x.numel())
    assert buffers == pytest.approx(3, abs=0.1)


def test_metadata_tells_no_places(measure: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    where = tmp_path / "images"
    monkeypatch.setattr(
        sys, "argv", [str(BENCHMARKS / "accuracy.py"), "--data", str(where), f"--json={where}", "--n=2"]
    )
    about = measure.metadata(torch.device("cpu"), size=5)
    assert about["command"] == "python benchmarks/accuracy.py --data images --json=images --n=2"
    assert about["size"] == 5
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", about["commit"] or "0" * 40)


def test_saving_is_whole_or_not_at_all(measure: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    measure.save({"a": [1.5, float("nan")], "b": {"c": float("inf")}}, path)
    assert json.loads(path.read_text()) == {"a": [1.5, None], "b": {"c": None}}
    with pytest.raises(TypeError):
        measure.save({"a": object()}, path)
    assert json.loads(path.read_text())["a"] == [1.5, None]
    assert list(path.parent.iterdir()) == [path]


def test_few_repeats_are_for_quick_runs_only(measure: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def settle(*argv: str) -> Any:
        return measure.settle(measure.parser("Test."), argv, "test")

    with pytest.raises(SystemExit):
        settle("--repeats", "19")
    assert "at least 20" in capsys.readouterr().err
    usual, quick = settle("--device", "cpu"), settle("--quick", "--repeats", "1")
    assert (usual.repeats, usual.json) == (20, BENCHMARKS / "results" / "test-cpu.json")
    assert (quick.repeats, quick.json) == (1, None)
