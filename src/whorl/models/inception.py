"""Inception-v3 as TF-slim has it, and its weights out of a network quantised to 8 bits.

There is no ReLU in the quantised network: each activation is clamped to what its 8 bits can hold, from 0 to some
limit of its own. Here every activation is measured in sixths of its limit, so that this clamp is ReLU6. Weights take
the units in, and pooling does not mind them, so logits and input gradients are those of the clamped network.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.models.tflite import Operator, QuantisedGraph, read_tflite
from whorl.models.weights import StateDict

_CEILING = 6.0  # of ReLU6


class InceptionV3(nn.Sequential):
    """From (B, 3, 299, 299) images in [-1, 1] to (B, num_classes) logits; blocks are named as in TF-slim.

    >>> InceptionV3(num_classes=10).eval()(torch.zeros(1, 3, 299, 299)).shape
    torch.Size([1, 10])
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__(
            OrderedDict(
                Conv2d_1a_3x3=_conv(3, 32, 3, stride=2),
                Conv2d_2a_3x3=_conv(32, 32, 3, same=False),
                Conv2d_2b_3x3=_conv(32, 64, 3),
                MaxPool_3a_3x3=nn.MaxPool2d(3, 2),
                Conv2d_3b_1x1=_conv(64, 80, 1),
                Conv2d_4a_3x3=_conv(80, 192, 3, same=False),
                MaxPool_5a_3x3=nn.MaxPool2d(3, 2),
                Mixed_5b=_mixed_5(192, 32),
                Mixed_5c=_mixed_5(256, 64),
                Mixed_5d=_mixed_5(288, 64),
                Mixed_6a=Branches(
                    _chain(288, (384, 3, 2)),
                    _chain(288, (64, 1), (96, 3), (96, 3, 2)),
                    nn.MaxPool2d(3, 2),
                ),
                Mixed_6b=_mixed_6(128),
                Mixed_6c=_mixed_6(160),
                Mixed_6d=_mixed_6(160),
                Mixed_6e=_mixed_6(192),
                Mixed_7a=Branches(
                    _chain(768, (192, 1), (320, 3, 2)),
                    _chain(768, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)),
                    nn.MaxPool2d(3, 2),
                ),
                Mixed_7b=_mixed_7(1280),
                Mixed_7c=_mixed_7(2048),
                AvgPool_1a_8x8=nn.AdaptiveAvgPool2d(1),
                Flatten=nn.Flatten(),
                Logits=nn.Linear(2048, num_classes),
            )
        )


class Branches(nn.ModuleList):
    """Networks side by side on one input, their channels concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Run all."""
        return torch.cat([branch(x) for branch in self], 1)


def _conv(inner: int, out: int, kernel: int | tuple[int, int], stride: int = 1, *, same: bool = True) -> nn.Sequential:
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    # TensorFlow's SAME padding of an odd kernel with stride 1 is symmetric; with stride 2 this network has none.
    padding = (height // 2, width // 2) if same and stride == 1 else 0
    return nn.Sequential(nn.Conv2d(inner, out, (height, width), stride, padding), nn.ReLU6())


def _chain(inner: int, *layers: tuple[int, int | tuple[int, int]] | tuple[int, int, int]) -> nn.Sequential:
    """Convolutions one after the other, each by its channels, kernel and stride."""
    widths = [inner, *(layer[0] for layer in layers)]
    return nn.Sequential(*(_conv(width, *layer) for width, layer in zip(widths, layers, strict=False)))


def _average_pool() -> nn.AvgPool2d:
    return nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)


def _mixed_5(inner: int, pooled: int) -> Branches:
    return Branches(
        _chain(inner, (64, 1)),
        _chain(inner, (48, 1), (64, 5)),
        _chain(inner, (64, 1), (96, 3), (96, 3)),
        nn.Sequential(_average_pool(), _conv(inner, pooled, 1)),
    )


def _mixed_6(width: int) -> Branches:
    return Branches(
        _chain(768, (192, 1)),
        _chain(768, (width, 1), (width, (1, 7)), (192, (7, 1))),
        _chain(768, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))),
        nn.Sequential(_average_pool(), _conv(768, 192, 1)),
    )


