"""What follows the README and the tutorial notices when something does not work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import docs_smoke
from doc_pages import Block, commands
from docs_smoke import Reader, installs, todo


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "home", Path(sys.executable).parent, tmp_path)


def test_commands_are_taken_one_by_one() -> None:
    block = Block("sh", "make demo  # draws this\n# a word\nwhorl run \\\n  a.toml\npip install '.[ui]'\n", 7)
    assert commands(block) == [(7, "make demo"), (9, "whorl run a.toml"), (11, "pip install '.[ui]'")]


def test_a_page_is_followed_from_top_to_bottom_after_installing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `whorl doctor`.\n\n```python\nimport whorl\n```\n\n```toml\n# mine.toml\nname = 1\n```\n\n"
        "```sh\nwhorl run mine.toml\nwhorl doctor\n```\n\nBefore: `pip install .`, and `x = 1`.\n"
    )
    found = todo(page)
    assert [(action.kind, action.line) for action in found] == [
        ("command", 17),
        ("command", 1),
        ("python", 4),
        ("file", 8),
        ("command", 13),
    ]
    assert installs(found[0])
    assert found[3].name == "mine.toml"


def test_a_command_that_fails_is_noticed(reader: Reader) -> None:
    assert reader.type("echo well").printed == "well\n"
    assert reader.type("echo well").well
    assert not reader.type("no-such-program").well
    assert not reader.type("exit 1").well
    # A gate that closes is an answer; a program that breaks is not.
    assert reader.type("exit 1 # --fail-above 60").well
    assert not reader.type("echo 'Traceback (most recent call last):'; exit 1 # --fail-above 60").well


def test_a_block_that_fails_is_noticed(reader: Reader) -> None:
    assert reader.prompt.run("page.md", 3, "a = 1").well
    assert reader.prompt.run("page.md", 9, "print(a + 1)").printed == "2\n"
    failed = reader.prompt.run("page.md", 12, "\nb")
    assert not failed.well
    assert 'File "page.md", line 13' in failed.printed
    reader.prompt.close()


def test_what_hangs_is_ended(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_smoke, "LONGEST", 0.5)
    assert reader.type("echo soon; sleep 60") == (False, "soon\n")
    assert not reader.prompt.run("page.md", 1, "import time; time.sleep(60)").well
    reader.prompt.close()


def test_the_readers_environment_is_not_this_one(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.setenv("MAKEFLAGS", "-n")
    clean = Reader(reader.home, reader.programs, reader.folder).environment
    assert not {"PYTHONPATH", "MAKEFLAGS"} & clean.keys()
    assert clean["PATH"].startswith(str(reader.programs))
