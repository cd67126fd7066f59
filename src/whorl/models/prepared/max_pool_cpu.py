"""Max pooling on a CPU: torch compares pixel by pixel, unless the channels of a pixel lie side by side."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def pool(layer: nn.MaxPool2d, x: Tensor) -> Tensor:
    """Do what a layer does, values and gradients bit by bit, in a third of the time.

    Args:
        layer: one that does not return indices.
        x: (B, C, H, W).

    >>> x, layer = torch.rand(2, 16, 9, 9), nn.MaxPool2d(3, 2, 1)
    >>> torch.equal(pool(layer, x), layer(x))
    True
    """
    # Images in another memory format than torch's own are not slow.
    if x.dim() != 4 or not x.is_contiguous() or x.device.type != "cpu":
        plainly: Tensor = nn.MaxPool2d.forward(layer, x)
        return plainly
    window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
    out: Tensor = _Pooled.apply(x, window)  # type: ignore[no-untyped-call]  # torch's own
    return out


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[Any, ...]) -> Tensor:
        last = x.contiguous(memory_format=torch.channels_last)
        out, which = F.max_pool2d_with_indices(last, *window)
        # Back at once: the layers around would mix both formats, and be slow in their turn.
        ctx.save_for_backward(x, which.contiguous())
        ctx.window = window
        return out.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, which = ctx.saved_tensors
        *sizes, ceil = ctx.window
        pairs = [[size, size] if isinstance(size, int) else list(size) for size in sizes]
        gradient = gradients[0].contiguous()
        return torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, *pairs, ceil, which), None
