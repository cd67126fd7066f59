"""Data sets and loaders of torch, torchvision's ``ImageFolder`` among them: whatever gives images with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from whorl.attacks.contract import check_images
from whorl.data.image_files import MAX_PIXELS, from_pillow, to_tensor
from whorl.data.layouts import ListedImage, unique_ids
from whorl.errors import WhorlError

_ITEMS = "(image, label) or (image, label, id)"


def of_torch(data: object) -> DatasetImages | StreamedImages:
    """Open a data set or loader of torch.

    Raises:
        WhorlError: it is neither, or a loader that shuffles and gives no ids.
    """
    if isinstance(data, DataLoader | IterableDataset):
        return StreamedImages(data)
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return DatasetImages(data)
    raise WhorlError(
        f"expected a folder, an address such as hf:NAME or wds:PATTERN, or a torch Dataset or DataLoader; got "
        f"{type(data).__name__}."
    )


class DatasetImages:
    """A data set that gives any item by its number.

    Args:
        dataset: items are ``(image, label)`` or ``(image, label, id)``; an image is a PIL image, (H, W) or (H, W, 3)
            uint8, or a (3, H, W) or (1, H, W) tensor, uint8 or floating in [0, 1].
    """

    threads = False  # it may hold an open file

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._read: tuple[int, Any] | None = None

    def entries(self) -> Iterator[ListedImage]:
        """List the items. Labels come from ``targets``, where the data set has them, else from the items."""
        count = len(self.dataset)
        if not count:
            raise WhorlError(f"the data set {type(self.dataset).__name__} is empty; expected items {_ITEMS}.")
        labels, names, seen = _targets(self.dataset), _file_ids(self.dataset), set[str]()
        opened = labels is None or len(self._item(0)) == 3
        for place in range(count):
            item = self._item(place) if opened else ()
            label = item[1] if labels is None else labels[place]
            name = str(item[2]) if len(item) == 3 else row_id(place) if names is None else names[place]
            yield _listed(name, label, place, type(self.dataset).__name__, seen)

    def read(self, entry: ListedImage, size: tuple[int, int] | None) -> Tensor:
        """See ``ImageSet``."""
        return as_image(self._item(entry.at[0])[0], entry.path, size)

    def sha256(self, entry: ListedImage) -> str:
        """See ``ImageSet``: of the numbers that the data set gives."""
        return numbers_sha256(self.read(entry, None))

    def _item(self, place: int) -> Sequence[Any]:
        if self._read is None or self._read[0] != place:  # listed and then read: once is enough
            self._read = (place, self.dataset[place])
        item = self._read[1]
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise WhorlError(f"item {place} of the data set must be {_ITEMS}; got {_shown(item)}.")
        return item


class StreamedImages:
    """A loader, or a data set that is gone through from front to back; a batch of it is held at a time.

    It may be gone through more than once, and must give the same images in the same order each time.

    Args:
        stream: batches ``(x, y)`` or ``(x, y, ids)`` of a loader, or items of an ``IterableDataset``.

    Raises:
        WhorlError: a loader that shuffles.
    """

    threads = False

    def __init__(self, stream: DataLoader[Any] | IterableDataset[Any]) -> None:
        self.stream = stream
        if isinstance(stream, DataLoader) and isinstance(stream.sampler, RandomSampler):
            raise WhorlError(
                "a loader that shuffles gives other images another name each time. Make it with shuffle=False; "
                "the order has no effect on an attack."
            )
        self._items: Iterator[tuple[int, tuple[Any, ...]]] = iter(())
        self._held: tuple[int, tuple[Any, ...]] | None = None
        self._hashes: dict[int, str] = {}

    def entries(self) -> Iterator[ListedImage]:
        """Go through them; each can be read as it comes."""
        seen, items = set[str](), self._flat()
        for held in items:
            self._items, self._held = items, held
            place, item = held
            name = str(item[2]) if len(item) == 3 else row_id(place)
            yield _listed(name, item[1], place, type(self.stream).__name__, seen)
        if not seen:
            raise WhorlError(
                f"the {type(self.stream).__name__} gives no images; expected batches (x, y) or (x, y, ids)."
            )

    def read(self, entry: ListedImage, size: tuple[int, int] | None) -> Tensor:
        """See ``ImageSet``. What lies behind means going through from the start."""
        [place] = entry.at
        if self._held is None or self._held[0] > place:
            self._held, self._items = None, self._flat()
        while self._held is None or self._held[0] < place:
            self._held = next(self._items, None)
            if self._held is None:
                raise WhorlError(f"{entry.path}: the loader ended before it. It must give the same images each time.")
        image = as_image(self._held[1][0], entry.path, None)
        known = self._hashes.get(place)
        if known is not None and known != numbers_sha256(image):
            raise WhorlError(
                f"{entry.path}: the loader gave another image than before. It must give the same ones each time: no "
                "shuffling, and no random transforms."
            )
        return _resized(image, size)

    def sha256(self, entry: ListedImage) -> str:
        """See ``ImageSet``: of the numbers that the loader gives."""
        [place] = entry.at
        self._hashes[place] = numbers_sha256(self.read(entry, None))
        return self._hashes[place]

    def _flat(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        place = 0
        for batch in self.stream:
            for item in self._parts(batch):
                yield place, item
                place += 1

    def _parts(self, batch: Any) -> Iterable[tuple[Any, ...]]:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise WhorlError(f"a loader must give (x, y) or (x, y, ids); got {_shown(batch)}.")
        if not isinstance(self.stream, DataLoader) or self.stream.batch_size is None:
            return [tuple(batch)]
        counts = [len(part) for part in batch]
        if len(set(counts)) > 1:
            raise WhorlError(f"a batch must have a label, and an id if any, for each image; got {counts} of them.")
        return zip(*batch, strict=True)


def as_image(given: Any, name: Path, size: tuple[int, int] | None) -> Tensor:
    """Turn what a data set calls an image into (3, H, W) float32 in [0, 1].

    Args:
        given: a PIL image, (H, W) or (H, W, 3) uint8, or a (3, H, W) or (1, H, W) tensor, uint8 or floating in [0, 1].
            Floating values stay as they are, between 8-bit levels too.
        name: what errors call it.
        size: (height, width) to resize it to; bilinear, antialiased.

    Raises:
        WhorlError: it is none of these, too large, of no pixels, or its values lie elsewhere.
    """
    if isinstance(given, Tensor) and given.dtype == torch.uint8 and given.dim() == 3 and given.shape[0] in (1, 3):
        given = given.movedim(0, -1).squeeze(-1).cpu().numpy()
    if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim in (2, 3) and given.size:
        given = Image.fromarray(np.ascontiguousarray(given)) if given.shape[2:] in ((), (3,)) else given
    if isinstance(given, Image.Image):
        return to_tensor(from_pillow(given, name, size=size))
    if not isinstance(given, Tensor) or given.dim() != 3 or given.shape[0] not in (1, 3):
        raise WhorlError(
            f"{name}: expected a PIL image, (H, W, 3) uint8, or a (3, H, W) tensor in [0, 1]; got {_shown(given)}."
        )
    if given.shape[1] * given.shape[2] > MAX_PIXELS:
        raise WhorlError(f"{name}: too large; expected {MAX_PIXELS:,} pixels at most, got {_shown(given)}.")
    try:
        checked = check_images(given[None].cpu())[0].to(torch.float32)
    except WhorlError as error:
        raise WhorlError(f"{name}: {error}") from error
    return _resized(checked.expand(3, -1, -1), size)


def checked_label(value: Any, where: str) -> tuple[int | None, str | None]:
    """Take what a data set calls a label: the 0-based class, or what is wrong with it.

    >>> checked_label(torch.tensor(3), "item 0"), checked_label(0.5, "item 1")
    ((3, None), (None, 'item 1: expected a whole number as label, got 0.5'))
    """
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int):
        return None, f"{where}: expected a whole number as label, got {_shown(value)}"
    if not 0 <= value < 2**63:
        return None, f"{where}: expected a label from 0 to {2**63 - 1}, got {value}"
    return value, None


def row_id(place: int) -> str:
    """Name an image by its place in the data set, however many there are.

    >>> row_id(41)
    '000041'
    """
    return f"{place:06d}"


def numbers_sha256(x: Tensor) -> str:
    """Hash an image's numbers, which may lie between 8-bit levels."""
    numbers = x.detach().cpu().contiguous().numpy()
    return hashlib.sha256(f"{numbers.shape} {numbers.dtype}".encode() + numbers.tobytes()).hexdigest()


