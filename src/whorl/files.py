"""Files that appear whole or not at all, locks, hashes, and the messages for what cannot be written or read back."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import math
import os
import platform
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from whorl.errors import WhorlError, printable, reason
from whorl.progress import notice

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module or nothing

S = TypeVar("S")
T = TypeVar("T")

_THREADS = 8
_PART = ".part"  # ends the name of every temporary file
# A link or a FIFO of such a name is nobody's temporary file.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TURNS = 4  # names to try before one is taken without a lock
_STEM = 40  # characters of a name that its temporary file shows: a name may be as long as the file system takes
_SURROGATES = str.maketrans({code: printable(chr(code)) for code in range(0xDC80, 0xDD00)})


def regular(path: Path) -> Path:
    """Give a path back if it is a regular file's, or nobody's: reading a FIFO or a device might never end.

    Raises:
        OSError: something else is there.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:  # whoever opens it says what is wrong
        return path
    if kind != stat.S_IFREG:
        found = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}.get(kind, "device")
        raise OSError(errno.EINVAL, f"expected a regular file, got a {found}", str(path))
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file as 64 hexadecimal digits."""
    with regular(path).open("rb") as file:
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
    path = _destination(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part, file = _open_part(path)
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows moves no open file; elsewhere it stays locked until it has its name
            os.replace(part, path)  # noqa: PTH105 - the one call whose atomicity everything here rests on
        except BaseException:
            if fcntl is None:
                file.close()
            with suppress(OSError):
                part.unlink()
            raise


def _destination(path: Path) -> Path:
    """What is written in the end: what a symbolic link points to, and a regular file or nothing."""
    path = Path(os.path.realpath(path)) if path.is_symlink() else path  # resolve() has an error of its own for a loop
    if path.is_symlink():
        raise WhorlError(
            f"cannot write {path}: it is a link that leads back to itself. Remove it, or choose another path."
        )
    if path.exists() and not path.is_file():
        raise WhorlError(f"cannot write {path}: expected a regular file or nothing there, and it is something else.")
    return path


def _open_part(path: Path) -> tuple[Path, IO[bytes]]:
    """Open the temporary file of a path: one that a killed process left is taken over, one in use is left alone."""
    # Not tempfile's: those are readable by their owner alone, and a cache may be shared.
    stem = f".{path.name[:_STEM]}"
    names = (f"{stem}{'' if not turn else f'.{secrets.token_hex(4)}'}{_PART}" for turn in range(_TURNS if fcntl else 0))
    for part in map(path.with_name, names):
        with suppress(OSError):  # somebody else's, or there are no locks here
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
            if _take(descriptor, part):
                os.ftruncate(descriptor, 0)
                return part, os.fdopen(descriptor, "wb")
    part = path.with_name(f"{stem}.{secrets.token_hex(4)}{_PART}")
    return part, part.open("xb")


def _take(descriptor: int, part: Path) -> bool:
    """Lock an open temporary file, and see that it is still called so; else it is closed, for it is another's."""
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its owner may have given it its final name, or have removed it, before it let go.
        if os.path.samestat(os.fstat(descriptor), part.stat()):
            return True
    os.close(descriptor)
    return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into the one that says what to do: what every command shows."""
    try:
        yield
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def check_writable(path: Path) -> None:
    """Say now what :func:`write_file` would say after hours of work: that a file cannot be written there.

    Raises:
        WhorlError: it cannot.
    """
    with writing(path):
        path = _destination(path)
        above = path.absolute().parents
        # A link to nowhere is in the way of a folder.
        nearest = next((parent for parent in above if parent.exists() or parent.is_symlink()), above[0])
        with tempfile.TemporaryFile(dir=nearest):
            pass


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all; text as UTF-8, and what is no text in it as ``printable`` has it.

    Raises:
        WhorlError: it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "a", "b.txt"), "whole")
    ...     Path(folder, "a", "b.txt").read_text()
    'whole'
    """
    with writing(path), atomic_write(path) as file:
        file.write(content.translate(_SURROGATES).encode() if isinstance(content, str) else content)


