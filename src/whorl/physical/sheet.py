"""What was printed where: the cells of all pages, and ``sheet.json``, by which photographs are understood later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import floor
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.files import exclusive, json_text, read_back, write_file, writing
from whorl.physical.codes import CELL_BITS, SHEET_BITS, Code
from whorl.physical.layout import DOT, Box, PageLayout, whole_dots
from whorl.report.gallery import CLEAN
from whorl.runs.folder import checked

FORMAT = 1
_NAMES = {"picture": "image"}  # what format 1, and so the hash in markers on paper, says for a length of PageLayout
_NEARLY = 0.9
FILE = "sheet.json"


@dataclass(frozen=True, kw_only=True)
class Print:
    """One image on paper.

    Args:
        id: of the clean image; all versions of it share it.
        label: its 0-based class.
        class_name: of the class folder that it lay in, if that is a name and the class of a network is not known yet:
            ``label`` is then the folder's place.
        attack: which made this version, or "clean".
        source: network that it was crafted on; empty for a clean one, or if unknown.
        eps: radius of the ball; None if there is none.
        grad_evals: input gradients spent on it; None if unknown.
        seconds: time spent on it; None if unknown.
        file: where the image lies.
        size: (height, width) in pixels that it is printed at; the file may be larger.
        page: from 0.
        place: the cell on that page, row by row, from 0.
    """

    id: str
    label: int
    class_name: str = ""
    attack: str = CLEAN
    source: str = ""
    eps: float | None = None
    grad_evals: int | None = None
    seconds: float | None = None
    file: Path
    size: tuple[int, int]
    page: int = 0
    place: int = 0

    @property
    def version(self) -> str:
        """Attack and source, as in ``ai-dim on resnet18``."""
        return f"{self.attack} on {self.source}" if self.source else self.attack


@dataclass(frozen=True)
class PrintedSheet:
    """All pages of one print.

    Args:
        layout: where cells are on a page.
        prints: what is in them.
    """

    layout: PageLayout
    prints: tuple[Print, ...]

    def __post_init__(self) -> None:
        if not self.prints:
            raise WhorlError("a sheet needs at least one image; got none.")
        if self.pages * self.layout.places > 1 << CELL_BITS:
            raise WhorlError(f"a sheet holds at most {1 << CELL_BITS:,} cells; got {len(self.prints):,} images.")

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(item.page for item in self.prints) + 1

    @cached_property
    def fingerprint(self) -> int:
        """What its markers call it, 17 bits: prints that differ in anything that matters nearly always differ in it."""
        content: list[Any] = [_lengths(self.layout)]
        for item in self.prints:
            fields_of = {**asdict(item), "file": item.file.name, "seconds": None}
            del fields_of["class_name"]  # which sheets that are on paper already do not have
            content.append(fields_of)
        digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 64 - SHEET_BITS

    @property
    def name(self) -> str:
        """The fingerprint as people see it."""
        return f"{self.fingerprint:05x}"

    @cached_property
    def by_number(self) -> dict[int, Print]:
        """Prints by the number that their markers carry."""
        return {self.number(item): item for item in self.prints}

    def number(self, item: Print) -> int:
        """Count cells through all pages, from 0."""
        return item.page * self.layout.places + item.place

    def codes(self, item: Print) -> tuple[Code, ...]:
        """Give the messages of a cell's four markers."""
        return tuple(Code(sheet=self.fingerprint, cell=self.number(item), corner=corner) for corner in range(4))

    def on_page(self, page: int) -> Iterator[Print]:
        """Give the images of one page."""
        return (item for item in self.prints if item.page == page)

    def box(self, item: Print) -> Box:
        """Give the place of an image in millimetres: it fits into its cell's square, and keeps its shape.

        Where a whole number of dots for each pixel nearly fills the square, that is taken: no printer need resample it.
        """
        square, (height, width) = self.layout.square(item.place), item.size
        side = square.width / max(height, width)
        dots = floor(side / DOT + 1e-9)
        if dots >= 2 and dots * DOT >= _NEARLY * side:
            side = dots * DOT
        wide, high = whole_dots(width * side), whole_dots(height * side)
        left, top = (square.width - wide) / 2, (square.height - high) / 2
        return Box(square.left + whole_dots(left), square.top + whole_dots(top), wide, high)


