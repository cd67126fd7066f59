"""Tar shards in the layout of WebDataset: members that share a name up to the first dot are one sample.

Python's own ``tarfile`` lists them, and an image is read where it lies. The library ``webdataset`` reads shards from
front to back; a run wants to know every image beforehand, to hash it, and to go on in the middle, which an index of
places gives and a stream does not.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from glob import glob
from itertools import product
from pathlib import Path, PurePath

from whorl.data.image_files import MAX_PIXELS, SUFFIXES
from whorl.data.layouts import ListedImage, read_label, unique_ids
from whorl.data.sets import BinaryFile, EncodedImages
from whorl.errors import WhorlError

_MEMBER = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)")  # no hidden file: macOS puts one beside every other
_LABEL_BYTES = 1 << 20
_IMAGE_BYTES = 4 * MAX_PIXELS


class TarShards(EncodedImages):
    """Labelled images in uncompressed tar files.

    Args:
        pattern: paths of the shards; ``{000..009}`` and ``{a,b}`` stand for each of them, ``*`` for any letters.
        image: suffix of the image, such as ``jpg``; any that is an image's by default.
        label: suffix of the label, a 0-based whole number as text; ``json.class`` for the field ``class`` of a JSON.
        id: ``key`` for the name that a sample's members share; ``shard`` for the shard's name before it, where shards
            use the same names.

    Raises:
        WhorlError: a bad setting. What is wrong with the shards is found when they are listed.
    """

    def __init__(self, pattern: str, *, image: str = "", label: str = "cls", id: str = "key") -> None:  # noqa: A002 - as addresses have it
        if id not in ("key", "shard"):
            raise WhorlError(f"id of tar shards must be key or shard; got {id!r}.")
        self.pattern, self.id = pattern, id
        self.suffixes = {f".{image.lower().lstrip('.')}"} if image else set(SUFFIXES)
        self.label, _, self.field = label.lstrip(".").partition(".")
        self._listed: list[ListedImage] | None = None

    def entries(self) -> list[ListedImage]:
        """List every sample that has an image, shard by shard; what was listed once is kept."""
        if self._listed is None:
            self._listed = self._list()
        return self._listed

    def open(self, entry: ListedImage) -> BinaryFile:
        """The bytes of one member."""
        first, length = entry.at
        with entry.path.parent.open("rb") as file:
            file.seek(first)
            return io.BytesIO(file.read(length))

    def _list(self) -> list[ListedImage]:
        found = [item for shard in shard_paths(self.pattern) for item in self._samples(shard)]
        if not found:
            kinds = ", ".join(sorted(self.suffixes))
            raise WhorlError(
                f"{self.pattern} holds no images. Expected members named KEY{kinds} beside KEY.{self.label}."
            )
        twice = [key for key, count in Counter(item.id for item in found).items() if count > 1]
        if twice:
            raise WhorlError(
                f"{self.pattern} holds {twice[0]!r} more than once. If shards use the same names, append ?id=shard; "
                "else keep one sample of each."
            )
        unique_ids([PurePath(f"{item.id}.x") for item in found], self.pattern)
        return found

    def _samples(self, shard: Path) -> Iterator[ListedImage]:
        """The samples of one shard; only labels are read."""
        try:
            with tarfile.open(shard, "r:") as archive:
                for key, members in _grouped(archive):
                    entry = self._entry(shard, key, members, archive)
                    if entry is not None:
                        yield entry
        except (OSError, tarfile.TarError) as error:
            raise WhorlError(
                f"{shard}: cannot be read as a tar file ({error}). Expected an uncompressed, whole shard."
            ) from error

    def _entry(
        self, shard: Path, key: str, members: Mapping[str, tarfile.TarInfo], archive: tarfile.TarFile
    ) -> ListedImage | None:
        images = {suffix: member for suffix, member in members.items() if f".{suffix}".lower() in self.suffixes}
        if not images:
            return None
        suffix, image = next(iter(images.items()))
        where = f"{shard}, {key}"
        label, fault = self._label(members.get(self.label), archive, where)
        if len(images) > 1:
            label, fault = None, f"{where}: got {len(images)} images ({', '.join(images)}); choose one by ?image="
        elif image.size > _IMAGE_BYTES:
            label, fault = None, f"{where}: too large; expected {_IMAGE_BYTES:,} bytes at most, got {image.size:,}"
        # As the ids of folders, it becomes a path: no root and no '..' may get into it.
        name = PurePath(*(part for part in PurePath(key).parts if part not in ("/", "..")))
        name = PurePath(shard.stem, name) if self.id == "shard" else name
        place = shard / f"{PurePath(key).name}.{suffix}"
        return ListedImage(path=place, label=label, id=name.as_posix(), fault=fault, at=(image.offset_data, image.size))

    def _label(
        self, member: tarfile.TarInfo | None, archive: tarfile.TarFile, where: str
    ) -> tuple[int | None, str | None]:
        where = f"{where}.{self.label}"
        if member is None:
            return None, f"{where}: the label is missing"
        if member.size > _LABEL_BYTES:
            return None, f"{where}: expected a label, got {member.size:,} bytes"
        file = archive.extractfile(member)
        text = "" if file is None else file.read().decode("utf-8", errors="replace")
        if self.field:
            try:
                value = json.loads(text)[self.field]
            except (ValueError, TypeError, KeyError, RecursionError):
                return None, f"{where}: expected JSON with the field {self.field!r}, got {text[:40]!r}"
            text = str(value)
        return read_label(text, low=0, high=2**63 - 1, where=where)


def shard_paths(pattern: str) -> list[Path]:
    """The shards that a pattern stands for, in its order; those of a ``*`` sorted.

    Raises:
        WhorlError: one is not there.

    >>> [path.name for path in expanded("a-{08..11}.tar")]
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'a-11.tar']
    """
    paths: list[Path] = []
    for place in expanded(pattern):
        found = [Path(name) for name in sorted(glob(str(place)))] if "*" in str(place) else [place]  # noqa: PTH207 - the pattern may be absolute
        missing = [path for path in found if not path.is_file()]
        if missing or not found:
            raise WhorlError(f"{missing[0] if missing else place}: no such shard. Expected tar files at {pattern}.")
        paths += found
    return list(dict.fromkeys(paths))


def expanded(pattern: str) -> list[Path]:
    """Write a pattern's braces out: ``{000..009}`` is a range, as wide as its ends are, ``{a,b}`` a list."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [_choices(part, pattern) if place % 2 else [part] for place, part in enumerate(parts)]
    return [Path("".join(chosen)) for chosen in product(*choices)]


def _choices(text: str, pattern: str) -> list[str]:
    ends = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if ends is None:
        if "," not in text:
            raise WhorlError(f"{pattern}: expected {{first..last}} or {{one,other}} in braces, got {{{text}}}.")
        return text.split(",")
    first, last = int(ends[1]), int(ends[2])
    if last < first:
        raise WhorlError(f"{pattern}: expected a range that goes up, got {{{text}}}.")
    return [f"{number:0{len(ends[1])}d}" for number in range(first, last + 1)]


def _grouped(archive: tarfile.TarFile) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Members by the name that they share; those of a sample follow one another."""
    key, members = "", dict[str, tarfile.TarInfo]()
    for member in archive:
        archive.members = []  # type: ignore[attr-defined]  # tarfile keeps them all; a large shard would fill memory
        match = _MEMBER.fullmatch(member.name)
        if not member.isfile() or match is None:
            continue
        if match[1] != key and members:
            yield key, members
            members = {}
        key = match[1]
        members[match[2].lower()] = member
    if members:
        yield key, members
