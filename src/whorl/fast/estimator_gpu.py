"""The estimator on a GPU: four fused kernels, and the tables of places that they read.

What goes over memory is the gradient, three passages of it between the kernels, and the result. Sums are float32
whatever comes in; results are rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from whorl.geometry.kernels import Weights

# Planes that lie side by side: 128 bytes, a line of the cache.
_LANES = 32
# Values in one program of a kernel, and how many of them a thread may hold for so many taps.
_BLOCK = 512
_HELD = ((15, 4), (31, 2), (63, 1))
_PICTURE_PLANES = 8
# An axis is cut into so many segments, or more where there would be fewer programs than fill a large GPU.
_PICTURE_SEGMENTS = 3
_AROUND_SEGMENTS = 6
_OUTWARDS_SEGMENTS = 3
_PROGRAMS = 360
_SHORTEST_SEGMENT = 16
_BACK_ROWS, _BACK_COLUMNS = 2, 32


def estimate_on_gpu(gradient: Tensor, rows: Weights, columns: Weights, radii: Weights, angles: Weights) -> Tensor:
    """Do what :func:`whorl.fast.estimator.estimate` says.

    Args:
        gradient: (B, C, H, W), float32, bfloat16 or float16; at most 2²² pixels, a border of one included.
        rows: weights of shifts along the rows' axis; an odd number, at most 63, of them, as of the others.
        columns: weights along the columns.
        radii: weights along the radius. Empty: no polar part.
        angles: weights around the circle.

    Returns:
        (B, C, H, W), dtype of ``gradient``, contiguous.
    """
    if torch.compiler.is_compiling():
        out: Tensor = torch.ops.whorl.fused_estimate(gradient, rows, columns, radii, angles)
        return out
    return _estimate(gradient, rows, columns, radii, angles)


def _estimate(gradient: Tensor, rows: Weights, columns: Weights, radii: Weights, angles: Weights) -> Tensor:
    from whorl.fast import estimator_kernels as kernels

    x = gradient.contiguous()
    height, width = x.shape[-2:]
    planes, n = x.shape[0] * x.shape[1], max(height, width)
    out = torch.empty_like(x)
    lanes = min(_LANES, _power_of_two(planes))
    groups = -(-planes // lanes)
    grouped = bool(radii)
    border = 2 if grouped else 0
    block_planes = min(_PICTURE_PLANES, lanes) if grouped else 1
    block_columns = _BLOCK // 8 if grouped else _BLOCK // 2

    def scratch(pixels: int) -> Tensor:
        return torch.empty(groups * pixels * lanes, dtype=torch.float32, device=x.device)

    with _device_of(x):
        blurred = scratch((height + 2) * (width + 2)) if grouped else out
        across = -(-(width + border) // block_columns)
        deep = groups * lanes // block_planes if grouped else planes
        segment = _segment(height + border, across * deep, _PICTURE_SEGMENTS)
        kernels.blur_picture[(across, -(-(height + border) // segment), deep)](
            x,
            blurred,
            rows,
            columns,
            planes,
            height,
            width,
            len(rows),
            len(columns),
            lanes,
            block_planes,
            block_columns,
            segment,
            grouped,
            num_warps=_warps(block_planes * block_columns, max(len(rows), len(columns))),
        )
        if not grouped:
            return out
        there, back = polar_tables(height, width, x.device)
        block = _BLOCK // lanes
        turned = scratch(n * n)
        across = -(-n // block)
        segment = _segment(n, across * groups, _AROUND_SEGMENTS)
        kernels.blur_around[(across, -(-n // segment), groups)](
            blurred,
            there,
            turned,
            angles,
            n,
            height,
            width,
            len(angles),
            lanes,
            block,
            segment,
            2,
            num_warps=_warps(_BLOCK, len(angles)),
        )
        del blurred  # the allocator may give its memory to the next
        polar = scratch((n + 1) * n)
        across = -(-(n + 1) // block)
        segment = _segment(n, across * groups, _OUTWARDS_SEGMENTS)
        kernels.blur_outwards[(across, -(-n // segment), groups)](
            turned, polar, radii, n, len(radii), lanes, block, segment, 4, num_warps=_warps(_BLOCK, len(radii))
        )
        tiles = -(-height // _BACK_ROWS) * -(-width // _BACK_COLUMNS)
        kernels.leave_polar[(tiles, groups)](
            polar, back, out, planes, height, width, n, lanes, _BACK_ROWS, _BACK_COLUMNS, num_warps=4
        )
    return out


@lru_cache(maxsize=16)
def polar_tables(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Say where the samples of both warps lie, in 64 bits each: position (24), fraction down (20), fraction right (20).

    Returns:
        There: (n, n) by angle and radius, positions in a picture with a border of one pixel. Back: (height, width),
        positions in a polar picture by angle and radius.

    >>> there, back = polar_tables(4, 6, torch.device("cpu"))
    >>> there.shape, back.shape
    (torch.Size([6, 6]), torch.Size([4, 6]))
    """
    # Tables outlive the mode they are first asked for in.
    with torch.inference_mode(False), torch.device("cpu"):
        n = max(height, width)
        row_centre, column_centre = (height - 1) / 2, (width - 1) / 2
        longest = math.hypot(row_centre, column_centre)
        grid = torch.arange(n, dtype=torch.float64)
        radius = (grid * (longest / (n - 1)))[None, :]
        angle = (grid * (2 * math.pi / n))[:, None]
        row, column = row_centre + radius * angle.sin(), column_centre + radius * angle.cos()
        top, left = row.floor(), column.floor()
        # Who sees nothing of the picture looks at a corner of its border.
        seen = (top >= -1) & (top < height) & (left >= -1) & (left < width)
        there = _packed((top + 1) * (width + 2) + left + 1, row - top, column - left, seen)

        down = (torch.arange(height, dtype=torch.float64) - row_centre)[:, None]
        right = (torch.arange(width, dtype=torch.float64) - column_centre)[None, :]
        i = (torch.hypot(down, right) * ((n - 1) / longest)).clamp(max=n - 1)
        j = torch.remainder(torch.atan2(down, right), 2 * math.pi) * (n / (2 * math.pi))
        # The last radius is reached from the last but one, so that there is always a next.
        inner, before = i.floor().clamp(max=n - 2), j.floor().clamp(max=n - 1)
        back = _packed(before * n + inner, j - before, i - inner, torch.ones_like(i, dtype=torch.bool))
        return there.to(device), back.to(device)


