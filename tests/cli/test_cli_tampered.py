"""Run folders that somebody edited: an image is made again, and what is no longer what whorl wrote is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.commands_at_work import WORK, photograph, prepare, shards
from cli.invoking import invoke
from whorl.data import load_image, save_image

CRAFTING = ("attack", "query", "run")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module", params=CRAFTING)
def worked(request: pytest.FixtureRequest, given: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A folder that a command has filled; whoever spoils it sees that it is mended."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    done = invoke(*WORK[request.param].typed(given, out))
    assert done.exit_code == 0, done.stderr
    return request.param, out


def edit(path: Path) -> None:
    save_image(path, 1 - load_image(path))


HARM: dict[str, Callable[[Path], object]] = {
    "edited": edit,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("harm", HARM)
def test_an_image_that_was_changed_is_made_again(harm: str, worked: tuple[str, Path], given: Path) -> None:
    name, out = worked
    expected = WORK[name].result(out)
    HARM[harm](sorted(out.glob("adv/**/*.png"))[1])
    done = invoke(*WORK[name].typed(given, out))
    assert done.exit_code == 0, done.stderr
    assert WORK[name].result(out) == expected


@pytest.mark.parametrize("harm", ["edited", "cut"])
def test_a_changed_image_is_neither_evaluated_nor_printed(harm: str, given: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert invoke(*WORK["attack"].typed(given, out)).exit_code == 0
    folder = out / "adv" / "pgd" / "small"
    evaluate = [
        "evaluate",
        str(given / "data"),
        str(folder),
        "--model",
        "python:cli.toy_networks:small",
        "--angles",
        "0",
    ]
    assert invoke(*evaluate).exit_code == 0
    image = sorted(folder.rglob("*.png"))[2]
    HARM[harm](image)
    for command in (evaluate, ["physical", "print", str(out), "--out", str(tmp_path / "sheet.pdf")]):
        done = invoke(*command)
        assert done.exit_code == 2
        assert f"error: {image} was changed after it was crafted" in done.stderr
        assert len(done.stderr.splitlines()) <= 2
    assert not (tmp_path / "sheet.pdf").exists()
    done = invoke(*evaluate, "--skip-bad", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["left_out"][0]["reason"].startswith(str(image))


def spoiled(text: str) -> dict[str, str]:
    """A JSON object in many ways that nobody wrote."""
    content: dict[str, Any] = json.loads(text)
    made = {
        "empty": "",
        "cut": text[: len(text) // 2],
        "a list": "[]",
        "null": "null",
        "a number": "3",
        "deep": "[" * 10_000,
    }
    made |= {"no text": "\udcff\udcfe", "twice": text + text}
    for key in content:
        for kind, value in (("null", None), ("text", "x"), ("list", [[]]), ("number", -1)):
            made[f"{key}: {kind}"] = json.dumps(content | {key: value})
        made[f"without {key}"] = json.dumps({name: value for name, value in content.items() if name != key})
    return made


def files_of(out: Path) -> list[Path]:
    """The manifest, and a cell of each kind."""
    cells = {path.parent: path for path in sorted((out / "cells").rglob("*.json"))}
    return [out / "manifest.json", *cells.values()]


def test_a_file_that_is_not_what_was_written_is_named(worked: tuple[str, Path], given: Path) -> None:
    name, out = worked
    expected, tried, refused = WORK[name].result(out), 0, 0
    for file in files_of(out):
        text = file.read_text(encoding="utf-8")
        every = spoiled(text)
        # All ways are tried of one command's files, some of the others'.
        for kind in list(every)[:: 1 if name == "attack" and file.name == "manifest.json" else 7]:
            file.write_bytes(every[kind].encode(errors="surrogateescape"))
            done = invoke(*WORK[name].typed(given, out))
            tried += 1
            if done.exit_code == 0:  # nothing that is read again was touched
                assert WORK[name].result(out) == expected, kind
            else:
                refused += 1
                assert done.exit_code == 2, f"{kind}: {done.stderr}"
                [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
                assert str(file) in line, kind
                assert "Delete it" in line or "hoose another folder" in line, kind
            file.write_text(text, encoding="utf-8")
        file.write_text("{", encoding="utf-8")
        assert "Delete it" in invoke(*WORK[name].typed(given, out)).stderr
        file.unlink()  # as the message says
        done = invoke(*WORK[name].typed(given, out))
        assert done.exit_code == 0, done.stderr
        assert WORK[name].result(out) == expected
    assert refused > tried / 3


def test_shards(given: Path, tmp_path: Path) -> None:
    shards(given)
    file = given / "shard-2" / "manifest.json"
    text = file.read_text()
    merge = ["merge", str(given / "shard-1"), str(given / "shard-2"), "--no-report", "--out"]
    refused = 0
    for place, (kind, other) in enumerate(spoiled(text).items()):
        file.write_bytes(other.encode(errors="surrogateescape"))
        done = invoke(*merge, str(tmp_path / str(place)))
        refused += done.exit_code == 2
        assert done.exit_code in (0, 2), f"{kind}: {done.stderr}"
        assert "defect" not in done.stderr, f"{kind}: {done.stderr}"
    assert refused > place / 3
    file.write_text(text)
    assert invoke(*merge, str(tmp_path / "whole")).exit_code == 0


def test_what_was_printed(given: Path) -> None:
    photograph(given)
    file = given / "sheet.json"
    text = file.read_text()
    score = ["physical", "score", str(given / "photographs"), "--run", str(file), "--model", "resnet18"]
    made = spoiled(text)
    for key in (
        "fingerprint",
        "layout_mm",
        "prints",
        "prints.0.label",
        "prints.0.size",
        "prints.0.file",
        "layout_mm.width",
    ):
        other = json.loads(text)
        *path, last = key.split(".")
        place = other["sheets"][0]
        for part in path:
            place = place[int(part) if part.isdigit() else part]
        place[last] = {"x": []}
        made[key] = json.dumps(other)
    for kind, other_text in made.items():
        file.write_bytes(other_text.encode(errors="surrogateescape"))
        done = invoke(*score)
        assert done.exit_code == 2, kind
        assert f"error: {file}" in done.stderr, kind
        assert "Delete it and print the images again" in done.stderr, kind
