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

from whorl.models.prepared import pointwise
from whorl.models.prepared.pointwise import (
    Activation,
    Pool,
    Window,
    act_backward,
    average_pool,
    bias_act,
    empty,
    even,
)


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


class OutputPart(NamedTuple):
    """A range of a convolution's output channels, and what happens to it: pooled, bias added, activated."""

    width: int
    act: Activation
    pool: Pool | None = None
    smooth: float | None = None
    """Sharpness of the smooth rectifier whose derivative the activation gets; None for its own."""
    scale: float = 1.0
    """Factor on the gradient that it passes on to the convolution's input."""


class Room:
    """A tensor that is the concatenation of others along channels, each of which is written where it belongs.

    Args:
        widths: channels of each.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)
        self.whole: Tensor | None = None

    def place(self, index: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Where one of them goes, (B, C, H, W); whoever asks first makes the room."""
        batch, _, *sides = shape
        if self.whole is None:
            self.whole = empty((batch, sum(self.widths), *sides), like)
        start = sum(self.widths[:index])
        return self.whole[:, start : start + self.widths[index]]


# One of the places in a room.
Seat = tuple[Room, int]


class _Concatenation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, room: Room, *pieces: Tensor) -> Tensor:
        ctx.widths = room.widths
        for index, piece in enumerate(pieces):
            place = room.place(index, piece.shape, piece)
            if piece.data_ptr() != place.data_ptr() or piece.stride() != place.stride():
                place.copy_(piece)
        assert room.whole is not None  # noqa: S101 - there was at least one piece
        return room.whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Ranges of channels, not copied: what made the pieces can read them so.
        return None, *even(gradients[0]).split(ctx.widths, dim=1)


class Concatenation(nn.Module):
    """What fills a room, as one tensor. Pieces that are in their place already are not touched.

    Nothing may overwrite the result: those who wrote the pieces look at them again in the backward pass.
    """

    def forward(self, room: Room, *pieces: Tensor) -> Tensor:
        """From (B, C, H, W) pieces to (B, sum of C, H, W)."""
        whole: Tensor = _Concatenation.apply(room, *pieces)  # type: ignore[no-untyped-call]  # torch's own
        return whole


