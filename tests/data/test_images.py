"""Many images: order, limits, sizes, batches, and what happens to bad ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from whorl.data import Images, iter_images, load_images, load_samples, save_image
from whorl.errors import WhorlError

SHARED = Path(__file__).parents[3] / "shared" / "nips17"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven images in three classes; every pixel of the i-th is i / 255."""
    for i in range(7):
        save_image(tmp_path / f"{i // 3}" / f"p{i}.png", torch.full((3, 4, 6), i / 255))
    return tmp_path


def values(images: Images) -> list[int]:
    return [round(v) for v in (images.x[:, 0, 0, 0] * 255).tolist()]


def test_loads_in_order(folder: Path) -> None:
    images = load_images(folder)
    x, y, ids = images
    assert x.shape == (7, 3, 4, 6)
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert y.dtype == torch.int64
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert ids == ["0/p0", "0/p1", "0/p2", "1/p3", "1/p4", "1/p5", "2/p6"]
    assert values(images) == list(range(7))
    assert images.bad == ()
    assert torch.equal(load_images(str(folder)).x, x)


def test_limit_takes_the_first(folder: Path) -> None:
    whole, part = load_images(folder), load_images(folder, limit=4)
    assert torch.equal(part.x, whole.x[:4])
    assert part.ids == whole.ids[:4]
    assert len(load_images(folder, limit=100).ids) == 7


@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
def test_batches_add_up_to_the_whole(folder: Path, batch_size: int) -> None:
    whole = load_images(folder)
    batches = list(iter_images(folder, batch_size=batch_size))
    assert [len(batch.ids) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x)
    assert torch.equal(torch.cat([batch.y for batch in batches]), whole.y)
    assert [name for batch in batches for name in batch.ids] == whole.ids


def test_streaming_reads_no_further_than_asked(folder: Path) -> None:
    (folder / "2" / "p6.png").write_bytes(b"broken")
    stream = iter_images(folder, batch_size=2)
    assert values(next(stream)) == [0, 1]
    assert values(next(stream)) == [2, 3]


def test_bad_images_stop_the_load_unless_skipped(folder: Path) -> None:
    (folder / "0" / "p1.png").write_bytes(b"broken")
    with pytest.raises(WhorlError, match=r"p1\.png"):
        load_images(folder)
    images = load_images(folder, skip_bad=True)
    x, y, ids = images
    assert len(x) == len(y) == len(ids) == 6
    assert [bad.id for bad in images.bad] == ["0/p1"]
    assert images.bad[0].path == folder / "0" / "p1.png"
    assert "cannot be read as an image" in images.bad[0].reason
    assert load_images(folder, limit=3, skip_bad=True).ids == ["0/p0", "0/p2"]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_each_bad_image_is_reported_once(folder: Path, batch_size: int) -> None:
    for name in ("0/p0", "1/p3", "1/p4", "2/p6"):  # the first, two in a row, the last
        (folder / f"{name}.png").write_bytes(b"broken")
    batches = list(iter_images(folder, batch_size=batch_size, skip_bad=True))
    assert [name for batch in batches for name in batch.ids] == ["0/p1", "0/p2", "1/p5"]
    assert [bad.id for batch in batches for bad in batch.bad] == ["0/p0", "1/p3", "1/p4", "2/p6"]


def test_nothing_but_bad_images_is_an_error(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.write_bytes(b"broken")
    with pytest.raises(WhorlError, match=r"none of the 7 images can be used. The first: .*p0\.png"):
        load_images(folder, skip_bad=True)


def test_rows_with_faults_and_without_files(tmp_path: Path) -> None:
    save_image(tmp_path / "images" / "aa.png", torch.zeros(3, 4, 4))
    save_image(tmp_path / "images" / "bb.png", torch.zeros(3, 4, 4))
    (tmp_path / "images.csv").write_text("ImageId,TrueLabel\naa,5\nbb,\ncc,7\n")
    with pytest.raises(WhorlError, match=r"line 3: the label is missing. Correct it, or leave .* skip_bad"):
        load_images(tmp_path)
    images = load_images(tmp_path, skip_bad=True)
    assert images.ids == ["aa"]
    assert images.y.tolist() == [4]
    assert [bad.id for bad in images.bad] == ["bb", "cc"]
    assert "no such file" in images.bad[1].reason


def test_sizes_must_agree_or_be_given(folder: Path) -> None:
    Image.new("RGB", (9, 5)).save(folder / "1" / "p4.png")
    for skip_bad in (False, True):  # another size is not damage, so it is never left out in silence
        with pytest.raises(WhorlError, match=r"p0\.png of \(4, 6\) and .*p4\.png of \(5, 9\)\. Pass size="):
            load_images(folder, skip_bad=skip_bad)
    with pytest.raises(WhorlError, match="Pass size="):
        list(iter_images(folder, batch_size=1))
    assert load_images(folder, size=8).x.shape == (7, 3, 8, 8)
    assert load_images(folder, size=(2, 10)).x.shape == (7, 3, 2, 10)


@pytest.mark.parametrize("settings", [{"limit": 0}, {"limit": -1}, {"limit": 1.5}, {"size": 0}])
def test_settings_are_checked_at_once(folder: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(WhorlError, match="must be"):
        load_images(folder, **settings)
    with pytest.raises(WhorlError, match="must be"):
        iter_images(folder, **settings)  # before the first batch is asked for


@pytest.mark.parametrize("batch_size", [0, -1, 2.0])
def test_batch_size_is_checked(folder: Path, batch_size: int) -> None:
    with pytest.raises(WhorlError, match="batch_size must be"):
        iter_images(folder, batch_size=batch_size)


def test_the_report_survives_pickling(folder: Path) -> None:
    (folder / "0" / "p1.png").write_bytes(b"broken")
    images = load_images(folder, skip_bad=True)
    again = pickle.loads(pickle.dumps(images))  # noqa: S301 - our own bytes
    assert again.bad == images.bad
    assert again.ids == images.ids


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the NIPS17 images are not here")
def test_nips17_as_distributed() -> None:
    batches = list(iter_images(SHARED, batch_size=100))
    y = torch.cat([batch.y for batch in batches])
    ids = [name for batch in batches for name in batch.ids]
    assert len(ids) == len(set(ids)) == 500
    assert all(batch.x.shape == (100, 3, 299, 299) for batch in batches)
    assert ids[0] == "0c7ac4a8c9dfa802"
    assert y[0] == 305  # a dung beetle; the file says 306
    assert y.min() >= 0
    assert y.max() <= 999


def test_all_twenty_samples() -> None:
    x, y, ids = load_samples()
    assert x.shape == (20, 3, 224, 224)
    assert y.dtype == torch.int64
    assert y.tolist()[:3] == [243, 559, 438]
    assert ids[19] == "imagenet_19_305"
    assert len(set(ids)) == 20
    assert x.std() > 0.1


def test_the_first_few_samples_at_their_own_size() -> None:
    assert torch.equal(load_samples(3).x, load_samples(20).x[:3])
    assert load_samples(2, size=None).x.shape == (2, 3, 512, 512)


@pytest.mark.parametrize("n", [0, 21, -1, 2.0, "all"])
def test_a_number_of_samples_out_of_range(n: object) -> None:
    with pytest.raises(WhorlError, match="expected n from 1 to 20"):
        load_samples(n)  # type: ignore[arg-type]