def _mixed_7(inner: int) -> Branches:
    def split() -> Branches:
        return Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1)))

    return Branches(
        _chain(inner, (320, 1)),
        nn.Sequential(_conv(inner, 384, 1), split()),
        nn.Sequential(_conv(inner, 448, 1), _conv(448, 384, 3), split()),
        nn.Sequential(_average_pool(), _conv(inner, 192, 1)),
    )


def read_quantised_inception(path: Path) -> StateDict:
    """Read the weights of :class:`InceptionV3` from TF-slim's network, quantised to uint8 by TensorFlow Lite.

    Args:
        path: the file. It is read as data, and nothing in it is run.

    Returns:
        Name -> float32 tensor. The dummy class, the first of 1,001, is left out, and so is the clamp of the logits: it
        is no ReLU, and would stop the gradient of the very classes that the network is surest of.

    Raises:
        WhorlError: the file is damaged, or holds another network.
    """
    graph = read_tflite(path)
    try:
        return _dequantised(graph)
    except (
        _OtherNetworkError,
        LookupError,
        ValueError,
        RuntimeError,
    ) as error:  # a tensor too early, or of another shape
        raise WhorlError(f"{path} must hold TF-slim's Inception-v3 in uint8; got another network ({error}).") from error


class _OtherNetworkError(Exception):
    """Where the file departs from the module."""


def _dequantised(graph: QuantisedGraph) -> StateDict:
    with torch.device("meta"):
        net = InceptionV3()
    layers = [(name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    convolutions = sorted(
        (step for step in graph.operators if step.kind == "convolution"),
        key=lambda step: _place(net, graph.tensors[step.output].name),  # as defined, not as computed
    )
    names = {step.output: name for step, (name, _) in zip(convolutions, layers, strict=True)}
    # What 1 stands for in each channel of a tensor as the module has it.
    units: dict[int, Tensor] = {graph.input: torch.ones(3, dtype=torch.float64)}
    state: StateDict = {}
    for step in graph.operators:
        given = [units[number] for number in step.inputs[: None if step.kind == "concatenation" else 1]]
        if step.kind != "convolution":
            units[step.output] = torch.cat(given)
            _check_range(graph, step, units[step.output])
            continue
        name = names[step.output]
        layer = net.get_submodule(name)
        weight, bias = (graph.tensors[number].values() for number in step.inputs[1:])
        weight = weight.permute(0, 3, 1, 2) * given[0][:, None, None]
        if isinstance(layer, nn.Conv2d):
            _check_layer(step, layer, name)
            low, high = graph.tensors[step.output].range()
            if low != 0:
                raise _OtherNetworkError(f"activations of {name} start at {low}")
            unit = high / _CEILING
            weight, bias = weight / unit, bias / unit
        else:
            unit, weight, bias = 1.0, weight[1:, :, 0, 0], bias[1:]
        units[step.output] = torch.full((len(bias),), unit, dtype=torch.float64)
        state[f"{name}.weight"], state[f"{name}.bias"] = weight.float().contiguous(), bias.float()
    return state


def _place(net: nn.Module, name: str) -> tuple[int, str]:
    """Where a tensor belongs, by its TensorFlow name: which block, and which branch of it."""
    block, branch, *_ = [part for part in name.split("/") if part != "InceptionV3"]
    return [child for child, _ in net.named_children()].index(block), branch if branch.startswith("Branch_") else ""


def _check_layer(step: Operator, layer: nn.Conv2d, name: str) -> None:
    same = (layer.kernel_size[0] // 2, layer.kernel_size[1] // 2)
    padding = same if step.padding == "SAME" else (0, 0)
    if (step.stride, padding, step.fused) != (layer.stride, layer.padding, 0):
        raise _OtherNetworkError(f"{name} is {step}")


def _check_range(graph: QuantisedGraph, step: Operator, units: Tensor) -> None:
    """Pools and concatenations must clamp nothing, for the module has no clamp there."""
    low, high = graph.tensors[step.output].range()
    if step.kind != "reshape" and (low != 0 or high < _CEILING * units.max() * (1 - 1e-9) or step.fused):
        raise _OtherNetworkError(f"{step} clamps what it passes on")
