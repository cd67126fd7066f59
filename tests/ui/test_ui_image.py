"""What people send: decoded by the rules of ``whorl.data``, and not kept."""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import random_images
from whorl.data import load_image, save_image
from whorl.data.layouts import list_samples
from whorl.errors import WhorlError
from whorl.models.architectures import imagenet_labels
from whorl.ui.image import MAX_BYTES, MAX_UPLOAD_PIXELS, sample, upload


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; nothing may be left there."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    # torch makes a folder for its compiler when it is first asked about it, which may be here.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiler"))
    yield folder
    assert not list(folder.iterdir())


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "my photo.png"
    save_image(path, random_images(1, height=40, width=30)[0])
    return path


def test_an_upload_is_in_memory_alone(photo: Path) -> None:
    expected = load_image(photo, size=(18, 18))
    chosen = upload(photo)
    assert not photo.exists()
    assert (chosen.name, chosen.id[:7], chosen.label) == ("my photo.png", "upload-", None)
    assert torch.equal(chosen.pixels((18, 18)), expected[None])
    assert chosen.pixels((7, 9)).shape == (1, 3, 7, 9)  # any number of times, at any size


def header(width: int, height: int) -> bytes:
    """A PNG that promises an image of this size, and has none of it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    fields = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", fields) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"I am a letter, not an image.", "fake.png: cannot be read as an image"),
        (b"", "fake.png: cannot be read as an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "fake.png: cannot be read as an image"),
        (header(40_000, 40_000), f"fake.png: too large; expected {MAX_UPLOAD_PIXELS:,} pixels"),
        (header(8900, 8900), "fake.png: too large; expected 32,000,000 pixels at most, got 8900 × 8900."),
        (header(60, 60), "fake.png: cannot be read as an image"),
    ],
    ids=["text", "empty", "postscript", "bomb", "79 megapixels", "hollow"],
)
def test_what_is_no_image_is_refused_by_its_own_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "fake.png"
    path.write_bytes(content)
    with pytest.raises(WhorlError, match=r"fake\.png") as caught:
        upload(path)
    assert str(caught.value).startswith(message)
    assert tempfile.gettempdir() not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert not path.exists()


def test_an_image_cut_short_is_refused(photo: Path) -> None:
    photo.write_bytes(photo.read_bytes()[:-900])
    with pytest.raises(WhorlError, match=r"my photo\.png: cannot be read"):
        upload(photo)


def test_a_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)

    def read(_path: Path) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(WhorlError, match=r"huge\.png: too large; expected 25 MB at most, got 25\.0 MB"):
        upload(path)
    assert not path.exists()


@pytest.mark.parametrize("mode", ["CMYK", "L", "P", "RGBA", "1"])
def test_every_common_kind_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("it.jpg" if mode == "CMYK" else "it.png")
    Image.new(mode, (20, 30)).save(path)
    assert upload(path).pixels((18, 18)).shape == (1, 3, 18, 18)


def test_a_file_that_did_not_arrive(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match=r"gone\.png: did not arrive"):
        upload(tmp_path / "gone.png")


def test_a_long_name_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 200 + ".png")
    save_image(path, random_images(1)[0])
    assert len(upload(path).name) == 80


def test_samples_keep_their_labels_and_stay() -> None:
    entry = list_samples()[0]
    chosen = sample(entry, imagenet_labels())
    assert (chosen.name, chosen.id, chosen.label) == ("bull mastiff", "imagenet_00_243", 243)
    assert torch.equal(chosen.pixels((32, 32))[0], load_image(entry.path, size=32))
    assert entry.path.exists()
