"""What stands between two convolutions, each in one pass over memory: bias and activation, pooling.

Every function has a plain-torch version, which is also its definition, and a Triton kernel that is used on a GPU where
Triton can be imported. All tensors that pass through a network here are (B, C, H, W) in channels-last memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.geometry.triton_modules import kernel_module
from whorl.models.backward import shared_pool, soft_step

Activation = Literal["none", "relu", "relu6"]

# As Triton itself decides: once, when the kernels are read.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The kernels count elements in 32 bits.
_MOST = 2**31 - 2**16
# They add up in float32.
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Pixels of a pool's window, each of which is an instruction or some.
_MOST_TAPS = 64


kernels = partial(kernel_module, "whorl.models.prepared.pointwise_kernels")
"""Gives the module of Triton kernels, or None where Triton cannot be imported."""
# These need nothing but Triton either: they are there whenever the former is.
_pooling_kernels = partial(kernel_module, "whorl.models.prepared.pool_kernels")


def by_kernel(*tensors: Tensor) -> bool:
    """Whether the kernels can take tensors."""
    if kernels() is None:
        return False
    return all((x.is_cuda or _INTERPRETED) and x.dtype in _DTYPES and _reach(x) < _MOST for x in tensors)


def _reach(x: Tensor) -> int:
    """How far its elements reach, not how many they are: it may be a part of something larger."""
    if _no_gaps(x):
        return x.numel()
    return sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))


def _no_gaps(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def _even(x: Tensor) -> bool:
    """Whether pixels follow each other at one distance, each with its channels side by side."""
    if _no_gaps(x):
        return True
    batch, channels, height, width = x.shape
    row = x.stride(3) if width > 1 else x.stride(2) if height > 1 else x.stride(0)
    wanted = (height * width * row, 1, width * row, row)
    return all(
        size == 1 or stride == right for size, stride, right in zip(x.shape, x.stride(), wanted, strict=True)
    ) and (channels <= row or batch * height * width == 1)


def even(x: Tensor) -> Tensor:
    """The same (B, C, H, W) tensor with its pixels at one distance in channels-last memory; copied only if needed."""
    return x if _even(x) else dense(x)


def dense(x: Tensor) -> Tensor:
    """The same (B, C, H, W) tensor, without gaps in channels-last memory; not copied where it already is."""
    return x.contiguous(memory_format=torch.channels_last)


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """A dense (B, C, H, W) tensor of the dtype and device of another."""
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def bias_act(
    x: Tensor,
    bias: Tensor,
    act: Activation,
    residual: Tensor | None = None,
    *,
    reuse: bool = False,
    into: Tensor | None = None,
    before: Tensor | None = None,
) -> Tensor:
    """``act(x + bias + residual)``.

    Args:
        x: (B, C, H, W) in channels-last memory; may be a range of channels of a larger tensor.
        bias: (C,) float32.
        act: what to apply.
        residual: shape of ``x``, or None.
        reuse: whether the result may overwrite ``x``, where that has no gaps.
        into: where to write, such as a range of channels of a larger tensor; None for a new tensor.
        before: where to write what goes into the activation, which may be ``x`` itself; None for nowhere.

    Returns:
        (B, C, H, W), dtype of ``x``: ``into``, or dense.
    """
    if _even(x) and by_kernel(x):
        out = into
        if out is None:
            out = x if reuse and _no_gaps(x) else empty(x.shape, x)
        with torch.cuda.device_of(x):
            kernels().bias_act(x, bias, None if residual is None else even(residual), out, act, before)
        return out
    # Added up in float32 at least, as the kernel does.
    total = x + bias.view(1, -1, 1, 1)
    if residual is not None:
        total = total + residual
    return _activated(total, act, x.dtype, into, before)


def _activated(
    total: Tensor, act: Activation, dtype: torch.dtype, into: Tensor | None, before: Tensor | None
) -> Tensor:
    """Apply an activation; ``into`` and ``before`` as of :func:`bias_act`."""
    made = activate(total, act).to(dtype)
    if before is not None:
        before.copy_(total)
    return dense(made) if into is None else into.copy_(made)


def activate(x: Tensor, act: Activation) -> Tensor:
    """Apply an activation."""
    return x if act == "none" else x.clamp(0, None if act == "relu" else 6)


def smooth_backward(gradient: Tensor, x: Tensor, act: Activation, sharpness: float) -> Tensor:
    """A gradient times what stands in for a rectifier's derivative at ``x``: that of x·sigmoid(βx), at both ends.

    In float32 at least.

    >>> x = torch.tensor([-50.0, 0.0, 3.0, 6.0])
    >>> smooth_backward(torch.ones(4), x, "relu6", 4.0).round(decimals=3).abs().tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    return soft_step(gradient.to(wide), x.to(wide), sharpness, 6.0 if act == "relu6" else torch.inf)


