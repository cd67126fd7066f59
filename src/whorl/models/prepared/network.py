"""A frozen classifier made ready for many input gradients: folded, merged, bfloat16, channels-last; made once, kept."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.models.backward import NOWHERE, UNCHANGED, BackwardRule, Sites, compiled, hook
from whorl.models.prepared.fold import alias
from whorl.models.prepared.layers import Convolution, Stem
from whorl.models.prepared.rewrite import Statistics, rewrite
from whorl.models.prepared.versions import simple, tensors_of, version_of

# Rewriting only reorders sums, so in float32 answers agree to much better than the first, and input gradients than the
# second: a sum that is nearly zero may turn its sign, and then lets a gradient through that was stopped before.
_TOLERANCES = (1e-3, 3e-2)
# Where float32 itself is further from the truth than that (gradients that all but vanish), so many times as far.
_NO_WORSE = 3
# A network whose weights keep changing is being trained: preparing it again and again would cost more than it saves.
_MOST_VERSIONS = 3


class Prepared(nn.Module):
    """Answers as a :class:`whorl.Classifier` does, from a copy of its network.

    Args:
        classifier: a ``whorl.Classifier``.
        dtype: of weights and activations. Normalisation, logits, and biases that cuDNN does not add stay in float32.
        changes: of the backward pass, by the classifier's own names.

    Calling it with (B, C, H, W) images in [0, 1], of any size and floating dtype, gives (B, classes) float32 logits.

    Raises:
        ValueError: the network's graph cannot be read, or the rewritten one answers otherwise.
    """

    def __init__(self, classifier: Any, dtype: torch.dtype = torch.bfloat16, changes: Sites = NOWHERE) -> None:
        super().__init__()
        self.size, self.resize = classifier.size, classifier.resize
        self.num_classes, self.labels, self.name = classifier.num_classes, classifier.labels, classifier.name
        self._dtype = classifier._mean.dtype
        self.register_buffer("mean", classifier._mean.clone(), persistent=False)
        self.register_buffer("std", classifier._std.clone(), persistent=False)
        net = copy.deepcopy(classifier.net).eval().requires_grad_(False)
        rewritten = rewrite(net, stem=Statistics(classifier.mean, classifier.std), changes=changes.of("net"))
        if rewritten is None:
            raise ValueError("the network's graph cannot be read")
        self.net: nn.Module = rewritten.net
        self.takes_images = rewritten.takes_images
        convert(self.net, self._dtype)
        apart = self._apart(_changed(classifier, changes))
        if apart:
            raise ValueError(f"the rewritten network answers otherwise: {apart}")
        convert(self.net, dtype)
        self._dtype = dtype

    mean: Tensor
    std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        if x.shape[-2:] != self.size:
            x = F.interpolate(x.to(self.mean.dtype), self.size, mode=self.resize, align_corners=False, antialias=True)
        if not self.takes_images:
            x = ((x.to(self.mean.dtype) - self.mean) / self.std).to(self._dtype)
            x = x.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.net(x)
        return logits.to(self.mean.dtype)

    def _apart(self, classifier: Any) -> str:
        """How answers and input gradients differ from the classifier's, on noise, before the dtype changes; or ""."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.rand(2, len(classifier.mean), *self.size, generator=generator).to(self.mean)
        with _full_precision():
            ours, theirs = (_answer(network, noise) for network in (self, classifier))
        apart = [distance(a, b) for a, b in zip(ours, theirs, strict=True)]
        if all(d <= limit for d, limit in zip(apart, _TOLERANCES, strict=True)):
            return ""
        exact = _answer(copy.deepcopy(classifier).double(), noise.double())
        errors = [[distance(a, e) for a, e in zip(answer, exact, strict=True)] for answer in (ours, theirs)]
        if all(mine <= max(limit, _NO_WORSE * its) for mine, its, limit in zip(*errors, _TOLERANCES, strict=True)):
            return ""
        return f"answers and gradients lie {errors[0]} from the exact ones, the network's own {errors[1]}"


def _changed(classifier: nn.Module, changes: Sites) -> nn.Module:
    """A classifier with the changed backward pass, by hooks on a copy: what the rewritten one is compared with."""
    if changes == NOWHERE:
        return classifier
    changed = alias(classifier)
    hook(changed, changes)
    return changed


class _full_precision:  # noqa: N801 - a context manager
    """No TF32 for a moment."""

    def __enter__(self) -> None:
        self.before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = self.before


