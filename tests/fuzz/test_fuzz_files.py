"""Files: lists of images, image files and weight files, mutated; run folders tampered with."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

import whorl
from cli.commands_at_work import WORK, prepare
from conftest import random_images
from fuzz.harness import Verdict, fuzz, hold, judge
from runs.declaring import declared, made, save_toy_images, table
from whorl import runs
from whorl.data import load_image, save_image
from whorl.models.architectures import build

FAMILY = "files"


# ---------------------------------------------------------------------------------------------------------------------
# images.csv

NAMES = ("a", "b", "sub/c")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for place, name in enumerate(NAMES):
        save_image(folder / "images" / f"{name}.png", random_images(3, height=6, width=6)[place])
    return folder


def listing_verdict(text: str) -> Verdict:
    """What a list of images must come to, from what the columns mean."""
    rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    if not rows or not {"ImageId", "TrueLabel"} <= set(rows[0]):
        return "error"
    heading, *body = rows
    if len(set(heading)) != len(heading):
        return "either"  # of two columns of one name, nobody can say which is meant
    body = [row for row in body if row]
    names = [row[heading.index("ImageId")].strip() if len(row) > heading.index("ImageId") else "" for row in body]
    labels = [row[heading.index("TrueLabel")].strip() if len(row) > heading.index("TrueLabel") else "" for row in body]
    known = {str(Path(name)) for name in NAMES}
    if any(name != str(Path(name)) for name in names if name):
        return "either"  # "./a" and "a//b" are names too
    good = bool(names) and all(name in known for name in names) and len(set(names)) == len(names)
    whole = [label.isascii() and label.removeprefix("+").isdigit() and len(label) < 20 for label in labels]
    return "works" if good and all(whole) and all(1 <= int(label) <= 1000 for label in labels) else "error"


cells = st.one_of(
    st.sampled_from([*NAMES, "1", "1000", "1001", "0", "-1", "1.5", "", "x", " 7 ", "+3", "../a", "/etc/passwd", "٣"]),
    st.sampled_from(
        [
            "a\x1b[31m",
            "a\x00",
            "1" * 5000,
            "1_0",
            "nan",
            "a.png",
            "ü",
            '"',
            "\udcff".encode("utf-8", "replace").decode(),
        ]
    ),
    st.text(max_size=4),
)
sound_rows = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 1000).map(str)),
    min_size=1,
    max_size=3,
    unique_by=lambda row: row[0],
)
lists = st.one_of(
    sound_rows.map(lambda rows: [("ImageId", "TrueLabel"), *rows]),
    st.tuples(sound_rows, st.tuples(cells, cells)).map(lambda both: [("ImageId", "TrueLabel"), *both[0], both[1]]),
    st.lists(st.lists(cells, max_size=3).map(tuple), max_size=4),
    st.lists(st.tuples(cells, cells), max_size=4).map(lambda rows: [("ImageId", "TrueLabel"), *rows]),
)


def listed(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def load(folder: Path, content: bytes) -> Any:
    (folder / "images.csv").write_bytes(content)
    return whorl.load_images(folder)


LISTS: list[tuple[str, bytes, Verdict]] = [
    ("sound", b"ImageId,TrueLabel\na,1\nb,1000\n", "works"),
    ("byte-order mark", b"\xef\xbb\xbfImageId,TrueLabel\na,1\n", "works"),
    ("other columns too", b"TrueLabel,x,ImageId\n3,,a\n", "works"),
    ("empty", b"", "error"),
    ("no rows", b"ImageId,TrueLabel\n", "error"),
    ("no such column", b"Image,Label\na,1\n", "error"),
    ("label 0", b"ImageId,TrueLabel\na,0\n", "error"),
    ("label 1001", b"ImageId,TrueLabel\na,1001\n", "error"),
    ("label as float", b"ImageId,TrueLabel\na,1.0\n", "error"),
    ("label missing", b"ImageId,TrueLabel\na\n", "error"),
    ("twice", b"ImageId,TrueLabel\na,1\na,2\n", "error"),
    ("no such image", b"ImageId,TrueLabel\nz,1\n", "error"),
    ("escapes", b"ImageId,TrueLabel\nz\x1b[31m,1\n", "error"),
    ("NUL", b"ImageId,TrueLabel\na\x00,1\n", "error"),
    ("not UTF-8", b"ImageId,TrueLabel\n\xff,1\n", "error"),
    ("UTF-16", "ImageId,TrueLabel\na,1\n".encode("utf-16"), "error"),
    ("long field", b"ImageId,TrueLabel\n" + b"a" * 200_000 + b",1\n", "error"),
    ("long name", b"ImageId,TrueLabel\n" + b"a" * 300 + b",1\n", "error"),
    ("open quotation", b'ImageId,TrueLabel\n"a,1\n', "error"),
]


@pytest.mark.parametrize(("content", "verdict"), [case[1:] for case in LISTS], ids=[case[0] for case in LISTS])
def test_lists(photographs: Path, content: bytes, verdict: Verdict) -> None:
    judge(lambda: load(photographs, content), verdict)


@fuzz(0.06, rows=lists)
def test_a_list_of_images(photographs: Path, rows: list[tuple[str, ...]]) -> None:
    text = listed(rows)
    loaded = judge(lambda: load(photographs, text.encode("utf-8", "replace")), listing_verdict(text))
    if loaded is not None:
        x, y, ids = loaded
        assert len(x) == len(y) == len(ids) == len(set(ids))
        assert int(y.min()) >= 0
        assert int(y.max()) <= 999


# ---------------------------------------------------------------------------------------------------------------------
# Image files


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray((random_images(1, height=7, width=9)[0] * 255).byte().permute(1, 2, 0).numpy()).save(file, kind)
    return file.getvalue()


PNG, JPEG = encoded("PNG"), encoded("JPEG")
_PIXELS_END = PNG.index(b"IEND") - 8  # before the checksum of the pixels


def png_is_sound(content: bytes) -> bool | None:
    """Whether a PNG file is whole: signature, and the checksum of each chunk; None where only extras are damaged."""
    if content[:8] != PNG[:8]:
        return False
    if content[:_PIXELS_END] == PNG[:_PIXELS_END]:
        return True if content == PNG else None  # all of the image is there, whatever comes after it
    place, seen = 8, []
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        end = place + 8 + length
        if len(body) < length or end + 4 > len(content):
            return False
        if zlib.crc32(kind + body) != struct.unpack(">I", content[end : end + 4])[0]:
            return None if kind not in (b"IHDR", b"PLTE", b"IDAT") else False
        seen.append(kind)
        place = end + 4
        if kind == b"IEND":
            return None if place != len(content) or seen.count(b"IHDR") != 1 else b"IDAT" in seen
    return None


def load_bytes(folder: Path, content: bytes, suffix: str) -> torch.Tensor:
    place = folder / f"image{suffix}"
    place.write_bytes(content)
    return load_image(place)


def check_image(folder: Path, content: bytes, suffix: str) -> None:
    sound = png_is_sound(content) if suffix == ".png" else None
    verdict: Verdict = "either" if sound is None else "works" if sound else "error"
    if suffix == ".png" and content[:4] != PNG[:4]:
        verdict = "either"  # it may have become another format
    image = judge(lambda: load_bytes(folder, content, suffix), verdict)
    if image is not None:
        assert image.ndim == 3
        assert image.shape[0] == 3
        assert 0 <= float(image.min()) <= float(image.max()) <= 1
        if content[:_PIXELS_END] == PNG[:_PIXELS_END]:
            assert torch.equal(image, load_bytes(folder, PNG, ".png"))


edits = st.tuples(st.integers(0, max(len(PNG), len(JPEG))), st.integers(0, 40), st.binary(max_size=8))


@fuzz(0.06, suffix=st.sampled_from([".png", ".jpg"]), edit=edits)
def test_an_image_file(tmp_path_factory: pytest.TempPathFactory, suffix: str, edit: tuple[int, int, bytes]) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = PNG if suffix == ".png" else JPEG
    place, cut, put = edit
    check_image(folder, whole[:place] + put + whole[place + cut :], suffix)


IMAGE_FILES: list[tuple[str, bytes]] = [
    ("whole", PNG),
    ("empty", b""),
    ("cut", PNG[: len(PNG) // 2]),
    ("signature alone", PNG[:8]),
    ("text", b"hello"),
    ("page", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ("bomb", PNG[:16] + struct.pack(">II", 60_000, 60_000) + PNG[24:]),
    ("no pixels", PNG[:16] + struct.pack(">II", 0, 0) + PNG[24:]),
]


@pytest.mark.parametrize("content", [case[1] for case in IMAGE_FILES], ids=[case[0] for case in IMAGE_FILES])
def test_image_files(tmp_path: Path, content: bytes) -> None:
    check_image(tmp_path, content, ".png")


def test_what_is_no_image_file(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "fifo.png")
    for name in ("folder.png", "none.png", "x" * 300 + ".png", "a\x00.png", "a\x1b[31m.png"):
        judge(partial(load_image, tmp_path / name), "error")


# ---------------------------------------------------------------------------------------------------------------------
# Weight files

ARCH = "timm:test_resnet"


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    net, _ = build(ARCH, 7)
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def first(state: dict[str, Any]) -> str:
    return next(name for name, tensor in state.items() if tensor.dim() == 4)


def with_first(change: Callable[[torch.Tensor], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {**state, first(state): change(state[first(state)])}


WEIGHTS: dict[str, tuple[Callable[[dict[str, Any]], Any], Verdict]] = {
    "sound": (lambda state: state, "works"),
    "under state_dict": (lambda state: {"state_dict": state}, "works"),
    "module.": (lambda state: {f"module.{name}": tensor for name, tensor in state.items()}, "works"),
    "half": (lambda s: {n: t.half() if t.is_floating_point() else t for n, t in s.items()}, "either"),
    "NaN": (with_first(lambda t: t * torch.nan), "error"),
    "infinite": (with_first(lambda t: t + torch.inf), "error"),
    "whole numbers": (with_first(lambda t: (t * 100).long()), "error"),
    "flags": (with_first(lambda t: t > 0), "error"),
    "complex": (with_first(lambda t: t.to(torch.complex64)), "error"),
    "shape": (with_first(lambda t: t[:1]), "error"),
    "one missing": (lambda state: {name: t for name, t in state.items() if name != first(state)}, "error"),
    "one more": (lambda state: {**state, "more": torch.zeros(1)}, "error"),
    "twice by module.": (lambda state: {**state, f"module.{first(state)}": state[first(state)] + 1}, "error"),
    "another head": (lambda s: {n: (t[:5] if n.startswith("fc.") else t) for n, t in s.items()}, "error"),
    "a list": (list, "error"),
    "a number": (lambda state: 3, "error"),
    "empty": (lambda state: {}, "error"),
    "text inside": (with_first(lambda t: "weights"), "error"),
    "an object": (lambda state: {"net": torch.nn.Linear(1, 1)}, "error"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(tmp_path: Path, weights: dict[str, torch.Tensor], name: str) -> None:
    change, verdict = WEIGHTS[name]
    torch.save(change(weights), tmp_path / "net.pth")
    judge(lambda: whorl.load_model(f"file:{tmp_path / 'net.pth'}?arch={ARCH}&num_classes=7&size=32"), verdict)


@fuzz(
    0.04,
    suffix=st.sampled_from([".pth", ".safetensors"]),
    place=st.floats(0, 1),
    cut=st.integers(0, 300),
    put=st.binary(max_size=64),
    head=st.booleans(),
)
def test_a_weight_file(
    tmp_path_factory: pytest.TempPathFactory,
    weights: dict[str, torch.Tensor],
    suffix: str,
    place: float,
    cut: int,
    put: bytes,
    head: bool,
) -> None:
    whole = _saved(tmp_path_factory.getbasetemp(), weights, suffix)
    at = round(place * (400 if head else len(whole)))  # what describes the tensors comes first
    changed = tmp_path_factory.getbasetemp() / f"changed{suffix}"
    changed.write_bytes(whole[:at] + put + whole[at + cut :])
    same = changed.read_bytes() == whole
    verdict: Verdict = "works" if same else "error" if len(put) != min(cut, len(whole) - at) and not head else "either"
    if suffix == ".pth":
        verdict = "works" if same else "either"  # a zip archive finds its own middle
    net = judge(lambda: whorl.load_model(f"file:{changed}?arch={ARCH}&num_classes=7&size=32"), verdict)
    if net is not None:
        assert all(bool(parameter.isfinite().all()) for parameter in net.parameters())


def _saved(folder: Path, weights: dict[str, torch.Tensor], suffix: str) -> bytes:
    path = folder / f"whole{suffix}"
    if not path.exists():
        torch.save(weights, path) if suffix == ".pth" else save_file(weights, path)
    return path.read_bytes()


# ---------------------------------------------------------------------------------------------------------------------
# Run folders


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, runs.Declaration]:
    root = tmp_path_factory.mktemp("finished")
    declaration = declared(
        save_toy_images(root / "data", 3),
        attacks=[{"name": "fgsm", "settings": {"eps": "12/255"}}],
        targets=["python:cli.toy_networks:small"],
        poses=[{"angles": [0, 30]}],
    )
    runs.run(declaration, root / "run", device="cpu")
    return root, declaration


def tampered(finished: tuple[Path, runs.Declaration], change: Callable[[Path], None], *, report: bool = False) -> None:
    """Run again in a folder that was changed: the same results, or a refusal that names a file."""
    root, declaration = finished
    copy = root / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root / "run", copy)
    change(copy)
    done = judge(lambda: runs.run(declaration, copy, device="cpu"), "either")
    if done is not None:
        assert table(copy) == table(root / "run")
        assert made(copy) == made(root / "run")


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in (".json", ".png", ".csv"))


DEEP = "[" * 3000
JSON: list[Any] = [None, 3, True, "x", [], {}, [[]], {"a": 1}, float("nan"), {"version": 10**30}]


@pytest.mark.parametrize("content", [*JSON, DEEP], ids=lambda one: repr(one)[:20])
def test_every_json_file_replaced(finished: tuple[Path, runs.Declaration], content: Any) -> None:
    for place in range(len([path for path in files_of(finished[0] / "run") if path.suffix == ".json"])):

        def change(folder: Path, place: int = place) -> None:
            path = [path for path in files_of(folder) if path.suffix == ".json"][place]
            path.write_text(DEEP if content == DEEP else json.dumps(content))

        tampered(finished, change)


@fuzz(0.03, which=st.integers(0, 50), place=st.floats(0, 1), cut=st.integers(0, 30), put=st.binary(max_size=8))
def test_a_file_of_a_run_changed(
    finished: tuple[Path, runs.Declaration], which: int, place: float, cut: int, put: bytes
) -> None:
    def change(folder: Path) -> None:
        path = files_of(folder)[which % len(files_of(folder))]
        whole = path.read_bytes()
        at = round(place * len(whole))
        path.write_bytes(whole[:at] + put + whole[at + cut :])

    tampered(finished, change)


def replaced_value(content: Any, path: list[int], value: Any) -> Any:
    """JSON with one of its values replaced, found by going down some places."""
    if path and isinstance(content, dict) and content:
        key = sorted(content)[path[0] % len(content)]
        return content | {key: replaced_value(content[key], path[1:], value)}
    if path and isinstance(content, list) and content:
        at = path[0] % len(content)
        return [*content[:at], replaced_value(content[at], path[1:], value), *content[at + 1 :]]
    return value


json_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}), st.floats()
)


@fuzz(0.04, which=st.integers(0, 50), path=st.lists(st.integers(0, 20), min_size=1, max_size=4), value=json_values)
def test_a_value_of_a_run_changed(
    finished: tuple[Path, runs.Declaration], which: int, path: list[int], value: Any
) -> None:
    def change(folder: Path) -> None:
        listed = [path for path in files_of(folder) if path.suffix == ".json"]
        place = listed[which % len(listed)]
        place.write_text(json.dumps(replaced_value(json.loads(place.read_text()), path, value)))

    tampered(finished, change)


def test_an_adversarial_image_replaced_by_another(finished: tuple[Path, runs.Declaration]) -> None:
    """The same size, and a sound PNG: only its hash tells."""

    def change(folder: Path) -> None:
        path = next(iter(sorted(folder.rglob("*.png"))))
        save_image(path, 1 - load_image(path))

    tampered(finished, change)


# ---------------------------------------------------------------------------------------------------------------------
# Folders of other commands

WITH_FOLDERS = ("attack", "query", "gate", "harden")
Done = tuple[str, Path, Path, int]
"""The command, what it was given, the folder that it filled, and its exit code."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module", params=WITH_FOLDERS)
def worked(request: pytest.FixtureRequest, given: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    out = tmp_path_factory.mktemp(request.param) / "out"
    result = hold(WORK[request.param].typed(given, out), "works", gate=request.param == "gate")
    return request.param, given, out, result.exit_code


def spoiled(path: Path, others: list[Path], how: str, places: list[int], put: bytes, value: Any) -> None:
    """Change a file in one of some ways."""
    whole = path.read_bytes()
    if how == "value" and path.suffix == ".json":
        path.write_text(json.dumps(replaced_value(json.loads(whole), places, value)))
    elif how == "swapped":
        alike = [other for other in others if other.suffix == path.suffix]
        path.write_bytes(alike[places[0] % len(alike)].read_bytes())
    elif how in ("gone", "folder"):
        path.unlink()
        if how == "folder":
            path.mkdir()
    else:
        at = places[0] * len(whole) // 21
        path.write_bytes(whole[:at] + put + whole[at + places[-1] :])


@fuzz(
    0.02,
    which=st.integers(0, 50),
    how=st.sampled_from(["value", "value", "bytes", "swapped", "gone", "folder"]),
    places=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    put=st.binary(max_size=8),
    value=json_values,
)
def test_a_file_of_a_folder_changed(
    worked: Done, which: int, how: str, places: list[int], put: bytes, value: Any
) -> None:
    """The same command again: the same results, or a refusal that can be read."""
    name, given, out, code = worked
    copy = out.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(out, copy)
    every = sorted(path for path in copy.rglob("*") if path.is_file())
    spoiled(every[which % len(every)], every, how, places, put, value)
    result = hold(WORK[name].typed(given, copy), "either", gate=name == "gate")
    if result.exit_code != 2:
        assert result.exit_code == code
        assert WORK[name].result(copy) == WORK[name].result(out)