def _packed(position: Tensor, down: Tensor, right: Tensor, seen: Tensor) -> Tensor:
    one = 2**20 - 1
    packed = (position.long() << 40) | ((down * one).round().long() << 20) | (right * one).round().long()
    return torch.where(seen, packed, 0).contiguous()


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _segment(length: int, programs: int, fewest: int) -> int:
    """Cut an axis for ``programs`` that each run along all of it; gives the length of a piece."""
    pieces = max(fewest, -(-_PROGRAMS // programs))
    return max(min(_SHORTEST_SEGMENT, length), -(-length // pieces))


def _warps(values: int, taps: int) -> int:
    held = next(held for most, held in _HELD if taps <= most)
    return max(1, values // (32 * held))


def _device_of(x: Tensor) -> torch.cuda.device:
    # Triton launches on the current device. Without a GPU (its interpreter) there is none to choose.
    return torch.cuda.device(x.device if x.is_cuda else -1)


# To torch.compile the estimate is one opaque operation.
@torch.library.custom_op(
    "whorl::fused_estimate",
    mutates_args=(),
    schema="(Tensor gradient, float[] rows, float[] columns, float[] radii, float[] angles) -> Tensor",
)
def _compiled(
    gradient: Tensor, rows: Sequence[float], columns: Sequence[float], radii: Sequence[float], angles: Sequence[float]
) -> Tensor:
    return _estimate(gradient, tuple(rows), tuple(columns), tuple(radii), tuple(angles))


@_compiled.register_fake
def _(gradient: Tensor, *_weights: Sequence[float]) -> Tensor:
    return torch.empty_like(gradient, memory_format=torch.contiguous_format)
