"""What the simulated run of 50,000 images promises: a straight line, and no less than was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_a_straight_line_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from shards import extrapolated

    rows = [{"images": n, "merge, s": 2 + 0.01 * n, "merge, MB": 300.0 - n / 100} for n in (100, 200, 400)]
    found = extrapolated(rows, goal=1000)
    assert found["images"] == 1000
    assert found["merge, s"] == pytest.approx(12)
    assert found["merge, MB"] == pytest.approx(299)  # it fell; what was measured is the least
    published = json.loads((BENCHMARKS / "results" / "shards-cpu.json").read_text())
    assert extrapolated(published["measured"]) == pytest.approx(published["extrapolated"])
    page = (BENCHMARKS.parent / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert (
        f"{published['extrapolated']['merge, s']:,.0f} s | {published['extrapolated']['whole run, s']:,.0f} s" in page
    )


@pytest.mark.slow
def test_it_runs(tmp_path: Path) -> None:
    saved = tmp_path / "shards.json"
    sizes = ("--sizes", "130", "260", "--shards", "2", "--json", str(saved))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, str(BENCHMARKS / "shards.py"), *sizes], check=True, env=environment)
    assert json.loads(saved.read_text())["extrapolated"]["images"] == 50_000
