"""Peers draw from the global generators. Here they get a seed of their own, and the generators get their state back."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(keys: Sequence[int]) -> int:
    """One 32-bit seed of the keys of some images, in their order; numpy takes no more than 32 bits.

    >>> seed_of([1]) == seed_of([1]), seed_of([1, 2]) == seed_of([2, 1])
    (True, False)
    """
    text = ",".join(map(str, keys))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed Python's, numpy's and torch's global generators, and put every one back as it was.

    >>> before = torch.get_rng_state()
    >>> with own_randomness(7):
    ...     first = torch.rand(1)
    >>> with own_randomness(7):
    ...     bool(first == torch.rand(1)), bool((before == torch.get_rng_state()).all())
    (True, False)
    >>> bool((before == torch.get_rng_state()).all())
    True
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the very generator that peers draw from
    # All devices, for torch.manual_seed, which peers call too, seeds all.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - as above
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 - as above
