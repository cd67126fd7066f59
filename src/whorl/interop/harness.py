"""What another library's attack runs in: a network in [0, 1] with estimated, counted gradients, and its own randomness.

Peers draw from the global generators. Here they get a seed of their own, and the generators get their state back.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model, network_dtype
from whorl.estimators import Estimated, Estimator


class PeerNetwork(nn.Module):
    """A network that any peer can work with, made of anything that our attacks take.

    Args:
        model: from (B, C, H, W) images in [0, 1] to (B, classes) logits.
        estimator: of the input gradient.
        like: a batch of the images, for their dtype and device.

    Attributes:
        passes: rows of each gradient that reached the input, in order: 1 for a single image.
    """

    def __init__(self, model: Model, estimator: Estimator, like: Tensor) -> None:
        super().__init__()
        self.net = Estimated(_Converted(model, like), estimator)
        # Peers look for the device in the first parameter, and a callable or an ONNX network has none.
        self.place = nn.Parameter(torch.empty(0, device=like.device), requires_grad=False)
        self.passes: list[int] = []
        self.eval()

    def forward(self, x: Tensor) -> Any:
        """Logits of ``x``, in its dtype."""
        if x.requires_grad and torch.is_grad_enabled():
            x = x.view_as(x)
            x.register_hook(self._count)
        return self.net(x)

    def _count(self, gradient: Tensor) -> None:
        self.passes.append(gradient.shape[0])


class _Converted(nn.Module):
    """Feeds a model in its own precision and answers in that of the images."""

    def __init__(self, model: Model, like: Tensor) -> None:
        super().__init__()
        self.model = model
        self.dtype = network_dtype(model, like)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.to(self.dtype)).to(x.dtype)


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Keep gradients away from a model's own parameters: some peers call ``backward``, which would pile them up."""
    held = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


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
