"""Which images a run works on: a data set, the bundled samples, or some that are already in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch import Tensor

from whorl.data import BadImage, Images
from whorl.data.classes import labelled
from whorl.data.image_files import checked_size
from whorl.data.images import collect
from whorl.data.layouts import SAMPLE_FILES, ListedImage, list_images, list_samples
from whorl.data.layouts import SAMPLES as SAMPLES_FOLDER
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models.labels import shared_labels
from whorl.runs.folder import Json

SAMPLES = str(SAMPLES_FOLDER)
SAMPLE_SIDE = 224
"""What samples are resized to unless told otherwise; the photographs themselves differ in size."""

# Pillow and hashing let other threads run.
THREADS = 8


@dataclass(frozen=True, kw_only=True)
class HashedImage:
    """An image of a data set, with a hash of its file, so that a changed one is never taken for the old.

    Attributes:
        entry: its file, label and id.
        sha256: of the file, or of the pixels if it is in memory; empty where there is nothing.
    """

    entry: ListedImage
    sha256: str

    @property
    def content(self) -> list[Any]:
        """What a result may depend on, as JSON."""
        return [self.entry.id, self.entry.label, self.sha256]


class ImageSource(Protocol):
    """Anything that lists labelled images and reads some of them."""

    def listed(self) -> list[HashedImage]:
        """All of them; none is decoded."""
        ...

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Decode some of them; those that are left out are in ``.bad``."""
        ...

    def describe(self) -> Json:
        """Say for a manifest where they come from and what they are resized to."""
        ...


class Data(BaseModel):
    """A choice of images.

    Attributes:
        folder: a data set in any layout of ``whorl.load_images``, or "samples" for the bundled photographs, unless
            there is a folder of that name; None for the photographs in any case.
        limit: take only the first so many.
        size: side in pixels to resize to; None leaves data sets as they are, and samples at 224.
        skip_bad: leave unreadable images out instead of stopping at the first.

    >>> [batch.x.shape for batch in Data(limit=3, size=8).batches(2)]
    [torch.Size([2, 3, 8, 8]), torch.Size([1, 3, 8, 8])]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str | Path | None = SAMPLES
    limit: Annotated[int, Field(ge=1)] | None = None
    size: Annotated[int, Field(ge=1)] | None = None
    skip_bad: bool = False

    @field_validator("folder", mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        return str(given) if isinstance(given, Path) else given

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Make a choice, with errors that name the setting.

        Raises:
            WhorlError: an unknown setting or a bad value.
        """
        try:
            return cls(**settings)
        except ValidationError as error:
            [first, *_] = error.errors()
            name, too_small = ".".join(map(str, first["loc"])), first["type"] == "greater_than_equal"
            said = f"{name} must be a whole number from 1" if too_small else f"{name}: {first['msg']}"
            raise WhorlError(f"{said}; got {first['input']!r:.80}.") from error

    @property
    def bundled(self) -> bool:
        """Whether it is the bundled photographs."""
        return self.folder is None or (str(self.folder) == SAMPLES and not SAMPLES_FOLDER.exists())

    def count(self) -> int:
        """How many are listed, at most: some may turn out to be unreadable. Nothing is opened or fetched.

        Raises:
            WhorlError: no data set that can be listed, or more samples than there are.
        """
        listed = len(SAMPLE_FILES.files) if self.bundled else len(self._entries())
        if self.bundled and self.limit is not None and self.limit > listed:
            raise WhorlError(f"there are {listed} samples; expected a limit from 1 to {listed}, got {self.limit}.")
        return listed if self.limit is None else min(self.limit, listed)

    def listed(self) -> list[HashedImage]:
        """List them, and hash each file."""
        entries = self._entries()[: self.limit]
        with ThreadPoolExecutor(THREADS) as pool:
            hashes = list(pool.map(_file_sha256, entries))
        return [HashedImage(entry=entry, sha256=digest) for entry, digest in zip(entries, hashes, strict=True)]

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Decode some of them."""
        return self._decoded([image.entry for image in images])

    def batches(self, size: int, labels: Sequence[str] | None = None) -> Iterator[Images]:
        """Decode all of them, ``size`` at a time; class folders are matched with ``labels``, a network's classes."""
        entries = labelled(self._entries(), labels, self.describe()["folder"])[: self.limit]
        for start in range(0, len(entries), size):
            yield self._decoded(entries[start : start + size])

    def describe(self) -> Json:
        """Name the folder and the size."""
        folder = SAMPLES if self.bundled or self.folder is None else str(Path(self.folder).resolve())
        return {"folder": folder, "size": self.size}

    def _entries(self) -> list[ListedImage]:
        return list_samples() if self.folder is None else list_images(Path(self.folder))

    def _decoded(self, entries: Sequence[ListedImage]) -> Images:
        size = checked_size(SAMPLE_SIDE if self.bundled and self.size is None else self.size)

        def decode(entry: ListedImage) -> Images | BadImage:
            try:
                return collect([entry], size=size)
            except WhorlError as error:
                if not self.skip_bad:
                    raise
                return BadImage(path=entry.path, id=entry.id, reason=str(error))

        with ThreadPoolExecutor(THREADS) as pool:
            return _joined(list(pool.map(decode, entries)))


