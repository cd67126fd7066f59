"""The folder that uploads pass through: what counts against its room, and what a failed upload leaves."""

from __future__ import annotations

from pathlib import Path

from whorl.ui.upload_folder import MOST_HELD, UploadFolder


def test_what_lies_there_and_what_arrives_both_count(tmp_path: Path) -> None:
    folder = UploadFolder(tmp_path)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "image").write_bytes(b"x" * 1000)
    assert folder.has_room_for(MOST_HELD - 1000)
    assert not folder.has_room_for(MOST_HELD - 999)
    with folder.arriving(500):
        assert not folder.has_room_for(MOST_HELD - 1499)
    assert folder.has_room_for(MOST_HELD - 1000)


def test_only_the_last_of_several_uploads_clears_what_none_finished(tmp_path: Path) -> None:
    folder = UploadFolder(tmp_path)
    whole, empty = tmp_path / "whole" / "image", tmp_path / "empty"
    whole.parent.mkdir()
    whole.touch()
    empty.mkdir()
    with folder.arriving(1):
        with folder.arriving(2):
            (tmp_path / "cut short").touch()
        assert (tmp_path / "cut short").exists()
    assert list(tmp_path.rglob("*")) == [whole.parent, whole]
