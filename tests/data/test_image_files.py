"""One image: every kind of file becomes the right RGB, or an error that names it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from whorl.data import MAX_PIXELS, load_image, save_image
from whorl.errors import WhorlError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)
GRAY = PIXELS[..., 0]


def read(path: Path) -> np.ndarray:
    """Decode to (H, W, 3) levels."""
    return np.asarray(load_image(path).permute(1, 2, 0) * 255).round().astype(int)


def stacked(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[..., None], 3, axis=2).astype(int)


def write_png_header(path: Path, width: int, height: int) -> None:
    """A PNG that claims a size and holds almost nothing: what a decompression bomb looks like from outside."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_rgb_is_exact(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    x = load_image(tmp_path / "a.png")
    assert x.shape == (3, 6, 9)
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.tensor(PIXELS).permute(2, 0, 1) / 255)


def test_gray_and_one_bit(tmp_path: Path) -> None:
    Image.fromarray(GRAY).save(tmp_path / "gray.png")
    Image.fromarray(GRAY > 127).save(tmp_path / "bit.png")
    np.testing.assert_array_equal(read(tmp_path / "gray.png"), stacked(GRAY))
    np.testing.assert_array_equal(read(tmp_path / "bit.png"), stacked(np.where(GRAY > 127, 255, 0)))


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, name: str) -> None:
    wide = np.array([[0, 128, 129, 256, 257], [32768, 40000, 65406, 65407, 65535]], dtype=np.uint16)
    Image.fromarray(wide).save(tmp_path / name)
    np.testing.assert_array_equal(read(tmp_path / name), stacked(np.rint(wide / 257)))


def test_alpha_is_laid_over_white(tmp_path: Path) -> None:
    alpha = RNG.integers(0, 256, (6, 9), dtype=np.uint8)
    Image.fromarray(np.dstack([PIXELS, alpha])).save(tmp_path / "rgba.png")
    Image.fromarray(np.dstack([GRAY, alpha])).save(tmp_path / "la.png")
    part = alpha[..., None] / 255
    for name, color in (("rgba", PIXELS), ("la", stacked(GRAY))):
        over = color * part + 255 * (1 - part)
        assert np.abs(read(tmp_path / f"{name}.png") - over).max() <= 1


def test_palette_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    image.save(tmp_path / "p.png")
    image.save(tmp_path / "p.gif")
    image.save(tmp_path / "t.png", transparency=0)
    assert read(tmp_path / "p.png").tolist() == [[[10, 20, 30], [200, 100, 50]]]
    assert read(tmp_path / "p.gif").tolist() == [[[10, 20, 30], [200, 100, 50]]]
    assert read(tmp_path / "t.png").tolist() == [[[255, 255, 255], [200, 100, 50]]]


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (255, 0, 0, 0)).save(tmp_path / "cyan.jpg", quality=100)
    assert np.abs(read(tmp_path / "cyan.jpg") - [0, 255, 255]).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(tmp_path: Path, orientation: int) -> None:
    turns: dict[int, Callable[[np.ndarray], np.ndarray]] = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, 1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PIXELS).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(read(tmp_path / "turned.png"), turns[orientation](PIXELS))


