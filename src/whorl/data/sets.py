"""Data sets of every kind behind one door: folders, tar shards, the Hugging Face hub, and torch's own data sets.

A data set lists its images without decoding them where it can, and reads them one by one, so that memory holds a batch
and a line for each image. Addresses are written as those of models are: ``hf:beans?split=test``,
``wds:shards-{000..009}.tar``, ``python:my.data:test_set``.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from whorl.data.image_files import decode, to_tensor
from whorl.data.layouts import ListedImage, list_images
from whorl.errors import WhorlError
from whorl.files import regular
from whorl.models.address import AddressForm, split_address
from whorl.models.sources import made_by_factory

BinaryFile = io.BufferedReader | io.BytesIO
ImageData = str | Path | Dataset[Any] | DataLoader[Any]
"""Anything that holds labelled images: a folder, a CSV list, an address, a torch data set or loader."""


class ImageSet(Protocol):
    """Labelled images, wherever they are."""

    threads: bool
    """Whether several threads may read at once."""

    def entries(self) -> Iterable[ListedImage]:
        """All of them, in a fixed order. Those of a loader are best read as they come: it goes forward only."""
        ...

    def read(self, entry: ListedImage, size: tuple[int, int] | None) -> Tensor:
        """One of them: (3, H, W) float32 in [0, 1]."""
        ...

    def sha256(self, entry: ListedImage) -> str:
        """A hash of its content, so that a changed one is never taken for the old; empty where there is nothing."""
        ...


class EncodedImages(ABC):
    """Images in files of any common kind, or in pieces of larger files. Subclasses say which, and open one."""

    threads = True

    @abstractmethod
    def entries(self) -> Iterable[ListedImage]:
        """See ``ImageSet``."""

    def open(self, entry: ListedImage) -> BinaryFile:
        """The encoded image."""
        return regular(entry.path).open("rb")

    def read(self, entry: ListedImage, size: tuple[int, int] | None) -> Tensor:
        """See ``ImageSet``."""
        try:
            file = self.open(entry)
        except OSError:
            file = None  # decode says what is wrong with the path
        return to_tensor(decode(entry.path, size=size, file=file))

    def sha256(self, entry: ListedImage) -> str:
        """See ``ImageSet``."""
        try:
            with self.open(entry) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:  # said when the image is read, where a run may be told to leave it out
            return ""


@dataclass(frozen=True)
class FolderImages(EncodedImages):
    """A folder or list in one of the layouts of ``whorl.data.layouts``, or the bundled photographs."""

    place: Path

    def entries(self) -> list[ListedImage]:
        """See ``ImageSet``."""
        return list_images(self.place)


@dataclass(frozen=True, kw_only=True)
class DataSource(AddressForm):
    """A kind of address, and what opens it: called with the whole address, its place and its settings."""

    open: Callable[[str, str, Mapping[str, str]], ImageSet]


def open_images(data: ImageData) -> ImageSet:
    """Open a data set.

    Args:
        data: a folder or CSV list (see ``whorl.load_images``), "samples", an address, or a ``torch.utils.data``
            ``Dataset`` or ``DataLoader`` whose items are ``(image, label)`` or ``(image, label, id)``.

    Raises:
        WhorlError: an address of no known kind, or something that is no data set.

    >>> open_images("wds:shards-{000..009}.tar").pattern
    'shards-{000..009}.tar'
    """
    if isinstance(data, Path) or (isinstance(data, str) and not is_address(data)):
        return FolderImages(Path(data))
    if isinstance(data, str):
        return _opened(data, _stamp(data))
    from whorl.data.torch_sets import of_torch

    return of_torch(data)


def is_address(text: str) -> bool:
    """Whether a text names a data set by its source, and not by its path.

    >>> is_address("hf:beans"), is_address("photos/")
    (True, False)
    """
    return text.partition(":")[0] in DATA_SOURCES


def seen_from(folder: Path, data: str) -> str:
    """Write a path, or an address with a path in it, that is relative to ``folder`` so that it holds anywhere.

    >>> seen_from(Path("/mine"), "wds:a.tar?label=json.class"), seen_from(Path("/mine"), "hf:beans")
    ('wds:/mine/a.tar?label=json.class', 'hf:beans')
    """
    if not is_address(data):
        return str(folder / data)
    source, place, _ = split_address(data, DATA_SOURCES, "data set")
    beside = folder / place
    if not DATA_SOURCES[source].files and not (source == "hf" and beside.is_dir()):
        return data
    return data.replace(f"{source}:{place}", f"{source}:{beside}", 1)


# What is opened is kept: a hub's data set takes a while to open, workers open it by its address, and a stream must
# not start anew for each chunk.
@lru_cache(maxsize=4)
def _opened(text: str, _stamp: tuple[tuple[str, int, int], ...]) -> ImageSet:
    source, place, settings = split_address(text, DATA_SOURCES, "data set")
    return DATA_SOURCES[source].open(text, place, settings)


def _stamp(text: str) -> tuple[tuple[str, int, int], ...]:
    """Name, age and size of the files that an address leads to, so that changed ones are opened anew."""
    source, place, _ = split_address(text, DATA_SOURCES, "data set")
    if DATA_SOURCES[source].files:
        from whorl.data.tar_shards import expanded

        files = [file for pattern in expanded(place) for file in map(Path, sorted(glob(str(pattern))))]  # noqa: PTH207 - the pattern may be absolute
    else:
        folder = Path(place).expanduser()
        files = sorted(folder.rglob("*")) if source == "hf" and folder.is_dir() else []
    found = ((str(file), file.stat()) for file in files)
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


def _from_shards(_text: str, place: str, settings: Mapping[str, str]) -> ImageSet:
    from whorl.data.tar_shards import TarShards

    return TarShards(place, **settings)


def _from_hub(text: str, place: str, settings: Mapping[str, str]) -> ImageSet:
    from whorl.data.hugging_face import open_hub

    return open_hub(text, place, settings)


def _from_python(text: str, place: str, _settings: Mapping[str, str]) -> ImageSet:
    _, made = made_by_factory(text, place)
    if isinstance(made, str | Path):
        raise WhorlError(f"{text!r} must return a data set or loader of torch; got {made!r}.")
    return open_images(made)


DATA_SOURCES: Mapping[str, DataSource] = {
    "wds": DataSource(
        open=_from_shards,
        settings=("image", "label", "id"),
        usage="wds:PATTERN, as in wds:shards-{000..009}.tar or wds:data/*.tar?label=json.class",
        files=True,
    ),
    "hf": DataSource(
        open=_from_hub,
        settings=("split", "name", "revision", "image", "label", "id"),
        usage="hf:NAME or hf:FOLDER, as in hf:beans?split=test&image=image&label=labels",
    ),
    "python": DataSource(open=_from_python, usage="python:PACKAGE.MODULE:FACTORY"),
}
