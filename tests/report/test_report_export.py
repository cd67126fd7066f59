"""Figures as files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from browser import chromium
from report.made_up import grid_cells, small_gallery
from whorl import WhorlError
from whorl.evaluation import Pose
from whorl.report import Content, export, save_figures
from whorl.report.export import WIDTH

ONE = Content(title="t", cells=grid_cells(where=[Pose()]), galleries=(small_gallery(),))


def test_figures_and_galleries_become_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    monkeypatch.setenv("BROWSER_PATH", chromium())
    told: list[tuple[int, int]] = []
    written = save_figures(tmp_path / "new", ONE, progress=lambda _, done, total: told.append((done, total)))
    names = ["overview.png", "overview-column.pdf", "overview-page.pdf", "gallery-01.png", "gallery-01.pdf"]
    assert [path.name for path in written] == names
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in written)
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    with Image.open(written[0]) as image:
        assert image.width == 3 * WIDTH
        assert len(image.convert("RGB").resize((64, 32)).getcolors(4096) or ()) > 20  # something is drawn
    for path in written:
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")


def test_galleries_alone_need_no_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    (tmp_path / "gallery-01.png").write_bytes(b"older")
    written = save_figures(tmp_path, Content(title="t", galleries=(small_gallery(),)), formats=("pdf", "svg"))
    assert [path.name for path in written] == ["gallery-01.pdf"]
    assert (tmp_path / "gallery-01.png").read_bytes() == b"older"


def test_without_kaleido_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(WhorlError, match=r"pip install 'torchwhorl\[figures\]'"):
        save_figures(tmp_path, ONE)


def test_without_a_browser_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WhorlError, match=r"Install one .*apt install chromium"):
        save_figures(tmp_path / "out", ONE)


@pytest.mark.parametrize("awake", [0, 1])
def test_a_browser_that_does_not_answer_is_replaced_once(
    awake: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that sleeps instead, always or the first time."""
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    started, program = tmp_path / "started", tmp_path / "chromium"
    program.write_text(
        f'#!/bin/sh\necho >> "{started}"\n'
        f'[ {awake} = 1 ] && [ $(wc -l < "{started}") = 2 ] && exec "{chromium()}" "$@"\nexec sleep 600\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(program))
    monkeypatch.setattr(export, "PATIENCE", 15 if awake else 1)
    monkeypatch.setattr(export, "FAREWELL", 1)
    if awake:
        assert len(save_figures(tmp_path / "out", ONE, formats=("png",))) == 2
    else:
        with pytest.raises(WhorlError, match=r"started 2 times and did not answer .* 0 of 3 files are written"):
            save_figures(tmp_path / "out", ONE)
    assert len(started.read_text().splitlines()) == 2


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="unknown format 'gif' for figures; expected some of png, pdf, svg"):
        save_figures(tmp_path, ONE, formats=("png", "gif"))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WhorlError, match="cannot write"):
        save_figures(tmp_path / "file" / "out", ONE)


def test_a_sheet_of_smaller_tiles_keeps_its_text_and_may_have_no_headings() -> None:
    shown = small_gallery()
    whole, columns = export.draw_sheet(shown), len(shown.columns)
    rows = sum(len(example.rows) for example in shown.examples)
    small = export.draw_sheet(shown, side=100)
    assert whole.width - small.width == columns * (export.SIDE - 100)
    assert whole.height - small.height <= rows * (export.SIDE - 100)  # the words above may take more lines
    bare = replace(shown, examples=tuple(replace(example, truth="") for example in shown.examples))
    assert small.height - export.draw_sheet(bare, side=100).height == len(shown.examples) * export.HEADING
