"""A gallery as an image file, drawn with Pillow alone, so that it needs no browser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from whorl.files import atomic_write, writing
from whorl.report.charts import FAINT, FOOLED, INK, RECOGNISED
from whorl.report.gallery import Example, Gallery, Tile

Place = tuple[int, int]

SIDE, FRAME, GAP, CAPTION, GUTTER, MARGIN, HEADING, LINE = 172, 5, 12, 25, 84, 24, 34, 22
PAPER = "#ffffff"
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "optimize": True},
    "pdf": {"format": "PDF", "resolution": 150, "quality": 95},
}


def save_gallery(stem: Path, gallery: Gallery, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write a gallery as files, each of which appears whole or not at all.

    Args:
        stem: the path without its ending.
        gallery: what to draw.
        formats: "png" and "pdf"; others are left out.

    Returns:
        The files.

    Raises:
        WhorlError: a file cannot be written.
    """
    sheet, written = draw(gallery), []
    for ending in (name for name in formats if name in _OPTIONS):
        path = stem.with_name(f"{stem.name}.{ending}")
        with writing(path), atomic_write(path) as file:
            sheet.save(file, **_OPTIONS[ending])
        written.append(path)
    return written


def draw(gallery: Gallery) -> Image.Image:
    """Draw the images one below the other, a row of tiles for each version of each."""
    rows = sum(len(example.rows) for example in gallery.examples)
    width = 2 * MARGIN + GUTTER + len(gallery.columns) * (SIDE + GAP) - GAP
    about = _wrapped(gallery.about, 16, width - 2 * MARGIN - 260)  # the legend stands beside it
    top = MARGIN + 36 + LINE * max(1, len(about)) + HEADING
    height = top + MARGIN + rows * (SIDE + CAPTION + GAP) + len(gallery.examples) * HEADING
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    _write(pen, (MARGIN, MARGIN), _shortened(gallery.title, 24, width - 2 * MARGIN), 24)
    for number, line in enumerate(about):
        _write(pen, (MARGIN, MARGIN + 36 + LINE * number), line, 16, FAINT)
    _legend(pen, (width - MARGIN, MARGIN + 36))
    left = MARGIN + GUTTER
    for column, heading in enumerate(gallery.columns):
        middle = left + column * (SIDE + GAP) + SIDE // 2
        _write(pen, (middle, top - 8), _shortened(heading, 16, SIDE), 16, anchor="ms")
    for example in gallery.examples:
        top = _example(sheet, pen, (left, top), example)
    return sheet


def _example(sheet: Image.Image, pen: ImageDraw.ImageDraw, place: Place, example: Example) -> int:
    """Draw one image's rows; give where the next one begins."""
    left, top = place
    _write(pen, (left, top + 4), example.truth, 20)
    _write(pen, (left + round(_font(20).getlength(example.truth)) + GAP, top + 8), example.id, 15, FAINT)
    top += HEADING
    for row in example.rows:
        _write(pen, (left - GAP, top + SIDE // 2), _shortened(row.name, 18, GUTTER), 18, anchor="rm")
        for column, tile in enumerate(row.tiles):
            if tile is not None:
                _tile(sheet, pen, (left + column * (SIDE + GAP), top), tile)
        top += SIDE + CAPTION + GAP
    return top


def _tile(sheet: Image.Image, pen: ImageDraw.ImageDraw, place: Place, tile: Tile) -> None:
    x, y = place
    edge, colour = 0, INK
    if tile.fooled is not None:
        edge, colour = FRAME, FOOLED if tile.fooled else RECOGNISED
        pen.rounded_rectangle((x, y, x + SIDE - 1, y + SIDE - 1), radius=FRAME + 1, fill=colour)
    inner = SIDE - 2 * edge
    sheet.paste(tile.image.resize((inner, inner), Image.Resampling.LANCZOS), (x + edge, y + edge))
    if tile.fooled is not None:
        _badge(pen, (x + SIDE - FRAME - 22, y + FRAME), colour, tick=not tile.fooled)
    sure = "" if tile.probability is None else f" {100 * tile.probability:.0f}%"
    caption = _shortened(tile.caption, 15, SIDE - round(_font(15).getlength(sure))) + sure
    _write(pen, (x + SIDE // 2, y + SIDE + CAPTION // 2 + 1), caption, 15, colour, anchor="mm")


def _legend(pen: ImageDraw.ImageDraw, end: Place) -> None:
    x, y = end
    for text, colour in (("wrong", FOOLED), ("recognised", RECOGNISED)):
        x -= round(_font(16).getlength(text))
        _write(pen, (x, y), text, 16, colour)
        _badge(pen, (x - 28, y - 2), colour, tick=colour == RECOGNISED)
        x -= 46


def _badge(pen: ImageDraw.ImageDraw, place: Place, colour: str, *, tick: bool) -> None:
    """A square of 22 pixels with a white tick or cross, so that nobody needs to tell red from green."""
    x, y = place
    pen.rounded_rectangle((x, y, x + 22, y + 22), radius=4, fill=colour)
    # The font has neither.
    strokes = [[(5, 11), (9, 16), (17, 6)]] if tick else [[(6, 6), (16, 16)], [(16, 6), (6, 16)]]
    for stroke in strokes:
        pen.line([(x + right, y + down) for right, down in stroke], fill=PAPER, width=3, joint="curve")


def _write(
    pen: ImageDraw.ImageDraw, place: Place, text: str, size: int, colour: str = INK, *, anchor: str = "la"
) -> None:
    # Pillow's font has no multiplication sign.
    pen.text(place, text.replace("×", "x"), fill=colour, font=_font(size), anchor=anchor)


def _shortened(text: str, size: int, width: int) -> str:
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(f"{text}...") > width:
        text = text[:-1].rstrip()
    return f"{text}..."


def _wrapped(text: str, size: int, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _font(size).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