def test_resize_is_whole_antialiased_bilinear(tmp_path: Path) -> None:
    # Every second column white: without antialiasing a shrink by four would keep stripes or lose them altogether.
    stripes = np.zeros((32, 64, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "a.png")
    x = load_image(tmp_path / "a.png", size=(8, 16))
    assert x.shape == (3, 8, 16)
    assert (x[..., 1:-1] - 0.5).abs().max() < 0.01
    levels = x * 255
    assert torch.equal(levels, levels.round())
    assert load_image(tmp_path / "a.png", size=8).shape == (3, 8, 8)


def no_image(path: Path) -> None:
    path.write_bytes(b"hello")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    file = BytesIO()
    Image.fromarray(np.tile(PIXELS, (20, 20, 1))).save(file, format=path.suffix[1:].replace("jpg", "jpeg"))
    path.write_bytes(file.getvalue()[: len(file.getvalue()) // 2])


def postscript(path: Path) -> None:
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")


def floating(path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), dtype=np.float32)).save(path)


def wide_integers(path: Path) -> None:
    Image.fromarray(np.full((4, 4), 70000, dtype=np.int32)).save(path)


def lab(path: Path) -> None:
    Image.new("LAB", (4, 4)).save(path)


def absent(path: Path) -> None:
    pass


def folder(path: Path) -> None:
    path.mkdir()


def small_bomb(path: Path) -> None:
    write_png_header(path, 8_000, MAX_PIXELS // 8_000 + 1)


def large_bomb(path: Path) -> None:
    write_png_header(path, 60_000, 60_000)


REFUSED: list[tuple[Callable[[Path], None], str, str]] = [
    (no_image, "bad.png", "cannot be read as an image"),
    (empty, "bad.png", "cannot be read as an image"),
    (truncated, "bad.png", "cannot be read as an image"),
    (truncated, "bad.jpg", "truncated"),
    (postscript, "bad.png", "cannot be read as an image"),
    (floating, "bad.tif", "got Pillow mode 'F'"),
    (wide_integers, "bad.tif", "got Pillow mode 'I'"),
    (lab, "bad.tif", "got Pillow mode 'LAB'"),
    (absent, "bad.png", "no such file"),
    (folder, "bad.png", "cannot be read as an image"),
    (small_bomb, "bad.png", "too large; expected 80,000,000 pixels at most, got 8000 × 10001"),
    (large_bomb, "bad.png", "too large"),
]


@pytest.mark.parametrize(("make", "name", "says"), REFUSED, ids=lambda value: getattr(value, "__name__", None))
@pytest.mark.filterwarnings("error")
def test_refused_with_the_name_of_the_file(tmp_path: Path, make: Callable[[Path], None], name: str, says: str) -> None:
    make(tmp_path / name)
    with pytest.raises(WhorlError, match="bad") as caught:
        load_image(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert says in str(caught.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]), data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_damage_never_escapes_as_anything_else(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    file = BytesIO()
    Image.fromarray(PIXELS).save(file, format=kind)
    raw = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "fuzzed"
    path.write_bytes(raw[: data.draw(st.integers(1, len(raw)))])
    try:
        x = load_image(path)
    except WhorlError:
        return
    assert x.ndim == 3
    assert 0 <= x.min() <= x.max() <= 1


def test_saving_rounds_and_reloads_exactly(tmp_path: Path) -> None:
    levels = torch.tensor([0.0, 0.49, 0.51, 1.4, 254.6, 255.0])
    save_image(tmp_path / "made" / "on" / "the-way.png", (levels / 255).expand(3, 2, 6))
    assert read(tmp_path / "made" / "on" / "the-way.png")[0, :, 0].tolist() == [0, 0, 1, 1, 255, 255]
    x = torch.randint(0, 256, (3, 5, 7)) / 255
    save_image(tmp_path / "b.png", x.double().requires_grad_())
    assert torch.equal(load_image(tmp_path / "b.png"), x)


def test_levels_are_saved_as_they_are(tmp_path: Path) -> None:
    levels = torch.from_numpy(PIXELS).permute(2, 0, 1)
    save_image(tmp_path / "levels.png", levels)
    save_image(tmp_path / "shares.png", levels.float() / 255)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "levels.png")), PIXELS)
    assert (tmp_path / "shares.png").read_bytes() == (tmp_path / "levels.png").read_bytes()


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_image(tmp_path / "a.png", torch.zeros(3, 4, 4))
    before = (tmp_path / "a.png").read_bytes()

    def die(self: Image.Image, file: BytesIO, **_: object) -> None:
        file.write(before[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", die)
    with pytest.raises(WhorlError, match="No space left"):
        save_image(tmp_path / "a.png", torch.ones(3, 4, 4))
    assert (tmp_path / "a.png").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize(
    ("name", "x", "says"),
    [
        ("a.jpg", torch.zeros(3, 4, 4), "ends in .png"),
        ("a.png", torch.zeros(1, 3, 4, 4), r"shape \(1, 3, 4, 4\)"),
        ("a.png", torch.zeros(3, 0, 4), r"shape \(3, 0, 4\)"),
        ("a.png", torch.zeros(3, 4, 4, dtype=torch.int16), "int16"),
        ("a.png", torch.full((3, 4, 4), 2.0), r"got values in \[2, 2\]"),
        ("a.png", torch.full((3, 4, 4), -0.1), r"\[0, 1\]"),
        ("a.png", torch.full((3, 4, 4), torch.nan), "got NaN"),
    ],
)
def test_saving_refuses(tmp_path: Path, name: str, x: torch.Tensor, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        save_image(tmp_path / name, x)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, -1, 2.5, (3,), (3, 0), (2, 2, 2), True, "big", (100_000, 100_000)])
def test_size_must_make_sense(tmp_path: Path, size: object) -> None:
    with pytest.raises(WhorlError, match="size must be"):
        load_image(tmp_path / "a.png", size=size)  # type: ignore[arg-type]


def test_a_damaged_png_is_not_decoded_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    save_image(path, torch.rand(3, 7, 9))
    whole = path.read_bytes()
    end = whole.index(b"IEND") - 8
    path.write_bytes(whole[: end - 30] + bytes(8) + whole[end - 10 :])
    with pytest.raises(WhorlError, match="cannot be read as an image"):
        load_image(path)
