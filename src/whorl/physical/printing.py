"""From a folder to a PDF, and the ``sheet.json`` by which photographs of it will be understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl.errors import WhorlError
from whorl.physical.contents import collect
from whorl.physical.layout import Layout
from whorl.physical.pdf import write_pdf
from whorl.physical.sheet import FILE, Sheet, arrange, write_sheets
from whorl.progress import Progress, silent


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What was made.

    Attributes:
        sheet: all pages.
        pdf: the file to print.
        records: the ``sheet.json`` files: one in the folder that was printed, one beside the PDF.
    """

    sheet: Sheet
    pdf: Path
    records: tuple[Path, ...]


def print_sheet(
    folder: str | Path,
    out: str | Path,
    *,
    layout: Layout | None = None,
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
        folder: see ``contents.collect`` for this, ``clean``, ``attacks``, ``limit`` and ``size``.
        out: the PDF file.
        layout: of the pages; A4 with images of 38 mm by default.
        clean: where the clean images are.
        attacks: print only these.
        limit: take only the first so many images.
        size: side in pixels.
        progress: called with each page.
    """
    folder, out = Path(folder), Path(out)
    if out.suffix.lower() != ".pdf":
        raise WhorlError(f"expected a path that ends in .pdf, got {str(out)!r}.")
    if not folder.is_dir():
        raise WhorlError(f"{folder}: no such folder. Expected a run folder, or a folder of labelled images.")
    groups = collect(folder, clean=clean, attacks=attacks, limit=limit, size=size)
    sheet = arrange(groups, layout or Layout())
    write_pdf(sheet, out, progress=progress)
    places = dict.fromkeys(place.resolve() for place in (folder / FILE, out.with_name(FILE)))
    for place in places:
        write_sheets(place, [sheet])
    return Printed(sheet=sheet, pdf=out, records=tuple(places))
