"""Look at a photograph: find its images, cut them out, put their colours right. No network is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whorl.physical.captures import Pixels, Settings, View
from whorl.physical.extraction import Seen, as_seen, measure, rectified, unit
from whorl.physical.finding import Findings, Found, find_cells
from whorl.physical.libraries import opencv
from whorl.physical.patches import Curves, balanced, grey_curves
from whorl.physical.sheet import Sheet


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """One image, cut out of a photograph.

    Attributes:
        sheet: fingerprint of its sheet.
        number: of its cell.
        seen: how it lies in the photograph.
        misfit: how far marker corners lie off a plane, in pixels.
        pictures: (h, w, 3) uint8 for each view.
    """

    sheet: int
    number: int
    seen: Seen
    misfit: float
    pictures: dict[View, Pixels]


@dataclass(frozen=True, eq=False, kw_only=True)
class Looked:
    """What a photograph shows, before any network is asked; small enough to be sent between processes.

    Attributes:
        photo: its name.
        cuts: every image that is wholly visible.
        partly: how many are not.
        reason: why there are no images; empty if there are.
        unbalanced: whether colours were to be put right, and no patch strip could be seen for some page.
    """

    photo: str
    cuts: list[Cut]
    partly: int = 0
    reason: str = ""
    unbalanced: bool = False


def look(photo: Pixels, name: str, sheets: Sequence[Sheet], settings: Settings) -> tuple[Looked, Findings]:
    """Find the images of a photograph, and cut them out.

    Args:
        photo: (H, W, 3) RGB, uint8.
        name: of the photograph.
        sheets: that may be in it.
        settings: how to look.
    """
    cv2 = opencv()
    found = find_cells(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), sheets)
    curves = _curves(photo, found.cells) if settings.white_balance else {}
    cuts = []
    for cell in found.cells:
        number, per_pixel = cell.sheet.number(cell.item), unit(cell, photo.shape, settings.scale_one)
        shift = settings.shift(name, number)
        pictures: dict[View, Pixels] = {}
        for view in settings.views:
            if view == "rectified":
                cut = rectified(photo, cell)
            else:
                cut = as_seen(photo, cell, per_pixel, shift, surroundings=settings.surroundings)
            curve = curves.get((cell.sheet.fingerprint, cell.item.page))
            if curve is not None:
                # Black around the image is no part of the photograph, and stays black.
                cut = np.where(cut.any(axis=-1, keepdims=True), balanced(cut, curve), cut)
            pictures[view] = cut
        seen = measure(cell, per_pixel, shift)
        cuts.append(Cut(sheet=cell.sheet.fingerprint, number=number, seen=seen, misfit=cell.misfit, pictures=pictures))
    looked = Looked(
        photo=name,
        cuts=cuts,
        partly=len(found.partly),
        reason="" if cuts else why_nothing(found),
        unbalanced=any(curve is None for curve in curves.values()),
    )
    return looked, found


def why_nothing(found: Findings) -> str:
    """Say why a photograph has no cell that counts."""
    if found.partly:
        return (
            f"{len(found.partly)} images are seen in part only: an image counts if all four markers are seen. "
            "Move back, or uncover the page."
        )
    if found.strangers:
        names = ", ".join(f"{fingerprint:05x}" for fingerprint in found.strangers)
        return f"markers of another print, sheet {names}. Score it with the run that it was printed from."
    return "no markers to be seen. Is it a photograph of a printed sheet, sharp and near enough?"


def _curves(photo: Pixels, cells: Sequence[Found]) -> dict[tuple[int, int], Curves | None]:
    """Curves of each page, by sheet and page."""
    pages: dict[tuple[int, int], list[Found]] = {}
    for cell in cells:
        pages.setdefault((cell.sheet.fingerprint, cell.item.page), []).append(cell)
    return {page: grey_curves(photo, own) for page, own in pages.items()}
