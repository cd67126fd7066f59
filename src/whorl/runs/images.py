"""Which images a run works on: a data set of any kind, the bundled samples, or some that are already in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from whorl.attacks.contract import check_images
from whorl.data import BadImage, ImageData, Images, ImageSet, open_images
from whorl.data.classes import labelled
from whorl.data.image_files import MAX_PIXELS, checked_size
from whorl.data.images import decoded_image
from whorl.data.layouts import SAMPLE_FILES, ListedImage, list_samples
from whorl.data.layouts import SAMPLES as SAMPLES_FOLDER
from whorl.data.sets import FolderImages, is_address, seen_from
from whorl.data.torch_sets import checked_label, numbers_sha256, row_id
from whorl.errors import WhorlError
from whorl.files import in_threads
from whorl.models.labels import named, shared_labels
from whorl.runs.folder import Json
from whorl.runs.toml import TomlTable, validated

T = TypeVar("T")

SAMPLES = str(SAMPLES_FOLDER)
SAMPLE_SIDE = 224
"""What samples are resized to by default; the photographs themselves differ in size."""

MAX_SIDE = math.isqrt(MAX_PIXELS)


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


Chosen = Callable[[int], bool]
"""Whether to take an image, by its place in the data set."""


@runtime_checkable
class ImageSource(Protocol):
    """Anything that lists labelled images and reads some of them."""

    def listed(self, chosen: Chosen | None = None) -> list[HashedImage]:
        """All of them, or those whose places are chosen; none is decoded."""
        ...

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Decode some of them; those that are left out are in ``.bad``."""
        ...

    def describe(self) -> Json:
        """Say for a manifest where they come from and what they are resized to."""
        ...


class Data(TomlTable):
    """A choice of images.

    Attributes:
        folder: a folder or address as ``whorl.load_images`` takes them, or "samples" for the bundled photographs,
            unless there is a folder of that name; None for the photographs in any case.
        limit: take only the first so many.
        size: side in pixels to resize to; None leaves data sets as they are, and samples at 224.
        skip_bad: leave unreadable images out instead of stopping at the first.
        evenly: take a limited number evenly over the classes, and not the first, which in class folders are of the
            first classes alone.

    >>> [batch.x.shape for batch in Data(limit=3, size=8).batches(2)]
    [torch.Size([2, 3, 8, 8]), torch.Size([1, 3, 8, 8])]
    """

    folder: str | Path | None = SAMPLES
    limit: Annotated[int, Field(ge=1)] | None = None
    size: Annotated[int, Field(ge=1, le=MAX_SIDE)] | None = None
    skip_bad: bool = False
    evenly: bool = False

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
        return validated(cls, settings, "")

    @property
    def bundled(self) -> bool:
        """Whether it is the bundled photographs."""
        return self.folder is None or (str(self.folder) == SAMPLES and not SAMPLES_FOLDER.exists())

    def count(self) -> int:
        """How many are listed, at most: some may turn out to be unreadable. Nothing is opened or fetched.

        Raises:
            WhorlError: no data set that can be listed, or more samples than there are.
        """
        listed = len(SAMPLE_FILES.files) if self.bundled else sum(1 for _ in self._entries())
        if self.bundled and self.limit is not None and self.limit > listed:
            raise WhorlError(f"there are {listed} samples; expected a limit from 1 to {listed}, got {self.limit}.")
        return listed if self.limit is None else min(self.limit, listed)

    def listed(self, chosen: Chosen | None = None) -> list[HashedImage]:
        """List them, or those whose places are chosen, and hash each."""
        return hashed_images(self._images, _some(self._limited(self._entries()), chosen))

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Decode some of them."""
        return self._decoded([image.entry for image in images])

    def batches(self, size: int, labels: Sequence[str] | None = None) -> Iterator[Images]:
        """Decode all of them, ``size`` at a time; class folders are matched with ``labels``, a network's classes."""
        entries = self._limited(labelled(self._entries(), labels, self.describe()["folder"]))
        while some := list(islice(entries, size)):
            yield self._decoded(some)

    def describe(self) -> Json:
        """Name the folder and the size."""
        folder = SAMPLES if self.bundled or self.folder is None else str(self.folder)
        given = folder == SAMPLES or is_address(folder)
        return {"folder": folder if given else str(Path(folder).resolve()), "size": self.size}

    def seen_from(self, place: Path) -> Self:
        """The same with a folder, or an address of files, that is relative to ``place``."""
        if self.folder is None or self.folder == SAMPLES:
            return self
        return self.model_copy(update={"folder": seen_from(place, str(self.folder))})

    @property
    def _images(self) -> ImageSet:
        return FolderImages(SAMPLES_FOLDER) if self.folder is None else open_images(str(self.folder))

    def _entries(self) -> Iterator[ListedImage]:
        return iter(list_samples() if self.folder is None else self._images.entries())

    def _limited(self, entries: Iterator[ListedImage]) -> Iterator[ListedImage]:
        if self.limit is None or not self.evenly:
            return islice(entries, self.limit)
        listed, turn = list(entries), Counter[int | None]()
        turns = []  # the first image of every class, then the second, and so on
        for place, entry in enumerate(listed):
            turns.append((turn[entry.label], place))
            turn[entry.label] += 1
        return (listed[place] for place in sorted(place for _, place in sorted(turns)[: self.limit]))

    def _decoded(self, entries: Sequence[ListedImage]) -> Images:
        size = SAMPLE_SIDE if self.bundled and self.size is None else self.size
        return _decoded(self._images, entries, size, skip_bad=self.skip_bad)


