"""A share of a run: some of its chunks, done by a process that knows nothing of the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from whorl.errors import WhorlError


@dataclass(frozen=True, order=True)
class Shard:
    """One share of a run: every ``count``-th chunk of images.

    Chunks are those of the whole run, so what is made of an image, and under which key it is kept, does not depend on
    the number of shards.

    Attributes:
        count: how many shares there are.
        number: which one this is, from 1.

    >>> one = Shard.parse("3/16")
    >>> one.number, [place for place in range(100) if one.takes(4)(place)]
    (3, [8, 9, 10, 11, 72, 73, 74, 75])
    """

    count: int
    number: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise WhorlError(f"a shard must be one of its number, from 1/{self.count} on; got {self}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``3/16``, the third of sixteen.

        Raises:
            WhorlError: it is not written so, or there is no such shard.
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None:
            raise WhorlError(f"a shard is written NUMBER/COUNT, such as 3/16 for the third of sixteen; got {text!r}.")
        return cls(count=int(match[2]), number=int(match[1]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def takes(self, size: int) -> Callable[[int], bool]:
        """Which images are its own, by their places in the data set, where chunks are of ``size`` images."""
        return lambda place: self.of_chunk(place // size, self.count) == self

    @classmethod
    def of_chunk(cls, chunk: int, count: int) -> Self:
        """Whose a chunk of the run is, where there are ``count`` shards."""
        return cls(count=count, number=chunk % count + 1)
