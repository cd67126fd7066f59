"""What stands between two convolutions, each in one pass over memory: bias and activation, pooling, the attack's step.

Every function has a plain-torch version, which is also its definition, and a Triton kernel that is used on a GPU where
Triton can be imported. All tensors that pass through a network here are (B, C, H, W) in channels-last memory.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["none", "relu", "relu6"]

# The kernels count elements in 32 bits.
_MOST = 2**31 - 2**16


@cache
def kernels() -> Any:
    """The module of Triton kernels, or None where Triton cannot be imported."""
    try:
        from whorl.fast import pointwise_kernels
    except ImportError:
        return None
    return pointwise_kernels


def _by_kernel(x: Tensor) -> bool:
    """Whether the kernels can take a tensor."""
    on_device = x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    # How far its elements reach, not how many they are: it may be a part of something larger.
    reach = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return on_device and reach < _MOST and kernels() is not None


def _even(x: Tensor) -> bool:
    """Whether pixels follow each other at one distance, each with its channels side by side."""
    batch, channels, height, width = x.shape
    row = x.stride(3)
    wanted = (height * width * row, 1, width * row, row)
    return all(
        size == 1 or stride == right for size, stride, right in zip(x.shape, x.stride(), wanted, strict=True)
    ) and (channels <= row or batch * height * width == 1)


def dense(x: Tensor) -> Tensor:
    """The same (B, C, H, W) tensor, without gaps in channels-last memory; not copied where it already is."""
    return x.contiguous(memory_format=torch.channels_last)


def bias_act(x: Tensor, bias: Tensor, act: Activation, residual: Tensor | None = None, *, reuse: bool) -> Tensor:
    """``act(x + bias + residual)``.

    Args:
        x: (B, C, H, W) in channels-last memory; may be a range of channels of a larger tensor.
        bias: (C,) float32.
        act: what to apply.
        residual: shape of ``x``, or None.
        reuse: whether the result may overwrite ``x``, where that has no gaps.

    Returns:
        (B, C, H, W), dense, dtype of ``x``.
    """
    if _even(x) and _by_kernel(x):
        out = x if reuse and x.is_contiguous(memory_format=torch.channels_last) else _empty_like(x)
        with torch.cuda.device_of(x):
            kernels().bias_act(x, bias, None if residual is None else dense(residual), out, act)
        return out
    # Added up in float32 at least, as the kernel does.
    total = x + bias.view(1, -1, 1, 1)
    if residual is not None:
        total = total + residual
    return dense(activate(total, act).to(x.dtype))


def activate(x: Tensor, act: Activation) -> Tensor:
    """Apply an activation."""
    return x if act == "none" else x.clamp(0, None if act == "relu" else 6)


def act_backward(gradient: Tensor, out: Tensor, act: Activation, into: Tensor | None = None) -> Tensor:
    """Gradient before an activation, from the gradient after it and what came out of it.

    Args:
        gradient: (B, C, H, W), any memory format.
        out: the activation's result, same shape.
        act: what was applied.
        into: where to write, or None for a new tensor.
    """
    if act == "none":
        return gradient if into is None else into.copy_(gradient)
    made: Tensor
    aten = torch.ops.aten
    if act == "relu" and into is None:
        made = aten.threshold_backward(gradient, out, 0)
    elif act == "relu":
        made = aten.threshold_backward.grad_input(gradient, out, 0, grad_input=into)
    elif into is None:
        made = aten.hardtanh_backward(gradient, out, 0, 6)
    else:
        made = aten.hardtanh_backward.grad_input(gradient, out, 0, 6, grad_input=into)
    return made


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


# ---------------------------------------------------------------------------------------------------------------------
# Pooling


class MaxPool(torch.autograd.Function):
    """Max pooling that remembers a byte a window, where torch remembers eight, and never adds atomically."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
        """Pool; of equal values the first one wins, as in torch."""
        ctx.kernel, ctx.stride, ctx.padding, ctx.shape = kernel, stride, padding, x.shape
        with torch.cuda.device_of(x):
            out, which = kernels().max_pool(dense(x), kernel, stride, padding)
        ctx.save_for_backward(which)
        return out  # type: ignore[no-any-return]  # from a module that may not be there

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Each window's gradient goes to the pixel that won."""
        (which,) = ctx.saved_tensors
        made = kernels().max_pool_backward(dense(gradients[0]), which, ctx.shape, ctx.kernel, ctx.stride, ctx.padding)
        return made, None, None, None


def max_pool(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Max pooling with a square window."""
    if _by_kernel(x):
        out: Tensor = MaxPool.apply(x, kernel, stride, padding)  # type: ignore[no-untyped-call]  # torch's own
        return out
    return F.max_pool2d(x, kernel, stride, padding)


# ---------------------------------------------------------------------------------------------------------------------
# The attack's step


def linf_step(
    g: Tensor, x: Tensor, eps: Tensor, alpha: Tensor, momentum: float, *, velocity: Tensor, adv: Tensor
) -> Tensor:
    """One signed step with momentum, projected onto the ball; changes ``velocity`` and ``adv``.

    Args:
        g: (B, C, H, W) estimated gradient, float32 or float64.
        x: the clean images.
        eps: (B, 1, 1, 1) radius.
        alpha: (B, 1, 1, 1) step size.
        momentum: decay; at 0 the velocity is not looked at.
        velocity: accumulated gradient.
        adv: where the images are now.

    Returns:
        (B,) mean absolute gradient of each image; not finite as soon as one value is not.
    """
    total: Tensor = torch.linalg.vector_norm(g, ord=1, dim=(1, 2, 3))
    size = (total / g[0].numel()).clamp_min(torch.finfo(g.dtype).tiny)
    contiguous = all(part.is_contiguous() for part in (g, x, velocity, adv))
    if contiguous and g.dtype == torch.float32 and _by_kernel(g):
        with torch.cuda.device_of(g):
            kernels().linf_step(g, x, eps, alpha, size, momentum, velocity, adv)
        return size
    if momentum:
        velocity.mul_(momentum).add_(g / size[:, None, None, None])
        g = velocity
    low, high = (x - eps).clamp_min(0), (x + eps).clamp_max(1)
    adv.copy_(torch.clamp(adv + alpha * g.sign(), low, high))
    return size
