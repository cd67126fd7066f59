"""Trackers: what they are told of an experiment, and what TensorBoard shows of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.invoking import invoke
from runs.declaring import COUNT, OTHER, SMALL, declared, save_toy_images
from whorl import WhorlError, runs
from whorl.progress import TensorBoard, Tracker, Trackers


class Kept(Tracker):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.told.append(("begin", name, dict(settings)))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append((step, dict(values)))

    def end(self, files: Mapping[str, Path]) -> None:
        self.told.append(("end", dict(files)))


def pooled(done: runs.Done, attack: str, target: str) -> float:
    """Σ successes / Σ images recognised clean, from the rows of the table."""
    wanted = [
        cell.counts for cell in done.cells if (cell.attack, cell.target, cell.defense) == (attack, target, "none")
    ]
    return sum(one.n_success for one in wanted) / sum(one.n_clean_correct for one in wanted)


def test_an_experiment_is_told_image_by_image(tmp_path: Path) -> None:
    data, kept, other = save_toy_images(tmp_path / "data"), Kept(), Kept()
    done = runs.run(declared(data), tmp_path / "out", device="cpu", track=Trackers(kept, other))
    assert other.told == kept.told
    (_, name, settings), *logged, (_, files) = kept.told
    assert (name, settings["seed"]) == ("small", 0)
    assert files == {"results": done.results}
    assert [step for step, _ in logged] == [2, 4, 6, COUNT]
    rates = logged[-1][1]
    assert len(rates) == 2 * 3
    for attack in ("mim", "ai-mim"):
        for target in (SMALL, OTHER):
            assert rates[f"success_rate/{attack}/{SMALL}/{target}"] == pytest.approx(pooled(done, attack, target))
    assert logged[0][1] != rates


def test_what_is_there_already_is_told_too(tmp_path: Path) -> None:
    data, first, second = save_toy_images(tmp_path / "data"), Kept(), Kept()
    runs.run(declared(data), tmp_path / "out", device="cpu", track=first)
    runs.run(declared(data), tmp_path / "out", device="cpu", track=second)
    assert second.told[1:-1] == first.told[1:-1]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    data = save_toy_images(tmp_path / "data")
    done = runs.run(declared(data), tmp_path / "out", device="cpu", track=TensorBoard(tmp_path / "board"))
    found = EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    points = found.Scalars(f"success_rate/mim/{SMALL}/{SMALL}")
    assert [point.step for point in points] == [2, 4, 6, COUNT]
    assert points[-1].value == pytest.approx(pooled(done, "mim", SMALL))
    assert {"small/text_summary", "files/text_summary"} <= set(found.Tags()["tensors"])


def test_tensorboard_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    save_toy_images(tmp_path / "data")
    (tmp_path / "a.toml").write_text(
        f'name = "a"\nsources = ["{SMALL}"]\nattacks = ["fgsm"]\ntargets = ["{SMALL}"]\n[data]\nfolder = "data"\n'
    )
    board = tmp_path / "board"
    shared = ("--no-report", "--device", "cpu", "--tensorboard", str(board))
    assert invoke("run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "out"), *shared).exit_code == 0
    assert list(board.glob("events.out.tfevents.*"))


def test_the_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(WhorlError, match=r"needs the package tensorboard.*\[tensorboard\]"):
        TensorBoard(tmp_path)
