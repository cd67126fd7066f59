"""What is done beside the device: in order, whole, a few at a time, and nothing after what failed."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from runs.declaring import COUNT, declared, made, save_toy_images, table
from whorl import WhorlError, runs
from whorl.data import Images
from whorl.runs import store as storing
from whorl.runs.background import _MOST_WAITING, ReadAhead, WriteBehind
from whorl.runs.images import HashedImage, Loaded

CPU = torch.device("cpu")


class Watched:
    """Images in memory that say which of them are read, and wait for leave to be."""

    def __init__(self, count: int) -> None:
        x = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        self.source = Loaded(Images(x, torch.arange(count), [f"{i}" for i in range(count)]))
        self.chunks = [tuple(self.source.listed()[i : i + 2]) for i in range(0, count, 2)]
        self.read_ids: list[list[str]] = []
        self.leave = threading.Event()
        self.leave.set()
        self.broken: set[str] = set()

    def listed(self, chosen: Any = None) -> list[HashedImage]:
        return self.source.listed(chosen)

    def read(self, images: Sequence[HashedImage]) -> Images:
        assert self.leave.wait(30)
        ids = [image.entry.id for image in images]
        self.read_ids.append(ids)
        if self.broken & set(ids):
            raise WhorlError(f"torn: {ids}")
        return self.source.read(images)

    def describe(self) -> dict[str, Any]:
        return self.source.describe()


def test_the_next_chunk_is_read_meanwhile_and_each_once() -> None:
    given = Watched(6)
    ahead, (a, b, c) = ReadAhead(given, CPU), given.chunks
    assert ahead.read(a, a).ids == ["0", "1"]  # another variant of the same images comes next
    assert ahead.read(a, b).ids == ["0", "1"]
    second, third = ahead.read(b, c), ahead.read(c)
    assert torch.equal(torch.cat([second.x, third.x]), given.source.images.x[2:])
    assert given.read_ids == [["0", "1"], ["2", "3"], ["4", "5"]]


def test_what_is_asked_for_does_not_wait_for_what_comes_next() -> None:
    given = Watched(4)
    ahead, (a, b) = ReadAhead(given, CPU), given.chunks
    ahead.read(a)
    given.leave.clear()
    assert ahead.read(a, b).ids == ["0", "1"]  # though the next cannot be read yet
    given.leave.set()
    assert ahead.read(b).ids == ["2", "3"]


def test_an_unreadable_chunk_fails_when_its_turn_comes_and_can_be_read_again() -> None:
    given = Watched(4)
    ahead, (a, b) = ReadAhead(given, CPU), given.chunks
    given.broken = {"3"}
    assert ahead.read(a, b).ids == ["0", "1"]
    with pytest.raises(WhorlError, match="torn"):
        ahead.read(b)
    given.broken = set()
    assert ahead.read(b).ids == ["2", "3"]


def test_work_is_done_in_order_and_counted_once_it_is_done() -> None:
    behind, leave, order = WriteBehind(), threading.Event(), list[int]()

    def work(number: int) -> None:
        assert leave.wait(30)
        order.append(number)

    for number in range(_MOST_WAITING):
        behind.submit(lambda number=number: work(number), counts=None if number == 1 else number)  # type: ignore[misc]  # mypy cannot see the default
    assert list(behind.done()) == []  # nothing counts before it is done
    leave.set()
    assert list(behind.done(wait=True)) == [0, *range(2, _MOST_WAITING)]
    assert order == list(range(_MOST_WAITING))
    behind.close()


def test_only_a_few_pieces_wait() -> None:
    behind, leave, begun = WriteBehind(), threading.Event(), threading.Event()
    for _ in range(_MOST_WAITING):
        behind.submit(lambda: leave.wait(30))

    def one_too_many() -> None:
        behind.submit(int)
        begun.set()

    submitting = threading.Thread(target=one_too_many)
    submitting.start()
    assert not begun.wait(0.2)  # whoever brings it waits
    leave.set()
    assert begun.wait(30)
    submitting.join()
    behind.close()


def test_after_what_failed_nothing_is_done() -> None:
    behind, order = WriteBehind(), list[str]()

    def fail() -> None:
        raise OSError(28, "No space left on device")

    for work in (lambda: order.append("before"), fail, lambda: order.append("after")):
        behind.submit(work)
    with pytest.raises(OSError, match="No space left"):
        behind.wait()
    behind.close()
    assert order == ["before"]


# ---------------------------------------------------------------------------------------------------------------------
# In a run


def cells(out: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (out / "cells").rglob("*.json")}


def test_images_are_written_while_they_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, saved = threading.Event(), vars(storing)["save_image"]
    own = runs.worker.Worker._reach

    def reached(*arguments: Any) -> None:
        own(*arguments)
        evaluated.set()

    def wait_and_save(path: Path, x: torch.Tensor) -> None:
        assert evaluated.wait(60), "the evaluation waits for the files"
        saved(path, x)

    monkeypatch.setattr(runs.worker.Worker, "_reach", reached)
    monkeypatch.setattr(storing, "save_image", wait_and_save)
    done = runs.run(declared(save_toy_images(tmp_path / "data")), tmp_path / "out", device="cpu")
    assert len(done.ids) == COUNT


def test_a_disk_that_is_full_stops_the_run_and_what_was_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration, saved, left = declared(save_toy_images(tmp_path / "data")), vars(storing)["save_image"], [3]

    def fill(path: Path, x: torch.Tensor) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        saved(path, x)

    monkeypatch.setattr(storing, "save_image", fill)
    with pytest.raises(WhorlError, match="No space left"):
        runs.run(declaration, tmp_path / "out", device="cpu")
    kept = cells(tmp_path / "out")
    for cell in kept.values():  # none speaks of a file that is not there
        assert all((tmp_path / "out" / name).is_file() for name in cell["files"])
    monkeypatch.setattr(storing, "save_image", saved)
    for folder in ("out", "whole"):
        runs.run(declaration, tmp_path / folder, device="cpu")
    assert made(tmp_path / "out") == made(tmp_path / "whole")
    assert table(tmp_path / "out") == table(tmp_path / "whole")
