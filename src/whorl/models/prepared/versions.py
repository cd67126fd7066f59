"""What is checked before a copy stands for a model: whether one can, and whether it is still what it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import Tensor, nn

from whorl.models.classifier import Classifier
from whorl.models.ensemble import Ensemble


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


def simple(model: object) -> bool:
    """Whether a copy can stand for a model: a classifier, or an ensemble of some, unhooked, not compiled, float32."""
    members = list(model.models) if type(model) is Ensemble else [model]
    if not all(type(member) is Classifier for member in members):
        return False
    assert isinstance(model, nn.Module)  # noqa: S101 - a classifier or an ensemble
    modules = list(model.modules())
    # What is compiled already can be neither hooked nor folded, and is as fast as it gets.
    if any(isinstance(module, torch.jit.ScriptModule) or _hooked(module) for module in modules):
        return False
    return floating(modules) <= {torch.float32}


def _hooked(module: nn.Module) -> bool:
    own = module.__dict__
    return "forward" in own or any(own[name] for name in _HOOKS)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
