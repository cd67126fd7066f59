"""Data sets of torch, Hugging Face and tar shards: the same images, labels and names as a folder of them gives."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from whorl import WhorlError, load_images
from whorl.data import image_files, iter_images, open_images, save_image
from whorl.data.sets import seen_from
from whorl.data.tar_shards import expanded

COUNT = 7


def random_images(count: int = COUNT) -> Tensor:
    return torch.randint(0, 256, (count, 3, 8, 10), generator=torch.Generator().manual_seed(3)) / 255


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images in class folders by name: labels 0, 0, 0, 1, 1, 1, 2."""
    for i, image in enumerate(random_images()):
        save_image(tmp_path / "data" / ("ant", "bee", "cat")[i // 3] / f"p{i}.png", image)
    return tmp_path / "data"


def encoded(image: Tensor, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def write_shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def samples(first: int, last: int) -> dict[str, bytes]:
    x = random_images()
    listed = ((f"s{i}.png", encoded(x[i]), f"s{i}.cls", str(i // 3).encode()) for i in range(first, last))
    return {name: content for a, b, c, d in listed for name, content in ((a, b), (c, d))}


class Pairs(Dataset[Any]):
    """Whatever items it is given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        return self.items[place]


class Stream(IterableDataset[Any]):
    """Images that can only be gone through."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(random_images(), [0, 0, 0, 1, 1, 1, 2], strict=True)


def data_set() -> Dataset[Any]:
    """For ``python:data.test_datasets:data_set``."""
    return TensorDataset(random_images(), torch.tensor([0, 0, 0, 1, 1, 1, 2]))


def save_hub(place: Path, **columns: Any) -> Path:
    """A data set of the library's own kind, saved."""
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": encoded(image), "path": None} for image in random_images()]
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee", "cat"])}
    content = {"image": images, "label": [0, 0, 0, 1, 1, 1, 2], **columns}
    known = {name: kinds[name] for name in content if name in kinds}
    kinds = {**known, **{name: datasets.Value("string") for name in content if name not in kinds}}
    datasets.Dataset.from_dict(content, features=datasets.Features(kinds)).save_to_disk(place)
    return place


def as_loader(tmp_path: Path) -> Any:
    return DataLoader(data_set(), batch_size=3)


def as_loader_with_ids(tmp_path: Path) -> Any:
    names = [f"{i:06d}" for i in range(COUNT)]
    return DataLoader(Pairs(list(zip(random_images(), [0, 0, 0, 1, 1, 1, 2], names, strict=True))), batch_size=2)


def as_shards(tmp_path: Path) -> Any:
    for part, (first, last) in enumerate(((0, 3), (3, COUNT))):
        renamed = {name.replace("s", "00000", 1): text for name, text in samples(first, last).items()}
        write_shard(tmp_path / f"shard-{part:02d}.tar", {n.replace("cl00000", "cls"): t for n, t in renamed.items()})
    return f"wds:{tmp_path}/shard-{{00..01}}.tar"


KINDS: dict[str, Callable[[Path], Any]] = {
    "dataset": lambda _: data_set(),
    "pairs of PIL": lambda _: Pairs(
        [
            (Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy()), np.int64(i // 3))
            for i, x in enumerate(random_images())
        ]
    ),
    "pairs of uint8": lambda _: Pairs([((x * 255).round().byte(), i // 3) for i, x in enumerate(random_images())]),
    "loader": as_loader,
    "loader with ids": as_loader_with_ids,
    "stream": lambda _: Stream(),
    "loader of a stream": lambda _: DataLoader(Stream(), batch_size=4),
    "python address": lambda _: "python:data.test_datasets:data_set",
    "shards": as_shards,
    "hub": lambda place: f"hf:{save_hub(place / 'hub')}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_what_a_folder_gives(kind: str, folder: Path, tmp_path: Path) -> None:
    data, whole = KINDS[kind](tmp_path), load_images(folder)
    x, y, ids = load_images(data)
    assert torch.equal(x, whole.x)
    assert x.dtype == torch.float32
    assert y.tolist() == whole.y.tolist()
    assert ids == [f"{i:06d}" for i in range(COUNT)]
    batches = list(iter_images(data, batch_size=2, limit=5))
    assert [batch.ids for batch in batches] == [ids[:2], ids[2:4], ids[4:5]]
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x[:5])
    assert load_images(data, size=4).x.shape == (COUNT, 3, 4, 4)
    images = open_images(data)
    listed = list(images.entries())
    hashes = [images.sha256(entry) for entry in listed]
    assert len(set(hashes)) == COUNT
    assert [images.sha256(entry) for entry in reversed(listed)] == hashes[::-1]
    assert torch.equal(images.read(listed[2], None), whole.x[2])


def test_image_folder_has_the_ids_and_labels_of_class_folders(folder: Path) -> None:
    from whorl.models._torchvision import torchvision

    transforms = pytest.importorskip("torchvision.transforms") if torchvision() else None
    image_folder = torchvision().datasets.ImageFolder
    whole = load_images(folder)
    for transform in (None, transforms.ToTensor() if transforms else None):
        x, y, ids = load_images(image_folder(str(folder), transform=transform))
        assert torch.equal(x, whole.x)
        assert (y.tolist(), ids) == (whole.y.tolist(), whole.ids)
    part = load_images(Subset(image_folder(str(folder)), [5, 1]))
    assert (part.y.tolist(), part.ids) == ([1, 0], ["bee/p5", "ant/p1"])


def test_labels_alone_are_listed_where_they_are_known(folder: Path) -> None:
    opened: list[int] = []

    class Counting(Pairs):
        targets = (0, 0, 0, 1, 1, 1, 2)

        def __getitem__(self, place: int) -> Any:
            opened.append(place)
            return super().__getitem__(place)

    data = Counting([(x, 0) for x in random_images()])
    assert [entry.label for entry in open_images(data).entries()] == [0, 0, 0, 1, 1, 1, 2]
    assert opened == [0]  # to see whether items have ids


def test_a_loader_holds_one_batch(folder: Path) -> None:
    alive = peak = 0

    class Tracked(Stream):
        def __iter__(self) -> Iterator[Any]:
            nonlocal alive, peak
            for image, label in super().__iter__():
                alive += 1
                peak = max(peak, alive)
                yield image, label
                alive -= 1

    assert sum(len(batch.ids) for batch in iter_images(Tracked(), batch_size=2)) == COUNT
    assert peak == 1


FAULTS: dict[str, tuple[Any, str]] = {
    "normalised": (torch.full((3, 4, 4), -2.0), r"must lie in \[0, 1\]"),
    "NaN": (torch.full((3, 4, 4), float("nan")), "item 1"),
    "levels": (torch.full((3, 4, 4), 255.0), r"must lie in \[0, 1\]"),
    "whole numbers": (torch.zeros(3, 4, 4, dtype=torch.int64), "floating point"),
    "no pixels": (torch.zeros(3, 0, 4), "at least 1"),
    "no pixels of bytes": (np.zeros((0, 4, 3), np.uint8), "expected a PIL image"),
    "four channels": (torch.zeros(4, 4, 4), r"got torch.float32 of shape \(4, 4, 4\)"),
    "a path": ("image.png", "expected a PIL image"),
    "32 bits": (Image.new("F", (4, 4)), "mode 'F'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_images_are_checked(fault: str) -> None:
    bad, message = FAULTS[fault]
    data = Pairs([(torch.zeros(3, 4, 4), 0), (bad, 0), (torch.ones(3, 4, 4), 1)])
    with pytest.raises(WhorlError, match=message):
        load_images(data)
    kept = load_images(data, skip_bad=True)
    assert kept.ids == ["000000", "000002"]
    assert [item.id for item in kept.bad] == ["000001"]


def test_huge_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "MAX_PIXELS", 15)
    monkeypatch.setattr("whorl.data.torch_sets.MAX_PIXELS", 15)
    for image in (torch.zeros(3, 4, 4), Image.new("RGB", (4, 4)), np.zeros((4, 4, 3), np.uint8)):
        with pytest.raises(WhorlError, match="too large"):
            load_images(Pairs([(image, 0)]))


@pytest.mark.parametrize("label", [0.0, -1, "1", None, True, torch.tensor([0, 1]), torch.tensor(1.0), 2**63])
def test_labels_are_checked(label: Any) -> None:
    data = Pairs([(torch.zeros(3, 4, 4), 1), (torch.zeros(3, 4, 4), label)])
    with pytest.raises(WhorlError, match="item 1: expected a"):
        load_images(data)
    assert load_images(data, skip_bad=True).y.tolist() == [1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Pairs([torch.zeros(3, 4, 4)]), "must be \\(image, label\\)"),
        (Pairs([]), "is empty"),
        (Pairs([(torch.zeros(3, 4, 4), 0, "a"), (torch.zeros(3, 4, 4), 0, "a")]), "differ from each other; got 'a'"),
        (DataLoader(data_set(), batch_size=2, shuffle=True), "shuffle=False"),
        (DataLoader(Pairs([torch.zeros(3, 4, 4)])), r"\(x, y\) or \(x, y, ids\)"),
        (42, "torch Dataset or DataLoader; got int"),
        ("python:data.test_datasets:COUNT_OF_NOTHING", "cannot be imported"),
        ("python:data.test_datasets", "does not name a factory"),
        ("hf:", "does not say which data set"),
        ("wds:a.tar?lable=cls", "Did you mean 'label'"),
    ],
)
def test_what_is_no_data_set_is_refused(data: Any, message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        load_images(data)


def test_ids_are_safe_as_paths() -> None:
    data = Pairs([(torch.zeros(3, 4, 4), 0, "../../up/a.b"), (torch.zeros(3, 4, 4), 0, "/root/c")])
    assert load_images(data).ids == ["up/a.b", "root/c"]


def test_a_loader_must_give_the_same_images_again() -> None:
    class Random(Stream):
        def __iter__(self) -> Iterator[Any]:
            yield from ((torch.rand(3, 4, 4), 0) for _ in range(3))

    images = open_images(Random())
    listed = [(entry, images.sha256(entry)) for entry in images.entries()]
    with pytest.raises(WhorlError, match="another image than before"):
        images.read(listed[0][0], None)


# ------------------------------------------------------------------------------------------------------------- shards


def test_shards_are_read_where_they_lie(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", {"ReadMe.txt": b"-", **samples(0, 2)})
    write_shard(tmp_path / "b.tar", {"deep/s9.JPG": encoded(random_images()[0], "JPEG"), "deep/s9.cls": b" 2\n"})
    x, y, ids = load_images(f"wds:{tmp_path}/*.tar")
    assert (y.tolist(), ids) == ([0, 0, 2], ["s0", "s1", "deep/s9"])
    assert torch.equal(x[:2], random_images()[:2])
    reopened = pickle.loads(pickle.dumps(open_images(f"wds:{tmp_path}/*.tar")))  # noqa: S301 - our own, just made
    assert [entry.id for entry in reopened.entries()] == ids


def test_changed_shards_are_listed_anew(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", samples(0, 3))
    assert load_images(f"wds:{shard}").ids == ["s0", "s1", "s2"]
    write_shard(shard, {"ReadMe.txt": b"-" * 2000, **samples(2, 5)})
    images = load_images(f"wds:{shard}")
    assert images.ids == ["s2", "s3", "s4"]
    assert torch.equal(images.x, random_images()[2:5])


def test_hidden_members_part_no_sample(tmp_path: Path) -> None:
    hidden = {f"./{part}{name}": text for name, text in samples(0, 2).items() for part in ("._", "")}
    assert load_images(f"wds:{write_shard(tmp_path / 'a.tar', hidden)}").ids == ["s0", "s1"]


def test_labels_of_shards_may_lie_in_json(tmp_path: Path) -> None:
    members = {"a.png": encoded(random_images()[0]), "a.json": json.dumps({"class": 4}).encode()}
    write_shard(tmp_path / "a.tar", members)
    assert load_images(f"wds:{tmp_path}/a.tar?label=json.class").y.tolist() == [4]
    with pytest.raises(WhorlError, match="field 'label'"):
        load_images(f"wds:{tmp_path}/a.tar?label=json.label")


def test_the_same_keys_in_two_shards(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / f"{name}.tar", samples(0, 1))
    with pytest.raises(WhorlError, match=r"'s0' more than once.*\?id=shard"):
        load_images(f"wds:{tmp_path}/{{a,b}}.tar")
    assert load_images(f"wds:{tmp_path}/{{a,b}}.tar?id=shard").ids == ["a/s0", "b/s0"]


def test_bad_samples_of_a_shard_can_be_left_out(tmp_path: Path) -> None:
    broken = {"c.png": b"no image", "c.cls": b"1", "d.png": encoded(random_images()[0]), "d.cls": b"one"}
    two = {"f.png": b"", "f.jpg": b"", "f.cls": b"0"}
    shard = write_shard(tmp_path / "a.tar", {**samples(0, 1), **broken, "e.png": encoded(random_images()[0]), **two})
    with pytest.raises(WhorlError, match=r"a\.tar/c\.png: cannot be read as an image"):
        load_images(f"wds:{shard}")
    kept = load_images(f"wds:{shard}", skip_bad=True)
    assert kept.ids == ["s0"]
    reasons = [item.reason for item in kept.bad]
    parts = ("cannot be read", "expected a whole number as label, got 'one'", "label is missing", "got 2 images")
    assert all(part in reason for part, reason in zip(parts, reasons, strict=True))


def test_shards_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(b"nothing of the kind" * 100)
    whole = write_shard(tmp_path / "whole.tar", samples(0, 3)).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:700])
    with tarfile.open(tmp_path / "zipped.tar", "w:gz"):
        pass
    write_shard(tmp_path / "empty.tar", {"a.txt": b""})
    for name in ("no.tar", "cut.tar", "zipped.tar"):
        with pytest.raises(WhorlError, match=rf"{name}: cannot be read as a tar file"):
            load_images(f"wds:{tmp_path}/{name}")
    with pytest.raises(WhorlError, match="holds no images"):
        load_images(f"wds:{tmp_path}/empty.tar")
    for pattern in ("gone.tar", "gone-*.tar"):
        with pytest.raises(WhorlError, match="no such shard"):
            load_images(f"wds:{tmp_path}/{pattern}")
    for pattern in ("{3..1}.tar", "{a}.tar"):
        with pytest.raises(WhorlError, match="expected"):
            expanded(pattern)


def test_shards_of_the_library_itself(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for i, image in enumerate(random_images(3)):
            writer.write({"__key__": f"s{i}", "png": encoded(image), "cls": i})
    x, y, ids = load_images(f"wds:{tmp_path}/a.tar")
    assert torch.equal(x, random_images(3))
    assert (y.tolist(), ids) == ([0, 1, 2], ["s0", "s1", "s2"])


# --------------------------------------------------------------------------------------------------- Hugging Face


def test_columns_of_a_hub_data_set_can_be_named(tmp_path: Path) -> None:
    names = [f"photo.{i}" for i in range(COUNT)]
    place = save_hub(tmp_path / "hub", name=names)
    assert load_images(f"hf:{place}?id=name&image=image&label=label").ids == names
    for setting, message in (("image=label", "no image column 'label'"), ("id=no", "no id column 'no'")):
        with pytest.raises(WhorlError, match=message):
            load_images(f"hf:{place}?{setting}")
    with pytest.raises(WhorlError, match=r"expected a whole number as label, got .photo\.0."):
        load_images(f"hf:{place}?label=name")


def test_splits_of_a_hub_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    one = datasets.load_from_disk(str(save_hub(tmp_path / "one")))
    datasets.DatasetDict({"train": one.select(range(4)), "test": one.select(range(4, COUNT))}).save_to_disk(
        tmp_path / "both"
    )
    assert load_images(f"hf:{tmp_path}/both?split=test").y.tolist() == [1, 1, 2]
    for setting in ("", "?split=valid"):
        with pytest.raises(WhorlError, match="has the splits train, test"):
            load_images(f"hf:{tmp_path}/both{setting}")


def test_a_folder_of_files_as_the_hub_has_them(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    x, y, _ = load_images(f"hf:{folder}")
    whole = load_images(folder)
    assert torch.equal(x, whole.x)
    assert y.tolist() == whole.y.tolist()


def test_bad_rows_of_a_hub_data_set(tmp_path: Path) -> None:
    good = [{"bytes": encoded(image), "path": None} for image in random_images()]
    place = save_hub(tmp_path / "hub", image=[None, {"bytes": b"none", "path": None}, *good[2:]])
    with pytest.raises(WhorlError, match="row 0: there is no image"):
        load_images(f"hf:{place}")
    assert len(load_images(f"hf:{place}", skip_bad=True).bad) == 2


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(WhorlError, match=r"needs the package datasets.*\[datasets\]"):
        load_images("hf:somewhere/else")


def test_relative_addresses_are_seen_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    assert seen_from(tmp_path, "hf:saved?split=a") == f"hf:{tmp_path}/saved?split=a"
    assert seen_from(tmp_path, "hf:org/name") == "hf:org/name"
    assert seen_from(tmp_path, "python:a:b") == "python:a:b"
    assert seen_from(tmp_path, "wds:/x/a.tar") == "wds:/x/a.tar"
    assert seen_from(tmp_path, "photos") == str(tmp_path / "photos")
