"""``whorl physical`` from end to end: print, simulate, score; exit codes and what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import whorl.cli.physical  # noqa: F401 - imported for the commands that it adds
from cli.invoking import invoke
from physical.printed_run import folders
from whorl.physical import read_sheets, render_pdf
from whorl.runs.results import COLUMNS

NET = "python:cli.toy_networks:wide"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a print and photographs of it."""
    root = tmp_path_factory.mktemp("rehearsal")
    clean, noise = folders()
    run = root / "run"
    for file in noise.rglob("*.png"):
        copy = run / "images" / file.relative_to(noise)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    done = invoke("physical", "print", str(run / "images"), f"--clean={clean}", "--out", str(root / "sheet.pdf"))
    assert done.exit_code == 0, done.stderr
    options = ("--camera=setting2", "--set", "width=1500", "--set", "height=2000", f"--out={root / 'photos'}")
    done = invoke("physical", "simulate", str(root), *options)
    assert done.exit_code == 0, done.stderr
    assert "1 simulated photograph:" in done.stdout
    return root


def test_print(rehearsed: Path) -> None:
    [pixels] = render_pdf(rehearsed / "sheet.pdf", dpi=72)
    assert pixels.shape == (842, 596, 3) or pixels.shape == (842, 595, 3)
    # Beside the PDF, and in the folder that was printed.
    assert read_sheets(rehearsed)[0].fingerprint == read_sheets(rehearsed / "run" / "images")[0].fingerprint


def test_the_truth_is_written(rehearsed: Path) -> None:
    truth = json.loads((rehearsed / "photos" / "truth.json").read_text())
    [(name, photo)] = truth["photos"].items()
    assert (rehearsed / "photos" / name).is_file()
    assert photo["visible_cells"] == list(range(1, 19))
    assert truth["cameras"]["setting2"]["angle"] == 5


def test_score_as_json(rehearsed: Path, tmp_path: Path) -> None:
    arguments = ("--run", str(rehearsed), "--model", NET, "--json", "--device=cpu", f"--out={tmp_path / 'score'}")
    done = invoke("physical", "score", str(rehearsed / "photos"), *arguments)
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["identified"] == 18
    assert content["read"] == content["photos"] == content["simulated"] == 1
    assert "Simulated photographs of prints" in (tmp_path / "score" / "report.html").read_text()
    assert 0 <= content["accuracy"] <= 1
    assert [(line["view"], line["images"]) for line in content["summary"]] == [
        ("as seen", "clean"),
        ("as seen", "images"),
        ("rectified", "clean"),
        ("rectified", "images"),
    ]
    assert content["summary"][0]["by_rotation"][0]["rotation"] == 5
    rows = list(csv.reader((tmp_path / "score" / "results.csv").open()))
    assert tuple(rows[0]) == COLUMNS
    assert {row[4] for row in rows[1:]} == {"5.0"}


def test_score_for_people(rehearsed: Path, tmp_path: Path) -> None:
    (tmp_path / "wall.jpg").write_bytes(b"no photograph")
    photos = (str(rehearsed / "photos"), str(tmp_path / "wall.jpg"))
    arguments = (
        "--run",
        str(rehearsed),
        "--model",
        NET,
        "--view=as-seen",
        f"--out={tmp_path / 'score'}",
        "--device=cpu",
    )
    done = invoke("physical", "score", *photos, *arguments, "--defense=none,jpeg", "--overlays", "--white-balance")
    assert done.exit_code == 2
    assert "1 of 2 photographs read, 18 images identified" in done.stdout
    assert "wide+jpeg" in done.stdout
    assert "not read: wall.jpg" in done.stderr
    assert "scoring photographs: 2/2" in done.stderr
    names = {path.name for path in (tmp_path / "score").iterdir() if not path.name.startswith(".")}
    assert names == {"results.csv", "captures.csv", "contact.png", "report.html", "overlays", "cells"}


def test_the_exit_code_says_that_nothing_was_read(rehearsed: Path, tmp_path: Path) -> None:
    (tmp_path / "wall.jpg").write_bytes(b"no photograph")
    arguments = ("--run", str(rehearsed), "--model", NET, "--json", f"--out={tmp_path / 'score'}", "--device=cpu")
    done = invoke("physical", "score", str(tmp_path / "wall.jpg"), *arguments)
    assert done.exit_code == 2
    content = json.loads(done.stdout)
    assert (content["identified"], content["accuracy"]) == (0, None)
    assert "wall.jpg" in content["unread"][0]["photo"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("print", "nowhere"), "no such folder"),
        (("print", ".", "--page=A44"), "page size"),
        (("print", ".", "--out=sheet.png"), ".pdf"),
        (("print", ".", "--image-mm=400"), "image"),
        (("score", "x.jpg", "--run=nowhere", "--model=resnet18"), "whorl physical print"),
        (("score", "x.jpg", "--run=.", "--model=resnet18", "--view=sideways"), "--view"),
        (("score", "x.jpg", "--run=.", "--model=resnet18", "--scale-one=far"), "--scale-one"),
        (("simulate", ".", "--out=photos", "--camera=setting9"), "setting1"),
        (("simulate", ".", "--out=photos", "--set=tlit=3"), "tilt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input(arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("physical", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_help_has_examples() -> None:
    for command in ("print", "score", "simulate"):
        done = invoke("physical", command, "--help")
        assert done.exit_code == 0
        assert f"whorl physical {command}" in done.stdout
