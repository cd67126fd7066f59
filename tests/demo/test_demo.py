"""``whorl demo`` on real networks and photographs, and the parts that it is made of."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from cli.invoking import invoke, plain_environment
from whorl import WhorlError
from whorl.demo import POSES, demo_declaration
from whorl.evaluation import Pose, SuccessRate
from whorl.runs.results import COLUMNS, Cell, mean_rate, write_results

DESIGNED = (
    "attack,source,target,defense,angle,scale,shift_x,shift_y,eps,"
    "n,n_clean_correct,n_success,asr,accuracy,grad_evals,seconds"
)


def test_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whorl", "demo", "--images=1", f"--out={tmp_path / 'run'}", "--device=cpu"]
    environment = plain_environment(OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    declared = demo_declaration(images=1)
    attacks, poses = [spec.title for spec in declared.attacks], declared.all_poses()
    assert (
        f"success rate (%), pooled over {len(poses)} poses, with its 95% interval over images; 1 images" in done.stdout
    )
    assert [line.split()[0] for line in done.stdout.splitlines()[2:5]] == attacks == ["dim", "ai-dim", "ai-best"]
    assert "Too few images for a summary" in done.stdout
    assert "writing the report: 1/1" in done.stderr
    assert re.search(
        r"Success so far, 1 image, networks not attacked: dim \d+%, ai-dim \d+%, ai-best \d+%", done.stderr
    )
    last = done.stdout.rstrip().split("Try next:\n")[1].splitlines()
    assert len(last) == 3
    for line in last:
        assert not help_fault(line)

    text = (tmp_path / "run" / "results.csv").read_text()
    assert text.splitlines()[0] == DESIGNED
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(attacks) * len(declared.targets) * len(poses)
    at_identity = [
        row for row in rows if row["target"] == "resnet18" and (row["angle"], row["scale"]) == ("0.0", "1.0")
    ]
    assert [row["n_success"] for row in at_identity] == ["1"] * len(attacks)
    assert {row["grad_evals"] for row in rows} == {"10"}

    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert list(manifest["crafted"]) == [f"{name}/resnet18" for name in attacks]
    assert list(manifest["targets"]) == list(declared.targets)
    with Image.open(tmp_path / "run" / "demo.png") as image:
        assert image.format == "PNG"
    report = (tmp_path / "run" / "report.html").read_text()
    assert "ai-dim" in report
    assert len(report.encode()) < 3_000_000  # with all 20 photographs, of which three are shown, 3.5
    assert "whorl demo --images=1" in report


def help_fault(line: str) -> str:
    """What is wrong with a command that is recommended: its name and its options must be there."""
    words = shlex.split(line.strip().split("  ")[0])
    assert words[0] == "whorl"
    known = invoke(words[1], "--help", COLUMNS="200").stdout
    missing = [word for word in words if word.startswith("--") and word not in known]
    return f"{words[1]} has no {missing}" if missing else ""


def cell(counts: SuccessRate, pose: Pose | None = None) -> Cell:
    return Cell(
        attack="a", source="s", target="t", pose=pose or Pose(), eps=0.5, counts=counts, grad_evals=10, seconds=1.23456
    )


def test_results_are_in_the_long_form(tmp_path: Path) -> None:
    pose = Pose(angle=30, scale=0.7, shift=(20, 5))
    write_results(tmp_path / "r.csv", [cell(SuccessRate(4, 3, 2, 1), pose), cell(SuccessRate(4, 0, 0, 0))])
    assert (tmp_path / "r.csv").read_text().splitlines() == [
        DESIGNED,
        "a,s,t,none,30,0.7,20,5,0.5,4,3,2,0.666667,0.25,10,1.235",
        "a,s,t,none,0.0,1.0,0.0,0.0,0.5,4,0,0,,0.0,10,1.235",
    ]
    assert ",".join(COLUMNS) == DESIGNED
    (tmp_path / "file").touch()
    with pytest.raises(WhorlError, match="cannot write"):
        write_results(tmp_path / "file" / "r.csv", [])


def test_each_pose_counts_the_same_in_the_mean() -> None:
    cells = [cell(SuccessRate(10, 10, 1, 9)), cell(SuccessRate(10, 1, 1, 0)), cell(SuccessRate(10, 0, 0, 0))]
    assert mean_rate(cells) == (0.1 + 1) / 2
    assert math.isnan(mean_rate(cells[2:]))


def test_the_poses_of_the_figure_are_evaluated() -> None:
    """So that the photographs shown are known to be recognised in each of them."""
    assert set(POSES.values()) <= set(demo_declaration().all_poses())
