"""Pages as PDF: images without loss, markers, patches and text as vectors, every place exact."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whorl.data.image_files import decode
from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.physical.codes import MODULES, Code, modules_of
from whorl.physical.layout import PATCHES, Box
from whorl.physical.libraries import pdfium, reportlab_canvas, reportlab_utils
from whorl.physical.sheet import Print, Sheet
from whorl.progress import Progress, silent

Pixels = NDArray[np.uint8]

DPI = 300.0
"""Dots per inch that pages are rendered at: what a common printer resolves."""
_POINTS = 72 / 25.4  # of a millimetre
_RULER = 50.0
_OVERLAP = 0.02  # mm; without it, hairlines of the black beneath show between light modules
# Renderers round outwards to whole pixels. Drawn a hair smaller, what ends on a dot does not spill over to the next.
_HAIR = 0.002


def write_pdf(sheet: Sheet, path: Path, *, progress: Progress = silent) -> None:
    """Write a sheet as PDF; the file appears whole or not at all.

    The same sheet gives the same bytes.

    Args:
        sheet: what to print.
        path: the file.
        progress: called with each page.
    """
    try:
        with atomic_write(path) as file:
            draw_pages(sheet, range(sheet.pages), file, progress=progress)
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def draw_pages(sheet: Sheet, pages: Sequence[int], file: IO[bytes], *, progress: Progress = silent) -> None:
    """Draw some pages of a sheet into an open file."""
    # Renderers round a page up to whole pixels, and a page that is larger by the last digit would get one more.
    size = tuple(length * _POINTS - 1e-3 for length in sheet.layout.paper)
    # invariant: no date and no random name, so that a file can be compared
    canvas = reportlab_canvas().Canvas(file, pagesize=size, pageCompression=1, invariant=1)
    canvas.setTitle(f"whorl sheet {sheet.name}")
    for done, page in enumerate(pages):
        progress("drawing pages", done, len(pages))
        _Pen(canvas, sheet.layout.paper[1]).page(sheet, page)
        canvas.showPage()
    canvas.save()
    progress("drawing pages", len(pages), len(pages))


def render_pages(sheet: Sheet, pages: Sequence[int] | None = None, *, dpi: float = DPI) -> Iterator[Pixels]:
    """Draw each page as PDF and turn it into pixels, one page in memory at a time.

    Args:
        sheet: what to print.
        pages: which, from 0; None for all.
        dpi: dots per inch.

    Returns:
        (H, W, 3) RGB, uint8, of each page.
    """
    for page in range(sheet.pages) if pages is None else pages:
        drawn = io.BytesIO()
        draw_pages(sheet, [page], drawn)
        yield from render_pdf(drawn.getvalue(), dpi=dpi)


def render_pdf(source: Path | bytes, *, dpi: float = DPI) -> Iterator[Pixels]:
    """Turn the pages of a PDF file into pixels, one by one: (H, W, 3) RGB, uint8."""
    document = pdfium().PdfDocument(source)
    try:
        for page in document:
            yield np.ascontiguousarray(page.render(scale=dpi / 72, rev_byteorder=True).to_numpy()[..., :3])
    finally:
        document.close()


class _Pen:
    """Draws in millimetres from the top left corner; PDF counts points from the bottom."""

    def __init__(self, canvas: Any, height: float) -> None:
        self.canvas, self.height = canvas, height

    def page(self, sheet: Sheet, page: int) -> None:
        layout, pages = sheet.layout, sheet.pages
        for strip in layout.strips():
            for box, colour in zip(strip, PATCHES, strict=True):
                self.rectangle(box, colour)
        header = layout.header()
        line = f"whorl   sheet {sheet.name}   page {page + 1} of {pages}   images {layout.picture:g} mm   print at 100%"
        self.text(header.left, header.top + 3.5, line, 8)
        self.ruler(header)
        for item in sheet.on_page(page):
            self.picture(sheet.box(item), item)
            square = layout.square(item.place)
            self.text(square.left, square.top + square.height + 2.4, f"{page + 1}-{item.place + 1}", 6)
            for box, code in zip(layout.markers(item.place), sheet.codes(item), strict=True):
                self.marker(box, code)

    def rectangle(self, box: Box, colour: tuple[int, int, int]) -> None:
        self.canvas.setFillColorRGB(*(level / 255 for level in colour))
        self.canvas.rect(*self.points(box), stroke=0, fill=1)

    def points(self, box: Box) -> tuple[float, float, float, float]:
        """Left, bottom, width and height in points."""
        left, bottom = box.left + _HAIR, self.height - box.top - box.height + _HAIR
        edges = (left, bottom, box.width - 2 * _HAIR, box.height - 2 * _HAIR)
        return edges[0] * _POINTS, edges[1] * _POINTS, edges[2] * _POINTS, edges[3] * _POINTS

    def text(self, left: float, baseline: float, text: str, size: float) -> None:
        self.canvas.setFillColorRGB(0.25, 0.25, 0.25)
        self.canvas.setFont("Helvetica", size)
        self.canvas.drawString(left * _POINTS, (self.height - baseline) * _POINTS, text)

    def ruler(self, header: Box) -> None:
        """A line of known length, so that a print that was shrunk to fit can be told with a ruler."""
        left = header.left + header.width - _RULER
        self.rectangle(Box(left, header.top + 2.5, _RULER, 0.2), (0, 0, 0))
        for tick in (left, left + _RULER - 0.2):
            self.rectangle(Box(tick, header.top + 1.5, 0.2, 2.2), (0, 0, 0))
        self.text(left - 13, header.top + 3.5, f"{_RULER:g} mm", 8)

    def picture(self, box: Box, item: Print) -> None:
        pixels = Image.fromarray(decode(item.file, size=item.size))
        self.canvas.drawImage(reportlab_utils().ImageReader(pixels), *self.points(box))

    def marker(self, box: Box, code: Code) -> None:
        self.rectangle(box, (0, 0, 0))
        side, light = box.width / MODULES, modules_of(code)
        for row in range(MODULES):
            for column in np.flatnonzero(light[row]).tolist():
                # Reaching into the light neighbours to the right and below.
                wide = side + _OVERLAP * int(light[row, column + 1])
                high = side + _OVERLAP * int(light[row + 1, column])
                self.rectangle(Box(box.left + column * side, box.top + row * side, wide, high), (255, 255, 255))