@dataclass(frozen=True)
class Loaded:
    """Images in memory.

    >>> x, y = torch.zeros(3, 3, 8, 8), torch.tensor([0, 1, 2])
    >>> source = Loaded(Images(x, y, ["a", "b", "c"]))
    >>> source.read(source.listed()[1:]).ids
    ['b', 'c']
    """

    images: Images

    def listed(self) -> list[HashedImage]:
        """List them, each with a hash of its numbers, which may lie between 8-bit levels."""
        x, y, ids = self.images
        entries = [ListedImage(path=Path(name), label=int(label), id=name) for label, name in zip(y, ids, strict=True)]
        return [HashedImage(entry=entry, sha256=_numbers_sha256(one)) for entry, one in zip(entries, x, strict=True)]

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Take some of them."""
        x, y, ids = self.images
        place = {name: i for i, name in enumerate(ids)}
        rows = [place[image.entry.id] for image in images]
        return Images(x[rows], y[rows], [ids[i] for i in rows])

    def describe(self) -> Json:
        """Say that they came from memory, and their size."""
        return {"folder": None, "size": list(self.images.x.shape[-2:])}


def with_classes(
    images: Sequence[HashedImage], networks: Mapping[str, object], source: ImageSource
) -> list[HashedImage]:
    """Give images the classes that some networks share, where class folders name them.

    Args:
        images: of one data set.
        networks: all that are to meet them, by name.
        source: of the images, for errors.

    Raises:
        WhorlError: the networks differ in their classes, or a class folder names none of them.
    """
    entries = labelled([image.entry for image in images], shared_labels(networks), source.describe()["folder"])
    return [replace(image, entry=entry) for image, entry in zip(images, entries, strict=True)]


def _numbers_sha256(x: Tensor) -> str:
    numbers = x.detach().cpu().contiguous().numpy()
    return hashlib.sha256(f"{numbers.shape} {numbers.dtype}".encode() + numbers.tobytes()).hexdigest()


def _file_sha256(entry: ListedImage) -> str:
    try:
        return sha256_of(entry.path)
    except OSError:  # said when the image is read, where a run may be told to leave it out
        return ""


def _joined(decoded: list[Images | BadImage]) -> Images:
    good = [item for item in decoded if isinstance(item, Images)]
    shapes = {item.x.shape[2:]: item.ids[0] for item in good}
    if len(shapes) > 1:
        (one, a), (other, b) = list(shapes.items())[:2]
        raise WhorlError(
            f"expected images of one size (height, width), got {a!r} of {tuple(one)} and {b!r} of {tuple(other)}. "
            "Set size to resize them all."
        )
    x = torch.cat([item.x for item in good]) if good else torch.empty(0, 3, 1, 1)
    y = torch.cat([item.y for item in good]) if good else torch.empty(0, dtype=torch.int64)
    joined = Images(x, y, [item.ids[0] for item in good])
    joined.bad = tuple(item for item in decoded if isinstance(item, BadImage))
    return joined
