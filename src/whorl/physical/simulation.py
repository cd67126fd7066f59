"""Rehearse without a printer and a phone: pages photographed in the order in which light meets things.

After ink and paper, which ``camera.printed`` makes: the page's pose, lens, sensor, file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whorl.data.image_files import Pixels
from whorl.files import json_text, read_back, write_file
from whorl.physical.camera import FULL, Camera, Linear, Random, from_linear, printed, random_of
from whorl.physical.homography import Matrix, pixels_to_box, project, within
from whorl.physical.layout import Box, PageLayout, Points
from whorl.physical.libraries import opencv
from whorl.physical.pdf import render_pages
from whorl.physical.sheet import PrintedSheet
from whorl.progress import Progress, silent

RENDERED = 600.0
"""Dots per inch of the simulated print."""
TRUTH = "truth.json"
SIMULATED = (
    "Simulated: a model of a printer and a camera took the place of real ones. These are not photographs of prints, "
    "and the numbers do not replace the paper's."
)
_BAYER = ((0, 1), (1, 2))  # red, green; green, blue
_DESK = (0.13, 0.10, 0.075)
_COVER = (0.35, 0.24, 0.19)  # a hand, or whatever lies on the page


@dataclass(frozen=True, eq=False, kw_only=True)
class Photograph:
    """A simulated photograph, and the truth about it.

    Attributes:
        photo: (H, W, 3) RGB, uint8, as it would be read from its file.
        file: the file's bytes: JPEG, or PNG if nothing is to be lost.
        paper: millimetres on the page to pixels of the photograph.
        cover: (N, 2) outline of what lies on the page, in millimetres; empty if nothing does.
    """

    photo: Pixels
    file: bytes
    paper: Matrix
    cover: Points

    @property
    def suffix(self) -> str:
        """Ending of the file's name."""
        return ".jpg" if self.file[:2] == b"\xff\xd8" else ".png"

    def shows(self, points: Points) -> bool:
        """Whether the hull of some places of the page, (N, 2) millimetres, is wholly in the image and uncovered."""
        return within(project(self.paper, points), self.photo.shape) and not _overlap(self.cover, points)


def title(sheet: PrintedSheet, page: int, camera: str) -> str:
    """Name the photograph of a page, from 0, by a camera."""
    return f"{sheet.name}-{page + 1:03d}-{camera}"


def shoot(
    sheet: PrintedSheet, cameras: Mapping[str, Camera], *, seed: int = 0, pages: Sequence[int] | None = None
) -> Iterator[tuple[str, int, Photograph]]:
    """Photograph every page with every camera; one page in memory at a time.

    Args:
        sheet: what was printed.
        cameras: by name. Those that print alike share a print.
        seed: of all randomness.
        pages: which to take, from 0; None for all.

    Returns:
        Name of the photograph, page from 0, and the photograph. A photograph does not depend on which others are taken.
    """
    wanted = range(sheet.pages) if pages is None else pages
    for page, pixels in zip(wanted, render_pages(sheet, wanted, dpi=RENDERED), strict=True):
        made: tuple[tuple[Any, ...], Linear] | None = None
        for name, camera in cameras.items():
            ink = tuple(
                getattr(camera, part)
                for part in ("dot_gain", "saturation", "black", "paper", "ink_blur", "width", "height", "scale")
            )
            if made is None or made[0] != ink:
                made = (ink, printed(pixels, sheet.layout, camera))
            photo = title(sheet, page, name)
            yield photo, page, photograph(made[1], sheet.layout, camera, name=photo, seed=seed)


