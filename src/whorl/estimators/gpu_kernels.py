# mypy: ignore-errors
# ruff: noqa: RUF005, RET505
# Triton's language is Python to read, not to type-check. Its tuples grow by adding only, and what comes after a return
# is compiled too.
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
    """The pixels of this program's tile of an image, and whether they are in it."""
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
def _words(pointer):
    """Take bfloat16 in pairs: a word gives two values with one instruction each."""
    if pointer.dtype.element_ty == tl.bfloat16:
        return pointer.to(tl.pointer_type(tl.int32), bitcast=True)
    else:
        return pointer


@triton.jit
def _bring(sums, words, share):
    """Add a share of what was read from :func:`_words` to its sums: of the even and the odd lanes, or of all."""
    if words.dtype == tl.int32:
        even = (words << 16).to(tl.float32, bitcast=True)
        odd = (words & -65536).to(tl.float32, bitcast=True)
        return sums[0] + even * share, sums[1] + odd * share
    else:
        return (sums[0] + words * share,)


@triton.jit
def _whole(sums):
    """Make one block of the sums of even and odd lanes."""
    if len(sums) == 2:
        return tl.interleave(sums[0], sums[1])
    else:
        return sums[0]


@triton.jit
def _between(corner, down, right, next_row: tl.constexpr, line: tl.constexpr):
    """Interpolate between the value at ``corner`` and those right of, below and diagonal to it."""
    both = down * right  # shares serve many lanes: they cost less than differences of values
    sums = _bring((0.0, 0.0), tl.load(corner), 1 - down - right + both)
    sums = _bring(sums, tl.load(corner + line), right - both)
    sums = _bring(sums, tl.load(corner + next_row * line), down - both)
    return _whole(_bring(sums, tl.load(corner + (next_row + 1) * line), both))


