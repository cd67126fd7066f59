"""Scoring: networks see what was cut out, and a photograph that gives nothing costs a line and no more."""

from __future__ import annotations

import math
import resource
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from physical.printed_run import Knows, photos, scored, sheet, shoot, small, target
from whorl import WhorlError
from whorl.physical import PRESETS, Camera, PageLayout, PrintedSheet, Scored, Scorer, ViewSettings, score
from whorl.physical.report import photographs
from whorl.physical.scorer import VERSION


def test_networks_are_evaluated_on_every_image_in_both_views() -> None:
    assert (scored().photos, len(scored().captures), scored().unread, scored().partly) == (2, 36, [], 0)
    for capture in scored().captures:
        assert set(capture.predictions) == {("as seen", "knows"), ("rectified", "knows")}
    assert {round(capture.appearance.pose.angle) for capture in scored().captures} == {0, 15}


def test_what_the_network_sees_is_what_was_cut_out() -> None:
    """Evaluate on the images by hand."""
    from physical.printed_run import found_in
    from whorl.data.image_files import decode, to_tensor
    from whorl.physical import rectified

    photo = decode(photos() / "a.jpg", size=None)
    cell = found_in(photo).cells[3]
    expected = int(Knows()(to_tensor(rectified(photo, cell))[None]).argmax())
    done = score([photos() / "a.jpg"], [sheet()], [target()], ViewSettings(views=("rectified",)))
    capture = next(one for one in done.captures if one.item.place == cell.item.place)
    assert capture.predictions["rectified", "knows"] == expected


def png_header(width: int, height: int) -> bytes:
    """An image that says it is enormous, in a few bytes."""
    body = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", body) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def bad_photos(folder: Path) -> dict[str, str]:
    """Write one of each kind of trouble; name to a word of the reason."""
    (folder / "notes.jpg").write_text("not a photograph")
    Image.fromarray(np.full((300, 400, 3), 200, np.uint8)).save(folder / "wall.png")
    (folder / "bomb.png").write_bytes(png_header(20_000, 15_000))
    (folder / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + b"\0" * 40)
    other = PrintedSheet(PageLayout(image=50), sheet().prints[:6])
    from whorl.physical import photograph, printed
    from whorl.physical.pdf import render_pages

    camera = Camera.perfect(width=900, height=1200)
    shot = photograph(printed(next(render_pages(other)), other.layout, camera), other.layout, camera, name="other")
    (folder / "stranger.png").write_bytes(shot.file)
    good = shoot(small(PRESETS["setting1"]), "good")
    (folder / "good.jpg").write_bytes(good.file)
    (folder / "z-again.jpg").write_bytes(good.file)
    return {
        "notes.jpg": "cannot be read",
        "wall.png": "no markers",
        "bomb.png": "too large",
        "phone.heic": "torchwhorl[heic]",
        "stranger.png": f"another print, sheet {other.name}",
        "z-again.jpg": "same photograph as good.jpg",
    }


def test_trouble_is_a_line_each_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bad_photos(tmp_path)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    done = score([tmp_path], [sheet()], [target()])
    assert {unread.photo for unread in done.unread} == set(expected)
    for unread in done.unread:
        assert expected[unread.photo] in unread.reason
    assert done.photos == 7
    assert len(done.captures) == 18
    assert photographs(done, [target()]).unread == tuple((unread.photo, unread.reason) for unread in done.unread)


def test_heic_with_the_extra(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    shot = shoot(Camera.perfect(width=1050, height=1400))
    heif.from_pillow(Image.fromarray(shot.photo)).save(tmp_path / "phone.heic", quality=90)
    done = score([tmp_path / "phone.heic"], [sheet()], [target()])
    assert len(done.captures) == 18
    (tmp_path / "broken.heic").write_bytes((tmp_path / "phone.heic").read_bytes()[:500])
    [unread] = score([tmp_path / "broken.heic"], [sheet()], [target()]).unread
    assert "cannot be read" in unread.reason


def test_a_photograph_on_its_side_by_exif(tmp_path: Path) -> None:
    shot = shoot(small(Camera.perfect()))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    Image.fromarray(np.rot90(shot.photo)).save(tmp_path / "side.jpg", exif=exif, quality=92)
    done = score([tmp_path / "side.jpg"], [sheet()], [target()])
    assert len(done.captures) == 18
    assert {round(capture.appearance.pose.angle) for capture in done.captures} == {0}


def test_partly_visible_pages_say_so(tmp_path: Path) -> None:
    shot = shoot(small(Camera.perfect()))
    Image.fromarray(shot.photo[140:330]).save(tmp_path / "part.png")
    [unread] = score([tmp_path], [sheet()], [target()]).unread
    assert "in part" in unread.reason


def test_photographs_are_not_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scored_by(net: Knows, **options: Any) -> Scored:
        return score([photos()], [sheet()], [target(net)], folder=tmp_path / "score", **options)

    first, again = Knows(), Knows()
    whole = scored_by(first)
    assert scored_by(again).captures == whole.captures
    # The contact sheet shows images of the first photograph, so that it is read again.
    assert sum(again.sizes) == sum(first.sizes) / 2
    for change in (
        {"save": tmp_path / "cut"},
        {"overlays": tmp_path / "over"},
        {"settings": ViewSettings(surroundings="photo")},
        {"settings": ViewSettings(offset=3.0)},
    ):
        fresh = Knows()
        scored_by(fresh, **change)
        assert sum(fresh.sizes) == sum(first.sizes)
    monkeypatch.setattr("whorl.physical.scorer.VERSION", VERSION + 1)
    fresh = Knows()
    scored_by(fresh)
    assert sum(fresh.sizes) == sum(first.sizes)


class Broken(nn.Module):
    """Answers with NaN, or knows few classes."""

    def __init__(self, classes: int, value: float) -> None:
        super().__init__()
        self.classes, self.value = classes, value

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), self.classes), self.value)


