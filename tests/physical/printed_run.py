"""A small print of real photographs, and what a simulated camera makes of it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

import whorl
from whorl.data import save_image
from whorl.evaluation import Pose
from whorl.physical import (
    Camera,
    Capture,
    Findings,
    Found,
    Scored,
    Settings,
    Sheet,
    arrange,
    collect,
    find_cells,
    photograph,
    printed,
)
from whorl.physical.camera import Shot
from whorl.physical.captures import View
from whorl.physical.extraction import Seen
from whorl.physical.homography import move, pixels_to_box
from whorl.physical.layout import Layout
from whorl.physical.libraries import opencv
from whorl.physical.pdf import render_pages

PIXELS = (1500, 2000)
"""Width and height of the photographs: a quarter of a phone's, to be quick."""
EPS = 16 / 255


@cache
def folders() -> tuple[Path, Path]:
    """Nine photographs in class folders, and the same changed by 16 of 255 levels in blotches, as attacks do it."""
    root = Path(tempfile.mkdtemp(prefix="whorl-physical-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    x, y, ids = whorl.load_samples(9)
    random = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    noise = EPS * F.avg_pool2d(random, 3, stride=1, padding=1).sign()
    for picture, noisy, label, name in zip(x, (x + noise).clamp(0, 1), y.tolist(), ids, strict=True):
        save_image(root / "clean" / str(label) / f"{name}.png", picture)
        save_image(root / "noise" / str(label) / f"{name}.png", noisy)
    return root / "clean", root / "noise"


@cache
def sheet() -> Sheet:
    """One full page: nine images, clean and noisy."""
    clean, noise = folders()
    return arrange(collect(noise, clean=clean), Layout())


@cache
def page(dpi: float = 300.0) -> NDArray[np.uint8]:
    """The page as a printer gets it."""
    return next(render_pages(sheet(), dpi=dpi))


def shoot(camera: Camera, name: str = "photo", *, dpi: float = 300.0) -> Shot:
    """Photograph the page."""
    return photograph(printed(page(dpi), sheet().layout, camera), sheet().layout, camera, name=name)


def small(camera: Camera) -> Camera:
    """The same camera with fewer pixels."""
    return camera.with_(width=PIXELS[0], height=PIXELS[1])


def found_in(photo: NDArray[np.uint8], *sheets: Sheet) -> Findings:
    """What is found in a photograph."""
    cv2 = opencv()
    return find_cells(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), sheets or [sheet()])


def inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.inv(matrix), np.float64)


def corner_errors(cell: Found, paper: NDArray[np.float64]) -> list[float]:
    """How far an image's corners are off, in pixels of the image: by the truth, which the camera knows."""
    box = cell.sheet.box(cell.item)
    there = move(paper, box.corners)
    straight = move(inverse(pixels_to_box(box, cell.item.size)), box.corners)
    off = move(inverse(cell.picture), there) - straight
    return [float(value) for value in np.linalg.norm(off, axis=1)]


def faked(answers: dict[tuple[str, str, str], int]) -> Scored:
    """Captures with given answers, by photograph, image and attack; every label is 1."""
    made = Scored(settings=Settings(views=("as seen",)), targets=("t",))
    for (photo, name, attack), answer in answers.items():
        item = replace(sheet().prints[0], id=name, attack=attack, label=1)
        angle = 15.0 if photo == "turned" else 0.0
        seen = Seen(pose=Pose(angle=angle, scale=0.8), tilt=3.0, density=2.0)
        key: tuple[View, str] = ("as seen", "t")
        made.captures.append(Capture(photo=photo, sheet="s", item=item, seen=seen, misfit=0.1, answers={key: answer}))
    return made
