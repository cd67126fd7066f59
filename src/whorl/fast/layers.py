"""The layers that a prepared network is made of: a convolution with all that follows it, and pooling.

A frozen network needs the gradient of its input alone. So a layer here remembers nothing but its result: that tells
where the activation let the gradient through, and the convolution's own gradient needs the weights only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.fast.pointwise import Activation, act_backward, activate, bias_act, dense, max_pool


class Geometry(NamedTuple):
    """How a convolution walks."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def in_place(self) -> bool:
        """Whether each output pixel sees the input pixel of the same place, and only that, for a 1×1 kernel."""
        return self == Geometry()


class Part(NamedTuple):
    """A range of a convolution's output channels, and what happens to it."""

    width: int
    act: Activation


class _Convolution(torch.autograd.Function):
    """Convolution, bias, residual, activation; the output channels fall into parts, each a tensor of its own."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, how: Geometry, parts: Sequence[Part]
    ) -> tuple[Tensor, ...]:
        z = torch.conv2d(x, weight, None, how.stride, how.padding, how.dilation, how.groups)
        outs, start = [], 0
        for part in parts:
            stop = start + part.width
            outs.append(bias_act(z[:, start:stop], bias[start:stop], part.act, residual, reuse=len(parts) == 1))
            start = stop
        ctx.how, ctx.parts, ctx.shape, ctx.residual = how, parts, x.shape, residual is not None
        ctx.save_for_backward(weight, *(out for out, part in zip(outs, parts, strict=True) if part.act != "none"))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        outs = iter(kept)
        if len(ctx.parts) == 1:
            [part], [gradient] = ctx.parts, gradients
            g = gradient if part.act == "none" else act_backward(gradient, next(outs), part.act)
        else:
            like = gradients[0]
            shape = (like.shape[0], sum(part.width for part in ctx.parts), *like.shape[2:])
            g = torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)
            start = 0
            for part, gradient in zip(ctx.parts, gradients, strict=True):
                place = g[:, start : start + part.width]
                act_backward(gradient, gradient if part.act == "none" else next(outs), part.act, into=place)
                start += part.width
        how = ctx.how
        # Of the input only the shape and the memory format matter: its values go into the weights' gradient alone.
        stand_in = torch.empty(ctx.shape, dtype=g.dtype, device=g.device, memory_format=torch.channels_last)
        mask = [True, False, False]
        (into, _, _) = torch.ops.aten.convolution_backward(
            g, stand_in, weight, None, how.stride, how.padding, how.dilation, False, (0, 0), how.groups, mask
        )
        return into, None, None, g if ctx.residual else None, None, None


class Convolution(nn.Module):
    """A convolution with its folded batch norm, what is added to it, and its activation.

    Args:
        weight: (out, in / groups, rows, columns).
        bias: (out,).
        how: stride, padding and so on.
        parts: ranges of output channels; one tensor comes out for each.
        hand: whether to use this module's own forward and backward, or plain operations that a compiler may fuse.

    Calling it with (B, in, H, W), and a residual of the output's shape where there is but one part, gives a tensor, or
    a tuple of them if there are several parts.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, how: Geometry, parts: Sequence[Part], *, hand: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.how, self.parts, self.hand = how, tuple(parts), hand

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Convolve and all that follows."""
        if self.hand:
            made = _Convolution.apply(x, self.weight, self.bias, residual, self.how, self.parts)  # type: ignore[no-untyped-call]
        else:
            made = self._plainly(x, residual)
        return made[0] if len(self.parts) == 1 else tuple(made)

    def _plainly(self, x: Tensor, residual: Tensor | None) -> list[Tensor]:
        z = torch.conv2d(x, self.weight, None, *self.how)
        z = z + self.bias.to(z.dtype).view(1, -1, 1, 1)
        if residual is not None:
            z = z + residual
        ranges = z.split([part.width for part in self.parts], dim=1)
        return [activate(piece, part.act) for piece, part in zip(ranges, self.parts, strict=True)]

    def extra_repr(self) -> str:
        """Describe the layer."""
        return f"{tuple(self.weight.shape)}, {self.how}, {[tuple(part) for part in self.parts]}"


class SamePadded(Convolution):
    """As TensorFlow pads: as much as a stride needs, and the odd pixel on the right and below."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Pad, then convolve and all that follows."""
        pads: list[int] = []
        for axis in (1, 0):
            side, stride = x.shape[2 + axis], self.how.stride[axis]
            reach = (self.weight.shape[2 + axis] - 1) * self.how.dilation[axis] + 1
            needed = max((-(-side // stride) - 1) * stride + reach - side, 0)
            pads += [needed // 2, needed - needed // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x, residual)


class _BiasAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, act: Activation) -> Tensor:
        out = bias_act(x, bias, act, reuse=False)
        ctx.act = act
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        return act_backward(gradients[0], out, ctx.act), None, None


class BiasAct(nn.Module):
    """``act(x + bias)``, where something stands between a convolution and its bias."""

    def __init__(self, bias: Tensor, act: Activation, *, hand: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.act: Activation = act
        self.hand = hand

    def forward(self, x: Tensor) -> Tensor:
        """Add and activate."""
        if self.hand:
            out: Tensor = _BiasAct.apply(x, self.bias, self.act)  # type: ignore[no-untyped-call]
            return out
        return activate(x + self.bias.to(x.dtype).view(1, -1, 1, 1), self.act)


class MaxPool(nn.Module):
    """Max pooling with a square window."""

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """Pool."""
        return max_pool(x, self.kernel, self.stride, self.padding)


class AveragePool(nn.Module):
    """Average pooling, whose gradient is right in channels-last memory on a GPU too.

    There torch 2.13 and before forget the padding in the backward pass (fixed in torch's #188345).

    Args:
        kernel_size: as ``F.avg_pool2d`` takes it, like the others.
    """

    def __init__(self, *, kernel_size: Any, stride: Any, padding: Any, **more: Any) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = (_pair(value) for value in (kernel_size, stride, padding))
        self.ceil_mode, self.counted = bool(more["ceil_mode"]), bool(more["count_include_pad"])
        self.divisor: int | None = more["divisor_override"]

    def forward(self, x: Tensor) -> Tensor:
        """Pool."""
        settings = (self.kernel, self.stride, self.padding, self.ceil_mode, self.counted, self.divisor)
        out: Tensor = _AveragePool.apply(x, settings)  # type: ignore[no-untyped-call]  # torch's own
        return out


class _AveragePool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, settings: tuple[Any, ...]) -> Tensor:
        ctx.settings, ctx.shape = settings, x.shape
        return F.avg_pool2d(x, *settings)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        kernel, stride, padding, ceil_mode, counted, _ = ctx.settings
        mirrored = stride == (1, 1) and counted and not ceil_mode
        if mirrored and all(side == 2 * edge + 1 for side, edge in zip(kernel, padding, strict=True)):
            # A pixel is in the windows around the pixels that are in its own window: the same sum once more.
            return F.avg_pool2d(dense(gradient), *ctx.settings), None
        like = gradient.new_empty(ctx.shape)
        made: Tensor = torch.ops.aten.avg_pool2d_backward(gradient.contiguous(), like, *ctx.settings)
        return dense(made), None


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


# ---------------------------------------------------------------------------------------------------------------------
# The first layer


class _Unshuffle(torch.autograd.Function):
    """(B, C, H, W) to (B, channels, rows, columns): each 2×2 block of ``x - mean`` becomes channels of one pixel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, packed: tuple[int, int, int], padding: int, like: Tensor) -> Tensor:
        channels, rows, columns = packed
        shape = (x.shape[0], channels, rows, columns)
        out = torch.empty(shape, dtype=like.dtype, device=x.device, memory_format=torch.channels_last).zero_()
        for into, (h, w) in _blocks(out, x.shape, padding):
            torch.sub(x[:, :, h::2, w::2][:, :, : into.shape[2], : into.shape[3]], mean, out=into)
        ctx.shape, ctx.dtype, ctx.padding = x.shape, x.dtype, padding
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = gradients
        # Zeros where the kernel never reaches.
        made = torch.zeros(ctx.shape, dtype=ctx.dtype, device=gradient.device)
        for piece, (h, w) in _blocks(gradient, ctx.shape, ctx.padding):
            made[:, :, h::2, w::2][:, :, : piece.shape[2], : piece.shape[3]] = piece
        return made, None, None, None, None


def _blocks(packed: Tensor, shape: torch.Size, padding: int) -> list[tuple[Tensor, tuple[int, int]]]:
    """The four places in a 2×2 block: what the packed tensor has of each, and where in the picture that starts."""
    _, channels, height, width = shape
    found = []
    for down in (0, 1):
        for right in (0, 1):
            # Picture row h stands in padded row h + padding; those of this parity start here.
            h, w = (down - padding) % 2, (right - padding) % 2
            top, left = (h + padding) // 2, (w + padding) // 2
            count_h, count_w = len(range(h, height, 2)), len(range(w, width, 2))
            # Channel 4c + 2·down + right, for each channel c of the picture.
            first = 2 * down + right
            part = packed[:, first : 4 * channels : 4, top : top + count_h, left : left + count_w]
            found.append((part, (h, w)))
    return found


class Stem(nn.Module):
    """A network's first layer, of stride 2, together with the picture's normalisation.

    A convolution with three input channels leaves a matrix unit idle, and its strided gradient is slower still. The
    same sums come out of a convolution of stride 1 with half the kernel, over 2×2 blocks of pixels taken as channels.

    Args:
        weight: (out, in, side, side) of the convolution as it was.
        bias: (out,).
        padding: as it was.
        act: what follows.
        mean: of the normalisation.
        std: of the normalisation.
        hand: see :class:`Convolution`.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        padding: int,
        act: Activation,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        hand: bool = True,
    ) -> None:
        super().__init__()
        out, channels, side, _ = weight.shape
        half = (side + 1) // 2
        width = -(-4 * channels // 16) * 16
        packed = torch.zeros(out, width, half, half, dtype=weight.dtype, device=weight.device)
        scaled = weight / torch.tensor(std, dtype=weight.dtype, device=weight.device).view(1, -1, 1, 1)
        for down in (0, 1):
            for right in (0, 1):
                taps = scaled[:, :, down::2, right::2]
                packed[:, 2 * down + right : 4 * channels : 4, : taps.shape[2], : taps.shape[3]] = taps
        self.conv = Convolution(packed, bias, Geometry(), [Part(out, act)], hand=hand)
        self.side, self.padding, self.reach, self.width = side, padding, half, width
        means = torch.tensor(mean, dtype=weight.dtype, device=weight.device).view(1, -1, 1, 1)
        self.register_buffer("mean", means, persistent=False)

    mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """From pictures (B, C, H, W) in [0, 1] to the first layer's result."""
        out_h, out_w = ((side + 2 * self.padding - self.side) // 2 + 1 for side in x.shape[2:])
        # Just what the kernel reaches, which may leave out a last odd row or take in one more of zeros.
        rows, columns = out_h + self.reach - 1, out_w + self.reach - 1
        shape = (self.width, rows, columns)
        packed: Tensor = _Unshuffle.apply(x, self.mean, shape, self.padding, self.conv.weight)  # type: ignore[no-untyped-call]
        made = self.conv(packed)
        assert isinstance(made, Tensor)  # noqa: S101 - it has one part
        return made


__all__ = ["AveragePool", "BiasAct", "Convolution", "Geometry", "MaxPool", "Part", "SamePadded", "Stem", "dense"]
