"""Bars in pairs, drawn with Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from whorl.errors import WhorlError
from whorl.files import atomic_write

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
INK: Colour = (31, 35, 40)
FAINT: Colour = (89, 99, 110)
LINE: Colour = (225, 228, 232)
# Told apart by lightness, not by hue alone.
BEFORE: Colour = (176, 188, 201)
AFTER: Colour = (29, 96, 169)
MARGIN, NAME, LENGTH, THICK, GAP, TITLE, GUTTER = 28, 96, 320, 15, 12, 38, 70


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        value: share in [0, 1]; NaN draws nothing.
        label: for the legend.
        faint: whether it is what the others are compared with.
    """

    value: float
    label: str
    faint: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """A column of bars under one title; by name, one bar or several below each other."""

    title: str
    bars: Mapping[str, tuple[Bar, ...]]


def draw_bars(blocks: Sequence[Block], path: Path, *, title: str, subtitle: str) -> None:
    """Draw blocks side by side and save them as a PNG, which appears whole or not at all.

    Args:
        blocks: at least one.
        path: where.
        title: the first line.
        subtitle: the second line, smaller; the legend follows it.
    """
    column = NAME + LENGTH + GUTTER
    top = MARGIN + 104
    heights = [sum(len(bars) * (THICK + 2) + GAP for bars in block.bars.values()) for block in blocks]
    sheet = Image.new("RGB", (2 * MARGIN + column * len(blocks), top + TITLE + max(heights) + MARGIN), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN), title, fill=INK, font=_font(24))
    pen.text((MARGIN, MARGIN + 36), subtitle, fill=FAINT, font=_font(16))
    _legend(pen, blocks, MARGIN + 66)
    for place, block in enumerate(blocks):
        _block(pen, block, MARGIN + place * column, top)
    try:
        with atomic_write(path) as file:
            sheet.save(file, format="PNG", optimize=True)
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def _legend(pen: ImageDraw.ImageDraw, blocks: Sequence[Block], y: int) -> None:
    shown = dict.fromkeys((bar.label, bar.faint) for block in blocks for bars in block.bars.values() for bar in bars)
    x = MARGIN
    for label, faint in shown:
        pen.rectangle((x, y + 3, x + 15, y + 15), fill=BEFORE if faint else AFTER)
        pen.text((x + 22, y), label, fill=INK, font=_font(16))
        x += 46 + round(_font(16).getlength(label))


def _block(pen: ImageDraw.ImageDraw, block: Block, left: int, top: int) -> None:
    pen.text((left + NAME, top), block.title, fill=INK, font=_font(17))
    start, y = left + NAME, top + TITLE
    end = y + sum(len(bars) * (THICK + 2) + GAP for bars in block.bars.values()) - GAP
    for share in (0.0, 0.5, 1.0):
        x = start + round(share * LENGTH)
        pen.line((x, y - 4, x, end + 2), fill=LINE)
    for name, bars in block.bars.items():
        middle = y + len(bars) * (THICK + 2) // 2
        pen.text((start - 10, middle), name, fill=INK, font=_font(15), anchor="rm")
        for bar in bars:
            if not math.isnan(bar.value):
                length = round(min(1.0, max(0.0, bar.value)) * LENGTH)
                pen.rectangle((start, y, start + length, y + THICK - 1), fill=BEFORE if bar.faint else AFTER)
                text = f"{100 * bar.value:.1f}%"
                pen.text((start + length + 6, y + THICK // 2), text, fill=INK, font=_font(13), anchor="lm")
            y += THICK + 2
        y += GAP


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
