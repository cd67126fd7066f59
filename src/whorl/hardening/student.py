"""The network that learns: what of it may change, how, its running average; and all networks as a step runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from whorl.attacks.contract import Model
from whorl.errors import WhorlError
from whorl.hardening.settings import NormLearning, Training
from whorl.models.classifier import Classifier
from whorl.models.defended.entries import overlay
from whorl.models.prepared.fold import fold
from whorl.models.weights import StateDict


def make_student(original: Classifier, *, norm: NormLearning = "affine", head: bool = False) -> Classifier:
    """Copy a classifier so that it can learn.

    Like every classifier it stays in eval mode: dropout is off, and BatchNorm uses the statistics of the millions of
    images that it has seen, not those of a few adversarial ones.

    Args:
        original: stays as it is.
        norm: what BatchNorm may learn. ``"frozen"``: nothing; ``"affine"``: scale and shift, with the statistics held;
            ``"batch"``: all, with the statistics of each batch, as in training from scratch.
        head: whether the last linear layer learns too. With few images a class it is better held.

    Returns:
        The copy; what may change requires gradients.
    """
    if norm not in get_args(NormLearning):
        raise WhorlError(f"norm must be one of {', '.join(get_args(NormLearning))}; got {norm!r}.")
    student = deepcopy(original)
    student.net.requires_grad_(True)
    for module in student.net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if norm == "frozen":
                module.requires_grad_(False)
            # Set on the module itself: the classifier keeps everything else in eval mode.
            module.training = norm == "batch"
    last = last_linear(student.net, student.num_classes)
    if not head and last is not None:
        last.requires_grad_(False)
    if not trainable(student):
        raise WhorlError(
            f"{original.name} has nothing to learn: all its parameters are held. Let the last layer learn: head=True."
        )
    return student


def last_linear(net: nn.Module, num_classes: int) -> nn.Linear | None:
    """The layer that gives the logits, where it is a linear one."""
    found = [module for module in net.modules() if isinstance(module, nn.Linear) and module.out_features == num_classes]
    return found[-1] if found else None


def trainable(student: Classifier) -> dict[str, nn.Parameter]:
    """The parameters that may change, by their name in the bare network."""
    return {name: parameter for name, parameter in student.net.named_parameters() if parameter.requires_grad}


def learned(student: Classifier) -> StateDict:
    """Everything that training may have changed, by name: parameters, and BatchNorm's statistics where they move."""
    names = set(trainable(student))
    for place, module in student.net.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            names |= {f"{place}.{name}" for name, _ in module.named_buffers(recurse=False)}
    return {name: tensor.detach() for name, tensor in student.net.state_dict().items() if name in names}


def put(classifier: Classifier, state: StateDict) -> None:
    """Overwrite some tensors of a classifier's network by name."""
    overlay(classifier.net, state, f"a state of {classifier.name}")


def blended(original: Classifier, state: StateDict, amount: float) -> StateDict:
    """Weights on the straight line through an original and what training made of it.

    Part of the way back gains clean accuracy at the cost of a little robustness (Wortsman et al., 2022), and further
    along it may be the other way round. Computed on the CPU in float32, so that the result is the same everywhere.

    Args:
        original: where the line starts.
        state: where it ends.
        amount: 0 is the original, 1 is ``state``; beyond 1 goes further in the same direction.
    """
    start = original.net.state_dict()

    def between(name: str) -> Tensor:
        end = state[name].cpu()
        if not end.is_floating_point() or amount == 1:
            return end
        return torch.lerp(start[name].cpu().float(), end.float(), amount)

    return {name: between(name) for name in state}


class Average:
    """A running average of what the student learns: θ̄ ← d·θ̄ + (1-d)·θ, with d growing from small to ``decay``."""

    def __init__(self, student: Classifier, decay: float) -> None:
        if not 0 <= decay < 1:
            raise WhorlError(f"ema must lie in [0, 1); got {decay}.")
        self.student, self.decay = student, decay
        # The student's own tensors, which are changed in place and never replaced.
        self.source = learned(student)
        self.state = {name: tensor.clone() for name, tensor in self.source.items()}
        self.moving = [name for name, tensor in self.source.items() if tensor.is_floating_point()]
        self.whole = [name for name in self.source if name not in set(self.moving)]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, numbered from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name in self.whole:
            self.state[name].copy_(self.source[name])
        # All at once: on a GPU, one launch a tensor takes longer than the arithmetic.
        averages, sources = [self.state[name] for name in self.moving], [self.source[name] for name in self.moving]
        get_ema_multi_avg_fn(decay)(averages, sources, step)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Give the student its averaged weights for a while."""
        own = {name: tensor.clone() for name, tensor in self.source.items()}
        put(self.student, self.state)
        try:
            yield
        finally:
            put(self.student, own)


def make_optimizer(student: Classifier, training: Training) -> torch.optim.Optimizer:
    """The optimiser over what may change; weight decay on matrices and kernels alone."""
    parameters = list(trainable(student).values())
    listed: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in listed if group["params"]]
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.rate, momentum=0.9, nesterov=True)
    # A second moment that looks back 100 steps, as a few hundred is all there may be.
    return torch.optim.AdamW(groups, lr=training.rate, betas=(0.9, 0.99))


class LowPrecision:
    """A network run in bfloat16 where that is safe; everything around it keeps its precision."""

    def __init__(
        self, net: Callable[[Tensor], Tensor], device: torch.device, *, on: bool, channels_last: bool = True
    ) -> None:
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        if on and isinstance(net, nn.Module):
            net.to(memory_format=self.layout)  # type: ignore[call-overload]  # torch's stub knows tensors alone
        self.net, self.device, self.on = net, device, on

    def __call__(self, x: Tensor) -> Tensor:
        """Give the logits."""
        if not self.on:
            return self.net(x)
        x = x.contiguous(memory_format=self.layout)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.net(x)


class Learner(nn.Module):
    """The student's forward pass for learning: images at the size they have, and a bare network to compile."""

    def __init__(self, student: Classifier, *, compiled: bool) -> None:
        super().__init__()
        self.student = student
        # In a list, for what is compiled shares its parameters with the student and must not be listed twice.
        self.net: list[Any] = [torch.compile(student.net) if compiled else student.net]

    def forward(self, x: Tensor) -> Tensor:
        """Give the logits of (B, 3, H, W) images in [0, 1], which are not resized."""
        logits: Tensor = self.net[0]((x - self.student._mean) / self.student._std)
        return logits if logits.dtype == torch.float64 else logits.float()


def at_size(net: Model, size: tuple[int, int], *, folded: bool = True) -> Model:
    """A copy of a static classifier that takes images of this size as they are; anything else as it is.

    Whole attacks prepare it as they do any other network; for a single gradient it is folded here.
    """
    if not isinstance(net, Classifier):
        return net
    copy = deepcopy(net)
    copy.size = size
    if folded:
        fold(copy.net, size, len(copy.mean))
    return copy
