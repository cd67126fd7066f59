"""The images of an experiment, each with a hash of its file, so that a changed image is never taken for the old."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from whorl.data.layouts import ListedImage, list_images
from whorl.files import atomic_write
from whorl.runs.declaration import Data

_THREADS = 8
_Stamp = tuple[int, int, str]  # size in bytes, time of change in nanoseconds, SHA-256


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An image of the data set.

    Attributes:
        entry: its file, label and id.
        sha256: of the file; empty where there is none.
    """

    entry: ListedImage
    sha256: str


def list_pictures(data: Data, memory: Path) -> list[Listed]:
    """List a data set's images with their hashes; no image is decoded.

    Args:
        data: which images.
        memory: a file that keeps the hashes of files that have not changed since, by their size and time of change.
    """
    entries = list_images(Path(data.folder))[: data.limit]
    known = _recall(memory)
    with ThreadPoolExecutor(_THREADS) as pool:
        stamps = list(pool.map(lambda entry: _stamp(entry.path, known), entries))
    found = {str(entry.path): stamp for entry, stamp in zip(entries, stamps, strict=True) if stamp is not None}
    if found != known:
        with atomic_write(memory) as file:
            file.write(json.dumps(found).encode())
    return [Listed(entry=entry, sha256=found.get(str(entry.path), (0, 0, ""))[2]) for entry in entries]


def chunks(pictures: Sequence[Listed], size: int) -> list[tuple[Listed, ...]]:
    """Cut a list into pieces that are worked on at a time.

    >>> chunks("abcde", 2)
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    return [tuple(pictures[i : i + size]) for i in range(0, len(pictures), size)]


def _recall(memory: Path) -> dict[str, _Stamp]:
    # What cannot be read is hashed anew.
    with suppress(OSError, ValueError, TypeError):
        return {str(path): (int(s), int(t), str(h)) for path, (s, t, h) in json.loads(memory.read_text()).items()}
    return {}


def _stamp(path: Path, known: dict[str, _Stamp]) -> _Stamp | None:
    try:
        status = path.stat()
        before = known.get(str(path))
        if before is not None and before[:2] == (status.st_size, status.st_mtime_ns):
            return before
        with path.open("rb") as file:
            return (status.st_size, status.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:  # said when the image is read, where a run may be told to leave it out
        return None
