"""Targets that count what they see, for the tests of black-box attacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from conftest import CLASSES, small_net


class Watched(nn.Module):
    """Lets everything through, and counts it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seen = model, 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        answer: Tensor = self.model(x)
        return answer


class Counting(nn.Module):
    """A target without gradients that counts the images it saw for each original.

    Perturbed images stay nearer to their own original than to any other, for originals are images of noise.
    """

    def __init__(self, net: nn.Module, originals: Tensor) -> None:
        super().__init__()
        self.net, self.originals = net, originals
        self.seen = torch.zeros(len(originals), dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert float(x.min()) >= 0
        assert float(x.max()) <= 1
        gaps = (x[:, None] - self.originals[None].to(x)).flatten(2).norm(dim=2)
        self.seen += torch.bincount(gaps.argmin(1), minlength=len(self.originals))
        scores: Tensor = self.net(x)
        return scores


def labels_of(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        labels: Tensor = net(x).argmax(1)
    return labels


def labels_for(net: nn.Module, x: Tensor, *, targeted: bool) -> dict[str, Any]:
    """The label argument of an attack on what the network says now."""
    truth = labels_of(net, x)
    return {"target": (truth + 1) % CLASSES} if targeted else {"y": truth}


def related_net(net: nn.Module, *, by: float = 0.3, seed: int = 5) -> nn.Module:
    """A surrogate: the same network, its weights disturbed by a share ``by`` of their spread."""
    other = small_net()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), net.parameters(), strict=True):
            noise = torch.randn(theirs.shape, generator=generator)
            mine.copy_(theirs + by * float(theirs.std()) * noise)
    return other
