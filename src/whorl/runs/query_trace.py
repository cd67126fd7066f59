"""The course of a black-box attack on disk: each image's steps as a table, and success against queries as a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from whorl.attacks import Trace
from whorl.files import atomic_write

Outcome = tuple[int, bool]
"""Queries that an image took, and whether the target gave way."""

_WIDTH, _HEIGHT = 960, 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 40, 60, 80
_INK, _GRID, _PAPER = "#222222", "#dddddd", "#ffffff"
# Told apart in print and by colour-blind readers (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_LEAST_SPAN = 10


def write_trace(path: Path, trace: Trace, place: int) -> None:
    """Write one image's steps as CSV: queries so far, loss (empty where unknown) and distance.

    Args:
        path: of the file; folders are made.
        trace: of a batch.
        place: of the image in it.
    """
    rows = zip(
        trace.queries[:, place].tolist(), trace.loss[:, place].tolist(), trace.distance[:, place].tolist(), strict=True
    )
    lines = ["queries,loss,distance"]
    last: tuple[int, float, float] | None = None
    for queries, loss, distance in rows:
        # An image that is done stays in the batch's trace with its last values: once is enough.
        if last is None or queries != last[0]:
            lines.append(f"{queries},{'' if math.isnan(loss) else f'{loss:.6g}'},{distance:.6g}")
        last = (queries, loss, distance)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def success_curve(outcomes: Sequence[Outcome]) -> list[tuple[int, float]]:
    """Share of images that gave way within so many queries: steps upwards, from no queries at all.

    >>> success_curve([(1, True), (100, False), (40, True), (40, True)])
    [(0, 0.0), (1, 0.25), (40, 0.75)]
    """
    curve = [(0, 0.0)]
    won = sorted(queries for queries, success in outcomes if success)
    for place, queries in enumerate(won, start=1):
        share = place / len(outcomes)
        if curve[-1][0] == queries:
            curve[-1] = (queries, share)
        else:
            curve.append((queries, share))
    return curve


def write_curve(path: Path, runs: Mapping[str, Sequence[Outcome]], *, budget: int) -> Path:
    """Draw success against queries, on a logarithmic axis, as a PNG.

    Args:
        path: of the image.
        runs: outcomes of the images of each run, by what to call it.
        budget: where the axis ends.
    """
    canvas = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw, text, small = ImageDraw.Draw(canvas), ImageFont.load_default(20), ImageFont.load_default(16)
    end = math.log10(max(budget, _LEAST_SPAN))

    def at(queries: float, share: float) -> tuple[float, float]:
        along = math.log10(max(queries, 1)) / end
        return _LEFT + along * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    for share in (0, 0.25, 0.5, 0.75, 1):
        draw.line([at(1, share), at(10**end, share)], fill=_GRID)
        draw.text((_LEFT - 10, at(1, share)[1]), f"{share:.0%}", fill=_INK, font=small, anchor="rm")
    for power in range(int(end) + 1):
        draw.line([at(10**power, 0), at(10**power, 1)], fill=_GRID)
        draw.text((at(10**power, 0)[0], _HEIGHT - _BOTTOM + 8), f"{10**power:,}", fill=_INK, font=small, anchor="mt")
    draw.text((_WIDTH / 2, _HEIGHT - 22), "queries", fill=_INK, font=text, anchor="ms")
    draw.text((_LEFT, 24), "Images that gave way", fill=_INK, font=text, anchor="lm")
    for place, (name, outcomes) in enumerate(runs.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [at(0, 0)]
        for queries, share in success_curve(outcomes):
            points += [(at(queries, 0)[0], points[-1][1]), at(queries, share)]
        points.append((at(10**end, 0)[0], points[-1][1]))
        draw.line(points, fill=colour, width=3)
        count = f"{name}: {sum(success for _, success in outcomes)} of {len(outcomes)}"
        draw.text((_WIDTH - _RIGHT, 24 + 22 * place), count, fill=colour, font=small, anchor="rm")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        canvas.save(file, format="PNG")
    return path
