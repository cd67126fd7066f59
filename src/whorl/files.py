"""Files that appear whole or not at all, locks, hashes, and the one message for what cannot be written."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import platform
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from whorl.errors import WhorlError
from whorl.progress import notice

_PART = ".part"  # ends the name of every temporary file


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_sha256(path: Path, digest: str) -> bool:
    """Tell whether a file is there, can be read, and has this SHA-256."""
    try:
        return sha256_of(path) == digest
    except OSError:
        return False


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing that becomes ``path``, whole and on disk, when the block succeeds.

    If the block raises, the temporary file goes and ``path`` stays as it was. A symbolic link stays a link: what it
    points to is written.

    Raises:
        WhorlError: there is something at ``path`` that is no regular file, such as a folder or a device.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():
        raise WhorlError(f"cannot write {path}: expected a regular file or nothing there, and it is something else.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile's: those are readable by their owner alone, and a cache may be shared.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - the one call whose atomicity everything here rests on
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into the one that says what to do: what every command shows."""
    try:
        yield
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all; text as UTF-8.

    Raises:
        WhorlError: it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "a", "b.txt"), "whole")
    ...     Path(folder, "a", "b.txt").read_text()
    'whole'
    """
    with writing(path), atomic_write(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the headings first, as a table of comma-separated values, whole or not at all.

    Raises:
        WhorlError: it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder, "a.csv"), [("name", "n"), ("a,b", 1)])
    ...     Path(folder, "a.csv").read_text().splitlines()
    ['name,n', '"a,b",1']
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_file(path, text.getvalue())


@contextmanager
def exclusive(path: Path, holder: str = "") -> Iterator[None]:
    """Hold the lock of a file or folder; a second process says so, and waits here until the first has finished.

    Args:
        path: what is locked; the lock lies beside it, as ``<path>.lock``.
        holder: what this process does. It is kept in ``<path>.holder`` with the process's number and machine, so that
            whoever waits can say for whom.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock, note = FileLock(path.with_name(path.name + ".lock")), path.with_name(path.name + ".holder")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notice(f"waiting for {_holder(note) or f'another process that is preparing {path.name}'}")
        lock.acquire()
    try:
        if holder:
            with atomic_write(note) as file:
                file.write(f"process {os.getpid()} on {platform.node()}: {holder}".encode())
        yield
    finally:
        if holder:
            note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    # Gone if the holder has just finished; then the wait is short.
    with suppress(OSError):
        return note.read_text(encoding="utf-8", errors="replace")
    return ""


def remove_parts(folder: Path) -> None:
    """Delete the temporary files that a killed process left under ``folder``. Call it only while holding the lock."""
    for stale in folder.rglob(f".*{_PART}"):
        stale.unlink(missing_ok=True)


def defined(value: Any) -> Any:
    """Make values fit for JSON, which has no NaN: what is undefined becomes None, at any depth, and tuples lists.

    >>> defined({"rate": float("nan"), "interval": (0.5, float("nan"))})
    {'rate': None, 'interval': [0.5, None]}
    """
    if isinstance(value, dict):
        return {name: defined(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [defined(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
