"""Residual branches are found by what a network does, not by what its modules are called."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from whorl.models.architectures import build
from whorl.models.branches import structure


class Added(nn.Module):
    """A branch and a shortcut, added in one of the ways that code bases use."""

    def __init__(self, way: str, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 3, 1))
        self.shortcut = shortcut or nn.Identity()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.branch(x)
        kept: Tensor = self.shortcut(x)
        if self.way == "in place":
            out += kept
            return out
        if self.way == "scaled":
            return kept + 0.3 * out
        if self.way == "function":
            return torch.add(out, kept)
        return out + kept if self.way == "first" else kept + out


@pytest.mark.parametrize("way", ["first", "second", "function", "in place", "scaled"])
@pytest.mark.parametrize("shortcut", [None, nn.Conv2d(3, 3, 1)], ids=["identity", "convolution"])
def test_the_branch_is_the_operand_with_more_work_behind_it(way: str, shortcut: nn.Module | None) -> None:
    block = Added(way, shortcut)
    [branch] = structure(nn.Sequential(block, nn.ReLU()), torch.rand(2, 3, 8, 8)).residual
    assert branch is block.branch[2]


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ("torchvision:resnet18", 8),
        ("torchvision:mobilenet_v2", 10),
        ("torchvision:squeezenet1_1", 0),
        ("torchvision:regnet_y_400mf", 16),
        ("timm:tf_efficientnet_lite0", 9),
        ("timm:vit_tiny_patch16_224", 24),
    ],
)
def test_counts_in_known_networks(architecture: str, count: int) -> None:
    net, given = build(architecture)
    branches = structure(net.eval(), torch.rand(1, 3, *given.size)).residual
    assert len(branches) == count
    assert len(set(branches)) == count


def test_a_module_that_runs_twice_is_no_place_for_a_hook() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(3, 3, 1), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x + self.act(self.conv(self.act(x)))
            return out

    net = Twice()
    [branch] = structure(net, torch.rand(1, 3, 4, 4)).residual
    assert branch is net.conv


def test_two_equal_towers_are_no_residual() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.left(x) + self.right(x)
            return out

    assert structure(Towers(), torch.rand(1, 3, 4, 4)).residual == ()


def test_the_network_is_left_as_it_was() -> None:
    net, x = nn.Sequential(Added("in place"), nn.Flatten(), nn.Linear(192, 4)), torch.rand(2, 3, 8, 8)
    net[2].bias.requires_grad_(False)
    before = [parameter.requires_grad for parameter in net.parameters()], net(x).detach()
    with torch.no_grad():
        assert len(structure(net, x).residual) == 1
    assert [parameter.requires_grad for parameter in net.parameters()] == before[0]
    assert torch.equal(net(x), before[1])
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in net.modules())


def test_half_precision_networks_are_shown_their_own_kind() -> None:
    net = nn.Sequential(Added("first")).to(torch.bfloat16)
    assert len(structure(net, torch.rand(1, 3, 8, 8)).residual) == 1