@dataclass(frozen=True)
class Opened:
    """A data set or loader of torch; its images are read as they are needed.

    Attributes:
        data: as ``whorl.load_images`` takes it.
        limit: take only the first so many.
        size: side in pixels to resize to.
        skip_bad: leave bad images out instead of stopping at the first.

    >>> from torch.utils.data import TensorDataset
    >>> source = Opened(TensorDataset(torch.zeros(3, 3, 8, 8), torch.tensor([0, 1, 2])))
    >>> source.read(source.listed()[1:]).ids
    ['000001', '000002']
    """

    data: ImageData
    limit: int | None = None
    size: int | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "_images", open_images(self.data))

    def listed(self, chosen: Chosen | None = None) -> list[HashedImage]:
        """List them, or those whose places are chosen, and hash each."""
        images: ImageSet = vars(self)["_images"]
        return hashed_images(images, _some(islice(images.entries(), self.limit), chosen))

    def read(self, images: Sequence[HashedImage]) -> Images:
        """Read some of them."""
        entries = [image.entry for image in images]
        return _decoded(vars(self)["_images"], entries, self.size, skip_bad=self.skip_bad)

    def describe(self) -> Json:
        """Name the class of the data set, and the size."""
        return {"folder": type(self.data).__name__, "size": self.size}


@dataclass(frozen=True)
class Loaded:
    """Images in memory.

    >>> x, y = torch.zeros(3, 3, 8, 8), torch.tensor([0, 1, 2])
    >>> source = Loaded(Images(x, y, ["a", "b", "c"]))
    >>> source.read(source.listed()[1:]).ids
    ['b', 'c']
    """

    images: Images

    def listed(self, chosen: Chosen | None = None) -> list[HashedImage]:
        """List them, or those whose places are chosen, each with a hash of its numbers."""
        x, y, ids = self.images
        entries = [ListedImage(path=Path(name), label=int(label), id=name) for label, name in zip(y, ids, strict=True)]
        both = _some(zip(entries, x, strict=True), chosen)
        return [HashedImage(entry=entry, sha256=numbers_sha256(one)) for entry, one in both]

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
    entries = labelled((image.entry for image in images), shared_labels(networks), source.describe()["folder"])
    return [replace(image, entry=entry) for image, entry in zip(images, entries, strict=True)]