def simulate(
    sheets: Sequence[PrintedSheet],
    cameras: Mapping[str, Camera],
    out: Path,
    *,
    seed: int = 0,
    pages: int | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """Photograph sheets into a folder, with the truth about each photograph beside them in ``truth.json``.

    Args:
        sheets: what was printed.
        cameras: by name.
        out: the folder.
        seed: of all randomness.
        pages: take only the first so many of each sheet.
        progress: called with each photograph.

    Returns:
        The photographs.
    """
    total = sum(min(sheet.pages, pages or sheet.pages) for sheet in sheets) * len(cameras)
    files: list[Path] = []
    truth: dict[str, Any] = {}
    progress("photographing", 0, total)
    for sheet in sheets:
        for name, page, shot in shoot(sheet, cameras, seed=seed, pages=range(sheet.pages)[:pages]):
            file = out / f"{name}{shot.suffix}"
            write_file(file, shot.file)
            files.append(file)
            truth[file.name] = {"sheet": sheet.name, "page": page + 1, **_true(sheet, page, shot)}
            progress("photographing", len(files), total)
    settings = {name: asdict(camera) for name, camera in cameras.items()}
    write_file(out / TRUTH, json_text({"seed": seed, "cameras": settings, "photos": truth}))
    return files


def simulated(photos: Iterable[Path]) -> set[Path]:
    """Find the photographs that :func:`simulate` wrote: the truth beside them names them.

    Args:
        photos: files.
    """
    found: set[Path] = set()
    for folder, files in groupby(sorted(photos), key=lambda photo: photo.parent):
        truth = read_back(folder / TRUTH, json.loads, remedy="if a camera took these photographs")
        found |= {file for file in files if truth and file.name in truth["photos"]}
    return found


def _true(sheet: PrintedSheet, page: int, shot: Photograph) -> dict[str, Any]:
    visible = [item for item in sheet.on_page(page) if shot.shows(sheet.layout.cell(item.place).corners)]
    return {"visible_cells": [item.place + 1 for item in visible], "millimetres_to_pixels": shot.paper.tolist()}


def photograph(paper: Linear, layout: PageLayout, camera: Camera, *, name: str, seed: int = 0) -> Photograph:
    """Take a photograph of a printed page.

    Args:
        paper: from ``printed``.
        layout: of the page.
        camera: every setting.
        name: of the photograph; with the seed it decides all that is random.
        seed: any integer.
    """
    cv2 = opencv()
    random = random_of(seed, name)
    place, (width, height) = camera.place(layout, random), camera.frame(layout)
    cover = _cover(camera.covered, layout, random)
    if len(cover):
        paper = paper.copy()
        corners = cover * (paper.shape[1] / layout.paper[0], paper.shape[0] / layout.paper[1]) - 0.5
        cv2.fillPoly(paper, [corners.round().astype(np.int32)], [FULL * part for part in _COVER])
    pixels = pixels_to_box(Box(0, 0, *layout.paper), paper.shape[:2])
    desk = [FULL * part for part in _DESK]
    scene = cv2.warpPerspective(
        paper, place @ pixels, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=desk
    )
    scene = _lens(scene, camera, random)
    photo = _sensor(scene, camera, random)
    if camera.jpeg:
        encoded = cv2.imencode(".jpg", photo[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, camera.jpeg])[1]
    else:
        encoded = cv2.imencode(".png", photo[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
    seen = cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1] if camera.jpeg else photo
    return Photograph(photo=np.ascontiguousarray(seen), file=encoded.tobytes(), paper=place, cover=cover)


def _lens(scene: Linear, camera: Camera, random: Random) -> Linear:
    cv2 = opencv()
    if camera.defocus > 0.3:
        scene = cv2.filter2D(scene, -1, _disk(camera.defocus), borderType=cv2.BORDER_REPLICATE)
    direction = random.uniform(0, math.pi)
    if camera.motion > 0.5:
        scene = cv2.filter2D(scene, -1, _streak(camera.motion, direction), borderType=cv2.BORDER_REPLICATE)
    return scene


def _sensor(scene: Linear, camera: Camera, random: Random) -> Pixels:
    """From light on the sensor to the pixels of a file, before compression."""
    cv2 = opencv()
    height, width = scene.shape[:2]
    # The colour of the light is divided out by the camera, except for what it misjudges.
    cast = 1 + camera.colour_cast * np.array([random.uniform(-1, 1), 0, random.uniform(-1, 1)])
    light = _light(height, width, camera, random) * np.float32(2.0**camera.exposure)
    plain = camera.exposure == 0 and camera.uneven_light == 0 and camera.vignetting == 0 and not camera.colour_cast
    if not camera.mosaic and not camera.electrons and plain:
        return _finish(scene, camera)
    # Dull light on the mosaic: blue and red sites see less of it than the camera makes up for, hence the cast last.
    if camera.mosaic:
        raw = np.empty((height, width), np.float32)
        for row in (0, 1):
            for column in (0, 1):
                site = (slice(row, None, 2), slice(column, None, 2))
                raw[site] = scene[..., _BAYER[row][column]][site]
        raw *= light
        raw = _noisy(raw, camera, random)
        colours = cv2.demosaicing(np.clip(raw, 0, FULL).astype(np.uint16), cv2.COLOR_BayerRGGB2RGB)
    else:
        colours = _noisy(scene.astype(np.float32) * light[..., None], camera, random)
        colours = np.clip(colours, 0, FULL).astype(np.uint16)
    if camera.colour_cast:
        colours = cv2.transform(colours, np.diag(cast))
    return _finish(colours, camera)


def _noisy(raw: NDArray[np.float32], camera: Camera, random: Random) -> NDArray[np.float32]:
    if not camera.electrons:
        return raw
    # Photons arrive at random: the variance of their number is the number itself. So many are never few here, and a
    # Gaussian stands for Poisson.
    unit = np.float32(FULL / camera.electrons)
    spread: NDArray[np.float32] = np.sqrt(np.maximum(raw, 0) * unit + np.float32(camera.read_noise * unit) ** 2)
    spread *= random.standard_normal(raw.shape, dtype=np.float32)
    spread += raw
    return spread


def _finish(colours: Linear, camera: Camera) -> Pixels:
    cv2 = opencv()
    photo: Pixels = from_linear()[colours]
    if camera.sharpening:
        soft = cv2.GaussianBlur(photo, (0, 0), 1.2)
        photo = cv2.addWeighted(photo, 1 + camera.sharpening, soft, -camera.sharpening, 0)
    return photo


def _light(height: int, width: int, camera: Camera, random: Random) -> NDArray[np.float32]:
    """Light at each pixel, 1 where there is most; smooth, so it is worked out at few places and stretched."""
    direction = random.uniform(0, 2 * math.pi)
    rows, columns = np.mgrid[-1:1:33j, -1:1:33j]
    across = (columns * math.cos(direction) + rows * math.sin(direction)) / math.sqrt(2)
    falling = 1 - camera.uneven_light * (1 - across) / 2
    # The fourth power of a cosine, as the squared distance from the middle to first order; 1 - loss in the corner.
    corner = 1 - camera.vignetting * (rows**2 + columns**2) / 2
    stretched = opencv().resize((falling * corner).astype(np.float32), (width, height))
    return np.asarray(stretched, np.float32)


def _disk(radius: float) -> NDArray[np.float32]:
    reach = math.ceil(radius)
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    # One pixel of slope makes radii between whole pixels differ.
    kernel = np.clip(radius + 0.5 - np.hypot(rows, columns), 0, 1)
    return np.asarray(kernel / kernel.sum(), np.float32)


def _streak(length: float, direction: float) -> NDArray[np.float32]:
    reach = math.ceil(length / 2)
    kernel = np.zeros((2 * reach + 3, 2 * reach + 3))
    for step in np.linspace(-length / 2, length / 2, 8 * reach + 1):
        x, y = reach + 1 + step * math.cos(direction), reach + 1 + step * math.sin(direction)
        column, row = math.floor(x), math.floor(y)
        right, down = x - column, y - row
        kernel[row : row + 2, column : column + 2] += np.outer((1 - down, down), (1 - right, right))
    return np.asarray(kernel / kernel.sum(), np.float32)


def _cover(share: float, layout: PageLayout, random: Random) -> Points:
    """A half plane, nearly along one of the sides, that hides a share of the page: its outline in millimetres."""
    if not share:
        return np.empty((0, 2))
    side, slant = random.integers(4), random.uniform(-0.15, 0.15)
    width, height = layout.paper
    far = 3 * max(width, height)
    # Hidden from the left, in a page that is rotated to the chosen side afterwards.
    long, deep = (height, width) if side % 2 == 0 else (width, height)
    edge = deep * share
    outline = np.array(
        [
            (-far, -far),
            (edge - slant * (far + long / 2), -far),
            (edge + slant * (far + long / 2), long + far),
            (-far, long + far),
        ]
    )
    if side >= 2:
        outline[:, 0] = deep - outline[:, 0]
    if side % 2:
        outline = outline[:, ::-1]
    return np.ascontiguousarray(outline)


def _overlap(one: Points, other: Points) -> bool:
    if not len(one):
        return False
    cv2 = opencv()
    hulls = (cv2.convexHull(points.astype(np.float32)) for points in (one, other))
    return float(cv2.intersectConvexConvex(*hulls)[0]) > 0
