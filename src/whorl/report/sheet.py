"""A sheet of small images with framed answers, drawn with Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from whorl.errors import WhorlError
from whorl.files import atomic_write

Colour = tuple[int, int, int]
Place = tuple[int, int]

SIDE, FRAME, GAP, CAPTION, GUTTER, MARGIN, HEADER = 172, 5, 12, 25, 84, 24, 92
PAPER: Colour = (255, 255, 255)
INK: Colour = (31, 35, 40)
FAINT: Colour = (89, 99, 110)
# Each tile also carries a tick or a cross, so that nobody needs to tell red from green.
RIGHT: Colour = (26, 142, 84)
FOOLED: Colour = (207, 34, 46)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One small image.

    Args:
        picture: (3, H, W) in [0, 1].
        caption: what to write below it.
        fooled: whether the answer is wrong; None if nobody was asked.
    """

    picture: Tensor
    caption: str = ""
    fooled: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One photograph: what it shows, and a row of tiles for each version of it. The name goes where a tile is None."""

    name: str
    rows: dict[str, tuple[Tile | None, ...]]


def draw(panels: Sequence[Panel], path: Path, *, title: str, subtitle: str, columns: Sequence[str]) -> None:
    """Draw panels one below the other and save them.

    Args:
        panels: all with the same columns.
        path: a PNG file, which appears whole or not at all.
        title: the first line.
        subtitle: the second line, smaller; a legend of the frames follows it.
        columns: heading of each column.
    """
    lines = sum(len(panel.rows) for panel in panels)
    width = 2 * MARGIN + GUTTER + len(columns) * (SIDE + GAP) - GAP
    height = 2 * MARGIN + HEADER + lines * (SIDE + CAPTION + GAP) + (len(panels) - 1) * GAP - GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    _write(pen, (MARGIN, MARGIN), title, 24)
    _write(pen, (MARGIN, MARGIN + 36), subtitle, 16, FAINT)
    _legend(pen, (width - MARGIN, MARGIN + 36))
    left, top = MARGIN + GUTTER, MARGIN + HEADER
    for column, heading in enumerate(columns):
        _write(pen, (left + column * (SIDE + GAP) + SIDE // 2, top - 8), heading, 16, anchor="ms")
    for panel in panels:
        for name, tiles in panel.rows.items():
            _write(pen, (left - GAP, top + SIDE // 2), name, 18, anchor="rm")
            for column, tile in enumerate(tiles):
                place = (left + column * (SIDE + GAP), top)
                if tile is None:
                    _name(pen, place, panel.name)
                else:
                    _tile(sheet, pen, place, tile)
            top += SIDE + CAPTION + GAP
        top += GAP
    try:
        with atomic_write(path) as file:
            sheet.save(file, format="PNG", optimize=True)
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def _tile(sheet: Image.Image, pen: ImageDraw.ImageDraw, place: Place, tile: Tile) -> None:
    x, y = place
    levels = (tile.picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    edge = 0 if tile.fooled is None else FRAME
    colour = INK
    if tile.fooled is not None:
        colour = FOOLED if tile.fooled else RIGHT
        pen.rounded_rectangle((x, y, x + SIDE - 1, y + SIDE - 1), radius=FRAME + 1, fill=colour)
    inner = SIDE - 2 * edge
    sheet.paste(Image.fromarray(levels).resize((inner, inner), Image.Resampling.LANCZOS), (x + edge, y + edge))
    if tile.fooled is not None:
        _badge(pen, (x + SIDE - FRAME - 22, y + FRAME), colour, tick=not tile.fooled)
    caption = _shortened(tile.caption, 15, SIDE)
    _write(pen, (x + SIDE // 2, y + SIDE + CAPTION // 2 + 1), caption, 15, colour, anchor="mm")


def _name(pen: ImageDraw.ImageDraw, place: Place, name: str) -> None:
    x, y = place
    _write(pen, (x + SIDE // 2, y + SIDE // 2 - 14), "a photograph of", 15, FAINT, anchor="mm")
    _write(pen, (x + SIDE // 2, y + SIDE // 2 + 12), _shortened(name, 22, SIDE), 22, anchor="mm")


def _legend(pen: ImageDraw.ImageDraw, end: Place) -> None:
    x, y = end
    for text, colour in (("wrong", FOOLED), ("recognised", RIGHT)):
        x -= round(_font(16).getlength(text))
        _write(pen, (x, y), text, 16, colour)
        _badge(pen, (x - 28, y - 2), colour, tick=colour == RIGHT)
        x -= 46


def _badge(pen: ImageDraw.ImageDraw, place: Place, colour: Colour, *, tick: bool) -> None:
    """A square of 22 pixels with a white tick or cross; the font has neither."""
    x, y = place
    pen.rounded_rectangle((x, y, x + 22, y + 22), radius=4, fill=colour)
    strokes = [[(5, 11), (9, 16), (17, 6)]] if tick else [[(6, 6), (16, 16)], [(16, 6), (6, 16)]]
    for stroke in strokes:
        pen.line([(x + right, y + down) for right, down in stroke], fill=PAPER, width=3, joint="curve")


def _write(
    pen: ImageDraw.ImageDraw, place: Place, text: str, size: int, colour: Colour = INK, *, anchor: str = "la"
) -> None:
    pen.text(place, text, fill=colour, font=_font(size), anchor=anchor)


def _shortened(text: str, size: int, width: int) -> str:
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(f"{text}...") > width:
        text = text[:-1].rstrip()
    return f"{text}..."


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