def class_names(images: Sequence[HashedImage], networks: Mapping[str, object]) -> tuple[str, ...] | None:
    """What to call the classes: by the labels that some networks share, or else by the class folders of the images.

    Args:
        images: of one data set, before :func:`with_classes`.
        networks: all that are to meet them, by name.

    Returns:
        One name per class; None if there are only numbers.
    """
    labels = shared_labels(networks)
    if labels is not None and named(labels):
        return labels
    folders = next((image.entry.classes for image in images if image.entry.classes), ())
    return tuple(folders) if labels is not None and len(folders) == len(labels) else None


GivenImages = ImageSource | ImageData | Sequence[Any]
"""Images as people have them; see ``images_of``."""


def images_of(given: GivenImages) -> ImageSource:
    """Take images as people have them.

    Args:
        given: ``Data`` or another source; a folder or address; a torch data set or loader; or ``(x, y)`` or
            ``(x, y, ids)`` in memory, (N, C, H, W) in [0, 1] with (N,) labels.

    Raises:
        WhorlError: it is none of these.

    >>> images_of((torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))).listed()[1].entry.id
    '000001'
    """
    if isinstance(given, ImageSource):
        return given
    if isinstance(given, str | Path):
        return Data.of(folder=str(given))
    if isinstance(given, Dataset | DataLoader):
        return Opened(given)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WhorlError(
            "expected a folder or an address, a torch Dataset or DataLoader, (x, y) or (x, y, ids); got "
            f"{type(given).__name__}."
        )
    x, y = check_images(given[0]), given[1]
    ids = [row_id(place) for place in range(len(x))] if len(given) == 2 else [str(name) for name in given[2]]
    if not len(x) == len(y) == len(ids) == len(set(ids)):
        raise WhorlError(
            f"expected a label and an id of its own for each of {len(x)} images; got {len(y)} and {len(ids)}."
        )
    labels, faults = zip(*(checked_label(label, name) for label, name in zip(y, ids, strict=True)), strict=True)
    if any(faults):
        raise WhorlError(f"{next(filter(None, faults))}.")
    return Loaded(Images(x, torch.tensor(labels), ids))


def _some(items: Iterable[T], chosen: Chosen | None) -> Iterator[T]:
    return (item for place, item in enumerate(items) if chosen is None or chosen(place))


def hashed_images(images: ImageSet, entries: Iterable[ListedImage]) -> list[HashedImage]:
    """Hash the content of listed images, all in one pass."""

    def hashed(entry: ListedImage) -> HashedImage:
        try:
            return HashedImage(entry=entry, sha256=images.sha256(entry))
        except WhorlError:  # said when the image is read, where a run may be told to leave it out
            return HashedImage(entry=entry, sha256="")

    # Else each is hashed as it comes, which is all that a stream allows.
    return in_threads(hashed, entries) if images.threads else list(map(hashed, entries))


def _decoded(images: ImageSet, entries: Sequence[ListedImage], size: int | None, *, skip_bad: bool) -> Images:
    side = checked_size(size)
    found = in_threads(
        lambda entry: decoded_image(images, entry, side, skip_bad=skip_bad), entries, several=images.threads
    )
    good = [(one, entry) for one, entry in zip(found, entries, strict=True) if isinstance(one, Tensor)]
    shapes = {tuple(one.shape[1:]): entry.id for one, entry in good}
    if len(shapes) > 1:
        (one, a), (other, b) = list(shapes.items())[:2]
        raise WhorlError(
            f"expected images of one size (height, width), got {a!r} of {one} and {b!r} of {other}. "
            "Set size to resize them all."
        )
    bad = [one for one in found if isinstance(one, BadImage)]
    return Images.of([one for one, _ in good], [entry for _, entry in good], bad)