class _Convolution(torch.autograd.Function):
    """Convolution, bias, residual, activation; the output channels fall into parts, each a tensor of its own."""

    @staticmethod
    def forward(  # wide: autograd takes every tensor apart
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        how: Geometry,
        parts: Sequence[OutputPart],
        seats: Sequence[Seat | None],
        short_bias: Tensor | None = None,
        back: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        back = weight if back is None else back
        if short_bias is not None and _by_cudnn(x, residual, how, parts, seats):
            out = torch.cudnn_convolution_relu(x, weight, short_bias, how.stride, how.padding, how.dilation, how.groups)
            ctx.how, ctx.parts, ctx.shape, ctx.made, ctx.residual = how, parts, x.shape, out.shape, False
            ctx.save_for_backward(back, out)
            return (out,)
        z = torch.conv2d(x, weight, None, how.stride, how.padding, how.dilation, how.groups)
        outs, kept, start = [], [], 0
        for part, seat in zip(parts, seats, strict=True):
            stop = start + part.width
            out, seen = _finished(z[:, start:stop], bias[start:stop], residual, part, seat, alone=len(parts) == 1)
            # Autograd need not know of the room: its other places may be written to without making this one stale.
            outs.append(out if seat is None else out.data)
            if part.act != "none":
                kept.append(outs[-1] if seen is None else seen)
            start = stop
        ctx.how, ctx.parts, ctx.shape, ctx.made, ctx.residual = how, parts, x.shape, z.shape, residual is not None
        ctx.save_for_backward(back, *kept)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        outs = iter(kept)
        if len(ctx.parts) == 1 and ctx.parts[0].pool is None:
            [part], [gradient] = ctx.parts, gradients
            g = gradient if part.act == "none" else act_backward(gradient, next(outs), part.act, smooth=part.smooth)
        else:
            g = empty(ctx.made, gradients[0])
            start = 0
            for part, gradient in zip(ctx.parts, gradients, strict=True):
                place = g[:, start : start + part.width]
                seen = gradient if part.act == "none" else next(outs)
                given = {"into": place, "smooth": part.smooth}
                if part.pool is None:
                    act_backward(gradient, seen, part.act, **given)
                else:
                    pointwise.average_pool_backward(gradient, seen, part.pool, place.shape, part.act, **given)
                start += part.width
        how = ctx.how
        # Of the input only the shape and the memory format matter: its values go into the weights' gradient alone.
        stand_in = empty(ctx.shape, g)
        mask = [True, False, False]
        (into, _, _) = torch.ops.aten.convolution_backward(
            g, stand_in, weight, None, how.stride, how.padding, how.dilation, False, (0, 0), how.groups, mask
        )
        return into, None, None, g if ctx.residual else None, None, None, None, None, None


def _finished(
    piece: Tensor, bias: Tensor, residual: Tensor | None, part: OutputPart, seat: Seat | None, *, alone: bool
) -> tuple[Tensor, Tensor | None]:
    """What becomes of a convolution's bare result, and what went into a smooth activation, None for others.

    ``alone``: whether the result is a tensor of its own, which may be overwritten and given on.
    """
    if part.pool is None:
        # What a smooth derivative looks at lies where the bare result was.
        before = None if part.smooth is None else piece
        place = None if seat is None else seat[0].place(seat[1], piece.shape, piece)
        reuse = alone and before is None
        return bias_act(piece, bias, part.act, residual, reuse=reuse, into=place, before=before), before
    shape = (*piece.shape[:2], *part.pool.sides(piece))
    before = None if part.smooth is None else empty(shape, piece)
    place = None if seat is None else seat[0].place(seat[1], shape, piece)
    return average_pool(piece, part.pool, bias, part.act, into=place, before=before), before


def _by_cudnn(
    x: Tensor, residual: Tensor | None, how: Geometry, parts: Sequence[OutputPart], seats: Sequence[Seat | None]
) -> bool:
    """Whether cuDNN can do all of a layer in one kernel: it knows ReLU, and results that are tensors of their own."""
    there = x.is_cuda and torch.version.cuda is not None and torch.backends.cudnn.enabled
    alone = residual is None and list(seats) == [None] and how.groups == 1
    short = x.dtype in (torch.bfloat16, torch.float16)
    plain = parts[0].act == "relu" and parts[0].pool is None and parts[0].smooth is None
    return there and short and alone and plain


class Convolution(nn.Module):
    """A convolution with its folded batch norm, what is added to it, and its activation.

    Args:
        weight: (out, in / groups, rows, columns).
        bias: (out,).
        how: stride, padding and so on.
        parts: ranges of output channels; one tensor comes out for each.

    Calling it with (B, in, H, W), and a residual of the output's shape where there is but one part, gives a tensor, or
    a tuple of them if there are several parts. Parts that are to be concatenated with others can be given a seat each:
    a :class:`Room` and a place in it.
    """

    def __init__(self, weight: Tensor, bias: Tensor, how: Geometry, parts: Sequence[OutputPart]) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        # cuDNN adds a bias of the weights' own dtype. It is kept, or every pass would round it anew.
        self.register_buffer("short_bias", bias.detach().clone(), persistent=False)
        self.how, self.parts = how, tuple(parts)
        # The factor on its input's gradient costs nothing where that gradient's kernel holds it.
        scales = torch.cat([weight.new_full((part.width,), part.scale) for part in parts]).view(-1, 1, 1, 1)
        scaled = any(part.scale != 1 for part in parts)
        self.register_buffer("back", weight.detach() * scales if scaled else None, persistent=False)

    short_bias: Tensor
    back: Tensor | None

    def forward(
        self, x: Tensor, residual: Tensor | None = None, seats: Sequence[Seat | None] | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Convolve and all that follows."""
        seats = seats or (None,) * len(self.parts)
        given = (x, self.weight, self.bias, residual, self.how, self.parts, seats, self.short_bias, self.back)
        made = _Convolution.apply(*given)  # type: ignore[no-untyped-call]  # torch's own
        return made[0] if len(self.parts) == 1 else tuple(made)

    def extra_repr(self) -> str:
        """Describe the layer."""
        return f"{tuple(self.weight.shape)}, {self.how}, {[tuple(part) for part in self.parts]}"


class SamePadded(Convolution):
    """As TensorFlow pads: as much as a stride needs, and the odd pixel on the right and below."""

    def forward(
        self, x: Tensor, residual: Tensor | None = None, seats: Sequence[Seat | None] | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Pad, then convolve and all that follows."""
        pads: list[int] = []
        for axis in (1, 0):
            side, stride = x.shape[2 + axis], self.how.stride[axis]
            reach = (self.weight.shape[2 + axis] - 1) * self.how.dilation[axis] + 1
            needed = max((-(-side // stride) - 1) * stride + reach - side, 0)
            pads += [needed // 2, needed - needed // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x, residual, seats)


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, act: Activation, smooth: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.act, ctx.smooth = act, smooth
        return pointwise.activate(x, act)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        if x.dim() == 4:
            return act_backward(gradient, x, ctx.act, smooth=ctx.smooth), None, None
        return pointwise.smooth_backward(gradient, x, ctx.act, ctx.smooth).to(gradient.dtype), None, None


class Rectifier(nn.Module):
    """A rectifier with the derivative of a smooth one.

    Args:
        act: the rectifier.
        smooth: sharpness of the other, as of :class:`OutputPart`.
    """

    def __init__(self, act: Activation, smooth: float) -> None:
        super().__init__()
        self.act, self.smooth = act, smooth

    def forward(self, x: Tensor) -> Tensor:
        """Rectify a tensor of any shape."""
        out: Tensor = _Rectified.apply(x, self.act, self.smooth)  # type: ignore[no-untyped-call]  # torch's own
        return out


class MaxPool(nn.Module):
    """Max pooling with a square window.

    Args:
        window: the windows.
        share: of the gradient that goes to all pixels of a window alike.
    """

    def __init__(self, window: Window, share: float = 0.0) -> None:
        super().__init__()
        self.window, self.share = window, share

    def forward(self, x: Tensor, seats: Sequence[Seat] | None = None) -> Tensor:
        """Pool; into a room, if a seat is given."""
        if seats is None:
            return pointwise.max_pool(x, self.window, self.share)
        [(room, index)] = seats
        return pointwise.max_pool(x, self.window, self.share, into=room.place(index, self.window.shape(x), x))


class AveragePool(nn.Module):
    """Average pooling, whose gradient is right in channels-last memory on a GPU too."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Pool."""
        out: Tensor = pointwise.AveragePoolFunction.apply(x, self.pool)  # type: ignore[no-untyped-call]  # torch's own
        return out


# ---------------------------------------------------------------------------------------------------------------------
# The first layer


class _Unshuffle(torch.autograd.Function):
    """(B, C, H, W) to (B, channels, rows, columns): each 2×2 block of ``x - mean`` becomes channels of one pixel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, packed: tuple[int, int, int], padding: int, like: Tensor) -> Tensor:
        channels, rows, columns = packed
        out = empty((x.shape[0], channels, rows, columns), like)
        if not pointwise.unshuffle(x, mean, out, padding):
            out.zero_()
            for into, (h, w) in _blocks(out, x.shape, padding):
                torch.sub(x[:, :, h::2, w::2][:, :, : into.shape[2], : into.shape[3]], mean, out=into)
        ctx.shape, ctx.dtype, ctx.padding = x.shape, x.dtype, padding
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = gradients
        made = torch.empty(ctx.shape, dtype=ctx.dtype, device=gradient.device)
        if not pointwise.unshuffle_backward(gradient, made, ctx.padding):
            made.zero_()  # where the kernel never reaches
            for piece, (h, w) in _blocks(gradient, ctx.shape, ctx.padding):
                made[:, :, h::2, w::2][:, :, : piece.shape[2], : piece.shape[3]] = piece
        return made, None, None, None, None


def _blocks(packed: Tensor, shape: torch.Size, padding: int) -> list[tuple[Tensor, tuple[int, int]]]:
    """The four places in a 2×2 block: what the packed tensor has of each, and where in the image that starts."""
    _, channels, height, width = shape
    found = []
    for down in (0, 1):
        for right in (0, 1):
            # Image row h stands in padded row h + padding; those of this parity start here.
            h, w = (down - padding) % 2, (right - padding) % 2
            top, left = (h + padding) // 2, (w + padding) // 2
            count_h, count_w = len(range(h, height, 2)), len(range(w, width, 2))
            # Channel 4c + 2·down + right, for each channel c of the image.
            first = 2 * down + right
            part = packed[:, first : 4 * channels : 4, top : top + count_h, left : left + count_w]
            found.append((part, (h, w)))
    return found


class Stem(nn.Module):
    """A network's first layer, of stride 2, together with the image's normalisation.

    A convolution with three input channels leaves a matrix unit idle, and its strided gradient is slower still. The
    same sums come out of a convolution of stride 1 with half the kernel, over 2×2 blocks of pixels taken as channels.

    Args:
        weight: (out, in, side, side) of the convolution as it was.
        bias: (out,).
        padding: as it was.
        part: what follows.
        mean: of the normalisation.
        std: of the normalisation.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        padding: int,
        part: OutputPart,
        *,
        mean: Sequence[float],
        std: Sequence[float],
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
        self.conv = Convolution(packed, bias, Geometry(), [part])
        self.side, self.padding, self.reach, self.width = side, padding, half, width
        means = torch.tensor(mean, dtype=weight.dtype, device=weight.device).view(1, -1, 1, 1)
        self.register_buffer("mean", means, persistent=False)

    mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """From images (B, C, H, W) in [0, 1] to the first layer's result."""
        out_h, out_w = ((side + 2 * self.padding - self.side) // 2 + 1 for side in x.shape[2:])
        # Just what the kernel reaches, which may leave out a last odd row or take in one more of zeros.
        rows, columns = out_h + self.reach - 1, out_w + self.reach - 1
        shape = (self.width, rows, columns)
        packed: Tensor = _Unshuffle.apply(x, self.mean, shape, self.padding, self.conv.weight)  # type: ignore[no-untyped-call]  # torch's own
        made = self.conv(packed)
        assert isinstance(made, Tensor)  # noqa: S101 - it has one part
        return made
