"""Which engine does the tasks, and how many workers it may have."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from runs.declaring import declared, save_toy_images
from whorl import WhorlError, runs


def test_settings_of_engines(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    data = save_toy_images(tmp_path / "data")
    with pytest.raises(WhorlError, match="unknown engine 'rya'"):
        runs.run(declared(data), tmp_path / "out", device="cpu", engine="rya")
    with pytest.raises(WhorlError, match="one process"):
        runs.run(declared(data), tmp_path / "out", device="cpu", workers=2)
    with pytest.raises(WhorlError, match="workers must be"):
        runs.run(declared(data), tmp_path / "out", device="cpu", engine="ray", workers=0)


@pytest.mark.parametrize("wanted", [None, 3])
def test_a_cluster_without_cpus_is_refused_at_once(tmp_path: Path, wanted: int | None) -> None:
    ray = pytest.importorskip("ray")
    data = save_toy_images(tmp_path / "data", 2)
    ray.init(num_cpus=0, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    try:
        with pytest.raises(WhorlError, match=r"has no CPU: requested .*worker.*, there are 0 CPUs, 0 GPUs"):
            runs.run(declared(data), tmp_path / "out", device="cpu", engine="ray", workers=wanted)
    finally:
        ray.shutdown()


def test_a_cluster_that_is_not_there_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    data = save_toy_images(tmp_path / "data", 1)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", "{}:{}".format(*taken.getsockname()))
        with pytest.raises(WhorlError, match=r"the Ray cluster at RAY_ADDRESS=127\.0\.0\.1:\d+ cannot be reached"):
            runs.run(declared(data), tmp_path / "out", device="cpu", engine="ray")
