"""Which images a run works on, and how a changed one is told from the old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import whorl
from conftest import random_images, small_net
from runs.declaring import COUNT, SMALL, declared, made, save_toy_images, table
from whorl import WhorlError, runs
from whorl.data import Images, load_image, save_image
from whorl.files import sha256_of
from whorl.runs.images import Data, Loaded, Opened, images_of


def test_a_data_set_is_listed_with_the_hashes_of_its_files(tmp_path: Path) -> None:
    folder = save_toy_images(tmp_path / "data")
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
    data = Data(folder=save_toy_images(tmp_path / "data"), size=9)
    some = data.listed()[2:4]
    images = data.read(some)
    assert images.x.shape == (2, 3, 9, 9)
    assert images.ids == [one.entry.id for one in some]
    assert torch.equal(images.x[0], load_image(some[0].entry.path, size=9))
    assert [len(batch.ids) for batch in data.batches(3)] == [3, 3, 1]


def test_unreadable_images_stop_it_or_are_left_out(tmp_path: Path) -> None:
    folder = save_toy_images(tmp_path / "data")
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


def labelled() -> tuple[Tensor, Tensor]:
    x = random_images(COUNT)
    return x, small_net()(x).argmax(1)


def data_set() -> TensorDataset:
    """For ``python:runs.test_runs_images:data_set``."""
    return TensorDataset(*labelled())


def test_images_are_taken_as_people_have_them(tmp_path: Path) -> None:
    x, y = labelled()
    ids = [f"{i:06d}" for i in range(COUNT)]
    given: list[Any] = [(x, y), (x, y, ids), [x, y.tolist()], data_set(), DataLoader(data_set(), batch_size=3)]
    for one in (*given, "python:runs.test_runs_images:data_set"):
        source = images_of(one)
        listed = source.listed()
        assert [image.entry.id for image in listed] == ids
        # Forwards, then one that lies behind.
        for some in (listed[:2], listed[3:6], listed[1:3]):
            rows = [ids.index(image.entry.id) for image in some]
            images = source.read(some)
            assert torch.equal(images.x, x[rows])
            assert images.y.tolist() == y[rows].tolist()
    assert images_of(Data(limit=1)) == Data(limit=1)
    assert images_of(tmp_path) == Data(folder=str(tmp_path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.zeros(2, 3, 4, 4), torch.zeros(2)), "expected a whole number as label, got 0.0"),
        ((torch.zeros(2, 3, 4, 4), torch.zeros(3).long()), "a label and an id of its own for each of 2 images; got 3"),
        ((torch.zeros(2, 3, 4, 4), [0, 1], ["a", "a"]), "an id of its own"),
        ((torch.full((2, 3, 4, 4), 200.0), [0, 1]), r"must lie in \[0, 1\]"),
        ((torch.zeros(2, 3, 4, 4),), "got tuple"),
        (3, "got int"),
    ],
)
def test_what_is_no_image_is_refused(given: object, message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        images_of(given)  # type: ignore[arg-type]  # on purpose


def test_every_kind_is_attacked_alike(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {
        "memory": labelled(),
        "dataset": data_set(),
        "loader": DataLoader(data_set(), batch_size=3),
        "address": "python:runs.test_runs_images:data_set",
    }
    clf, images = whorl.load_model(SMALL), {}
    for name, given in kinds.items():
        done = runs.craft("mim", clf, given, tmp_path / name, settings={"steps": 2}, batch_size=2, device=None)
        assert (len(done.ids), done.kept) == (COUNT, 0)
        images[name] = made(tmp_path / name)
    assert len(images["memory"]) == COUNT
    assert all(one == images["memory"] for one in images.values())
    loader = kinds["loader"]
    (tmp_path / "loader" / min(images["loader"])).unlink()  # in the first chunk: the loader starts anew
    assert runs.craft("mim", clf, loader, tmp_path / "loader", settings={"steps": 2}, batch_size=2).kept == COUNT - 2
    assert made(tmp_path / "loader") == images["loader"]


def test_bad_items_of_a_loader_are_left_out(tmp_path: Path) -> None:
    x, y = labelled()
    x[2] = 7.0
    source = Opened(DataLoader(TensorDataset(x, y), batch_size=3), skip_bad=True)
    done = runs.craft("mim", whorl.load_model(SMALL), source, tmp_path, settings={"steps": 1}, batch_size=2)
    assert [bad.id for bad in done.left_out] == ["000002"]
    assert len(done.ids) == COUNT - 1


def test_an_experiment_on_an_address(tmp_path: Path) -> None:
    address = "python:runs.test_runs_images:data_set"
    done = runs.run(declared(tmp_path, data={"folder": address}), tmp_path / "out", device="cpu")
    assert len(done.ids) == COUNT
    assert {row["n"] for row in table(done.folder)} == {str(COUNT)}
    assert done.declaration.data.describe()["folder"] == address


def test_the_data_of_a_file_are_seen_from_there(tmp_path: Path) -> None:
    text = 'name = "a"\nsources = ["resnet18"]\nattacks = ["fgsm"]\ntargets = ["resnet18"]\n[data]\nfolder = "{}"\n'
    for given, seen in {
        "photos": f"{tmp_path}/photos",
        "wds:a-{0..3}.tar": f"wds:{tmp_path}/a-{{0..3}}.tar",
        "hf:org/name?split=test": "hf:org/name?split=test",
        "samples": "samples",
    }.items():
        (tmp_path / "a.toml").write_text(text.replace("{}", given))
        assert runs.read_declaration(tmp_path / "a.toml").data.folder == seen
