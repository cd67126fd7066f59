"""Scoring: answers are counted as defined, and a photograph that gives nothing costs a line and no more."""

from __future__ import annotations

import csv
import resource
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from physical.printed_run import faked, sheet, shoot, small
from whorl import WhorlError
from whorl.physical import PRESETS, Camera, Scored, Settings, Sheet, score
from whorl.physical.captures import VIEWS
from whorl.physical.layout import Layout
from whorl.physical.reporting import as_json, write_all
from whorl.physical.scoring import Scorer
from whorl.physical.section import photographs
from whorl.physical.summary import cells, summarise
from whorl.runs.networks import Target
from whorl.runs.results import COLUMNS


class Knows(nn.Module):
    """Recognises an image by its mean colour: right for those of the sheet's labels that it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        # The class is the brightness in hundredths: deterministic, and different for clean and dark images.
        return nn.functional.one_hot((x.mean((1, 2, 3)) * 99).long(), 1000).float()


def target(net: nn.Module | None = None, name: str = "knows") -> Target:
    return Target(model=name, net=net or Knows())


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for name, camera in (("a", PRESETS["setting1"]), ("b", PRESETS["setting3"])):
        shot = shoot(small(camera), name)
        (folder / f"{name}{shot.suffix}").write_bytes(shot.file)
    return folder


@pytest.fixture(scope="module")
def scored(photos: Path) -> Scored:
    return score([photos], [sheet()], [target()])


def test_every_picture_is_asked_about_in_both_views(scored: Scored) -> None:
    assert (scored.photos, len(scored.captures), scored.unread, scored.partly) == (2, 36, [], 0)
    for capture in scored.captures:
        assert set(capture.answers) == {("as seen", "knows"), ("rectified", "knows")}
    assert {round(capture.seen.pose.angle) for capture in scored.captures} == {0, 15}


def test_what_the_network_sees_is_what_was_cut_out(photos: Path) -> None:
    """Ask about the images by hand."""
    from physical.printed_run import found_in
    from whorl.data.image_files import decode, to_tensor
    from whorl.physical import rectified

    photo = decode(photos / "a.jpg", size=None)
    cell = found_in(photo).cells[3]
    expected = int(Knows()(to_tensor(rectified(photo, cell))[None]).argmax())
    done = score([photos / "a.jpg"], [sheet()], [target()], Settings(views=("rectified",)))
    capture = next(one for one in done.captures if one.item.place == cell.item.place)
    assert capture.answers["rectified", "knows"] == expected


def test_success_is_asked_only_where_the_clean_version_of_the_same_photograph_is_right() -> None:
    done = faked(
        {
            ("one", "p", "clean"): 1, ("one", "p", "dim"): 5,      # success
            ("one", "q", "clean"): 1, ("one", "q", "dim"): 1,      # failure
            ("one", "r", "clean"): 7, ("one", "r", "dim"): 5,      # no credit: wrong anyway
            ("turned", "p", "clean"): 9, ("turned", "p", "dim"): 5,  # likewise, in this photograph
            ("turned", "q", "dim"): 5,                             # the clean version of the other photograph is right
            ("turned", "s", "dim"): 1,                             # nobody photographed the clean version
        }
    )  # fmt: skip
    clean, dim = summarise(done)
    assert (clean.counts.n, clean.counts.n_clean_correct, clean.counts.n_success) == (4, 2, 0)
    assert (dim.counts.n, dim.counts.n_clean_correct, dim.counts.n_success) == (6, 3, 2)
    assert dim.counts.accuracy == pytest.approx(2 / 6)
    assert dim.across == 1
    turned = dim.by["rotation"][15.0]
    assert (turned.n, turned.n_clean_correct, turned.n_success) == (3, 1, 1)
    assert list(dim.by["scale"]) == [0.8]
    assert list(dim.by["tilt"]) == [0.0]


def test_rows_add_up_to_the_summary(scored: Scored) -> None:
    for view in VIEWS:
        rows = cells(scored, view)
        for line in (line for line in summarise(scored) if line.view == view):
            own = [row for row in rows if (row.attack, row.target) == (line.version, line.target)]
            assert sum(row.counts.n for row in own) == line.counts.n
            assert sum(row.counts.n_success for row in own) == line.counts.n_success
            assert {(row.pose.angle, row.pose.scale) for row in own} == {(0, 1), (15, 0.8)}


def test_files(scored: Scored, tmp_path: Path) -> None:
    files = write_all(scored, tmp_path, [target()])
    rows = list(csv.reader(files.results["as seen"].open()))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 1 + 2 * 2  # clean and noise, two poses
    captures = list(csv.DictReader(files.captures.open()))
    assert len(captures) == 36
    assert {row["photo"] for row in captures} == {"a.jpg", "b.jpg"}
    assert files.contact is not None
    with Image.open(files.contact) as picture:
        assert picture.format == "PNG"
    assert "Photographs of prints" in files.report.read_text()


def test_json_is_honest_about_nothing() -> None:
    empty = Scored(settings=Settings(), targets=("t",))
    told = as_json(empty)
    assert (told["identified"], told["accuracy"], told["asr"]) == (0, None, None)


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
    other = Sheet(Layout(picture=50), sheet().prints[:6])
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
        "phone.heic": "whorl[heic]",
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
    assert {round(capture.seen.pose.angle) for capture in done.captures} == {0}


def test_partly_visible_pages_say_so(tmp_path: Path) -> None:
    shot = shoot(small(Camera.perfect()))
    Image.fromarray(shot.photo[140:330]).save(tmp_path / "part.png")
    [unread] = score([tmp_path], [sheet()], [target()]).unread
    assert "in part" in unread.reason


def test_nothing_to_score(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="at least one photograph"):
        score([tmp_path], [sheet()], [target()])
    with pytest.raises(WhorlError, match="no such file"):
        score([tmp_path / "gone.jpg"], [sheet()], [target()])
    with pytest.raises(WhorlError, match="network"):
        Scorer([sheet()], [])


def test_offsets_are_seeded_and_within_the_limit() -> None:
    settings = Settings(offset=20)
    shifts = np.array([settings.shift("photo", number) for number in range(400)])
    assert np.abs(shifts).max() <= 20
    assert np.abs(shifts).mean() == pytest.approx(10, abs=1)
    assert np.abs(shifts.mean(0)).max() < 2
    assert settings.shift("photo", 7) == Settings(offset=20).shift("photo", 7) != settings.shift("other", 7)
    assert Settings().shift("photo", 7) == (0, 0)


def test_white_balance_is_applied_and_its_absence_told(tmp_path: Path) -> None:
    shot = shoot(small(PRESETS["setting1"]).with_(exposure=-0.7))
    scorers = []
    for balance in (False, True):
        scorer = Scorer([sheet()], [target()], Settings(views=("rectified",), white_balance=balance))
        scorer.add(shot.photo, "photo")
        scorers.append(scorer)
    means = [np.mean([c.answers["rectified", "knows"] for c in s.result.captures]) for s in scorers]
    assert means[1] > means[0] + 5  # brighter
    assert not scorers[1].result.unbalanced
    scorers[1].add(np.ascontiguousarray(shot.photo[300:1700]), "middle")
    assert scorers[1].result.unbalanced == ["middle"]


def test_pictures_and_overlays_are_kept_on_request(photos: Path, tmp_path: Path) -> None:
    score([photos / "a.jpg"], [sheet()], [target()], save=tmp_path / "cut", overlays=tmp_path / "over")
    assert len(list((tmp_path / "cut").rglob("*.png"))) == 36
    with Image.open(tmp_path / "over" / "0001-a.jpg") as overlay:
        assert max(overlay.size) == 1200


def test_one_photograph_is_in_memory_at_a_time(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is let go before the next is read."""
    import gc
    import weakref

    from whorl.physical import photos as reading
    from whorl.physical import scoring

    alive: list[weakref.ref[NDArray[np.uint8]]] = []
    read = reading.read_photo

    def watched(path: Path) -> NDArray[np.uint8]:
        gc.collect()
        assert not any(one() is not None for one in alive)
        photo = read(path).copy()
        alive.append(weakref.ref(photo))
        return photo

    monkeypatch.setattr(scoring, "read_photo", watched)
    score([photos / "a.jpg", photos / "b.jpg"], [sheet()], [target()])
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

    def report(stage: str, done: int, total: int) -> None:
        held.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
        steps.append((done, total))

    done = score([tmp_path], [sheet()], [target()], progress=report)
    assert len(done.captures) == 200 * 18
    # Four photographs' worth, for what allocators leave behind; 200 of them would be 7 GB.
    assert max(held[100:]) - max(held[:20]) < 150 * 2**20
    assert steps[-1] == (200, 200)
