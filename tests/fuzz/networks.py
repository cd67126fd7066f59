"""Networks that a hostile user attacks, each with what it must come to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conftest import CLASSES, small_net

SIDE = 10


class Answer(nn.Module):
    """The small network, whose answer goes through something."""

    def __init__(self, change: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.net, self.change = small_net(), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.net(x), x)


class Raises(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        with torch.no_grad():
            x.add_(1)
        return out


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.detach())
        return out


def spoiled(value: float) -> nn.Module:
    return Answer(lambda logits, _: logits.index_fill(1, torch.tensor([CLASSES - 1]), value))


def scripted(*, frozen: bool) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made: nn.Module = torch.jit.script(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))
        ).eval()
        return torch.jit.freeze(made) if frozen else made


def training() -> nn.Module:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(), nn.Linear(4 * (SIDE - 2) ** 2, CLASSES)
    return nn.Sequential(*layers).train()


GOOD: dict[str, Callable[[], Any]] = {
    "small": small_net,
    "float64": lambda: small_net().double(),
    "training mode": training,
    "scripted": lambda: scripted(frozen=False),
    "frozen": lambda: scripted(frozen=True),
    "function": lambda: small_net().forward,
}
BAD: dict[str, Callable[[], Any]] = {
    "NaN": lambda: spoiled(torch.nan),
    "all NaN": lambda: Answer(lambda logits, _: logits * torch.nan),
    "infinity": lambda: spoiled(torch.inf),
    "tuple": lambda: Answer(lambda logits, _: (logits, logits)),
    "dict": lambda: Answer(lambda logits, _: {"logits": logits}),
    "None": lambda: Answer(lambda logits, _: None),
    "list": lambda: Answer(lambda logits, _: logits.tolist()),
    "rows": lambda: Answer(lambda logits, _: logits[:-1]),
    "flat": lambda: Answer(lambda logits, _: logits[:, 0]),
    "image": lambda: Answer(lambda logits, x: x),
    "no classes": lambda: Answer(lambda logits, _: logits[:, :0]),
    "too few classes": lambda: Answer(lambda logits, _: logits[:, :1]),
    "raises": lambda: Raises(RuntimeError("size mismatch\n\x1b[31mat line 3")),
    "raises without words": lambda: Raises(KeyError()),
    "wants another size": lambda: nn.Sequential(nn.Flatten(), nn.Linear(5, CLASSES)),
    "no network": lambda: 3,
    "nothing": lambda: None,
    "a class": lambda: nn.Linear,
}
WITHOUT_GRADIENT: dict[str, Callable[[], Any]] = {
    "detached": Detached,
    "whole numbers": lambda: Answer(lambda logits, _: (logits * 100).round().detach()),
}
"""Fine for whoever only asks."""
IN_PLACE: dict[str, Callable[[], Any]] = {"in place": InPlace}
"""Must not move what is attacked by queries; by gradients, torch may or may not have an answer."""