def _listed(name: str, label: Any, place: int, kind: str, seen: set[str]) -> ListedImage:
    [safe] = unique_ids([PurePath(f"{name}.x")], kind)
    if safe in seen or "\0" in name or safe in ("", "."):
        raise WhorlError(f"ids must be names, and differ from each other; got {name!r} of item {place} of the {kind}.")
    seen.add(safe)
    known, fault = checked_label(label, f"{kind}, item {place}")
    return ListedImage(path=Path(kind, f"item {place}"), label=known, id=safe, fault=fault, at=(place,))


def _targets(dataset: Any) -> Sequence[Any] | None:
    """The labels, where they are known without opening an image; as torchvision's data sets have them."""
    if isinstance(dataset, Subset):
        whole = _targets(dataset.dataset)
        return None if whole is None else [whole[i] for i in dataset.indices]
    targets = getattr(dataset, "targets", None)
    # A transform of labels makes others of them.
    if targets is None or len(targets) != len(dataset) or getattr(dataset, "target_transform", None) is not None:
        return None
    return targets.tolist() if isinstance(targets, Tensor) else list(targets)


def _file_ids(dataset: Any) -> list[str] | None:
    """The ids that the files of an ``ImageFolder`` have as class folders."""
    if isinstance(dataset, Subset):
        whole = _file_ids(dataset.dataset)
        return None if whole is None else [whole[i] for i in dataset.indices]
    samples, root = getattr(dataset, "samples", None), getattr(dataset, "root", None)
    if not samples or root is None or len(samples) != len(dataset):
        return None
    return unique_ids([PurePath(path).relative_to(root) for path, _ in samples], root)


def _resized(x: Tensor, size: tuple[int, int] | None) -> Tensor:
    if size is None or x.shape[1:] == size:
        return x
    return F.interpolate(x[None], size, mode="bilinear", align_corners=False, antialias=True)[0].clamp(0, 1)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)[:40] if isinstance(value, bool | int | float | str) else type(value).__name__
