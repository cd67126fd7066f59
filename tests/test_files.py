"""Files whole or not at all, what is refused, what is taken over from a killed process, and what is read back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from whorl.errors import WhorlError, printable
from whorl.files import (
    atomic_write,
    check_writable,
    has_sha256,
    read_back,
    regular,
    remove_parts,
    sha256_of,
    write_csv,
    write_file,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from whorl.files import write_file
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
write_file(Path(sys.argv[1]), "never" * 1000)
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="it has neither FIFOs nor kill -9")


@posix
def test_what_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not path.exists()
    assert [part.suffix for part in tmp_path.iterdir()] == [".part"]
    write_file(path, "whole")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("results.csv", "whole")]


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with atomic_write(path) as slow:
        slow.write(b"first")
        write_file(path, "second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    path, texts = tmp_path / "a", [str(number) * 5000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_file(path, text), texts * 10))
    assert path.read_text() in texts
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_file(path, "before")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"half" * (1 // 0))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "before")]


@posix
@pytest.mark.parametrize("length", [240, 255])
def test_names_as_long_as_the_file_system_takes(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("é" * (length // 2) + "a" * (length % 2))
    check_writable(path)
    write_file(path, "whole")
    assert path.read_text() == "whole"
    with pytest.raises(WhorlError, match="cannot write"):
        check_writable(tmp_path / ("a" * 256))


def occupied(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    return {"a folder": tmp_path / "folder", "below a file": tmp_path / "file" / "a", "a FIFO": tmp_path / "fifo"} | {
        "a link to a FIFO": tmp_path / "link",
        "a link to itself": tmp_path / "loop",
        "below a link to nowhere": tmp_path / "dangling" / "a",
        "a device": Path("/dev/null"),
    }


@posix
@pytest.mark.parametrize(
    "what", ["a folder", "below a file", "a FIFO", "a link to a FIFO", "a link to itself", "a device"]
)
def test_where_nothing_can_be_written_is_said_beforehand(what: str, tmp_path: Path) -> None:
    path = occupied(tmp_path)[what]
    before = sorted(tmp_path.rglob("*"))
    for write in (check_writable, lambda path: write_file(path, "x")):
        with pytest.raises(WhorlError, match="cannot write"):
            write(path)
    assert sorted(tmp_path.rglob("*")) == before
    check_writable(tmp_path / "new" / "deep" / "a.csv")
    assert sorted(tmp_path.rglob("*")) == before


@posix
def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in ((tmp_path / "fifo", "FIFO"), (tmp_path, "folder"), (Path("/dev/zero"), "device")):
        with pytest.raises(OSError, match=f"expected a regular file, got a {kind}"):
            sha256_of(path)
        assert not has_sha256(path, "0" * 64)
    assert regular(tmp_path / "absent") == tmp_path / "absent"


@pytest.mark.parametrize("text", ["", "{", "[1", "nul", '{"a": 1}', "[]", "\xff", "9" * 5000, "[" * 100_000])
def test_what_is_not_as_it_was_written_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(text.encode("latin-1"))

    def parse(content: bytes) -> Any:
        return json.loads(content)["b"]["c"]

    with pytest.raises(
        WhorlError, match=r"mine\.json is damaged, or is not what whorl wrote \(.*\)\. Delete it at once\."
    ):
        read_back(path, parse, remedy="at once")
    assert read_back(tmp_path / "absent", parse, remedy="") is None
    write_file(path, '{"b": {"c": 3}}')
    assert read_back(path, parse, remedy="") == 3

    def forbidden(content: bytes) -> Any:
        raise PermissionError(13, "Permission denied")  # what reading gives anybody but root

    with pytest.raises(WhorlError, match=r"mine\.json cannot be read \(Permission denied\)\. Let this user read it"):
        read_back(path, forbidden, remedy="at once")


def test_names_that_are_no_text_are_written_as_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff\x1b[31m")
    write_csv(tmp_path / "a.csv", [("name",), (name,)])
    assert (tmp_path / "a.csv").read_bytes() == b"name\na%FF\x1b[31m\n"
    assert printable(name) == "a%FF%1B[31m"
    assert str(WhorlError(f"{name}\tand\nmore")) == "a%FF%1B[31m\tand\nmore"
    assert printable("\ud800\x9b") == "%ED%A0%80%C2%9B"


@posix
def test_what_is_being_written_is_not_cleaned_away(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a"
    with atomic_write(path) as file:
        (tmp_path / ".b.0000.part").write_text("as a killed process leaves it")
        (tmp_path / ".fifo.part").symlink_to(tmp_path / "nowhere")
        remove_parts(tmp_path)
        file.write(b"whole")
    assert path.read_text() == "whole"
    assert not (tmp_path / ".b.0000.part").exists()
