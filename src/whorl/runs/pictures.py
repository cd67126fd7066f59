"""Which images a job works on: a data set, the bundled samples, or some that are already in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whorl.data import Images, iter_images, load_samples
from whorl.data.layouts import SAMPLE_FILES, list_images
from whorl.errors import WhorlError

SAMPLE_SIDE = 224
"""What samples are resized to unless told otherwise; the photographs themselves differ in size."""


class Source(Protocol):
    """Anything that gives labelled images batch by batch."""

    def count(self) -> int:
        """How many there are, at most: some may turn out to be unreadable."""
        ...

    def batches(self, size: int) -> Iterator[Images]:
        """Give them, ``size`` at a time. Settings are checked at once."""
        ...

    def describe(self) -> dict[str, Any]:
        """Say for a manifest where they come from."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """A choice of images, read batch by batch.

    Args:
        folder: a data set in any layout of ``whorl.load_images``; None for the bundled samples.
        limit: take only the first so many.
        size: side in pixels to resize to; None leaves data sets as they are, and samples at 224.
        skip_bad: leave unreadable images out instead of stopping at the first.
    """

    folder: Path | None = None
    limit: int | None = None
    size: int | None = None
    skip_bad: bool = False

    def count(self) -> int:
        """How many are listed; no image is opened."""
        listed = len(SAMPLE_FILES.files) if self.folder is None else len(list_images(self.folder))
        return listed if self.limit is None else min(self.limit, listed)

    def batches(self, size: int) -> Iterator[Images]:
        """Read them, ``size`` at a time."""
        if self.folder is None:
            side = SAMPLE_SIDE if self.size is None else self.size
            return Loaded(load_samples(self.limit, size=side)).batches(size)
        return iter_images(self.folder, batch_size=size, limit=self.limit, size=self.size, skip_bad=self.skip_bad)

    def describe(self) -> dict[str, Any]:
        """Name the folder and the size."""
        return {"folder": str(self.folder.resolve()) if self.folder else "samples", "size": self.size}


@dataclass(frozen=True)
class Loaded:
    """Images in memory.

    >>> import torch
    >>> x, y = torch.zeros(3, 3, 8, 8), torch.tensor([0, 1, 2])
    >>> [batch.ids for batch in Loaded(Images(x, y, ["a", "b", "c"])).batches(2)]
    [['a', 'b'], ['c']]
    """

    images: Images

    def count(self) -> int:
        """How many there are."""
        return len(self.images.ids)

    def batches(self, size: int) -> Iterator[Images]:
        """Slice them, ``size`` at a time."""
        if size < 1:
            raise WhorlError(f"batch_size must be a whole number from 1; got {size}.")
        x, y, ids = self.images
        return (Images(x[i : i + size], y[i : i + size], ids[i : i + size]) for i in range(0, len(ids), size))

    def describe(self) -> dict[str, Any]:
        """Say that they came from memory, and their size."""
        return {"folder": None, "size": list(self.images.x.shape[-2:])}
