"""Which pictures a job works on: a data set, or the bundled samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whorl.data import Images, iter_images, load_samples
from whorl.data.layouts import list_images
from whorl.data.samples import SAMPLES
from whorl.errors import WhorlError

# What `whorl.load_samples` resizes to; the photographs themselves differ in size.
_SAMPLE_SIDE = 224


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """A choice of pictures, read batch by batch.

    Args:
        folder: a data set in any layout of ``whorl.load_images``; None for the bundled samples.
        limit: take only the first so many.
        size: side in pixels to resize to; None leaves data sets as they are, and samples at 224.
        skip_bad: leave unreadable pictures out instead of stopping at the first.
    """

    folder: Path | None = None
    limit: int | None = None
    size: int | None = None
    skip_bad: bool = False

    def count(self) -> int:
        """How many pictures are listed; no picture is opened."""
        listed = len(SAMPLES.files) if self.folder is None else len(list_images(self.folder))
        return listed if self.limit is None else min(self.limit, listed)

    def batches(self, size: int) -> Iterator[Images]:
        """Read them, ``size`` at a time. Settings are checked at once."""
        if size < 1:
            raise WhorlError(f"the batch size must be a whole number from 1; got {size}.")
        if self.folder is not None:
            return iter_images(self.folder, batch_size=size, limit=self.limit, size=self.size, skip_bad=self.skip_bad)
        x, y, ids = load_samples(self.limit, size=_SAMPLE_SIDE if self.size is None else self.size)
        starts = range(0, len(ids), size)
        return (Images(x[s : s + size], y[s : s + size], ids[s : s + size]) for s in starts)
