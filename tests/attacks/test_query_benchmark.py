"""The benchmarks of black-box attacks run and save what they promise. No test here asks how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

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
    kinds = ("batched", "picture by picture", "query by query")
    assert set(ours) == {(attack, kind) for attack in ("nes", "spsa") for kind in kinds}
    for (attack, kind), row in ours.items():
        assert row["queries"] == 12  # two pictures, a check, four random queries and a check each
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


def test_folding_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from table7 import fold

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, bias=False),
        nn.BatchNorm2d(5),
        nn.Flatten(),
    ).eval()
    for norm in (net[1], net[4]):
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.rand(2, 3, 9, 9)
    with torch.no_grad():
        expected = net(x)
        assert fold(net, x) == 2
        torch.testing.assert_close(net(x), expected)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in net.modules())
