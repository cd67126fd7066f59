"""Small networks of every shape that is rewritten, or must not be, which several test files use."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


class Block(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, channels: int, out: int, side: int, *, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, side, stride=stride, padding=padding, bias=False)
        self.norm = nn.BatchNorm2d(out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True)


class Branches(nn.Module):
    """As in Inception: 1×1 convolutions of one input, one of them after an average pool."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b, self.c = Block(channels, 8, 1), Block(channels, 6, 1), Block(6, 9, 3, padding=1)
        self.pool = Block(channels, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pool(F.avg_pool2d(x, 3, stride=1, padding=1))
        return torch.cat([self.a(x), self.c(self.b(x)), pooled], 1)


class Residual(nn.Module):
    """As in a residual network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Block(channels, channels, 3, padding=1)
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(self.first(x)))
        out += x
        return F.relu(out)


class Shared(nn.Module):
    """What lies between a convolution and its batch norm is looked at by something else too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        out: Tensor = self.norm(z) + z.abs()
        return out.mean((2, 3))


class Overwritten(nn.Module):
    """A convolution sees its input after something else has changed that in place."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.a, self.b = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 4, 1), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.start(x) * 1.0
        same = z.clamp_(min=0.1)
        out: Tensor = self.a(z) * self.b(z) + same.mean()
        return out.mean((2, 3))


def net_of(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def stirred(net: nn.Module) -> nn.Module:
    """With batch norms that do something."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(-1.5, 1.5)
            module.bias.data.normal_(0, 0.2)
    return net.double().eval().requires_grad_(False)


NETS: dict[str, Callable[[], nn.Module]] = {
    "branches": lambda: net_of(Block(3, 12, 3, stride=2), Branches(12), nn.MaxPool2d(3, 2), Branches(22)),
    "residual": lambda: net_of(
        nn.Conv2d(3, 6, 7, stride=2, padding=3), nn.ReLU(), Residual(6), nn.Dropout(), Residual(6)
    ),
    "depthwise": lambda: net_of(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU6(), nn.Conv2d(6, 6, 3, groups=6), nn.BatchNorm2d(6)),
    "even kernel": lambda: net_of(nn.Conv2d(3, 5, 4, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    "kernel of one": lambda: net_of(nn.Conv2d(3, 5, 1, stride=2), nn.Tanh()),
    "shared": Shared,
    "overwritten": Overwritten,
}
