"""``whorl run``: from a file to a folder with images, a table and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.invoking import invoke
from runs.declaring import COUNT, OTHER, SMALL, save_toy_images, table

DECLARED = f"""
name = "mine"
title = "Mine & theirs"
sources = ["{SMALL}"]
attacks = ["mim", "ai-mim"]
targets = ["{SMALL}", "{OTHER}"]
batch_size = 4
[[poses]]
angles = [-30, 0, 30]
scales = [0.7, 1, 1.3]
[data]
folder = "data"
"""


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    save_toy_images(tmp_path / "data")
    (tmp_path / "mine.toml").write_text(DECLARED)
    return tmp_path / "mine.toml"


def run(declaration: Path, *options: str) -> Any:
    out = declaration.parent / "out"
    return invoke("run", str(declaration), "--out", str(out), "--device", "cpu", *options)


def test_a_run_and_its_report(declaration: Path) -> None:
    result = run(declaration)
    assert result.exit_code == 0, result.stderr
    assert f"pooled over 9 poses, with its 95% interval over images; {COUNT} images" in result.stdout
    assert "Too few images for a summary" in result.stdout
    assert "6 of 6 tasks computed" in result.stdout
    folder = declaration.parent / "out"
    assert len(table(folder)) == 2 * 2 * 9
    page = (folder / "report.html").read_text()
    assert "Mine &amp; theirs" in page
    assert f"whorl run {declaration}" in page
    assert "0 of 6 tasks computed" in run(declaration).stdout


def test_json_and_no_report(declaration: Path) -> None:
    result = run(declaration, "--json", "--no-report", "--seed", "3")
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["n"] == COUNT
    assert len(content["cells"]) == 2 * 2 * 9
    assert not (declaration.parent / "out" / "report.html").exists()
    manifest = json.loads((declaration.parent / "out" / "manifest.json").read_text())
    assert manifest["experiment"]["seed"] == 3


def test_a_bad_declaration_is_one_line(declaration: Path) -> None:
    declaration.write_text(DECLARED.replace("batch_size", "bach_size"))
    result = run(declaration)
    assert result.exit_code == 2
    assert result.stderr.count("\n") <= 3
    assert "bach_size: unknown setting" in result.stderr
