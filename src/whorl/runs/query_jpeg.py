"""The JPEG defence on all cores: a hundred thousand queries wait for the codec, not for the network."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whorl.defenses.checks import at_least_single
from whorl.defenses.jpeg import Jpeg, jpeg
from whorl.records import Record

# Pixels that go through at a time; a batch of 224-pixel pictures that fills a GPU fits.
_CAPACITY = 96 * 2**20

# In a worker: memory that it shares with the process that started it.
_shared: mmap.mmap | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class ParallelJpeg(Record):
    """JPEG compression in several processes; bit by bit what :class:`whorl.defenses.Jpeg` gives, without a gradient.

    Pillow holds Python's lock while it codes, so threads would not help.

    Args:
        quality: 1 to 100.
        workers: processes. They are started at once, and end with :meth:`close` or with this process.
    """

    name: ClassVar[str] = "jpeg"
    quality: int = 75
    workers: int = field(default_factory=lambda: os.cpu_count() or 1, compare=False)

    def __post_init__(self) -> None:
        Jpeg(quality=self.quality)  # checks it
        memory = mmap.mmap(-1, _CAPACITY)
        # Forked, so that the memory is shared without a name and nothing is imported anew. The workers never touch
        # torch: a forked process may not use a GPU or torch's threads.
        pool = multiprocessing.get_context("fork").Pool(self.workers, _adopt, (memory,))
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_pool", pool)

    @staticmethod
    def works_here() -> bool:
        """Whether this system can fork."""
        return sys.platform.startswith("linux")

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - nothing here is random
        """Compress and decompress (B, 3, H, W) ``x``; see :func:`whorl.defenses.jpeg`."""
        exact = at_least_single(x.detach())
        pixels = (exact * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        size = pixels[0].numel()
        if size > _CAPACITY or len(x) < 2:
            return jpeg(x, quality=self.quality)
        parts = [self._coded(part.cpu().numpy()).to(x.device) for part in pixels.split(_CAPACITY // size)]
        return (torch.cat(parts).permute(0, 3, 1, 2).to(exact.dtype) / 255).to(x.dtype)

    def _coded(self, pixels: NDArray[np.uint8]) -> Tensor:
        memory: mmap.mmap = self._memory  # type: ignore[attr-defined]  # set above, past the frozen record
        pool: Any = self._pool  # type: ignore[attr-defined]  # as above
        view = np.frombuffer(memory, dtype=np.uint8, count=pixels.size).reshape(pixels.shape)
        view[:] = pixels
        # Twice as many pieces as workers: one that is late does not hold up all the others.
        cuts = np.linspace(0, len(pixels), min(len(pixels), 2 * self.workers) + 1).astype(int).tolist()
        tasks = [(pixels.shape, begin, end, self.quality) for begin, end in pairwise(cuts)]
        pool.starmap(_code, tasks, chunksize=1)
        return torch.from_numpy(view.copy())

    def close(self) -> None:
        """End the workers."""
        self._pool.terminate()  # type: ignore[attr-defined]  # as above
        self._pool.join()  # type: ignore[attr-defined]  # as above


def _adopt(memory: mmap.mmap) -> None:
    global _shared
    _shared = memory


def _code(shape: tuple[int, ...], begin: int, end: int, quality: int) -> None:
    from whorl.defenses.jpeg import _codec

    assert _shared is not None  # noqa: S101 - set when the worker started
    pixels = np.frombuffer(_shared, dtype=np.uint8, count=int(np.prod(shape))).reshape(shape)
    pixels[begin:end] = _codec(pixels[begin:end], quality)
