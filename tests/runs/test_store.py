"""Records of the store: read back by their key, whole or not at all, and only as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whorl import WhorlError
from whorl.runs.store import Store, hashed

PLACE = Path("_photographs")


def test_a_record_comes_back_by_its_key(tmp_path: Path) -> None:
    key, content = hashed({"photo": "one"}), {"captures": [1, 2.5, None], "reason": "É"}
    with Store.open(tmp_path / "run") as store:
        assert store.record(PLACE, key) is None
        store.put_record(PLACE, key, content)
    with Store.open(tmp_path / "run") as store:
        assert store.record(PLACE, key) == content
        assert store.record(PLACE, hashed({"photo": "two"})) is None
        # Of another key that begins alike, and so has the same file.
        assert store.record(PLACE, key[:40] + hashed("other")[:24]) is None


@pytest.mark.parametrize("part", ["content", "key", "sha256", "format"])
def test_a_record_that_was_changed_does_not_count(tmp_path: Path, part: str) -> None:
    key = hashed("photo")
    with Store.open(tmp_path) as store:
        store.put_record(PLACE, key, [1, 2])
        file = store.cell(PLACE, key)
        file.write_text(json.dumps(json.loads(file.read_text()) | {part: "changed"}))
        assert store.record(PLACE, key) is None


def test_a_record_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    key = hashed("photo")
    with Store.open(tmp_path) as store:
        store.put_record(PLACE, key, [1, 2])
        store.cell(PLACE, key).write_text("{")
        with pytest.raises(WhorlError, match="Remove it"):
            store.record(PLACE, key)
