"""Scripts for clusters: those that can run here run; the others are read by bash, YAML and the command line itself."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.invoking import whole_application
from runs.declaring import SMALL, save_toy_images, table
from whorl import runs

CLUSTERS = Path(__file__).parents[1] / "examples" / "clusters"
SCRIPTS = sorted(CLUSTERS.glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_read_it(script: Path) -> None:
    read = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)  # noqa: S607 - whichever bash there is
    assert (read.returncode, read.stderr) == (0, "")
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("file", sorted(CLUSTERS.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_are_sound(file: Path) -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert {"apiVersion", "kind", "metadata", "spec"} == content.keys()
    if content["kind"] == "Job":
        [pod] = [content["spec"]["template"]["spec"]]
        assert str(content["spec"]["completions"]) in re.findall(r'\$shard/(\d+)"', pod["containers"][0]["args"][0])
        pods = [pod]
    else:
        cluster = content["spec"]["rayClusterSpec"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        pods = [group["template"]["spec"] for group in groups]
    for pod in pods:
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("file", [*SCRIPTS, *sorted(CLUSTERS.glob("*.yaml"))], ids=lambda path: path.name)
def test_every_command_has_the_options_that_are_named(file: Path) -> None:
    commands, seen = whole_application().commands, 0
    for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        match = re.search(r"\bwhorl (run|merge) (.*)", line)
        if match:
            seen += 1
            known = {name for option in commands[match[1]].params for name in option.opts}
            assert set(re.findall(r"--[a-z-]+", match[2])) <= known
    assert seen


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with an experiment, and ``whorl`` on the path."""
    save_toy_images(tmp_path / "data")
    (tmp_path / "mine.toml").write_text(
        f'name = "mine"\nsources = ["{SMALL}"]\nattacks = ["fgsm"]\ntargets = ["{SMALL}"]\nbatch_size = 2\n'
        'poses = [{angles = [0]}]\n[data]\nfolder = "data"\n'
    )
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "whorl"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m whorl "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return os.environ | {"DEVICE": "cpu", "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": paths}


def start(environment: dict[str, str], script: str, *arguments: str, **more: str) -> None:
    done = subprocess.run(
        [str(CLUSTERS / script), *arguments], env=environment | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_several_gpus_and_a_slurm_array_give_what_one_run_gives(environment: dict[str, str], tmp_path: Path) -> None:
    """On the CPU, and with the number of the shard that SLURM would set."""
    start(environment, "several_gpus.sh", "mine.toml", "runs/mine", "0", "1")
    for shard in ("2", "1"):
        start(environment, "slurm_array.sh", "mine.toml", "runs/array", "2", SLURM_ARRAY_TASK_ID=shard)
    start(environment, "slurm_merge.sh", "runs/array", "2")
    whole = runs.run(runs.read_declaration("mine.toml"), tmp_path / "whole", device="cpu")
    assert table(Path("runs/mine")) == table(Path("runs/array")) == table(whole.folder)
    assert Path("runs/mine/report.html").is_file()
    assert "shard 1/2: 4 images done" in Path("runs/mine-1-of-2.log").read_text()
