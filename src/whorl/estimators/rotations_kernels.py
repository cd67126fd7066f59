# mypy: ignore-errors
# ruff: noqa: RUF005
# Triton's language is Python to read, not to type-check. Its tuples grow by adding only.
"""The GPU kernel that averages over wide rotations, in Triton; see :mod:`whorl.estimators.rotations_gpu`."""

import triton
import triton.language as tl

from whorl.estimators.gpu_kernels import _between, _place, _words, blur_around


@triton.jit
def _sample(source, table, angle, radius, live, n: tl.constexpr, width: tl.constexpr, line: tl.constexpr):
    """Values of all lanes at some angles and radii, 0 where there is no such radius."""
    position, down, right = _place(table, angle * n + radius, live)
    return _between(source + position[:, None] * line, down, right, width + 2, line)


@triton.jit(do_not_specialize=["steepness"])
def blur_around_by_series(  # long: one kernel is one function, wide: its launch
    images,
    table,
    waves,
    out,
    steepness,
    n: tl.constexpr,
    angles: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    terms: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
    step: tl.constexpr,
    precision: tl.constexpr,
):
    """Go to polar coordinates and blur around the circle with a bell curve, by the first terms of its Fourier series.

    In: groups with a border; ``table`` [angle][radius] says where each sample lies; ``waves`` as
    ``rotations_gpu.waves`` has them. Out: [group][angle][radius][lane]. A program does ``block`` whole circles.
    """
    half: tl.constexpr = angles // 2
    quarter: tl.constexpr = angles // 4
    rows: tl.constexpr = (quarter // step + 1) * step
    group = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)  # what was written last is in the cache yet
    line: tl.constexpr = lanes * images.dtype.element_ty.primitive_bitwidth // 32
    source = _words(images) + group * ((height + 2) * (width + 2) * line) + tl.arange(0, line)[None, :]
    k = tl.arange(0, step * block)
    radius = tl.program_id(0) * block + k % block
    live = radius < n
    term = tl.arange(0, terms)
    row = tl.arange(0, step)
    even_cosines = tl.zeros((terms, block * lanes), tl.float32)
    odd_cosines = tl.zeros((terms, block * lanes), tl.float32)
    even_sines = tl.zeros((terms, block * lanes), tl.float32)
    odd_sines = tl.zeros((terms, block * lanes), tl.float32)
    for start in range(0, rows, step):
        # Past the first quarter a wave repeats its values but for signs: four samples share the factors of one.
        at = tl.minimum(start + k // block, quarter)  # beyond it all waves are 0
        once = tl.where((at == 0) | (at == quarter), 0.5, 1.0)[:, None]  # where two of the four are the same
        first = _sample(source, table, at, radius, live, n, width, line) * once
        second = _sample(source, table, half - at, radius, live, n, width, line) * once
        third = _sample(source, table, half + at, radius, live, n, width, line) * once
        fourth = _sample(source, table, (angles - at) % angles, radius, live, n, width, line) * once
        wave = waves + (start + row)[None, :] * terms + term[:, None]
        evens, odds = first + third, first - third
        other_evens, other_odds = second + fourth, second - fourth
        shown = tl.reshape(evens + other_evens, (step, block * lanes))
        even_cosines = tl.dot(tl.load(wave), shown, even_cosines, input_precision=precision)
        shown = tl.reshape(odds - other_odds, (step, block * lanes))
        odd_cosines = tl.dot(tl.load(wave + rows * terms), shown, odd_cosines, input_precision=precision)
        shown = tl.reshape(evens - other_evens, (step, block * lanes))
        even_sines = tl.dot(tl.load(wave + 2 * rows * terms), shown, even_sines, input_precision=precision)
        shown = tl.reshape(odds + other_odds, (step, block * lanes))
        odd_sines = tl.dot(tl.load(wave + 3 * rows * terms), shown, odd_sines, input_precision=precision)

    even = 2 * term.to(tl.float32) * steepness
    odd = even + steepness
    share = (tl.where(term == 0, 1.0, 2.0) / angles * tl.exp(-even * even))[:, None]
    even_cosines, even_sines = even_cosines * share, even_sines * share
    share = (2.0 / angles * tl.exp(-odd * odd))[:, None]
    odd_cosines, odd_sines = odd_cosines * share, odd_sines * share

    column = tl.program_id(0) * block * lanes + tl.arange(0, block * lanes)[None, :]
    inside = column < n * lanes
    target = out + group * (angles * n * lanes) + column
    around: tl.constexpr = n * lanes
    for start in range(0, rows, step):
        at = (start + row)[:, None]
        wave = waves + at * terms + term[None, :]
        ec = tl.dot(tl.load(wave), even_cosines, input_precision=precision)
        oc = tl.dot(tl.load(wave + rows * terms), odd_cosines, input_precision=precision)
        es = tl.dot(tl.load(wave + 2 * rows * terms), even_sines, input_precision=precision)
        os = tl.dot(tl.load(wave + 3 * rows * terms), odd_sines, input_precision=precision)
        dtype: tl.constexpr = out.dtype.element_ty
        covered = inside & (at <= quarter)
        tl.store(target + at * around, (ec + oc + es + os).to(dtype), mask=covered)
        tl.store(target + (half - at) * around, (ec - oc - es + os).to(dtype), mask=covered & (at < quarter))
        tl.store(target + (half + at) * around, (ec - oc + es - os).to(dtype), mask=covered & (at > 0))
        last = covered & (at > 0) & (at < quarter)
        tl.store(target + (angles - at) * around, (ec + oc - es - os).to(dtype), mask=last)


@triton.jit(do_not_specialize=["steps"])
def blur_around_by_series_of_step(
    images,
    table,
    waves,
    out,
    curves,
    now,
    steps,
    row: tl.constexpr,
    n: tl.constexpr,
    angles: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    terms: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
    step: tl.constexpr,
    precision: tl.constexpr,
):
    """Do the same with the curve of a step, or nothing if that is summed in another way.

    ``curves`` has ``row`` numbers for each step: how it is summed, by so many terms or (negative) taps; its steepness;
    its taps. ``now`` says which step it is.
    """
    curve = curves + tl.minimum(tl.load(now), steps - 1) * row
    if tl.load(curve) == terms:
        blur_around_by_series(
            images,
            table,
            waves,
            out,
            tl.load(curve + 1),
            n,
            angles,
            height,
            width,
            terms,
            lanes,
            block,
            step,
            precision,
        )


@triton.jit(do_not_specialize=["steps"])
def blur_around_of_step(
    images,
    table,
    out,
    curves,
    now,
    steps,
    row: tl.constexpr,
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
    """Do what ``gpu_kernels.blur_around`` does with the taps of a step, or nothing if that is summed in another way."""
    curve = curves + tl.minimum(tl.load(now), steps - 1) * row
    if tl.load(curve) == -taps:
        weights = ()
        for t in tl.static_range(taps):
            weights = weights + (tl.load(curve + 2 + t),)
        blur_around(images, table, out, weights, n, angles, height, width, taps, lanes, block, segment, ahead)
