"""A real Ray cluster of two workers on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.declaring import SMALL, declared, made, save_pictures, table
from whorl import WhorlError, runs

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
def test_two_workers_agree_with_one_process(tmp_path: Path) -> None:
    data = save_pictures(tmp_path / "data")
    here = runs.run(declared(data), tmp_path / "local", device="cpu")
    there = runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=2)
    assert there.computed == here.computed == 12
    assert table(there.folder) == table(here.folder)
    assert made(there.folder) == made(here.folder)
    assert runs.run(declared(data), tmp_path / "ray", device="cpu").computed == 0  # one engine goes on for the other


def test_a_killed_worker_does_not_change_the_result(cluster: Path, tmp_path: Path) -> None:
    data = save_pictures(tmp_path / "data")
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
    data = save_pictures(tmp_path / "data")
    bad = sorted(data.rglob("*.png"))[0]
    bad.write_bytes(b"not an image")
    with pytest.raises(WhorlError, match=bad.name):
        runs.run(declared(data), tmp_path / "ray", device="cpu", engine="ray", workers=2)


def test_settings_of_engines(tmp_path: Path) -> None:
    data = save_pictures(tmp_path / "data")
    with pytest.raises(WhorlError, match="unknown engine 'rya'"):
        runs.run(declared(data), tmp_path / "out", device="cpu", engine="rya")
    with pytest.raises(WhorlError, match="one process"):
        runs.run(declared(data), tmp_path / "out", device="cpu", workers=2)
    with pytest.raises(WhorlError, match="workers must be"):
        runs.run(declared(data), tmp_path / "out", device="cpu", engine="ray", workers=0)
