"""From a folder to a PDF: images without loss, markers, patches and text as vectors, every place exact."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from whorl.data.image_files import Pixels, decode
from whorl.errors import WhorlError
from whorl.files import atomic_write, check_writable, writing
from whorl.physical.codes import MODULES, Code, modules_of
from whorl.physical.contents import collect
from whorl.physical.layout import PATCHES, Box, PageLayout
from whorl.physical.libraries import library
from whorl.physical.sheet import FILE, Print, PrintedSheet, arrange, write_sheets
from whorl.progress import Progress, silent

DPI = 300.0
"""Dots per inch that pages are rendered at: what a common printer resolves."""
_POINTS = 72 / 25.4  # of a millimetre
_RULER = 50.0
_OVERLAP = 0.02  # mm; without it, hairlines of the black beneath show between light modules
# Renderers round outwards to whole pixels. Drawn a hair smaller, what ends on a dot does not spill over to the next.
_HAIR = 0.002


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What was made.

    Attributes:
        sheet: all pages.
        pdf: the file to print.
        records: the ``sheet.json`` files: one in the folder that was printed, one beside the PDF.
    """

    sheet: PrintedSheet
    pdf: Path
    records: tuple[Path, ...]


def print_sheet(
    folder: str | Path,
    out: str | Path,
    *,
    layout: PageLayout | None = None,
    clean: str | Path | None = None,
    attacks: Sequence[str] = (),
    limit: int | None = None,
    size: int | None = None,
    progress: Progress = silent,
) -> Printed:
    """Make a PDF of the images of a run folder, or of any labelled folder.

    ``sheet.json`` goes into the folder, so that scoring needs only to know the folder, and beside the PDF, so that the
    two can be handed to somebody else. It keeps earlier prints of the same folder.

    Args:
        folder: a run folder, or adversarial or labelled images; see :func:`whorl.physical.collect`.
        out: the PDF file.
        layout: of the pages; A4 with images of 38 mm by default.
        clean: labelled images that the adversarial ones were made from; a run folder knows them by itself.
        attacks: print only these of a run folder.
        limit: take only the first so many images, each with all its versions.
        size: side in pixels to print labelled images at; adversarial ones keep theirs.
        progress: called with each page.

    Returns:
        What was printed, and where the PDF and each ``sheet.json`` lie.

    Raises:
        WhorlError: no such folder, nothing to print in it, or a path that cannot be written to.
    """
    folder, out = Path(folder), Path(out)
    if out.suffix.lower() != ".pdf":
        raise WhorlError(f"expected a path that ends in .pdf, got {str(out)!r}.")
    if not folder.is_dir():
        raise WhorlError(f"{folder}: no such folder. Expected a run folder, or a folder of labelled images.")
    for place in (out, folder / FILE):
        check_writable(place)
    groups = collect(folder, clean=clean, attacks=attacks, limit=limit, size=size)
    sheet = arrange(groups, layout or PageLayout())
    write_pdf(sheet, out, progress=progress)
    places = dict.fromkeys(place.resolve() for place in (folder / FILE, out.with_name(FILE)))
    for place in places:
        write_sheets(place, [sheet])
    return Printed(sheet=sheet, pdf=out, records=tuple(places))


def write_pdf(sheet: PrintedSheet, path: Path, *, progress: Progress = silent) -> None:
    """Write a sheet as PDF; the file appears whole or not at all.

    The same sheet gives the same bytes.

    Args:
        sheet: what to print.
        path: the file.
        progress: called with each page.
    """
    with writing(path), atomic_write(path) as file:
        draw_pages(sheet, range(sheet.pages), file, progress=progress)


def draw_pages(sheet: PrintedSheet, pages: Sequence[int], file: IO[bytes], *, progress: Progress = silent) -> None:
    """Draw some pages of a sheet into an open file."""
    # Renderers round a page up to whole pixels, and a page that is larger by the last digit would get one more.
    size = tuple(length * _POINTS - 1e-3 for length in sheet.layout.paper)
    # invariant: no date and no random name, so that a file can be compared
    canvas = library("reportlab.pdfgen.canvas").Canvas(file, pagesize=size, pageCompression=1, invariant=1)
    canvas.setTitle(f"whorl sheet {sheet.name}")
    for done, page in enumerate(pages):
        progress("drawing pages", done, len(pages))
        _Pen(canvas, sheet.layout.paper[1]).page(sheet, page)
        canvas.showPage()
    canvas.save()
    progress("drawing pages", len(pages), len(pages))


def render_pages(sheet: PrintedSheet, pages: Sequence[int] | None = None, *, dpi: float = DPI) -> Iterator[Pixels]:
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
    document = library("pypdfium2").PdfDocument(source)
    try:
        for page in document:
            yield np.ascontiguousarray(page.render(scale=dpi / 72, rev_byteorder=True).to_numpy()[..., :3])
    finally:
        document.close()


class _Pen:
    """Draws in millimetres from the top left corner; PDF counts points from the bottom."""

    def __init__(self, canvas: Any, height: float) -> None:
        self.canvas, self.height = canvas, height

    def page(self, sheet: PrintedSheet, page: int) -> None:
        layout, pages = sheet.layout, sheet.pages
        for strip in layout.strips():
            for box, colour in zip(strip, PATCHES, strict=True):
                self.rectangle(box, colour)
        header = layout.header()
        # Not a letter of it may change, or simulated photographs of the same sheet come out differently.
        about = f"page {page + 1} of {pages}   images {layout.image:g} mm   print at 100%"
        self.text(header.left, header.top + 3.5, f"whorl   sheet {sheet.name}   {about}", 8)
        self.ruler(header)
        for item in sheet.on_page(page):
            self.image(sheet.box(item), item)
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

    def image(self, box: Box, item: Print) -> None:
        pixels = Image.fromarray(decode(item.file, size=item.size))
        reader = library("reportlab.lib.utils").ImageReader(pixels)
        self.canvas.drawImage(reader, *self.points(box))

    def marker(self, box: Box, code: Code) -> None:
        self.rectangle(box, (0, 0, 0))
        side, light = box.width / MODULES, modules_of(code)
        for row in range(MODULES):
            for column in np.flatnonzero(light[row]).tolist():
                # Reaching into the light neighbours to the right and below.
                wide = side + _OVERLAP * int(light[row, column + 1])
                high = side + _OVERLAP * int(light[row + 1, column])
                self.rectangle(Box(box.left + column * side, box.top + row * side, wide, high), (255, 255, 255))
