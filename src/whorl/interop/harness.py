"""What another library's attack runs in: a network in [0, 1] with estimated, counted gradients, and its own randomness.

Peers draw from the global generators. Here they get a seed of their own, and the generators get their state back.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model
from whorl.estimators import Estimated, Estimator
from whorl.models import Classifier
from whorl.models.classifier import network_dtype


class Passes:
    """Counts backward passes through a network, whole or in part, in images.

    One that begins at the logits and one that ends at the images are the same pass where both happen in one call of
    autograd; one that ends at a layer inside, or begins there, counts as much.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, int]] = {}

    @property
    def rows(self) -> list[int]:
        """Images of each pass, in order: 1 for a single image."""
        return [max(ends.values()) for ends in self._rows.values()]

    @property
    def reached_input(self) -> bool:
        """Whether any pass reached the images."""
        return any("images" in ends for ends in self._rows.values())

    def each(self, images: int) -> int | None:
        """Passes that each of some images took part in, where all did in as many; None where nobody can say.

        A peer may attack copies of a batch in one pass.
        """
        if any(rows % images for rows in self.rows):
            return None
        return sum(self.rows) // images

    def watch(self, end: Literal["images", "logits"], tensor: Any) -> None:
        """Count the gradients that reach a tensor at one end of the network; one that takes none is left alone."""
        if not isinstance(tensor, Tensor) or not tensor.requires_grad or not torch.is_grad_enabled():
            return

        def count(gradient: Tensor) -> None:
            ends = self._rows.setdefault(torch._C._current_graph_task_id(), {})  # a number for each call of autograd
            ends[end] = ends.get(end, 0) + gradient.shape[0]

        tensor.register_hook(count)


class PeerNetwork(nn.Module):
    """A network that any peer can work with, made of anything that our attacks take.

    Args:
        model: from (B, C, H, W) images in [0, 1] to (B, classes) logits.
        estimator: of the input gradient.
        like: a batch of the images, for their dtype and device.

    Attributes:
        name: the model's.
        passes: backward passes so far, through the network and through the copies that ``stages`` gave.
    """

    def __init__(self, model: Model, estimator: Estimator, like: Tensor) -> None:
        super().__init__()
        self.name = str(getattr(model, "name", type(model).__name__))
        self.passes = Passes()
        self.converted = _Converted(model, like)
        self.entry = _Entry(self.passes, estimator, like)
        self.eval()

    def forward(self, x: Tensor) -> Any:
        """Logits of ``x``, in its dtype."""
        logits = self.converted(self.entry(x))
        self.passes.watch("logits", logits)
        return logits

    def stages(self) -> nn.Sequential:
        """A copy in two stages, for peers that look inside: "0" normalises images, "1" is the bare network.

        A peer may hook its layers, replace them or take gradients of its weights: the model itself stays as it is. All
        images go through at once, where a :class:`whorl.Classifier` on a CPU takes them one by one.
        """
        model, dtype = self.converted.model, self.converted.dtype
        prepare: Callable[[Tensor], Tensor]
        if isinstance(model, Classifier):
            prepare, inner = model.normalised, deepcopy(model.net)
        else:
            prepare, inner = lambda x: x.to(dtype), deepcopy(model if isinstance(model, nn.Module) else self.converted)
        for parameter in inner.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        inner.register_forward_hook(lambda _module, _images, logits: self.passes.watch("logits", logits))
        return _Stages(_Entry(self.passes, self.entry.estimator, self.entry.place, prepare), inner).eval()


class _Stages(nn.Sequential):
    """Two stages that answer in the dtype of the images."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self[1](self[0](x))
        return logits.to(x.dtype)


class _Entry(nn.Module):
    """Where images come in: their gradients are counted and estimated, and they are prepared for the network."""

    def __init__(
        self, passes: Passes, estimator: Estimator, like: Tensor, prepare: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.passes, self.estimator, self.prepare = passes, estimator, prepare
        self.estimated = Estimated(nn.Identity(), estimator)
        # Peers look for the device in the first parameter, and a callable or an ONNX network has none.
        self.place = nn.Parameter(torch.empty(0, device=like.device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            x = x.view_as(x)  # hooks would pile up on a tensor that a peer shows again and again
        self.passes.watch("images", x)
        seen: Tensor = self.estimated(x)
        return seen if self.prepare is None else self.prepare(seen)


class _Converted(nn.Module):
    """Feeds a model in its own precision and answers in that of the images."""

    def __init__(self, model: Model, like: Tensor) -> None:
        super().__init__()
        self.model = model
        self.dtype = network_dtype(model, like)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.to(self.dtype)).to(x.dtype)


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
