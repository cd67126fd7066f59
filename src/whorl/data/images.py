"""Many images at once, with their labels and names: all in memory, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.data.classes import labelled
from whorl.data.image_files import Size, checked_size
from whorl.data.layouts import SAMPLE_FILES, SAMPLES, ListedImage, list_samples
from whorl.data.sets import FolderImages, ImageData, ImageSet, open_images
from whorl.errors import WhorlError
from whorl.records import Count, checked


@dataclass(frozen=True, kw_only=True)
class BadImage:
    """An image that was left out.

    Args:
        path: its file.
        id: its name in the data set.
        reason: what is wrong with it, as a sentence that names the file.
    """

    path: Path
    id: str
    reason: str


class _Triple(NamedTuple):
    x: Tensor
    y: Tensor
    ids: list[str]


class Images(_Triple):
    """Images, labels and names, which unpack as ``x, y, ids``.

    Attributes:
        x: (N, 3, H, W) float32 in [0, 1].
        y: (N,) int64, 0-based classes.
        ids: N unique strings.
        bad: what was left out; empty unless ``skip_bad`` was set. Not one of the three that unpack.
    """

    bad: tuple[BadImage, ...] = ()

    @classmethod
    def of(cls, decoded: list[Tensor], entries: list[ListedImage], bad: list[BadImage]) -> Images:
        """Put decoded images of one size together."""
        y = torch.tensor([entry.label for entry in entries], dtype=torch.int64)
        x = torch.stack(decoded) if decoded else torch.empty(0, 3, 1, 1)
        images = cls(x, y, [entry.id for entry in entries])
        images.bad = tuple(bad)
        return images


def load_images(
    data: ImageData,
    *,
    limit: int | None = None,
    size: Size = None,
    skip_bad: bool = False,
    labels: Sequence[str] | None = None,
) -> Images:
    """Load labelled images into memory.

    Three layouts of folders are distinguished by what is there:

    - NIPS17: ``images.csv`` with the columns ImageId and TrueLabel (1-based), images in ``images/<ImageId>.png``.
    - A list: a CSV file with the columns path (relative to the file) and label (0-based); ``data`` may be the
      file itself. In a folder, the file is ``images.csv`` or the only CSV file.
    - Class folders: ``<class>/*.jpg`` and so on. Whole numbers as names are 0-based labels, WordNet synsets
      (``n01440764``) get ImageNet's labels, and other names are looked up in ``labels``, or numbered in sorted order.

    Besides folders, ``data`` may be

    - tar shards in the layout of WebDataset: ``wds:shards-{000..009}.tar``;
    - a Hugging Face data set, of the hub or saved: ``hf:beans?split=test`` (needs the extra ``datasets``);
    - what a function of yours makes: ``python:my.data:test_set``;
    - a ``torch.utils.data`` ``Dataset`` or ``DataLoader`` of ``(x, y)`` or ``(x, y, ids)``, such as torchvision's
      ``ImageFolder``, with images in [0, 1].

    Args:
        data: where the images are.
        limit: take only the first so many that are listed (CSV order; class by class in class folders).
        size: side, or (height, width), to resize whole images to; needed if they differ in size.
        skip_bad: leave unreadable images and rows without a valid label out, and report them in ``.bad``, instead
            of stopping at the first. They count towards ``limit``.
        labels: names of a network's classes, in order, as ``clf.labels``: what class folders are called is found among
            them. Where they are numbers only, there must be a folder for every class.

    Returns:
        Images, to be unpacked: ``x`` (N, 3, H, W) float32 in [0, 1], ``y`` (N,) int64, ``ids`` list of N strings.
        How a file becomes RGB is described in ``whorl.data.load_image``.

    Raises:
        WhorlError: no such folder, no layout that fits, a bad image or label, images of different sizes, or class
            folders that name none of the labels.

    >>> import tempfile
    >>> from whorl.data import save_image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_image(f"{folder}/cat/one.png", torch.zeros(3, 8, 8))
    ...     save_image(f"{folder}/dog/one.png", torch.ones(3, 8, 8))
    ...     x, y, ids = load_images(folder)
    >>> x.shape, y, ids
    (torch.Size([2, 3, 8, 8]), tensor([0, 1]), ['cat/one', 'dog/one'])
    """
    images = open_images(data)
    entries = labelled(_listed(images, limit), labels, data)
    return collect(images, entries, size=checked_size(size), skip_bad=skip_bad)


def iter_images(
    data: ImageData,
    *,
    batch_size: int = 32,
    limit: int | None = None,
    size: Size = None,
    skip_bad: bool = False,
    labels: Sequence[str] | None = None,
) -> Iterator[Images]:
    """Load labelled images batch by batch, holding one batch at a time.

    Args:
        data: where the images are; see ``load_images`` for this and for the other settings.
        batch_size: images in a batch; the last one may be smaller.
        limit: take only the first so many that are listed.
        size: side, or (height, width), to resize whole images to.
        skip_bad: leave bad images out. Each is reported in ``.bad`` of exactly one batch.
        labels: names of a network's classes, in order.

    Returns:
        An iterator over Images. Settings and layout are checked at once, images as they are reached.

    Raises:
        WhorlError: as ``load_images``.
    """
    checked("batch_size", batch_size, Count)
    images = open_images(data)
    entries = labelled(_listed(images, limit), labels, data)
    return _batches(images, entries, batch_size=batch_size, size=checked_size(size), skip_bad=skip_bad)


def load_samples(n: int | None = None, *, size: Size = 224) -> Images:
    """Load the bundled photographs; the first call fetches them (1.5 MB), later ones need no network.

    Args:
        n: take the first n of the 20; None takes all.
        size: side, or (height, width), to resize whole images to. Most are 512 × 512, one is 683 × 1024.

    Returns:
        Images, to be unpacked: ``x`` (n, 3, H, W) float32 in [0, 1], ``y`` (n,) int64 ImageNet classes, ``ids``.

    Raises:
        WhorlError: ``n`` is not from 1 to 20, or the photographs cannot be fetched.

    >>> x, y, ids = load_samples(2)
    >>> x.shape, y, ids
    (torch.Size([2, 3, 224, 224]), tensor([243, 559]), ['imagenet_00_243', 'imagenet_01_559'])
    """
    count = len(SAMPLE_FILES.files)
    if n is not None and not (isinstance(n, int) and 1 <= n <= count):
        raise WhorlError(f"there are {count} samples; expected n from 1 to {count}, got {n!r}.")
    return collect(FolderImages(SAMPLES), list_samples()[:n], size=checked_size(size))


def collect(
    images: ImageSet, entries: Iterable[ListedImage], *, size: tuple[int, int] | None, skip_bad: bool = False
) -> Images:
    """Read listed images into memory; see ``load_images``."""
    (whole,) = _batches(images, entries, batch_size=None, size=size, skip_bad=skip_bad)
    return whole


def _listed(images: ImageSet, limit: int | None) -> Iterable[ListedImage]:
    checked("limit", limit, Count | None)
    return islice(images.entries(), limit)


def _batches(
    images: ImageSet,
    entries: Iterable[ListedImage],
    *,
    batch_size: int | None,
    size: tuple[int, int] | None,
    skip_bad: bool,
) -> Iterator[Images]:
    seen: tuple[Path, tuple[int, ...]] | None = None
    good: list[ListedImage] = []
    decoded: list[Tensor] = []
    bad: list[BadImage] = []
    for entry in entries:
        image = decoded_image(images, entry, size, skip_bad=skip_bad)
        if isinstance(image, BadImage):
            bad.append(image)
            continue
        shape = tuple(image.shape[1:])
        seen = seen or (entry.path, shape)
        if shape != seen[1]:
            raise WhorlError(
                f"expected images of one size (height, width), got {seen[0]} of {seen[1]} and {entry.path} of "
                f"{shape}. Pass size= to resize them all."
            )
        # A full batch waits for the next good image, so that bad ones at the very end still find a batch to be in.
        if len(good) == batch_size:
            yield Images.of(decoded, good, bad)
            good, decoded, bad = [], [], []
        good.append(entry)
        decoded.append(image)
    if not good:
        raise none_usable([one.reason for one in bad])
    yield Images.of(decoded, good, bad)


def none_usable(reasons: Sequence[str]) -> WhorlError:
    """The error for images that were all left out, for a reason each."""
    return WhorlError(f"none of the {len(reasons)} images can be used. The first: {reasons[0]}")


def decoded_image(
    images: ImageSet, entry: ListedImage, size: tuple[int, int] | None, *, skip_bad: bool
) -> Tensor | BadImage:
    """Read one listed image, (3, H, W); what is wrong with it where bad ones are left out."""
    try:
        return _read(images, entry, size)
    except WhorlError as error:
        if not skip_bad:
            raise
        return BadImage(path=entry.path, id=entry.id, reason=str(error))


def _read(images: ImageSet, entry: ListedImage, size: tuple[int, int] | None) -> Tensor:
    if entry.fault:
        raise WhorlError(f"{entry.fault}. Correct it, or leave such images out with skip_bad.")
    return images.read(entry, size)