def read_back(path: Path, parse: Callable[[bytes], T], *, remedy: str) -> T | None:
    """Read a file that whorl wrote itself: the one message where it is damaged, or somebody edited it.

    Args:
        path: the file.
        parse: makes of its bytes what is wanted, and raises anything where they are something else.
        remedy: what becomes of deleting it, as in "to have its images made again".

    Returns:
        What ``parse`` made; None if there is no such file.

    Raises:
        WhorlError: it is not what was written.
    """
    try:
        return parse(regular(path).read_bytes())
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise WhorlError(f"{path} cannot be read ({error.strerror}). Let this user read it.") from error
    except Exception as error:  # what a parser makes of damage is up to the damage
        raise damaged(path, error, remedy=remedy) from error


def damaged(path: Path, error: Exception, *, remedy: str) -> WhorlError:
    """Build the error for a file of whorl's own that is not as it was written; see :func:`read_back`."""
    return WhorlError(f"{path} is damaged, or is not what whorl wrote ({reason(error):.200}). Delete it {remedy}.")


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


def hashed(value: object) -> str:
    """Hash a JSON value; the order of keys does not matter.

    >>> hashed({"a": 1, "b": 2}) == hashed({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def json_text(content: object) -> str:
    """Write a value as JSON for a file that people open too: indented, every letter as it is."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


@contextmanager
def exclusive(path: Path, holder: str = "") -> Iterator[None]:
    """Hold the lock of a file or folder; a second process says so, and waits here until the first has finished.

    Args:
        path: what is locked; the lock lies beside it, as ``<path>.lock``.
        holder: what this process does. It is kept in ``<path>.holder`` with the process's number and machine, so that
            whoever waits can say for whom.
    """
    from filelock import FileLock, Timeout

    lock, note = FileLock(path.with_name(path.name + ".lock")), path.with_name(path.name + ".holder")
    seconds = 0.0
    while not lock.is_locked:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            notice(f"waiting for {_holder(note) or f'another process that is preparing {path.name}'}")
            seconds = -1.0  # for as long as it takes
        except FileNotFoundError:
            continue  # whoever held it has removed the folder, lock and all
    try:
        if holder:
            with atomic_write(note) as file:
                file.write(printable(f"process {os.getpid()} on {platform.node()}: {holder}").encode())
        yield
    finally:
        if holder:
            note.unlink(missing_ok=True)
        lock.release()


@contextmanager
def held(folder: Path, holder: str) -> Iterator[None]:
    """Hold the lock of a folder that work goes on in, free of what killed processes left half written.

    Raises:
        WhorlError: the folder cannot be written to.
    """
    try:
        with exclusive(folder / ".run", holder):
            remove_parts(folder)
            yield
    except OSError as error:
        raise WhorlError(
            f"cannot work in {folder} ({error}). Choose a folder that is writable and has space; "
            "what was finished is kept."
        ) from error


def _holder(note: Path) -> str:
    # Gone if the holder has just finished; then the wait is short.
    with suppress(OSError):
        return note.read_text(encoding="utf-8", errors="replace")
    return ""


def remove_parts(folder: Path) -> None:
    """Delete the temporary files that killed processes left under ``folder``; what is being written stays."""
    for part in folder.rglob(f".*{_PART}"):
        with suppress(OSError):
            if fcntl is None:  # Windows removes no file that somebody writes to
                part.unlink()
                continue
            descriptor = os.open(part, os.O_RDWR | _NO_LINK)
            if _take(descriptor, part):
                part.unlink()
                os.close(descriptor)


def in_threads(work: Callable[[S], T], items: Iterable[S], *, several: bool = True) -> list[T]:
    """Do the same with many files or images at a time: reading, hashing and Pillow let other threads run.

    Args:
        work: what is done.
        items: to what; the results come in this order.
        several: False for one thread beside this one, where what is read stands no more.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    with ThreadPoolExecutor(_THREADS if several else 1) as pool:
        return list(pool.map(work, items))


def defined(content: Mapping[str, Any]) -> dict[str, Any]:
    """Make values fit for JSON, which has no NaN: what is undefined becomes None, at any depth, and tuples lists.

    >>> defined({"rate": float("nan"), "interval": (0.5, float("nan"))})
    {'rate': None, 'interval': [0.5, None]}
    """
    return {name: _defined(value) for name, value in content.items()}


def _defined(value: Any) -> Any:
    if isinstance(value, dict):
        return defined(value)
    if isinstance(value, list | tuple):
        return [_defined(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