@pytest.mark.parametrize(("classes", "value", "words"), [(1000, math.nan, "finite"), (10, 0.0, "labels must lie in")])
def test_answers_that_cannot_be_trusted_are_errors(classes: int, value: float, words: str) -> None:
    with pytest.raises(WhorlError, match=words):
        score([photos() / "a.jpg"], [sheet()], [target(Broken(classes, value))])


def test_nothing_to_score(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="at least one photograph"):
        score([tmp_path], [sheet()], [target()])
    with pytest.raises(WhorlError, match="no such file"):
        score([tmp_path / "gone.jpg"], [sheet()], [target()])
    with pytest.raises(WhorlError, match="network"):
        Scorer([sheet()], [])


def test_white_balance_is_applied_and_its_absence_told(tmp_path: Path) -> None:
    shot = shoot(small(PRESETS["setting1"]).with_(exposure=-0.7))
    scorers = []
    for balance in (False, True):
        scorer = Scorer([sheet()], [target()], ViewSettings(views=("rectified",), white_balance=balance))
        scorer.add(shot.photo, "photo")
        scorers.append(scorer)
    means = [np.mean([c.predictions["rectified", "knows"] for c in s.result.captures]) for s in scorers]
    assert means[1] > means[0] + 5  # brighter
    assert not scorers[1].result.unbalanced
    scorers[1].add(np.ascontiguousarray(shot.photo[300:1700]), "middle")
    assert scorers[1].result.unbalanced == ["middle"]


def test_images_and_overlays_are_kept_on_request(tmp_path: Path) -> None:
    score([photos() / "a.jpg"], [sheet()], [target()], save=tmp_path / "cut", overlays=tmp_path / "over")
    assert len(list((tmp_path / "cut").rglob("*.png"))) == 36
    with Image.open(tmp_path / "over" / "0001-a.jpg") as overlay:
        assert max(overlay.size) == 1200


def test_one_photograph_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is let go before the next is read."""
    import gc
    import weakref

    from whorl.physical import photos as reading
    from whorl.physical import scorer

    alive: list[weakref.ref[NDArray[np.uint8]]] = []
    read = reading.read_photo

    def watched(path: Path) -> NDArray[np.uint8]:
        gc.collect()
        assert not any(one() is not None for one in alive)
        photo = read(path).copy()
        alive.append(weakref.ref(photo))
        return photo

    monkeypatch.setattr(scorer, "read_photo", watched)
    score([photos() / "a.jpg", photos() / "b.jpg"], [sheet()], [target()])
    assert len(alive) == 2


@pytest.mark.slow
def test_two_hundred_photographs_of_twelve_megapixels(tmp_path: Path) -> None:
    """Memory stays where it was after the first ones."""
    shots = [shoot(PRESETS["setting1"], str(i)) for i in range(2)]
    for number in range(200):
        # The same photographs with other bytes after their end: not the same files.
        (tmp_path / f"{number:03d}.jpg").write_bytes(shots[number % 2].file + number.to_bytes(2, "big"))
    held: list[int] = []
    steps: list[tuple[int, int]] = []

    def watch(stage: str, done: int, total: int) -> None:
        held.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
        steps.append((done, total))

    done = score([tmp_path], [sheet()], [target()], progress=watch)
    assert len(done.captures) == 200 * 18
    # Four photographs' worth, for what allocators leave behind; 200 of them would be 7 GB.
    assert max(held[100:]) - max(held[:20]) < 150 * 2**20
    assert steps[-1] == (200, 200)
