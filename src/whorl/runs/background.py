"""What a run does beside the device: the next images are decoded, and what was made is hashed, encoded and written.

Nothing is kept in a different order than it was made in, and no more than a few pieces of work wait at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from whorl.data import Images
from whorl.runs.images import HashedImage, ImageSource

Listed = tuple[HashedImage, ...]

# Pieces of work that wait to be written: each holds the images of a chunk.
_MOST_WAITING = 4


class ReadAhead:
    """Decodes chunks of a data set. The present one is kept, and the next one decoded meanwhile.

    Args:
        source: of the images.
        device: where they go. For a GPU they are put into memory that it reads by itself.
    """

    def __init__(self, source: ImageSource, device: torch.device) -> None:
        self.source, self.pinned = source, device.type == "cuda"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="whorl-reads")
        self._decoded: dict[Listed, Future[Images]] = {}

    def read(self, images: Listed, then: Listed | None = None) -> Images:
        """Decode a chunk, or wait for it if it is being decoded; and begin with what comes ``then``."""
        wanted = [some for some in (images, then) if some is not None]
        self._decoded = {some: future for some, future in self._decoded.items() if some in wanted}
        for some in wanted:
            if some not in self._decoded:
                self._decoded[some] = self._pool.submit(self._read, some)
        try:
            return self._decoded[images].result()
        except BaseException:
            self.forget()  # whoever asks again reads again
            raise

    def forget(self) -> None:
        """Keep nothing, and begin with nothing more."""
        for future in self._decoded.values():
            future.cancel()
        self._decoded = {}

    def _read(self, images: Listed) -> Images:
        found = self.source.read(images)
        if not self.pinned or not found.ids:
            return found
        pinned = Images(found.x.pin_memory(), found.y, found.ids)
        pinned.bad = found.bad
        return pinned


class WriteBehind:
    """Does work in a thread, one piece after the other; after one that fails, no more.

    >>> behind, written = WriteBehind(), []
    >>> for number in range(3):
    ...     behind.submit(lambda number=number: written.append(number), counts=number)
    >>> list(behind.done(wait=True)), written
    ([0, 1, 2], [0, 1, 2])
    >>> behind.close()
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="whorl-writes")
        self._left: deque[Future[int | None]] = deque()
        self._counts: list[int] = []
        self._failed = False

    def submit(self, work: Callable[[], object], counts: int | None = None) -> None:
        """Have something done, once there is room.

        Args:
            work: what to do.
            counts: what :meth:`done` gives when it is done; None for nothing.

        Raises:
            Exception: what went wrong with earlier work.
        """
        self._left.append(self._pool.submit(self._do, work, counts))
        self._collect(most=_MOST_WAITING)

    def done(self, *, wait: bool = False) -> Iterator[int]:
        """What the work counts that has been done since; ``wait`` until all is.

        Raises:
            Exception: what went wrong with it.
        """
        self._collect(most=0 if wait else _MOST_WAITING)
        counts, self._counts = self._counts, []
        yield from counts

    def wait(self) -> None:
        """Wait until all is done; what it counts stays to be given."""
        self._collect(most=0)

    def close(self) -> None:
        """Wait until all is done, whatever becomes of it."""
        self._pool.shutdown(wait=True)

    def _collect(self, *, most: int) -> None:
        while self._left and (len(self._left) > most or self._left[0].done()):
            counts = self._left.popleft().result()
            if counts is not None:
                self._counts.append(counts)

    def _do(self, work: Callable[[], object], counts: int | None) -> int | None:
        if self._failed:
            return None
        try:
            work()
        except BaseException:
            self._failed = True
            raise
        return counts
