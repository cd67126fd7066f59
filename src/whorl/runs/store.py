"""The one store of every run: chunks of images, keyed by everything that can change them, locked, hashed, resumable.

    DIR/manifest.json                               every setting, weight hashes, versions, seed
    DIR/cells/<attack>/<source>/<key>.json          a chunk of the data set, attacked
    DIR/cells/_clean/<key>.json                     a chunk as it is
    DIR/cells/_photographs/<key>.json               a record of something else: what a photograph showed
    DIR/cells/<attack>/<source>/*.queries           a chunk in hand: what its target was shown for it so far
    DIR/cells/<attack>/<source>/*.discarded         what was shown for work that was cut short

A chunk appears whole or not at all, after the files that it lists, with their hashes; it counts only while its key is
the plan's and its files are what was written.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from whorl.data import save_image
from whorl.errors import quoted
from whorl.evaluation import Distance, Pose
from whorl.files import has_sha256, hashed, held, in_threads, read_back, sha256_of, write_file
from whorl.geometry.pose import FURTHER_NUMBERS
from whorl.runs.folder import Json, RunFolder, checked

CLEAN = Path("_clean")
"""Where chunks of clean images lie, below ``cells``."""

_FORMAT, _UNHASHED = 3, 2  # what is written now, and what was before cells carried a hash of themselves
_DIGITS, _NAME = 20, 32  # of a number of queries, and of a hash in a file's name


@dataclass(kw_only=True)
class Chunk:
    """What is known of some images in one variant: how they were made, and who recognises them in which pose.

    Attributes:
        key: hash of everything that the chunk depends on.
        variant: the same without the images: what was done, with what.
        images: id, label and hash of each image as listed.
        ids: those that could be used, in order.
        bad: those that could not: id and reason.
        clean: hash of each used image's clean pixels.
        starts: hash of each one's start, where an attack began at files.
        files: path in the run folder to SHA-256 of what was written: adversarial images, traces.
        grad_evals: input gradients spent on each; empty for clean ones.
        queries: queries spent on each; empty unless the attack queries its target.
        success: whether the attacked network answers as wanted, as the attack says; empty for clean ones.
        known: for each "1" if the source recognises the clean image; empty for clean ones and where it is queried.
        reached: for each "1" if the source takes the saved image for the wanted class; empty if untargeted.
        seconds: spent on all of them.
        distance: of the adversarial images to the clean ones.
        work: name of the work that queried, as its record in hand had it.
        answers: by the target's key, then by pose: for each image "1" if it is recognised and "0" if not.
    """

    key: str
    variant: str
    images: list[list[Any]]
    ids: list[str]
    bad: list[tuple[str, str]] = field(default_factory=list)
    clean: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    grad_evals: list[int] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    success: list[bool] = field(default_factory=list)
    known: str = ""
    reached: str = ""
    seconds: float = 0.0
    distance: Distance = field(default_factory=Distance)
    work: str = ""
    answers: dict[str, dict[str, str]] = field(default_factory=dict)

    def missing(self, target: str, poses: Sequence[Pose]) -> tuple[Pose, ...]:
        """The poses in which a target, by its key, has not been evaluated."""
        known = self.answers.get(target, {})
        return tuple(pose for pose in poses if pose_key(pose) not in known)

    def recognised(self, target: str, pose: Pose) -> str:
        """A digit for each image."""
        return self.answers[target][pose_key(pose)]

    def facts(self) -> Json:
        """What a manifest says of each image: label, hashes, and what it cost."""
        labels = {name: label for name, label, _ in self.images}
        # adv/<attack>/<source>/<id>.png
        made = {path.split("/", 3)[3]: digest for path, digest in self.files.items() if path.startswith("adv/")}
        each = round(self.seconds / max(1, len(self.ids)), 4)
        columns: dict[str, Sequence[Any]] = {"clean_sha256": self.clean, "start_sha256": self.starts}
        columns |= {"queries": self.queries, "success": self.success} if self.queries else {}
        return {
            name: {
                "label": labels[name],
                **({"sha256": made[f"{name}.png"]} if f"{name}.png" in made else {}),
                **{fact: values[i] for fact, values in columns.items() if values},
                "grad_evals": self.grad_evals[i] if self.grad_evals else 0,
                "seconds": each,
            }
            for i, name in enumerate(self.ids)
        }

    def first(self, count: int) -> Chunk:
        """The chunk as if only its first ``count`` images had been listed; distances stay those of all."""
        listed = {name for name, *_ in self.images[:count]}
        n = sum(name in listed for name in self.ids)
        by_image = ("ids", "clean", "starts", "grad_evals", "queries", "success", "known", "reached")
        cut: dict[str, Any] = {name: getattr(self, name)[:n] for name in by_image}
        return replace(
            self,
            **cut,
            images=self.images[:count],
            bad=[item for item in self.bad if item[0] in listed],
            seconds=self.seconds * n / max(1, len(self.ids)),
            answers={key: {pose: row[:n] for pose, row in known.items()} for key, known in self.answers.items()},
        )


def pose_key(pose: Pose) -> str:
    """Write a pose as text that is the same for equal poses.

    >>> pose_key(Pose(angle=30, scale=0.7, shift=(20, 20)))
    '30 0.7 20 20'
    >>> pose_key(Pose(tilt=(20, 0), blur=2))
    '0 1 0 0 tilt_x=20 blur=2'
    """
    four = [f"{number:.12g}" for number in (pose.angle, pose.scale, *pose.shift)]
    changed = pose.changed
    names = (number.name for number in FURTHER_NUMBERS)
    return " ".join([*four, *(f"{name}={changed[name]:.12g}" for name in names if name in changed)])


class Ledger:
    """The queries of the work in hand, on disk, so that not even a killed process loses count.

    A number, overwritten in place before each pass, which costs a few microseconds.

    Args:
        path: of the file; made at once.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        self.add(0)

    @property
    def work(self) -> str:
        """The name of the work."""
        return self.path.name.split(".")[1]

    def add(self, images: int) -> None:
        """Count images that are about to be shown."""
        self.count += images
        os.pwrite(self._file, f"{self.count:0{_DIGITS}d}".encode(), 0)

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


