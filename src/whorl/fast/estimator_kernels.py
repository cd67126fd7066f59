# mypy: ignore-errors
# ruff: noqa: RUF005
# Triton's language is Python to read, not to type-check, and its tuples grow by adding only.
"""The estimator's GPU kernels, in Triton.

Between the first and the last of them the planes (one channel of one image each) lie side by side: ``lanes`` planes
make a group, and a group is stored as [pixel][lane]. Every gather is then a read of whole rows, from wherever it comes.

A blur runs along its axis and keeps one unfinished sum for every tap in registers (:func:`_add`), so it reads and
writes each value once. Segments of the axis run side by side; each starts early by what the taps reach.

Sizes are known to the compiler. The weights are not: the same kernels serve every blur of the same length.
"""

import triton
import triton.language as tl


@triton.jit
def _add(sums, value, weights, taps: tl.constexpr):
    """Bring ``value`` into all sums that it is part of, and move them up; the first of the result is finished."""
    moved = ()
    for t in tl.static_range(taps - 1):
        moved = moved + (sums[t + 1] + value * weights[taps - 1 - t],)
    return moved + (value * weights[0],)


@triton.jit
def _no_sums(taps: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    sums = ()
    for _ in tl.static_range(taps):
        sums = sums + (tl.zeros((rows, columns), tl.float32),)
    return sums


@triton.jit
def _tile(height: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """The pixels of this program's tile of a picture, and whether they are in it."""
    across: tl.constexpr = (width + columns - 1) // columns
    k = tl.arange(0, rows * columns)
    row = (tl.program_id(0) // across) * rows + k // columns
    column = (tl.program_id(0) % across) * columns + k % columns
    return row * width + column, (row < height) & (column < width)


@triton.jit
def _place(table, at, live):
    """Unpack position, fraction down and fraction right from 24, 20 and 20 bits."""
    packed = tl.load(table + at, mask=live, other=0)
    down = ((packed >> 20) & 0xFFFFF).to(tl.int32).to(tl.float32) * (1 / 0xFFFFF)
    right = (packed & 0xFFFFF).to(tl.int32).to(tl.float32) * (1 / 0xFFFFF)
    return (packed >> 40).to(tl.int32), down[:, None], right[:, None]


@triton.jit
def _between(corner, down, right, next_row: tl.constexpr, lanes: tl.constexpr):
    """Interpolate between the value at ``corner`` and those right of, below and diagonal to it."""
    a = tl.load(corner).to(tl.float32)
    b = tl.load(corner + lanes).to(tl.float32)
    c = tl.load(corner + next_row * lanes).to(tl.float32)
    d = tl.load(corner + (next_row + 1) * lanes).to(tl.float32)
    top = a + right * (b - a)
    low = c + right * (d - c)
    return top + down * (low - top)


@triton.jit(do_not_specialize=["planes"])
def blur_picture(
    x,
    out,
    row_weights,
    column_weights,
    planes,
    height: tl.constexpr,
    width: tl.constexpr,
    row_taps: tl.constexpr,
    column_taps: tl.constexpr,
    lanes: tl.constexpr,
    block_planes: tl.constexpr,
    block_columns: tl.constexpr,
    segment: tl.constexpr,
    ahead: tl.constexpr,
    grouped: tl.constexpr,
):
    """Blur (plane, height, width) pictures along both axes.

    Out: the same layout, or, if ``grouped``, [group][pixel][lane] with a border of zeros one pixel wide, so that a
    gather may look past the edge.
    """
    border: tl.constexpr = 1 if grouped else 0
    column = tl.program_id(0) * block_columns + tl.arange(0, block_columns) - border
    start = tl.program_id(1) * segment - border
    first = tl.program_id(2) * block_planes
    plane = first + tl.arange(0, block_planes)
    nil = tl.zeros((1, 1), tl.int32)  # the interpreter joins masks right only where both are blocks
    source = x + plane[:, None].to(tl.int64) * (height * width) + column[None, :]
    there = (plane < planes)[:, None]
    inside = ((column >= 0) & (column < width))[None, :]
    if grouped:
        group = (first // lanes).to(tl.int64) * ((height + 2) * (width + 2) * lanes)
        lane = first % lanes + tl.arange(0, block_planes)
        target = out + group + (column + 1)[None, :] * lanes + lane[:, None]
        covered = (column <= width)[None, :]
    else:
        target = out + plane[:, None].to(tl.int64) * (height * width) + column[None, :]
        covered = inside & there
    sums = _no_sums(row_taps, block_planes, block_columns)
    for step in range(0, segment + row_taps - 1, ahead):
        values = ()
        for k in tl.static_range(ahead):  # several reads under way at once
            y = start + step + k - row_taps // 2 + nil
            row = there & (y >= 0) & (y < height)
            value = tl.zeros((block_planes, block_columns), tl.float32)
            for t in tl.static_range(column_taps):
                c = column + (t - column_taps // 2)
                near = tl.load(
                    source + y * width + (t - column_taps // 2), mask=row & ((c >= 0) & (c < width))[None, :], other=0.0
                )
                value += near.to(tl.float32) * column_weights[t]
            values = values + (value,)
        for k in tl.static_range(ahead):
            sums = _add(sums, values[k], row_weights, row_taps)
            y = start + step + k - (row_taps - 1) + nil
            finished = covered & (y >= start) & (y < start + segment) & (y < height + border)
            if grouped:
                blurred = tl.where(inside & (y >= 0) & (y < height), sums[0], 0.0)
                tl.store(target + (y + 1) * ((width + 2) * lanes), blurred.to(out.dtype.element_ty), mask=finished)
            else:
                tl.store(target + y * width, sums[0].to(out.dtype.element_ty), mask=finished)


@triton.jit
def blur_around(
    pictures,
    table,
    out,
    weights,
    n: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    taps: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
    segment: tl.constexpr,
    ahead: tl.constexpr,
):
    """Go to polar coordinates and blur around the circle.

    In: groups with a border; ``table`` [angle][radius] says where each sample lies. Out: [group][angle][radius][lane].
    """
    radius = tl.program_id(0) * block + tl.arange(0, block)
    start = tl.program_id(1) * segment
    group = tl.program_id(2).to(tl.int64)
    live = radius < n
    lane = tl.arange(0, lanes)[None, :]
    nil = tl.zeros((1, 1), tl.int32)
    source = pictures + group * ((height + 2) * (width + 2) * lanes) + lane
    target = out + group * (n * n * lanes) + radius[:, None] * lanes + lane
    lift: tl.constexpr = ((taps // 2 + n - 1) // n) * n
    sums = _no_sums(taps, block, lanes)
    for step in range(0, segment + taps - 1, ahead):
        samples = ()
        for k in tl.static_range(ahead):
            angle = (start + step + k - taps // 2 + lift) % n
            position, down, right = _place(table, angle * n + radius, live)
            samples = samples + (_between(source + position[:, None] * lanes, down, right, width + 2, lanes),)
        for k in tl.static_range(ahead):
            sums = _add(sums, samples[k], weights, taps)
            angle = start + step + k - (taps - 1) + nil
            finished = live[:, None] & (angle >= start) & (angle < start + segment) & (angle < n)
            tl.store(target + angle * (n * lanes), sums[0].to(out.dtype.element_ty), mask=finished)


@triton.jit
def blur_outwards(
    polar,
    out,
    weights,
    n: tl.constexpr,
    taps: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
    segment: tl.constexpr,
    ahead: tl.constexpr,
):
    """Blur along the radius.

    In: [group][angle][radius][lane]. Out: the same, with the first angle once more after the last.
    """
    angle = tl.program_id(0) * block + tl.arange(0, block)
    start = tl.program_id(1) * segment
    group = tl.program_id(2).to(tl.int64)
    live = (angle <= n)[:, None]
    lane = tl.arange(0, lanes)[None, :]
    nil = tl.zeros((1, 1), tl.int32)
    source = polar + group * (n * n * lanes) + (angle % n)[:, None] * (n * lanes) + lane
    target = out + group * ((n + 1) * n * lanes) + angle[:, None] * (n * lanes) + lane
    sums = _no_sums(taps, block, lanes)
    for step in range(0, segment + taps - 1, ahead):
        values = ()
        for k in tl.static_range(ahead):
            radius = start + step + k - taps // 2 + nil
            inside = live & (radius >= 0) & (radius < n)
            values = values + (tl.load(source + radius * lanes, mask=inside, other=0.0).to(tl.float32),)
        for k in tl.static_range(ahead):
            sums = _add(sums, values[k], weights, taps)
            radius = start + step + k - (taps - 1) + nil
            finished = live & (radius >= start) & (radius < start + segment) & (radius < n)
            tl.store(target + radius * lanes, sums[0].to(out.dtype.element_ty), mask=finished)


@triton.jit(do_not_specialize=["planes"])
def leave_polar(
    polar,
    table,
    out,
    planes,
    height: tl.constexpr,
    width: tl.constexpr,
    n: tl.constexpr,
    lanes: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
):
    """Go back to pictures. In: what :func:`blur_outwards` gives. Out: (plane, height, width), any floating dtype."""
    pixel, live = _tile(height, width, block_rows, block_columns)
    lane = tl.arange(0, lanes)
    group = tl.program_id(1)
    position, down, right = _place(table, pixel, live)
    source = polar + group.to(tl.int64) * ((n + 1) * n * lanes) + lane[None, :]
    value = _between(source + position[:, None] * lanes, down, right, n, lanes)
    plane = group * lanes + lane
    target = out + plane[None, :].to(tl.int64) * (height * width) + pixel[:, None]
    tl.store(target, value.to(out.dtype.element_ty), mask=live[:, None] & (plane < planes)[None, :])


@triton.jit(do_not_specialize=["planes"])
def leave_polar_blurring(
    polar,
    table,
    out,
    weights,
    planes,
    height: tl.constexpr,
    width: tl.constexpr,
    n: tl.constexpr,
    taps: tl.constexpr,
    lanes: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
):
    """Blur along the radius and go back to pictures, at once: for few taps, whose reads the cache answers.

    In: what :func:`blur_around` gives. Out: (plane, height, width), any floating dtype.
    """
    pixel, live = _tile(height, width, block_rows, block_columns)
    lane = tl.arange(0, lanes)
    group = tl.program_id(1)
    position, down, right = _place(table, pixel, live)
    before, inner = position // n, position % n
    source = polar + group.to(tl.int64) * (n * n * lanes) + lane[None, :]
    lines = ()
    for side in tl.static_range(2):
        line = source + (((before + side) % n) * n)[:, None] * lanes
        near = tl.zeros((block_rows * block_columns, lanes), tl.float32)
        far = tl.zeros((block_rows * block_columns, lanes), tl.float32)
        for t in tl.static_range(taps + 1):
            radius = inner + (t - taps // 2)
            inside = ((radius >= 0) & (radius < n))[:, None]
            value = tl.load(line + radius[:, None] * lanes, mask=inside, other=0.0).to(tl.float32)
            if t < taps:
                near += value * weights[t]
            if t > 0:
                far += value * weights[t - 1]
        lines = lines + (near + right * (far - near),)
    value = lines[0] + down * (lines[1] - lines[0])
    plane = group * lanes + lane
    target = out + plane[None, :].to(tl.int64) * (height * width) + pixel[:, None]
    tl.store(target, value.to(out.dtype.element_ty), mask=live[:, None] & (plane < planes)[None, :])