def act_backward(
    gradient: Tensor, seen: Tensor, act: Activation, into: Tensor | None = None, *, smooth: float | None = None
) -> Tensor:
    """Gradient before an activation, from the gradient after it and what came out of it, or went into it.

    Args:
        gradient: (B, C, H, W), any memory format; best a range of channels of a channels-last tensor, or all of it.
        seen: the activation's result, same shape, likewise; what went into it, where its derivative is smooth.
        act: what was applied.
        into: where to write, likewise; None for a new, dense tensor.
        smooth: sharpness of the rectifier whose derivative stands in (:func:`smooth_backward`); None for its own.
    """
    if act == "none" and into is None:
        return gradient
    into = empty(gradient.shape, gradient) if into is None else into
    if all(map(_even, (gradient, seen, into))) and by_kernel(gradient, seen, into):
        with torch.cuda.device_of(gradient):
            kernels().act_backward(gradient, seen, into, act, smooth)
        return into
    made: Tensor
    if act == "none":
        made = into.copy_(gradient)
    elif smooth is not None:
        made = into.copy_(smooth_backward(gradient, seen, act, smooth))
    elif act == "relu":
        made = torch.ops.aten.threshold_backward.grad_input(gradient, seen, 0, grad_input=into)
    else:
        made = torch.ops.aten.hardtanh_backward.grad_input(gradient, seen, 0, 6, grad_input=into)
    return made


# ---------------------------------------------------------------------------------------------------------------------
# Pooling


class Pool(NamedTuple):
    """An average pool."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    counted: bool = True
    """Whether padding counts."""
    divisor: int | None = None
    """What sums are divided by; None for the number of pixels that count."""

    @property
    def linear(self) -> bool:
        """Whether it weighs all pixels alike, zeros outside included, so that a 1×1 convolution commutes with it."""
        return self.counted and self.divisor is None and not self.ceil_mode

    @property
    def always(self) -> int:
        """What every window's sum is divided by, or 0 if that depends on where it is."""
        return self.divisor or (self.kernel[0] * self.kernel[1] if self.linear else 0)

    def sides(self, x: Tensor) -> tuple[int, int]:
        """Rows and columns of the result for (B, C, H, W)."""
        if self.ceil_mode:  # which has a rule for windows that start beyond the image
            like = x.new_empty((1, 1, *x.shape[2:]), device="meta")
            rows, columns = F.avg_pool2d(like, *self).shape[2:]
            return rows, columns
        sizes = zip(x.shape[2:], self.kernel, self.stride, self.padding, strict=True)
        rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side, kernel, stride, padding in sizes)
        return rows, columns


def average_pool(
    x: Tensor,
    pool: Pool,
    bias: Tensor | None = None,
    act: Activation = "none",
    *,
    into: Tensor | None = None,
    before: Tensor | None = None,
) -> Tensor:
    """``act(average(x) + bias)``, for use in an autograd function's forward.

    Args:
        x: (B, C, H, W) in channels-last memory; may be a range of channels of a larger tensor.
        pool: the windows.
        bias: (C,) float32, or None.
        act: what to apply.
        into: where to write, or None for a new, dense tensor.
        before: where to write what goes into the activation; None for nowhere.
    """
    if _small(pool) and by_kernel(x):
        out = empty((*x.shape[:2], *pool.sides(x)), x) if into is None else into
        with torch.cuda.device_of(x):
            _pooling_kernels().average_pool(even(x), pool, bias, out, act, before)
        return out
    total = F.avg_pool2d(x.to(torch.promote_types(x.dtype, torch.float32)), *pool)
    if bias is not None:
        total = total + bias.view(1, -1, 1, 1)
    return _activated(total, act, x.dtype, into, before)


