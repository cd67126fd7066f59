"""The JPEG defence on all cores: a hundred thousand queries wait for the codec, not for the network.

As a program, it codes what comes in on its standard input.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whorl.defenses.defended import at_least_single
from whorl.defenses.jpeg import Jpeg, coded, jpeg
from whorl.errors import WhorlError
from whorl.records import Record

HEADER = struct.Struct("<5Q")
"""What stands before the pixels on a pipe: images, rows, columns, channels, quality."""


class _Coders:
    """Programs that code, each for one thread at a time.

    They are no copies of this process: a copy of one that has threads can wait for ever for a lock that nobody holds.
    """

    def __init__(self, workers: int) -> None:
        # -P: what lies beside the program is not taken for a library. A session of its own: Ctrl-C is not its affair.
        command = [sys.executable, "-P", __file__]
        pipe = subprocess.PIPE
        self.processes = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) for _ in range(workers)
        ]
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self.processes:
            self.idle.put(process)
        self.threads = ThreadPoolExecutor(workers)

    def code(self, parts: list[NDArray[np.uint8]], quality: int) -> list[NDArray[np.uint8]]:
        return list(self.threads.map(lambda pixels: self._code(pixels, quality), parts))

    def _code(self, pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
        process = self.idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(HEADER.pack(*pixels.shape, quality))
            process.stdin.write(pixels.data)
            process.stdin.flush()
            answer = process.stdout.read(pixels.nbytes)
        except BrokenPipeError:
            answer = b""
        finally:
            self.idle.put(process)
        if len(answer) < pixels.nbytes:
            raise WhorlError(
                f"a process that codes JPEG ended early, with exit code {process.wait()}. Is there enough memory? "
                "Its own words are above, if it had any."
            )
        return np.frombuffer(answer, dtype=np.uint8).reshape(pixels.shape)

    def close(self) -> None:
        self.threads.shutdown()
        for process in self.processes:
            process.kill()  # it waits for work, and has nothing to lose
            process.communicate()


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
        object.__setattr__(self, "_coders", _Coders(self.workers))

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - nothing here is random
        """Compress and decompress (B, 3, H, W) ``x``; see :func:`whorl.defenses.jpeg`."""
        if len(x) < 2:
            return jpeg(x, quality=self.quality)
        exact = at_least_single(x.detach())
        pixels = (exact * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
        # Twice as many pieces as workers: one that is late does not hold up all the others.
        parts = np.array_split(pixels, min(len(pixels), 2 * self.workers))
        coders: Any = self._coders  # type: ignore[attr-defined]  # set above, past the frozen record
        decoded = torch.from_numpy(np.concatenate(coders.code(parts, self.quality))).to(x.device)
        return (decoded.permute(0, 3, 1, 2).to(exact.dtype) / 255).to(x.dtype)

    def close(self) -> None:
        """End the workers."""
        self._coders.close()  # type: ignore[attr-defined]  # as above


def main() -> None:
    """Answer a header and pixels with pixels, until no more come."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := given.read(HEADER.size):
        *shape, quality = HEADER.unpack(header)
        size = int(np.prod(shape))
        pixels = np.frombuffer(given.read(size), dtype=np.uint8).reshape(shape)
        answers.write(coded(pixels, quality).data)
        answers.flush()


if __name__ == "__main__":
    main()
