"""The estimator on a GPU: three or four fused kernels, and the tables of places that they read.

What goes over memory is the gradient, two or three passages of it between the kernels, and the result. Sums are float32
whatever comes in. What lies between the kernels is float32 too, unless the gradient is bfloat16: then that is as well,
which has the same range and goes over memory in half the time. It is rounded once a kernel; others are once in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.geometry.kernels import Weights
from whorl.geometry.polar import polar_coordinates, polar_samples

# Planes that lie side by side, by bytes of a value: at most a line of the cache, which has 128 bytes.
_LANES = {4: 32, 2: 32}
# So many times the memory that the planes need is taken at most, where shorter lines help.
_WASTE = 1.125
# An axis is cut into more segments than a stage asks for where there would be fewer programs than fill a large GPU.
_PROGRAMS = 360
_SHORTEST_SEGMENT = 16


class Launch(NamedTuple):
    """How a stage is cut up."""

    block: int
    """Values in one program."""
    warps: int
    ahead: int
    """Reads under way at once along the axis."""
    segments: int
    """Pieces of an axis that run side by side."""


# By the most taps that they serve: sums are held in registers, one for each tap and value of a thread. Measured on an
# H200 with 64 images of 299 pixels.
_IMAGE = {
    1: Launch(1024, 8, 2, 12),
    7: Launch(512, 4, 1, 6),
    15: Launch(256, 2, 1, 3),
    31: Launch(512, 8, 1, 3),
    63: Launch(512, 16, 1, 3),
}
_ALONE = {15: Launch(512, 4, 2, 4), 31: Launch(256, 4, 1, 4), 63: Launch(256, 8, 1, 4)}
_AROUND = {
    7: Launch(512, 4, 7, 4),
    15: Launch(512, 4, 8, 2),
    31: Launch(256, 4, 8, 2),
    63: Launch(512, 16, 1, 6),
}
_OUTWARDS = {15: Launch(512, 4, 8, 3), 31: Launch(512, 8, 4, 3), 63: Launch(512, 16, 2, 3)}
# Half as long, values come in blocks twice as large.
_IMAGE_SHORT = _IMAGE | {1: Launch(1024, 4, 4, 24), 7: Launch(1024, 4, 1, 12)}
_AROUND_SHORT = _AROUND | {
    7: Launch(1024, 4, 9, 4),
    15: Launch(512, 2, 8, 3),
    31: Launch(256, 2, 6, 1),
}
# By bytes of a value: planes in one program, which has 32 columns at least; and where nothing is blurred.
_IMAGE_PLANES = {4: 8, 2: 32}
_COPIED_PLANES = {4: 16, 2: 32}
# Up to so many taps the blur along the radius is done while leaving polar coordinates.
_BLURRED_ON_LEAVING = 7
# Rows and columns of pixels in one program, warps: for that, for one tap, and for leaving alone.
_BACK_BLURRING = {4: (1, 16, 2), 2: (1, 64, 4)}
_BACK_STILL = (1, 64, 8)
_BACK = (1, 64, 4)


def estimate_on_gpu(gradient: Tensor, rows: Weights, columns: Weights, radii: Weights, angles: Weights) -> Tensor:
    """Do what :func:`whorl.estimators.fast.estimate` says.

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
    x = gradient.contiguous()
    how = layout_of(x, max(x.shape[-2:]))
    with torch.cuda.device_of(x):  # where Triton launches
        if not radii:
            return _blur_alone(x, how, rows, columns)
        polar = blur_around(blur_image(x, how, rows, columns), how, angles)
        return leave_polar(polar, how, radii, torch.empty_like(x))


class PlaneLayout(NamedTuple):
    """How planes lie between the kernels: side by side in groups, [group][pixel][lane]."""

    planes: int
    height: int
    width: int
    n: int
    """Radii."""
    angles: int
    lanes: int
    groups: int
    dtype: torch.dtype
    device: torch.device

    def scratch(self, pixels: int) -> Tensor:
        """Room for so many pixels of every plane."""
        return torch.empty(self.groups * pixels * self.lanes, dtype=self.dtype, device=self.device)