def _answer(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        logits = network(leaf)
        (gradient,) = torch.autograd.grad(logits.float().logsumexp(1).sum(), leaf)
    return logits.detach(), gradient


def distance(a: Tensor, b: Tensor) -> float:
    """Euclidean distance of two tensors as a share of the second's length; NaN if either holds one."""
    return float((a - b).norm() / b.norm().clamp_min(torch.finfo(b.dtype).tiny))


def convert(net: nn.Module, dtype: torch.dtype) -> None:
    """Give a network's tensors their dtype, and channels-last memory; what a layer keeps in float32 stays."""
    wide = torch.promote_types(dtype, torch.float32)
    for module in net.modules():
        for name, tensor in chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
            if not tensor.is_floating_point():
                continue
            kept = isinstance(module, Stem) or (isinstance(module, Convolution) and name == "bias")
            tensor.data = tensor.data.to(wide if kept else dtype)
            if tensor.dim() == 4 and not kept:
                # Filled in, not converted: of a 1×1 kernel's two possible strides, only one tells its format.
                last = torch.empty_like(tensor.data, memory_format=torch.channels_last)
                tensor.data = last.copy_(tensor.data)


# ---------------------------------------------------------------------------------------------------------------------
# Keeping them


@dataclass
class Kept:
    """What is kept of a model between attacks."""

    version: tuple[tuple[int, int], ...]
    network: nn.Module | None
    """None if the model cannot be prepared."""
    versions: int = 1
    sites: Sites = NOWHERE
    """Where its backward pass is changed."""
    loops: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    """Attack loops, with their buffers and graphs, the most recently used last; see :mod:`whorl.attacks.recorded`."""


_KEPT: WeakKeyDictionary[nn.Module, dict[BackwardRule, Kept]] = WeakKeyDictionary()
_LOCK = threading.RLock()


def prepared(model: object, backward: BackwardRule = UNCHANGED) -> Kept | None:
    """Prepare a model, or take what was prepared before.

    Args:
        model: what is attacked. Only a frozen ``whorl.Classifier`` in float32, or a ``whorl.Ensemble`` of them, without
            hooks, is known not to do anything behind its network's back.
        backward: how its backward pass is to be changed.

    Returns:
        The prepared network and what belongs to it; None if the model has to be used as it is.
    """
    if not simple(model):
        return None
    assert isinstance(model, nn.Module)  # noqa: S101 - tells mypy what simple found out
    backward = backward if backward.changes else UNCHANGED
    with _LOCK:
        version = version_of(model)
        each = _KEPT.setdefault(model, {})
        kept = each.get(backward)
        if kept is None or kept.version != version:
            versions = 1 if kept is None else kept.versions + 1
            # What is kept outlives the mode it is first needed in, and comparing takes gradients.
            with torch.inference_mode(False), torch.enable_grad():
                network, sites = _prepare(model, backward) if versions <= _MOST_VERSIONS else (None, NOWHERE)
            kept = each[backward] = Kept(version, network, versions, sites)
    if kept.network is None:
        return None
    backward.check(model, kept.sites)
    return kept


def forget() -> None:
    """Let go of all prepared networks, with their buffers and graphs: their memory is free for others."""
    with _LOCK:
        _KEPT.clear()


def _prepare(model: nn.Module, backward: BackwardRule) -> tuple[nn.Module | None, Sites]:
    from whorl.models import Ensemble

    try:
        sites = _sites(model, backward)
        if isinstance(model, Ensemble):
            parts = (sites.of(f"models.{place}") for place in range(len(model.models)))
            members = [Prepared(member, changes=part) for member, part in zip(model.models, parts, strict=True)]
            return Ensemble(members, weights=model.weights, fuse=model.fuse), sites
        return Prepared(model, changes=sites), sites
    except Exception:  # noqa: BLE001 - a network that cannot be copied, traced or cast is used as it is
        return None, NOWHERE


def _sites(model: Any, backward: BackwardRule) -> Sites:
    """Where a backward pass would be changed."""
    if not backward.changes:
        return NOWHERE
    if compiled(model):
        raise ValueError("compiled code takes no hooks, which find the branches")
    first = next(iter(getattr(model, "models", [model])))
    device = next(tensors_of(model.modules())).device
    return backward.sites(alias(model), torch.empty(1, len(first.mean), *first.size, device=device))