@triton.jit(do_not_specialize=["planes"])
def blur_image(  # long: one kernel is one function, wide: its launch
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
    """Blur (plane, height, width) images along both axes.

    Out: the same layout, or, if ``grouped``, [group][pixel][lane] with a border of zeros one pixel wide, so that a
    gather may look past the edge.
    """
    border: tl.constexpr = 1 if grouped else 0
    column = tl.program_id(0) * block_columns + tl.arange(0, block_columns) - border
    start = tl.program_id(1) * segment - border
    first = tl.program_id(2) * block_planes
    plane = first + tl.arange(0, block_planes)
    nil = tl.zeros((1, 1), tl.int32)  # the interpreter joins masks right only where both are blocks
    inside = ((column >= 0) & (column < width))[None, :]
    # Planes that there are not read the last: theirs is never looked at.
    source = x + tl.minimum(plane, planes - 1)[:, None].to(tl.int64) * (height * width) + column[None, :]
    if grouped:
        target_row: tl.constexpr = (width + 2) * lanes
        group = (first // lanes).to(tl.int64) * ((height + 2) * (width + 2) * lanes)
        lane = tl.multiple_of(first % lanes, block_planes) + tl.arange(0, block_planes)
        target = out + group + target_row + (column + 1)[None, :] * lanes + lane[:, None]
        covered = (column <= width)[None, :]
        nothing = tl.zeros((block_planes, block_columns), out.dtype.element_ty)
        tl.store(target - target_row, nothing, mask=covered & (start + nil < 0))
        tl.store(target + height * target_row, nothing, mask=covered & (start + nil > height - segment))
    else:
        target_row: tl.constexpr = width
        target = out + plane[:, None].to(tl.int64) * (height * width) + column[None, :]
        covered = inside & (plane < planes)[:, None]
    sums = _no_sums(row_taps, block_planes, block_columns)
    for step in range(0, segment + row_taps - 1, ahead):
        values = ()
        for k in tl.static_range(ahead):  # several reads under way at once
            y = start + step + k - row_taps // 2 + nil
            value = tl.zeros((block_planes, block_columns), tl.float32)
            for t in tl.static_range(column_taps):
                away = t - column_taps // 2
                there = ((column >= -away) & (column < width - away))[None, :] & (y >= 0) & (y < height)
                near = tl.load(source + y * width + away, mask=there, other=0.0)
                value += near.to(tl.float32) * column_weights[t]
            values = values + (value * inside.to(tl.float32) if grouped else value,)  # a choice would cost more
        for k in tl.static_range(ahead):
            sums = _add(sums, values[k], row_weights, row_taps)
            y = start + step + k - (row_taps - 1) + nil
            finished = covered & (y >= tl.maximum(start, 0)) & (y < tl.minimum(start + segment, height))
            tl.store(target + y * target_row, sums[0].to(out.dtype.element_ty), mask=finished)


@triton.jit
def blur_around(
    images,
    table,
    out,
    weights,
    n: tl.constexpr,
    angles: tl.constexpr,
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
    group = (tl.num_programs(2) - 1 - tl.program_id(2)).to(tl.int64)  # what was written last is in the cache yet
    live = radius < n
    lane = tl.arange(0, lanes)[None, :]
    nil = tl.zeros((1, 1), tl.int32)
    line: tl.constexpr = lanes * images.dtype.element_ty.primitive_bitwidth // 32
    source = _words(images) + group * ((height + 2) * (width + 2) * line) + tl.arange(0, line)[None, :]
    target = out + group * (angles * n * lanes) + radius[:, None] * lanes + lane
    lift: tl.constexpr = ((taps // 2 + angles - 1) // angles) * angles
    sums = _no_sums(taps, block, lanes)
    for step in range(0, segment + taps - 1, ahead):
        samples = ()
        for k in tl.static_range(ahead):
            angle = (start + step + k - taps // 2 + lift) % angles
            position, down, right = _place(table, angle * n + radius, live)
            samples = samples + (_between(source + position[:, None] * line, down, right, width + 2, line),)
        for k in tl.static_range(ahead):
            sums = _add(sums, samples[k], weights, taps)
            angle = start + step + k - (taps - 1) + nil
            finished = live[:, None] & (angle >= start) & (angle < start + segment) & (angle < angles)
            tl.store(target + angle * (n * lanes), sums[0].to(out.dtype.element_ty), mask=finished)


@triton.jit
def blur_outwards(
    polar,
    out,
    weights,
    n: tl.constexpr,
    angles: tl.constexpr,
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
    live = (angle <= angles)[:, None]
    lane = tl.arange(0, lanes)[None, :]
    nil = tl.zeros((1, 1), tl.int32)
    source = polar + group * (angles * n * lanes) + (angle % angles)[:, None] * (n * lanes) + lane
    target = out + group * ((angles + 1) * n * lanes) + angle[:, None] * (n * lanes) + lane
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


@triton.jit
def _store_pixels(out, value, pixel, live, planes, size: tl.constexpr, lanes: tl.constexpr, full: tl.constexpr):
    """Put [pixel][lane] into images of ``size`` pixels. ``full``: there is no group with fewer planes than lanes."""
    first = tl.program_id(1) * lanes
    lane = tl.arange(0, lanes)[None, :]
    covered = live[:, None] if full else live[:, None] & (first + lane < planes)
    # In this order what differs between the planes of a thread is known to the compiler.
    target = out + first.to(tl.int64) * size + pixel[:, None] + lane * size
    tl.store(target, value.to(out.dtype.element_ty), mask=covered)


@triton.jit(do_not_specialize=["planes"])
def leave_polar(
    polar,
    table,
    out,
    planes,
    height: tl.constexpr,
    width: tl.constexpr,
    n: tl.constexpr,
    angles: tl.constexpr,
    lanes: tl.constexpr,
    full: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
):
    """Go back to images. In: what :func:`blur_outwards` gives. Out: (plane, height, width), any floating dtype."""
    pixel, live = _tile(height, width, block_rows, block_columns)
    group = tl.program_id(1)
    position, down, right = _place(table, pixel, live)
    line: tl.constexpr = lanes * polar.dtype.element_ty.primitive_bitwidth // 32
    source = _words(polar) + group.to(tl.int64) * ((angles + 1) * n * line) + tl.arange(0, line)[None, :]
    value = _between(source + position[:, None] * line, down, right, n, line)
    _store_pixels(out, value, pixel, live, planes, height * width, lanes, full)


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
    angles: tl.constexpr,
    taps: tl.constexpr,
    lanes: tl.constexpr,
    full: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
):
    """Blur along the radius and go back to images, at once: for few taps, whose reads the cache answers.

    In: what :func:`blur_around` gives. Out: (plane, height, width), any floating dtype.
    """
    pixel, live = _tile(height, width, block_rows, block_columns)
    group = tl.program_id(1)
    position, down, right = _place(table, pixel, live)
    inner = position % n
    line: tl.constexpr = lanes * polar.dtype.element_ty.primitive_bitwidth // 32
    source = _words(polar) + group.to(tl.int64) * (angles * n * line) + tl.arange(0, line)[None, :]
    sums = (0.0, 0.0)
    for side in tl.static_range(2):
        if side == 0:
            start, share = position, 1 - down
        else:  # after the last angle comes the first
            start, share = tl.where(position < (angles - 1) * n, position + n, inner), down
        corner = source + start[:, None] * line
        for t in tl.static_range(taps + 1):
            if t == 0:
                weight = (1 - right) * weights[0]
            elif t == taps:
                weight = right * weights[taps - 1]
            else:
                weight = weights[t] + right * (weights[t - 1] - weights[t])
            away = t - taps // 2
            if away == 0 or away == 1:  # these two radii there are always
                words = tl.load(corner + away * line)
            else:
                inside = ((inner >= -away) & (inner < n - away))[:, None]
                words = tl.load(corner + away * line, mask=inside, other=0)
            sums = _bring(sums, words, share * weight)
    _store_pixels(out, _whole(sums), pixel, live, planes, height * width, lanes, full)
