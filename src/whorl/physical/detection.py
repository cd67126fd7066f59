"""Which cells a photograph shows, and where: markers are found, read, and put together to cells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whorl.physical.codes import MODULES, Code, modules_of, read_modules
from whorl.physical.homography import Matrix, fit, jacobian, pixels_to_box, project, within
from whorl.physical.layout import Box, Points
from whorl.physical.libraries import opencv
from whorl.physical.sheet import Print, PrintedSheet

Grey = NDArray[np.uint8]

# Markers are searched in the photograph as it is, and in a smaller copy, where noise and blur weigh less; of a small
# photograph in a larger copy, where contours of few pixels are smoother.
_SMALL_SIDE = 2000
_LARGE_SIDE = 4000
_SAMPLES = 6  # pixels a module is sampled with, along each side
_SMALLEST = 1.5  # pixels of a module
_ALIKE = 0.75  # correlation from which a marker that no contour showed counts as seen where it must be
_NEAR = 20.0  # mm within which another marker of a cell is searched
_MISFIT = 0.25  # mm that marker corners may lie off a plane, root mean square
_STRANGERS = 2  # markers of one unknown sheet that must agree, as any square can be read as something


@dataclass(frozen=True, eq=False)
class Marker:
    """A marker that was read.

    Attributes:
        code: its message.
        corners: (4, 2) pixels in the photograph: its top left corner, then clockwise as it was printed.
    """

    code: Code
    corners: Points


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """A cell that is wholly visible.

    Attributes:
        sheet: which it is on.
        item: what is printed in it.
        paper: millimetres on the page to pixels in the photograph, as it is near this cell.
        misfit: how far marker corners lie off ``paper``, in pixels, root mean square.
        corners: (16, 2) pixels, of its four markers.
    """

    sheet: PrintedSheet
    item: Print
    paper: Matrix
    misfit: float
    corners: Points

    @property
    def image(self) -> Matrix:
        """Pixels of the printed image to pixels of the photograph, centres at whole numbers."""
        return self.paper @ pixels_to_box(self.sheet.box(self.item), self.item.size)

    @property
    def outline(self) -> Points:
        """(4, 2) pixels of the photograph: the image's corners."""
        return project(self.paper, self.sheet.box(self.item).corners)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a photograph shows.

    Attributes:
        cells: wholly visible ones, in the order of their sheets.
        partly: images of which some markers are hidden, unreadable, or not in one plane.
        strangers: markers of sheets that are not ours, by the sheet's fingerprint.
    """

    cells: list[Found] = field(default_factory=list)
    partly: list[Print] = field(default_factory=list)
    strangers: dict[int, int] = field(default_factory=dict)


def find_cells(grey: Grey, sheets: Iterable[PrintedSheet]) -> Findings:
    """Find every cell in a photograph.

    Args:
        grey: (H, W) uint8.
        sheets: that may be in it. Several pages, several sheets and several copies of one page may be seen at once.

    Returns:
        What was found. A cell counts only if all four of its markers are seen, so that its image is not half hidden.
    """
    known = {sheet.fingerprint: sheet for sheet in sheets}
    ours: dict[tuple[int, int], list[Marker]] = defaultdict(list)
    strangers: Counter[tuple[int, int]] = Counter()
    for marker in read_markers(grey, known):
        code = marker.code
        if code.sheet in known:
            ours[code.sheet, code.cell].append(marker)
        else:
            strangers[code.sheet, code.cell] += 1
    cells: list[Found] = []
    doubtful: list[tuple[PrintedSheet, Print]] = []
    for (fingerprint, number), markers in ours.items():
        sheet = known[fingerprint]
        item = sheet.by_number[number]
        for seen in _apart(markers, sheet, item):
            cell = _complete(grey, {corner: marker.corners for corner, marker in seen.items()}, sheet, item)
            if cell is None:
                doubtful.append((sheet, item))
            else:
                cells.append(cell)
    cells += _missing_of_pages(grey, cells)
    there = {(cell.sheet.fingerprint, cell.sheet.number(cell.item)) for cell in cells}
    partly = [item for sheet, item in doubtful if (sheet.fingerprint, sheet.number(item)) not in there]
    cells.sort(key=lambda cell: (cell.sheet.fingerprint, cell.sheet.number(cell.item)))
    totals: Counter[int] = Counter()
    for (fingerprint, _), count in strangers.items():
        if count >= _STRANGERS:
            totals[fingerprint] += count
    return Findings(cells=cells, partly=partly, strangers=dict(totals))


def read_markers(grey: Grey, known: Mapping[int, PrintedSheet]) -> list[Marker]:
    """Find the markers of a photograph, and read them.

    Args:
        grey: (H, W) uint8.
        known: sheets by fingerprint. A message of one of them must name a cell that is there.

    Returns:
        Markers with corners to a fraction of a pixel. A marker of an unknown sheet comes only once it is certain which
        way up it is.
    """
    cv2 = opencv()
    longest = max(grey.shape)
    smaller = longest > 1.3 * _SMALL_SIDE
    factor = _SMALL_SIDE / longest if smaller else min(2.0, _LARGE_SIDE / longest)
    kind = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    copies = [(grey, 1.0), (cv2.resize(grey, None, fx=factor, fy=factor, interpolation=kind), factor)]
    markers: dict[Code, list[Points]] = defaultdict(list)
    for copy, factor in copies:
        for quad in _quads(copy):
            read = _read(copy, quad, known)
            if read is not None:
                code, turns = read
                # Upright after so many quarter turns counterclockwise: its first corner is the one that came later.
                corners = (np.roll(quad, -turns, axis=0) + 0.5) / factor - 0.5
                if not any(_same(other, corners) for other in markers[code]):
                    markers[code].append(corners)
    return [Marker(code, refine(grey, corners)) for code, places in markers.items() for corners in places]


def refine(grey: Grey, corners: Points) -> Points:
    """Place the corners of a marker to a fraction of a pixel.

    Args:
        grey: (H, W) uint8.
        corners: (4, 2), a few pixels off at most.

    Returns:
        (4, 2); a corner that would move by more than a module stays where it was.
    """
    cv2 = opencv()
    module = _side(corners) / MODULES
    # Not as far as the light modules behind the border.
    reach = int(np.clip(round(0.7 * module), 2, 15))
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 40, 0.01)
    start = corners.astype(np.float32).reshape(-1, 1, 2).copy()
    moved = cv2.cornerSubPix(grey, start, (reach, reach), (-1, -1), criteria).reshape(-1, 2).astype(np.float64)
    far = np.linalg.norm(moved - corners, axis=1) > max(1.5, module)
    return np.where(far[:, None], corners, moved)


def _quads(grey: Grey) -> list[Points]:
    """Dark four-sided shapes, clockwise, as OpenCV's marker detector proposes them."""
    found, _, others = _detector().detectMarkers(grey)
    return [np.asarray(quad, np.float64).reshape(4, 2) for quad in (*found, *others)]