def average_pool_backward(
    gradient: Tensor,
    seen: Tensor,
    pool: Pool,
    shape: Sequence[int],
    act: Activation,
    *,
    into: Tensor | None = None,
    smooth: float | None = None,
) -> Tensor:
    """Gradient of :func:`average_pool` with respect to ``x``.

    Args:
        gradient: of the result, any memory format.
        seen: the result, or what went into its activation: as of :func:`act_backward`, if there is an activation.
        pool: the windows.
        shape: of ``x``.
        act: what was applied.
        into: where to write, or None for a new, dense tensor.
        smooth: as of :func:`act_backward`.
    """
    into = empty(shape, gradient) if into is None else into
    if _small(pool) and by_kernel(gradient, seen, into):
        with torch.cuda.device_of(gradient):
            _pooling_kernels().average_pool_backward(even(gradient), even(seen), pool, into, act, smooth)
        return into
    # In channels-last memory on a GPU torch forgets the padding in the backward pass (seen with 2.11, mended in its
    # #188345), so it is given a plain copy.
    wide = torch.promote_types(gradient.dtype, torch.float32)
    plainly = act_backward(gradient, seen, act, smooth=smooth).to(wide).contiguous()
    return into.copy_(torch.ops.aten.avg_pool2d_backward(plainly, plainly.new_empty(tuple(shape)), *pool))


def _small(pool: Pool) -> bool:
    """Whether a window's taps can be written out one by one."""
    return pool.kernel[0] * pool.kernel[1] <= _MOST_TAPS


class AveragePoolFunction(torch.autograd.Function):
    """Average pooling, and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Pool) -> Tensor:
        """Pool."""
        ctx.pool, ctx.shape = pool, x.shape
        return average_pool(x, pool)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Each window's gradient goes to its pixels in equal shares."""
        (gradient,) = gradients
        return average_pool_backward(gradient, gradient, ctx.pool, ctx.shape, "none"), None


class MaxPoolFunction(torch.autograd.Function):
    """Max pooling that remembers a byte a window, where torch remembers eight, and never adds atomically."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window, share: float, into: Tensor | None) -> Tensor:
        """Pool; of equal values the first one wins, as in torch."""
        ctx.window, ctx.share, ctx.shape = window, share, x.shape
        out = empty(window.shape(x), x) if into is None else into
        with torch.cuda.device_of(x):
            which = _pooling_kernels().max_pool(even(x), out, window.kernel, window.stride, window.padding)
        ctx.save_for_backward(which)
        # Without a base of which it is a range, as far as autograd knows.
        return out if into is None else out.data

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Each window's gradient goes to the pixel that won, but for the share of all."""
        (which,), (gradient,) = ctx.saved_tensors, gradients
        kernel, stride, padding, _ = ctx.window
        with torch.cuda.device_of(gradient):
            made = _pooling_kernels().max_pool_backward(
                even(gradient), which, ctx.shape, kernel, stride, padding, ctx.share
            )
        return made, None, None, None


class Window(NamedTuple):
    """The square window of a max pool."""

    kernel: int
    stride: int
    padding: int = 0
    ceil_mode: bool = False

    def shape(self, x: Tensor) -> tuple[int, ...]:
        """What comes out of (B, C, H, W)."""
        sides = (x.shape[2], x.shape[3])
        if self.ceil_mode:  # which has a rule for windows that start beyond the image
            rows, columns = F.max_pool2d(x.new_empty((1, 1, *sides), device="meta"), *_plainly(self)).shape[2:]
        else:
            rows, columns = ((side + 2 * self.padding - self.kernel) // self.stride + 1 for side in sides)
        return (*x.shape[:2], rows, columns)


def max_pool(x: Tensor, window: Window, share: float = 0.0, *, into: Tensor | None = None) -> Tensor:
    """Max pooling, a share of whose gradient goes to all pixels of a window alike.

    ``into`` may be a range of channels to write to, where kernels are used.
    """
    if by_kernel(x):
        out: Tensor = MaxPoolFunction.apply(x, window, share, into)  # type: ignore[no-untyped-call]  # torch's own
        return out
    out = F.max_pool2d(x, *_plainly(window))
    return shared_pool(x, out, share, *window) if share else out


def _plainly(window: Window) -> tuple[int, int, int, int, bool]:
    """As ``F.max_pool2d`` takes it, dilation included."""
    return window.kernel, window.stride, window.padding, 1, window.ceil_mode


# ---------------------------------------------------------------------------------------------------------------------
# The first layer's blocks


def unshuffle(x: Tensor, mean: Tensor, out: Tensor, padding: int) -> bool:
    """Write each 2×2 block of ``x - mean`` to channels of a pixel of ``out``; False if no kernel can."""
    if x.stride(3) != 1 or not by_kernel(x, out, mean):
        return False
    with torch.cuda.device_of(x):
        kernels().unshuffle(x, mean, out, padding)
    return True


def unshuffle_backward(gradient: Tensor, out: Tensor, padding: int) -> bool:
    """Write the gradient of :func:`unshuffle`'s input; False if no kernel can."""
    if not by_kernel(gradient, out):
        return False
    with torch.cuda.device_of(gradient):
        kernels().unshuffle_backward(dense(gradient), out, padding)
    return True
