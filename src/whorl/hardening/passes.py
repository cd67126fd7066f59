"""Networks as a training step runs them: at the crops' size, folded, and in bfloat16 where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model
from whorl.models.classifier import Classifier
from whorl.models.prepared.folding import fold


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


def at_size(net: Model, size: tuple[int, int]) -> Model:
    """A faster copy of a static classifier that takes images of this size as they are; anything else as it is."""
    if not isinstance(net, Classifier):
        return net
    copy = deepcopy(net)
    copy.size = size
    fold(copy.net, size, len(copy.mean))
    return copy
