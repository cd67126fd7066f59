"""Whether a network is still what it was: where its tensors lie, and how often they were written to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import Tensor, nn


def version_of(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """What changes whenever a weight does: where each lies, and how often it was written to."""
    return tuple((t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors_of(model.modules()))


def tensors_of(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Their own parameters and buffers."""
    # Not by parameters() and buffers(): those take several times as long, before every attack.
    for module in modules:
        for tensor in chain(module._parameters.values(), module._buffers.values()):
            if tensor is not None:
                yield tensor


def floating(modules: Iterable[nn.Module]) -> set[torch.dtype]:
    """The precisions of their floating tensors."""
    return {tensor.dtype for tensor in tensors_of(modules) if tensor.is_floating_point()}
