"""A toy problem for the hardening tests: images of seven patterns, and networks that have learned them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl import Classifier
from whorl.hardening import TrainingImages

CLASSES, SIDE, SIZE = 7, 20, 16
TINY: dict[str, Any] = {"steps": 8, "batch": 12, "held_out": 10, "reports": 2, "checkpoints": 2, "device": "cpu"}


def toy_images(count: int = 70, *, seed: int = 0) -> TrainingImages:
    """Noisy versions of seven smooth patterns, 20 x 20."""
    patterns = F.interpolate(torch.rand(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(7)), (SIDE, SIDE))
    labels = torch.arange(count) % CLASSES
    noise = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    pixels = ((0.6 * patterns[labels] + 0.4 * noise) * 255).round().to(torch.uint8)
    return TrainingImages.of(pixels, labels, [f"image {i}" for i in range(count)])


def toy_net(*, seed: int) -> nn.Module:
    """A small convolutional network with BatchNorm and a linear head."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def as_classifier(net: nn.Module, name: str) -> Classifier:
    return Classifier.from_module(net, size=SIZE, mean=(0.5,) * 3, std=(0.25,) * 3, num_classes=CLASSES, name=name)


@cache
def _learned(seed: int) -> dict[str, Tensor]:
    net, images = toy_net(seed=seed), toy_images(seed=100 + seed)
    x = F.interpolate(images.pixels / 255, (SIZE, SIZE), mode="bilinear", antialias=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(net((x - 0.5) / 0.25), images.labels).backward()
        optimizer.step()
    return net.state_dict()


def toy(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Classifier:
    """A classifier that knows the patterns; another for each seed."""
    net = toy_net(seed=seed)
    net.load_state_dict(_learned(seed))
    return as_classifier(net.to(dtype), f"toy{seed}")


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
