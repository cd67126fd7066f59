"""Which images a run works on, and how a changed one is told from the old."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from conftest import random_images
from runs.declaring import COUNT, save_pictures
from whorl import WhorlError
from whorl.data import Images, load_image, save_image
from whorl.files import sha256_of
from whorl.runs.images import Data, Loaded


def test_a_data_set_is_listed_with_the_hashes_of_its_files(tmp_path: Path) -> None:
    folder = save_pictures(tmp_path / "data")
    listed = Data(folder=folder).listed()
    assert [one.sha256 for one in listed] == [sha256_of(one.entry.path) for one in listed]
    assert [one.entry.id for one in Data(folder=folder, limit=2).listed()] == [one.entry.id for one in listed[:2]]
    path, stamp = listed[1].entry.path, listed[1].entry.path.stat()
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))  # as long as before
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # and as old
    assert [a == b for a, b in zip(Data(folder=folder).listed(), listed, strict=True)] == [True, False] + [True] * 5
    path.unlink()
    assert Data(folder=folder).count() == COUNT - 1


def test_reading_gives_what_was_asked_for(tmp_path: Path) -> None:
    data = Data(folder=save_pictures(tmp_path / "data"), size=9)
    some = data.listed()[2:4]
    images = data.read(some)
    assert images.x.shape == (2, 3, 9, 9)
    assert images.ids == [one.entry.id for one in some]
    assert torch.equal(images.x[0], load_image(some[0].entry.path, size=9))
    assert [len(batch.ids) for batch in data.batches(3)] == [3, 3, 1]


def test_unreadable_images_stop_it_or_are_left_out(tmp_path: Path) -> None:
    folder = save_pictures(tmp_path / "data")
    data = Data(folder=folder, skip_bad=True)
    listed = data.listed()
    listed[0].entry.path.write_bytes(b"no image")
    assert [bad.id for bad in data.read(listed).bad] == [listed[0].entry.id]
    assert len(data.read(listed[:1]).ids) == 0
    with pytest.raises(WhorlError, match="cannot be read as an image"):
        Data(folder=folder).read(listed)


def test_images_in_memory_are_hashed_between_the_levels() -> None:
    x = random_images(2)
    listed = Loaded(Images(x, torch.tensor([0, 1]), ["a", "b"])).listed()
    x[1, 0, 0, 0] += 1e-4  # not seen in 8 bits, but by an attack
    again = Loaded(Images(x, torch.tensor([0, 1]), ["a", "b"])).listed()
    assert [one == other for one, other in zip(listed, again, strict=True)] == [True, False]


def test_the_samples_are_not_a_folder_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Data().bundled
    assert Data(limit=2).describe() == {"folder": "samples", "size": None}
    save_image("samples/3/one.png", torch.zeros(3, 8, 8))
    assert [one.entry.id for one in Data().listed()] == ["3/one"]
    assert Data(folder=None).bundled
    assert Data(folder=None).count() == 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"limit": 0}, "limit must be a number >= 1; got 0"),
        ({"size": -1}, "size must be a number >= 1; got -1"),
        ({"limt": 1}, "unknown setting 'limt'"),
    ],
)
def test_bad_choices_are_named(settings: dict[str, int], said: str) -> None:
    with pytest.raises(WhorlError, match=said):
        Data.of(**settings)
    with pytest.raises(WhorlError, match="there are 20 samples"):
        Data(folder=None, limit=21).count()
