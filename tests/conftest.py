"""Small networks and images shared by the tests."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from torch import Tensor, nn

CLASSES = 7

# The suite runs in as many processes as there are cores; threads on top of that only get in each other's way,
# in the programs that tests start too: on a busy machine threads that wait for each other take minutes for seconds.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take minutes may: the limit in pyproject.toml is for the others."""
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.timeout(0))


def small_net(channels: int = 3, *, seed: int = 0) -> nn.Module:
    """A convolutional network for any image size, smooth, that tells random images apart."""
    torch.manual_seed(seed)
    head = nn.Linear(16 * 9, CLASSES, bias=False)
    net = nn.Sequential(
        nn.InstanceNorm2d(channels),
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.InstanceNorm2d(16),
        nn.Flatten(),
        head,
    )
    return net.eval()


def random_images(count: int, channels: int = 3, height: int = 18, width: int = 18, *, seed: int = 1) -> Tensor:
    """Random 8-bit images in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), generator=generator) / 255


@pytest.fixture
def net() -> nn.Module:
    return small_net()


@pytest.fixture
def x() -> Tensor:
    return random_images(8)


@pytest.fixture
def y(net: nn.Module, x: Tensor) -> Tensor:
    """What the network says of each image."""
    with torch.no_grad():
        truth: Tensor = net(x).argmax(1)
    return truth
