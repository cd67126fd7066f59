"""A real Ray cluster of two workers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from cli.invoking import plain_environment
from runs.declaring import SMALL, declared, made, save_toy_images, table
from runs.ray_actors import NeverBorn, Occupant, Stillborn
from whorl import WhorlError, runs
from whorl.runs import ray_cluster

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two workers; the first to meet the network "mortal" after the file given here appears is killed."""
    order = tmp_path_factory.mktemp("orders") / "kill-once"
    paths = os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    surroundings = {"PYTHONPATH": paths, "WHORL_TEST_KILL": str(order)}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        runtime_env={"env_vars": surroundings},
    )
    yield order
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_two_workers_agree_with_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = save_toy_images(tmp_path / "data")
    here = runs.run(declared(data), tmp_path / "local", device="cpu")
    there = runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=5)
    assert "5 workers were requested; the Ray cluster has 2 CPUs, so 2 are started" in capsys.readouterr().err
    assert there.computed == here.computed == 12
    assert table(there.folder) == table(here.folder)
    assert made(there.folder) == made(here.folder)
    assert runs.run(declared(data), tmp_path / "ray", device="cpu").computed == 0  # one engine goes on for the other


def test_a_killed_worker_does_not_change_the_result(cluster: Path, tmp_path: Path) -> None:
    data = save_toy_images(tmp_path / "data")
    mortal = declared(data, targets=[SMALL, "python:cli.toy_networks:mortal"])
    here = runs.run(mortal, tmp_path / "local", device="cpu")
    told: list[tuple[int, int]] = []
    cluster.touch()
    there = runs.run(
        mortal,
        tmp_path / "ray",
        device="cpu",
        engine="ray",
        workers=2,
        progress=lambda _, done, total: told.append((done, total)),
    )
    assert not cluster.exists(), "no worker was killed"
    assert table(there.folder) == table(here.folder)
    assert made(there.folder) == made(here.folder)
    assert told[-1] == (21, 21)


@pytest.mark.usefixtures("cluster")
def test_a_worker_says_what_is_wrong(tmp_path: Path) -> None:
    data = save_toy_images(tmp_path / "data")
    bad = sorted(data.rglob("*.png"))[0]
    bad.write_bytes(b"not an image")
    with pytest.raises(WhorlError, match=bad.name):
        runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=2)


@pytest.mark.usefixtures("cluster")
def test_a_busy_cluster_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = save_toy_images(tmp_path / "data")
    whole, half = (ray.remote(num_cpus=cpus)(Occupant) for cpus in (2, 1))
    other = whole.remote()
    ray.get(other.here.remote())
    with monkeypatch.context() as impatient:
        impatient.setenv(ray_cluster.TIMEOUT, "0.5")
        said = r"within 0.5 s: requested 2 of 1 CPU each; the cluster has 2 CPUs, 0 GPUs, of which free: 0 CPUs"
        with pytest.raises(WhorlError, match=said):
            runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=2)
    ray.kill(other)
    other = half.remote()
    ray.get(other.here.remote())
    # A worker that finds no place keeps no task from the other.
    assert runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=2).computed == 12
    ray.kill(other)


def test_workers_that_die_at_their_start(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = save_toy_images(tmp_path / "data")
    monkeypatch.setattr(ray_cluster, "_Actor", Stillborn)
    cluster.touch()  # the first one dies, and is replaced
    assert runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=1).computed == 12
    assert not cluster.exists(), "no worker was killed"
    monkeypatch.setattr(ray_cluster, "_Actor", NeverBorn)
    # Ray now and then starts such a worker again itself, without end and without a word; then time runs out.
    monkeypatch.setenv(ray_cluster.TIMEOUT, "30")
    with pytest.raises(WhorlError, match=r"5 workers died as they started|no worker .* started within 30 s"):
        runs.run(declared(data), tmp_path / "none", device="cpu", engine="ray", workers=1)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_the_timeout_is_a_number_of_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    data = save_toy_images(tmp_path / "data", 1)
    monkeypatch.setenv(ray_cluster.TIMEOUT, text)
    with pytest.raises(WhorlError, match="must be a number of seconds above 0"):
        runs.run(declared(data), tmp_path / "out", device="cpu", engine="ray")


@pytest.mark.usefixtures("cluster")
def test_two_ray_runs_in_one_folder(tmp_path: Path) -> None:
    data = save_toy_images(tmp_path / "data")
    file = tmp_path / "small.toml"
    file.write_text(
        f'name = "small"\nsources = ["{SMALL}"]\nattacks = ["mim"]\ntargets = ["{SMALL}"]\nbatch_size = 2\n'
        f"[data]\nfolder = {json.dumps(str(data))}\n"
    )
    here = runs.run(runs.read_declaration(file), tmp_path / "local", device="cpu")
    command = (sys.executable, "-m", "whorl", "run", str(file), "--out", str(tmp_path / "both"), "--no-report")
    around = plain_environment(
        PYTHONPATH=str(Path(__file__).parents[1]), RAY_ADDRESS=ray.get_runtime_context().gcs_address
    )
    both = [
        subprocess.Popen((*command, "--engine", "ray", "--workers", "1", "--device", "cpu"), env=around, stderr=PIPE)
        for _ in range(2)
    ]
    said = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert table(tmp_path / "both") == table(here.folder)
    assert made(tmp_path / "both") == made(here.folder)