class Store(RunFolder):
    """A run folder, to be written to by whoever holds its lock or works for who does.

    Args:
        path: the folder; made when something is first written.
    """

    @classmethod
    @contextmanager
    def open(cls, path: str | Path, command: Sequence[str] = ()) -> Iterator[Self]:
        """Hold the folder's lock; a second process waits, and says who holds it.

        Raises:
            WhorlError: the folder cannot be written to.
        """
        store = cls(Path(path).absolute())
        with held(store.path, " ".join(command) or "python"):
            yield store

    # ------------------------------------------------------------------------------------------------------- chunks

    def cell(self, place: Path, key: str) -> Path:
        """Where a chunk lies."""
        return self.path / "cells" / place / f"{key[:_NAME]}.json"

    def get(self, place: Path, key: str) -> Chunk | None:
        """Read a chunk; None if there is none of this key.

        Raises:
            WhorlError: the file is there but cannot be read.
        """
        chunk = _read_chunk(self.cell(place, key))
        return chunk if chunk is not None and chunk.key == key else None

    def chunks(self, place: Path) -> Iterator[Chunk]:
        """Every chunk of a place, whatever its key."""
        for path in sorted((self.path / "cells" / place).glob("*.json")):
            chunk = _read_chunk(path)
            if chunk is not None:
                yield chunk

    def sound(self, chunk: Chunk) -> bool:
        """Whether every file that a chunk lists is there and is what was written."""
        return all(in_threads(lambda item: has_sha256(self.path / item[0], item[1]), chunk.files.items()))

    def put(self, place: Path, chunk: Chunk, files: Mapping[Path, Tensor | str] | None = None) -> None:
        """Write a chunk, whole or not at all, after the files that it is to list.

        Args:
            place: of its variant, below ``cells``.
            chunk: what is known.
            files: images, (3, H, W) in [0, 1], and texts, by their paths.
        """
        path, old = self.cell(place, chunk.key), self.get(place, chunk.key) if files else None
        if old is not None:
            self._forget(place, old)  # before a file is replaced: it never speaks of files that are gone
        try:
            digests = in_threads(_written, (files or {}).items())
            names = [file.relative_to(self.path).as_posix() for file in files or ()]
            chunk.files |= dict(zip(names, digests, strict=True))
            _write_cell(path, asdict(chunk))
        except BaseException:
            if not path.exists():
                for file in files or ():
                    file.unlink(missing_ok=True)
            raise

    def record(self, place: Path, key: str) -> Any:
        """Read what ``put_record`` wrote; None if there is nothing of this key.

        Raises:
            WhorlError: the file is there, and is not what was written.
        """
        found = read_back(self.cell(place, key), _cell, remedy=_MADE_AGAIN) or {}
        return found["content"] if found.get("key") == key else None

    def put_record(self, place: Path, key: str, content: Any) -> None:
        """Write any JSON value under a key that is a hash of everything that it depends on, whole or not at all."""
        _write_cell(self.cell(place, key), {"key": key, "content": content})

    def forget(self, place: Path, files: Iterable[Path] = ()) -> None:
        """Remove all chunks of a place, and then all files below some folders."""
        shutil.rmtree(self.path / "cells" / place, ignore_errors=True)
        for folder in files:
            shutil.rmtree(folder, ignore_errors=True)

    def forget_overlapping(self, place: Path, ids: set[str], keep: set[str]) -> None:
        """Remove chunks that speak of images which are about to be made anew, but for those with a key to keep."""
        for chunk in self.chunks(place):
            if chunk.key not in keep and not ids.isdisjoint(chunk.ids):
                self._forget(place, chunk)

    def _forget(self, place: Path, chunk: Chunk) -> None:
        path = self.cell(place, chunk.key)
        if chunk.queries:  # they were spent all the same
            note = path.with_name(f"{chunk.variant[:_NAME]}.{chunk.work}.discarded")
            write_file(note, f"{sum(chunk.queries):0{_DIGITS}d}")
        path.unlink(missing_ok=True)

    # ------------------------------------------------------------------------------------------------------ queries

    def begin(self, place: Path, variant: str, key: str) -> Ledger:
        """Take up a chunk whose target is queried; every query is to be counted in the ledger before it is made."""
        name = f"{variant[:_NAME]}.{secrets.token_hex(8)}.{key[:_NAME]}.queries"
        return Ledger(self.path / "cells" / place / name)

    def finish(self, ledger: Ledger) -> None:
        """The chunk has been put, and names the ledger's work: its queries are in there."""
        ledger.close()
        ledger.path.unlink(missing_ok=True)

    def discard(self, ledger: Ledger) -> None:
        """The work was cut short: its queries were spent for nothing, unless its chunk had just been put."""
        ledger.close()
        _settle(ledger.path)

    def settle(self, place: Path, variant: str) -> int:
        """Find what killed processes left in hand, and add up all queries of a variant that were discarded.

        A ledger whose work is in a chunk was finished after all. Renaming one is a single step: nothing counts twice.
        """
        folder = self.path / "cells" / place
        for path in folder.glob("*.*.*.queries"):
            _settle(path)
        return sum(_number(path) for path in folder.glob(f"{variant[:_NAME]}.*.discarded"))

    # ----------------------------------------------------------------------------------------------------- manifest

    def write(self, change: Callable[[Json], None]) -> None:
        """Change the manifest, whole or not at all.

        Args:
            change: alters the manifest that it is given.
        """
        content = self.read()
        change(content)
        write_file(self.manifest, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def image_facts(folder: Path, entry: Json, place: Path) -> Json:
    """What is known of each image of one attack on one source: label, hash of the clean image, cost; by id.

    Args:
        folder: the run folder.
        entry: what the manifest says of the attack and source.
        place: of its chunks, below ``cells``.
    """
    facts: Json = dict(entry.get("images", {}))
    for chunk in Store(folder).chunks(place):
        facts |= chunk.facts()
    return facts


_MADE_AGAIN = "to have what it speaks of made again"


def _write_cell(path: Path, content: Json) -> None:
    """Write a chunk or a record with a hash of all of it: an edited one is never taken for what was measured."""
    whole = {"format": _FORMAT, "sha256": hashed(content), **content}
    write_file(path, json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n")


def _cell(text: bytes) -> Json | None:
    """What was written; None if it was by another version."""
    content = json.loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise TypeError("it is no cell of a run")
    version, digest = content.pop("format"), content.pop("sha256", None)
    if version == _FORMAT and digest != hashed(content):
        raise ValueError("its SHA-256 is not the one that it was written with")
    return content if version in (_FORMAT, _UNHASHED) else None


def _chunk(text: bytes) -> Chunk | None:
    content = _cell(text)
    return None if content is None else checked(Chunk, content)


def _read_chunk(path: Path) -> Chunk | None:
    return read_back(path, _chunk, remedy=_MADE_AGAIN)


def _written(item: tuple[Path, Tensor | str]) -> str:
    path, content = item
    if isinstance(content, str):
        write_file(path, content)
    else:
        save_image(path, content)
    return sha256_of(path)


def _settle(path: Path) -> None:
    variant, work, key, _ = path.name.rsplit(".", 3)
    chunk = _read_chunk(path.with_name(f"{key}.json"))
    if chunk is not None and chunk.work == work:
        path.unlink()
    else:
        path.replace(path.with_name(f"{variant}.{work}.discarded"))


def _number(path: Path) -> int:
    return read_back(path, _count, remedy="to leave the queries that it counts out of all sums") or 0


def _count(text: bytes) -> int:
    if text and not re.fullmatch(rb"[0-9]{%d}" % _DIGITS, text):  # empty: killed before anything was shown
        raise ValueError(f"expected {_DIGITS} digits, got {quoted(text[:80])}")
    return int(text or 0)