@cache
def _detector() -> Any:
    cv2 = opencv()
    settings = cv2.aruco.DetectorParameters()
    settings.minMarkerPerimeterRate = 0.012
    settings.adaptiveThreshWinSizeMax = 33
    settings.polygonalApproxAccuracyRate = 0.05
    settings.minMarkerDistanceRate = 0.01
    # The detector is wanted for the shapes that it proposes. Messages are read here, so its dictionary has one word,
    # which is none of ours.
    nothing = cv2.aruco.Dictionary(np.arange(28, dtype=np.uint8).reshape(1, 7, 4), 7, 0)
    return cv2.aruco.ArucoDetector(nothing, settings)


def _read(grey: Grey, quad: Points, known: Mapping[int, PrintedSheet]) -> tuple[Code, int] | None:
    if _side(quad) < _SMALLEST * MODULES:
        return None
    levels = _levels(grey, quad)
    low, high = float(levels.min()), float(levels.max())
    if high - low < 16:
        return None
    read = read_modules((levels > (low + high) / 2).astype(np.uint8))
    ours = [(code, turns) for code, turns in read if code.sheet in known and code.cell in known[code.sheet].by_number]
    if len(ours) == 1:
        return ours[0]
    return read[0] if len(read) == 1 and read[0][0].sheet not in known else None


def _levels(grey: Grey, quad: Points) -> NDArray[np.float64]:
    """Mean level of each module of a marker: (9, 9)."""
    cv2 = opencv()
    side = MODULES * _SAMPLES
    upright = np.array([(0, 0), (side, 0), (side, side), (0, side)], np.float32) - 0.5
    matrix = cv2.getPerspectiveTransform(quad.astype(np.float32), upright)
    flat = cv2.warpPerspective(grey, matrix, (side, side)).reshape(MODULES, _SAMPLES, MODULES, _SAMPLES)
    # Edges of modules are blurred, and left out.
    return np.asarray(flat[:, 1:-1, :, 1:-1].mean(axis=(1, 3)), np.float64)


def _same(one: Points, other: Points) -> bool:
    """Whether two readings of one message are of one marker, and not of two copies of a page."""
    return bool(np.linalg.norm(one.mean(0) - other.mean(0)) < _side(other) / 2)


def _side(corners: Points) -> float:
    """Side of a square that covers as much as a four-sided shape."""
    (x, y), (x2, y2) = corners.T, np.roll(corners, -1, axis=0).T
    return float(np.sqrt(abs(np.sum(x * y2 - x2 * y)) / 2))


