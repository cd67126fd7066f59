"""The benchmarks of black-box attacks run and save what they promise. No test here asks how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, folder: Path, *options: str) -> tuple[str, Any]:
    saved = folder / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--device", "cpu", "--json", str(saved), *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(saved.read_text())


def test_queries_per_second(tmp_path: Path) -> None:
    printed, results = run("queries.py", tmp_path, "--quick")
    assert str(ROOT) not in json.dumps(results)
    ours = {(row["attack"], row["name"]): row for row in results["rows"] if row["library"] == "whorl"}
    kinds = ("batched", "image by image", "query by query")
    assert set(ours) == {(attack, kind) for attack in ("nes", "spsa") for kind in kinds}
    for (attack, kind), row in ours.items():
        assert row["queries"] == 12  # two images, a check, four random queries and a check each
        assert row["queries_per_second"] == pytest.approx(1e3 * 12 / row["median_ms"], rel=1e-2)
        ratio = ours[attack, "batched"]["queries_per_second"] / row["queries_per_second"]
        assert row["ours_over_this"] == pytest.approx(ratio, rel=1e-2)
        assert kind in printed


@pytest.mark.slow
def test_table_7(tmp_path: Path) -> None:
    few = ["--n", "2", "--size", "96", "--budget", "110", "--block", "2", "--out", str(tmp_path / "table")]
    cells = [
        "--targets",
        "efficientnet_lite0,efficientnet_lite0+jpeg",
        "--starts",
        "none,ai-dim",
        "--attacks",
        "noise,nes",
    ]
    printed, results = run("table7.py", tmp_path, *few, *cells, "--jpeg-workers", "2")
    assert results["metadata"]["complete"]
    labels = ["noise", "nes", "nes-ai-dim"]
    assert [row["label"] for row in results["rows"]] == labels * 2
    assert results["verdicts"]["comparisons"] == 1
    assert "efficientnet_lite0+jpeg  nes-ai-dim" in printed
