"""``whorl analyze``: tables, JSON, files, and what is wrong said first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.toy_fields import FIRST, SECOND, THIRD, saved
from browser import chromium
from cli.invoking import invoke

SMALL = ("--limit", "3", "--draws", "8", "--ranges", "0.1", "--kernels", "0.6@5,uniform@3")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(saved(tmp_path, 6))


def test_error_shows_tables_and_writes_them(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke("analyze", "error", FIRST, "--data", data, *SMALL, "--out", str(out))
    assert result.exit_code == 0, result.stderr
    for heading in ("The corollaries", "What each step costs", "Cosine with the true gradient"):
        assert heading in result.stdout
    assert "3/3" in result.stdout
    assert "kernel 0.6@5" in result.stdout
    [table] = out.glob("*.md")
    assert table.read_text().count("| range 0.1 |") == 5


def test_error_as_json(data: str, tmp_path: Path) -> None:
    result = invoke("analyze", "error", FIRST, "--data", data, *SMALL, "--json", "--precision", "float64")
    content = json.loads(result.stdout)
    assert content["settings"]["images"] == 3
    assert [law["label"] for law in content["laws"]] == ["range 0.1", "kernel 0.6@5", "kernel uniform@3"]
    for law in content["laws"]:
        assert law["held"]["same"] == [3, 3]
        measured, bound = law["images"]["distance"], law["images"]["distance_bound"]
        assert all(one <= other * 1.00001 for one, other in zip(measured, bound, strict=True))
        assert law["constants"]["c1"] == pytest.approx(max(law["images"]["c1"]), rel=1e-4)
        assert law["cosine_with_truth"]["truth"] == 1
    mine = content["laws"][1]["cosine_with_truth"]
    assert mine["kernel 0.6@5"] == mine["estimate"]  # its own law's kernel
    assert mine["kernel uniform@3"] != mine["estimate"]
    assert mine["no kernel"] == mine["plain"]


def test_error_at_adversarial_images(data: str) -> None:
    figures = []
    for more in ((), ("--at", "fgsm")):
        result = invoke("analyze", "error", FIRST, "--data", data, *SMALL, "--json", *more)
        figures.append(json.loads(result.stdout)["laws"][0]["images"]["c3"])
    assert figures[0] != figures[1]


def test_error_from_another_source(data: str, tmp_path: Path) -> None:
    words = ("--source", SECOND, "--out", str(tmp_path / "o"), "--json")
    [law, *_] = json.loads(invoke("analyze", "error", FIRST, "--data", data, *SMALL, *words).stdout)["laws"]
    cosines = law["cosine_with_truth"]
    assert cosines["no kernel of second"] < cosines["plain"]
    assert "sign of no kernel of second" in cosines
    assert all("-from-second" in path.name for path in (tmp_path / "o").iterdir())


def test_error_draws_a_figure(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    monkeypatch.setenv("BROWSER_PATH", chromium())
    result = invoke("analyze", "error", FIRST, "--data", data, *SMALL, "--out", str(tmp_path / "o"), "--figures")
    assert result.exit_code == 0, result.stderr
    assert {path.suffix for path in (tmp_path / "o").iterdir()} == {".json", ".md", ".png", ".pdf"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--loss", "mse"), "unknown loss 'mse'"),
        (("--precision", "half"), "precision must be float32 or float64"),
        (("--ranges", "a"), "--ranges must be numbers"),
        (("--ranges", "2"), "a range must lie in"),
        (("--kernels", "wide"), "a kernel must be"),
        (("--draws", "7"), "draws must be an even number"),
        (("--at", "dmi"), "unknown attack 'dmi'"),
        (("--figures",), "--figures needs a folder"),
    ],
)
def test_what_is_wrong_is_said(data: str, more: tuple[str, ...], problem: str) -> None:
    result = invoke("analyze", "error", FIRST, "--data", data, "--limit", "1", *more)
    assert result.exit_code == 2
    assert problem in result.stderr


def calibrated(data: str, tmp_path: Path, *more: str) -> Any:
    words = ("--targets", f"{SECOND},{THIRD}", "--grid", "translation=0.6;polar=0,0.6;size=5", "--steps", "2")
    where = ("--data", data, "--size", "18", "--folds", "2", "--out", str(tmp_path / "cal"))
    return invoke("analyze", "calibrate", FIRST, *words, *where, *more)


def test_calibrate_shows_the_choice_and_the_judgement(data: str, tmp_path: Path) -> None:
    result = calibrated(data, tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "Best: t0.6-p" in result.stdout
    assert "over reference" in result.stdout
    assert (tmp_path / "cal" / "winner.toml").is_file()
    again = json.loads(calibrated(data, tmp_path, "--json").stdout)
    assert f"Best: {again['winner']['label']}" in result.stdout
    assert [one["target"] for one in again["judged"]] == [SECOND, THIRD]
    assert "least gain" in result.stdout
    ranked = next(one for one in again["ranking"] if one["name"] == again["winner"]["label"])
    least = min(gain for name in ("plain", "ti") for gain, _ in ranked["over"][name])
    row = next(line for line in result.stdout.splitlines() if line.startswith(ranked["name"]))
    assert f"{least:+.1f}" in row
    assert all(len(one["over"]["plain"]) == 2 for one in again["ranking"])


def test_calibrate_refuses_kin(data: str, tmp_path: Path) -> None:
    result = calibrated(data, tmp_path, "--targets", f"{FIRST},{SECOND}")
    assert result.exit_code == 2
    assert "source's family" in result.stderr