def layout_of(x: Tensor, angles: int) -> PlaneLayout:
    """How the planes of (B, C, H, W) images lie between kernels, for a polar grid of so many angles."""
    height, width = x.shape[-2:]
    planes = x.shape[0] * x.shape[1]
    between = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32
    lanes = _lanes(planes, _LANES[between.itemsize])
    groups = -(-planes // lanes)
    return PlaneLayout(planes, height, width, max(height, width), angles, lanes, groups, between, x.device)


def _blur_alone(x: Tensor, how: PlaneLayout, rows: Weights, columns: Weights) -> Tensor:
    """Blur images and leave them as they lie."""
    out, launch = torch.empty_like(x), _launch(_ALONE, rows, columns)
    _launch_image(x, out, how, rows, columns, launch, block_planes=1, deep=how.planes, grouped=False)
    return out


def blur_image(x: Tensor, how: PlaneLayout, rows: Weights, columns: Weights) -> Tensor:
    """Blur images and put them into groups, with a border."""
    size = how.dtype.itemsize
    launch = _launch(_IMAGE if how.dtype == torch.float32 else _IMAGE_SHORT, rows, columns)
    most_planes = _COPIED_PLANES if len(rows) == len(columns) == 1 else _IMAGE_PLANES
    block_planes = min(most_planes[size], how.lanes, launch.block // 32)
    out, deep = how.scratch((how.height + 2) * (how.width + 2)), how.groups * how.lanes // block_planes
    _launch_image(x, out, how, rows, columns, launch, block_planes=block_planes, deep=deep, grouped=True)
    return out


def _launch_image(  # wide: what the kernel takes
    x: Tensor,
    out: Tensor,
    how: PlaneLayout,
    rows: Weights,
    columns: Weights,
    launch: Launch,
    *,
    block_planes: int,
    deep: int,
    grouped: bool,
) -> None:
    from whorl.estimators import gpu_kernels as kernels

    border = 2 if grouped else 0
    block_columns = launch.block // block_planes
    across = -(-(how.width + border) // block_columns)
    segment = _segment(how.height + border, across * deep, launch.segments)
    kernels.blur_image[(across, -(-(how.height + border) // segment), deep)](
        x,
        out,
        rows,
        columns,
        how.planes,
        how.height,
        how.width,
        len(rows),
        len(columns),
        how.lanes,
        block_planes,
        block_columns,
        segment,
        launch.ahead,
        grouped,
        num_warps=launch.warps,
    )


def blur_around(images: Tensor, how: PlaneLayout, weights: Weights) -> Tensor:
    """Go to polar coordinates, by angle and radius, and blur around the circle."""
    from whorl.estimators import gpu_kernels as kernels

    there, _ = polar_tables(how.height, how.width, how.angles, how.device)
    out, around = how.scratch(how.angles * how.n), launch_around(how, len(weights))
    kernels.blur_around[around.grid](images, there, out, weights, *around.sizes, num_warps=around.warps)
    return out


class AroundLaunch(NamedTuple):
    """How a blur around the circle is launched."""

    grid: tuple[int, int, int]
    sizes: tuple[int, ...]
    """Of ``gpu_kernels.blur_around``, from ``n`` on."""
    warps: int


def launch_around(how: PlaneLayout, taps: int) -> AroundLaunch:
    """Cut up a blur of so many taps around the circle."""
    launch = _launch(_AROUND if how.dtype == torch.float32 else _AROUND_SHORT, (0.0,) * taps)
    block = max(1, launch.block // how.lanes)
    across = -(-how.n // block)
    segment = _segment(how.angles, across * how.groups, launch.segments)
    sizes = (how.n, how.angles, how.height, how.width, taps, how.lanes, block, segment, launch.ahead)
    return AroundLaunch((across, -(-how.angles // segment), how.groups), sizes, launch.warps)


def leave_polar(polar: Tensor, how: PlaneLayout, radii: Weights, out: Tensor) -> Tensor:
    """Blur along the radius and go back to images."""
    from whorl.estimators import gpu_kernels as kernels

    _, back = polar_tables(how.height, how.width, how.angles, how.device)
    blurring = len(radii) <= _BLURRED_ON_LEAVING
    leaving = _BACK_STILL if len(radii) == 1 else _BACK_BLURRING[how.dtype.itemsize]
    back_rows, back_columns, warps = leaving if blurring else _BACK
    full = how.planes % how.lanes == 0
    tiles = -(-how.height // back_rows) * -(-how.width // back_columns)
    image = (how.planes, how.height, how.width, how.n, how.angles)
    if blurring:
        shape = (len(radii), how.lanes, full, back_rows, back_columns)
        kernels.leave_polar_blurring[(tiles, how.groups)](polar, back, out, radii, *image, *shape, num_warps=warps)
        return out
    launch = _launch(_OUTWARDS, radii)
    blurred = how.scratch((how.angles + 1) * how.n)
    block = max(1, launch.block // how.lanes)
    across = -(-(how.angles + 1) // block)
    segment = _segment(how.n, across * how.groups, launch.segments)
    kernels.blur_outwards[(across, -(-how.n // segment), how.groups)](
        polar,
        blurred,
        radii,
        how.n,
        how.angles,
        len(radii),
        how.lanes,
        block,
        segment,
        launch.ahead,
        num_warps=launch.warps,
    )
    tile = (how.lanes, full, back_rows, back_columns)
    kernels.leave_polar[(tiles, how.groups)](blurred, back, out, *image, *tile, num_warps=warps)
    return out


def _launch(stage: dict[int, Launch], *weights: Weights) -> Launch:
    taps = max(map(len, weights))
    return next(launch for most, launch in stage.items() if taps <= most)


@lru_cache(maxsize=16)
def polar_tables(height: int, width: int, angles: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Say where the samples of both warps lie, in 64 bits each: position (24), fraction down (20), fraction right (20).

    Returns:
        There: (angles, n) by angle and radius, positions in an image with a border of one pixel. Back:
        (height, width), positions in a polar image by angle and radius.

    >>> there, back = polar_tables(4, 6, 8, torch.device("cpu"))
    >>> there.shape, back.shape
    (torch.Size([8, 6]), torch.Size([4, 6]))
    """
    # Tables outlive the mode they are first needed in.
    with torch.inference_mode(False), torch.device("cpu"):
        n = max(height, width)
        row, column = (place.T for place in polar_samples(height, width, angles))
        top, left = row.floor(), column.floor()
        # Who sees nothing of the image looks at a corner of its border.
        seen = (top >= -1) & (top < height) & (left >= -1) & (left < width)
        there = _packed((top + 1) * (width + 2) + left + 1, row - top, column - left, seen)

        i, j = polar_coordinates(height, width, angles)
        # The last radius is reached from the last but one, so that there is always a next.
        inner, before = i.floor().clamp(max=n - 2), j.floor().clamp(max=angles - 1)
        back = _packed(before * n + inner, j - before, i - inner, torch.ones_like(i, dtype=torch.bool))
        return there.to(device), back.to(device)


def _packed(position: Tensor, down: Tensor, right: Tensor, seen: Tensor) -> Tensor:
    one = 2**20 - 1
    packed = (position.long() << 40) | ((down * one).round().long() << 20) | (right * one).round().long()
    return torch.where(seen, packed, 0).contiguous()


def _lanes(planes: int, most: int) -> int:
    """How many planes lie side by side: the most, or less where the last group would be mostly empty.

    Two at least: the kernels read bfloat16 in pairs.

    >>> [_lanes(planes, 32) for planes in (192, 48, 24, 3, 1)]
    [32, 16, 8, 4, 2]
    """
    lanes = most
    while lanes > 8 and -(-planes // lanes) * lanes > _WASTE * planes:
        lanes //= 2
    return min(lanes, max(2, _power_of_two(planes)))


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _segment(length: int, programs: int, fewest: int) -> int:
    """Cut an axis for ``programs`` that each run along all of it; gives the length of a piece."""
    pieces = max(fewest, -(-_PROGRAMS // programs))
    return max(min(_SHORTEST_SEGMENT, length), -(-length // pieces))


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