def _apart(markers: Sequence[Marker], sheet: PrintedSheet, item: Print) -> list[dict[int, Marker]]:
    """Sort the markers of one cell by copy of the page, as the same page may be in a photograph twice."""
    left, copies = list(markers), []
    boxes = sheet.layout.markers(item.place)
    while left:
        first = left.pop(0)
        seen = {first.code.corner: first}
        own = boxes[first.code.corner]
        here, there = own.corners.mean(0), first.corners.mean(0)
        matrix = fit(own.corners, first.corners)
        if matrix is not None:
            # Beyond the marker itself its slope is trusted, and its perspective not.
            slope = jacobian(matrix, here)
            near = _NEAR * np.sqrt(abs(np.linalg.det(slope)))
            for corner in (corner for corner in range(4) if corner not in seen):
                expected = there + slope @ (boxes[corner].corners.mean(0) - here)
                others = [marker for marker in left if marker.code.corner == corner]
                distances = [float(np.linalg.norm(marker.corners.mean(0) - expected)) for marker in others]
                if distances and min(distances) < near:
                    seen[corner] = others[int(np.argmin(distances))]
                    left.remove(seen[corner])
        copies.append(seen)
    return copies


def by_page(cells: Iterable[Found]) -> dict[tuple[int, int], list[Found]]:
    """Sort cells by sheet (its fingerprint) and page (from 0)."""
    pages: dict[tuple[int, int], list[Found]] = defaultdict(list)
    for cell in cells:
        pages[cell.sheet.fingerprint, cell.item.page].append(cell)
    return pages


def marker_points(cells: Sequence[Found]) -> tuple[Points, Points]:
    """Corners of all markers of some cells of one page, (N, 2) each: in millimetres on paper, and in the photograph."""
    boxes = [box for cell in cells for box in cell.sheet.layout.markers(cell.item.place)]
    return np.concatenate([box.corners for box in boxes]), np.concatenate([cell.corners for cell in cells])


def _missing_of_pages(grey: Grey, cells: Sequence[Found]) -> list[Found]:
    """Find the cells that are still missing where the others of their page say they must be."""
    more = []
    for found in by_page(cells).values():
        sheet, places = found[0].sheet, [cell.item.place for cell in found]
        if len(set(places)) < len(places):
            continue  # two copies of a page have no one plane
        paper = fit(*marker_points(found))
        for item in sheet.on_page(found[0].item.page) if paper is not None else ():
            if item.place not in places and paper is not None:
                missed = _complete(grey, {}, sheet, item, paper)
                more += [] if missed is None else [missed]
    return more


def _complete(
    grey: Grey, seen: Mapping[int, Points], sheet: PrintedSheet, item: Print, paper: Matrix | None = None
) -> Found | None:
    """Place a cell; markers that no contour showed are searched where the others say they must be.

    Args:
        grey: the photograph.
        seen: corners of markers that were read.
        sheet: which the cell is on.
        item: what is in it.
        paper: where markers must be; None to learn it from those that were read, two at least.
    """
    boxes, codes, corners = sheet.layout.markers(item.place), sheet.codes(item), dict(seen)
    if paper is None:
        paper = _fit(boxes, corners) if len(corners) > 1 else None
    if paper is None:
        return None
    for corner in (corner for corner in range(4) if corner not in seen):
        expected = project(paper, boxes[corner].corners)
        if not _shows(grey, expected, codes[corner]):
            return None
        corners[corner] = refine(grey, expected)
    paper = _fit(boxes, corners)
    if paper is None:
        return None
    points = np.concatenate([boxes[corner].corners for corner in range(4)])
    there = np.concatenate([corners[corner] for corner in range(4)])
    misfit = float(np.sqrt(np.mean(np.sum((project(paper, points) - there) ** 2, axis=1))))
    middle = jacobian(paper, sheet.layout.square(item.place).corners.mean(0))
    if misfit > max(1.0, _MISFIT * np.sqrt(abs(np.linalg.det(middle)))):
        return None
    return Found(sheet=sheet, item=item, paper=paper, misfit=misfit, corners=there)


def _fit(boxes: Sequence[Box], corners: Mapping[int, Points]) -> Matrix | None:
    points = np.concatenate([boxes[corner].corners for corner in corners])
    return fit(points, np.concatenate(list(corners.values())))


def _shows(grey: Grey, corners: Points, code: Code) -> bool:
    """Whether a marker is seen at a place, by likeness to what it must look like."""
    if not within(corners, grey.shape) or _side(corners) < _SMALLEST * MODULES:
        return False
    levels = _levels(grey, corners)
    if np.ptp(levels) < 16:
        return False
    return float(np.corrcoef(levels.ravel(), modules_of(code).ravel())[0, 1]) >= _ALIKE