def arrange(groups: Sequence[Sequence[Print]], layout: PageLayout) -> PrintedSheet:
    """Put images on pages, all versions of one image beside each other so that light falls on them alike.

    Args:
        groups: the versions of each image.
        layout: of the pages.

    Returns:
        The sheet. Which version comes first changes from image to image, so that none has the better places. A
        group is not split between two pages if a page can hold it.
    """
    placed: list[Print] = []
    at, places = 0, layout.places
    for turn, group in enumerate(groups):
        if len(group) <= places and at % places + len(group) > places:
            at += places - at % places
        first = turn % len(group)
        for item in (*group[first:], *group[:first]):
            placed.append(replace(item, page=at // places, place=at % places))
            at += 1
    return PrintedSheet(layout, tuple(placed))


def write_sheets(path: Path, sheets: Sequence[PrintedSheet]) -> None:
    """Write ``sheet.json``; sheets that are there already stay, unless they are written anew.

    Args:
        path: the file.
        sheets: to add.

    Raises:
        WhorlError: something else is there, or the file cannot be written.
    """
    with writing(path), exclusive(path.with_name(f".{path.name}")):  # or of two prints at once, one would be lost
        held = {sheet.fingerprint: sheet for sheet in (read_sheets(path) if path.exists() else ())}
        held |= {sheet.fingerprint: sheet for sheet in sheets}
        content = {"format": FORMAT, "sheets": [_to_json(sheet, path.parent) for sheet in held.values()]}
        write_file(path, json_text(content))


def read_sheets(path: str | Path) -> tuple[PrintedSheet, ...]:
    """Read what was printed from a run.

    Args:
        path: a ``sheet.json``, or a folder that holds one.

    Raises:
        WhorlError: there is none, or it cannot be read.
    """
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    sheets = read_back(file, lambda text: _sheets(json.loads(text), file.parent), remedy="and print the images again")
    if sheets is None:
        raise WhorlError(f"{path} holds no {FILE}. Print it first with `whorl physical print`.")
    return sheets


def _sheets(content: Any, folder: Path) -> tuple[PrintedSheet, ...]:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {FORMAT}")
    return tuple(_from_json(sheet, folder) for sheet in content["sheets"])


def _to_json(sheet: PrintedSheet, folder: Path) -> dict[str, Any]:
    folder = folder.resolve()

    def shown(item: Print) -> dict[str, Any]:
        file = item.file.resolve()
        # Relative where it can be, so that a run folder may move.
        place = file.relative_to(folder) if file.is_relative_to(folder) else file
        return {**asdict(item), "file": place.as_posix(), "size": list(item.size)}

    return {
        "fingerprint": sheet.name,
        "pages": sheet.pages,
        "layout_mm": _lengths(sheet.layout),
        "prints": [shown(item) for item in sheet.prints],
    }


def _from_json(content: dict[str, Any], folder: Path) -> PrintedSheet:
    known = {field.name for field in fields(Print)}

    def read(item: dict[str, Any]) -> Print:
        height, width = item["size"]
        kept = {name: value for name, value in item.items() if name in known}
        kept |= {"file": folder / item["file"], "size": (height, width)}
        checked(Print, kept)
        return Print(**kept)  # as it was: 8 and 8.0 would give other fingerprints

    lengths = {_NAMES.get(name, name): length for name, length in content["layout_mm"].items()}
    checked(PageLayout, lengths)
    sheet = PrintedSheet(PageLayout(**lengths), tuple(read(item) for item in content["prints"]))
    if sheet.name != content["fingerprint"]:  # which is a hash of all that matters, and on the paper
        raise ValueError(f"its prints are not those of sheet {content['fingerprint']}")
    return sheet


def _lengths(layout: PageLayout) -> dict[str, float]:
    """Give a layout's lengths by their names in ``sheet.json``."""
    return {next((old for old, new in _NAMES.items() if new == name), name): mm for name, mm in asdict(layout).items()}
