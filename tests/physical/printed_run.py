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
from torch import Tensor, nn

import whorl
from whorl.data import save_image
from whorl.evaluation import Pose
from whorl.physical import (
    PRESETS,
    Camera,
    Capture,
    Findings,
    Found,
    PageLayout,
    PrintedSheet,
    Scored,
    ViewSettings,
    arrange,
    collect,
    find_cells,
    photograph,
    printed,
    score,
)
from whorl.physical.captures import Photographed, View
from whorl.physical.extraction import Appearance
from whorl.physical.homography import pixels_to_box, project
from whorl.physical.libraries import opencv
from whorl.physical.pdf import render_pages
from whorl.physical.simulation import Photograph
from whorl.runs.networks import Target

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
    for image, noisy, label, name in zip(x, (x + noise).clamp(0, 1), y.tolist(), ids, strict=True):
        save_image(root / "clean" / str(label) / f"{name}.png", image)
        save_image(root / "noise" / str(label) / f"{name}.png", noisy)
    return root / "clean", root / "noise"


@cache
def sheet() -> PrintedSheet:
    """One full page: nine images, clean and noisy."""
    clean, noise = folders()
    return arrange(collect(noise, clean=clean), PageLayout())


@cache
def page(dpi: float = 300.0) -> NDArray[np.uint8]:
    """The page as a printer gets it."""
    return next(render_pages(sheet(), dpi=dpi))


def shoot(camera: Camera, name: str = "photo", *, dpi: float = 300.0) -> Photograph:
    """Photograph the page."""
    return photograph(printed(page(dpi), sheet().layout, camera), sheet().layout, camera, name=name)


def small(camera: Camera) -> Camera:
    """The same camera with fewer pixels."""
    return camera.with_(width=PIXELS[0], height=PIXELS[1])


def found_in(photo: NDArray[np.uint8], *sheets: PrintedSheet) -> Findings:
    """What is found in a photograph."""
    cv2 = opencv()
    return find_cells(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), sheets or [sheet()])


def inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.inv(matrix), np.float64)


def corner_errors(cell: Found, paper: NDArray[np.float64]) -> list[float]:
    """How far an image's corners are off, in pixels of the image: by the truth, which the camera knows."""
    box = cell.sheet.box(cell.item)
    there = project(paper, box.corners)
    straight = project(inverse(pixels_to_box(box, cell.item.size)), box.corners)
    off = project(inverse(cell.image), there) - straight
    return [float(value) for value in np.linalg.norm(off, axis=1)]


PREDICTIONS = {
    ("one", "p", "clean"): 1, ("one", "p", "dim"): 5, ("one", "p", "ai-dim"): 5,
    ("one", "q", "clean"): 1, ("one", "q", "dim"): 1, ("one", "q", "ai-dim"): 5,
    ("one", "r", "clean"): 1, ("one", "r", "dim"): 1, ("one", "r", "ai-dim"): 1,
    ("rotated", "p", "clean"): 9, ("rotated", "p", "dim"): 1, ("rotated", "p", "ai-dim"): 1,
    ("rotated", "q", "clean"): 1, ("rotated", "q", "dim"): 1, ("rotated", "q", "ai-dim"): 7,
    ("rotated", "r", "clean"): 1, ("rotated", "r", "dim"): 5,
}  # fmt: skip


def faked(predictions: dict[tuple[str, str, str], int]) -> Scored:
    """Captures with given predictions, by photograph, image and attack; every label is 1."""
    photos: dict[str, list[Capture]] = {}
    for (photo, name, attack), prediction in predictions.items():
        item = replace(sheet().prints[0], id=name, attack=attack, label=1)
        angle = 15.0 if photo == "rotated" else 0.0
        lies = Appearance(pose=Pose(angle=angle, scale=0.8), tilt=3.0, density=2.0)
        key: tuple[View, str] = ("as seen", "t")
        photos.setdefault(photo, []).append(
            Capture(photo=photo, sheet="s", item=item, appearance=lies, misfit=0.1, predictions={key: prediction})
        )
    photographed = [Photographed(photo=photo, captures=captures) for photo, captures in photos.items()]
    return Scored(settings=ViewSettings(views=("as seen",)), targets=("t",), photographed=photographed)


def with_images(done: Scored) -> Scored:
    """The same with an image of each capture to show."""
    for place, capture in enumerate(done.captures):
        image = np.full((8, 8, 3), 10 * place, np.uint8)
        done.shown.setdefault((capture.photo, capture.item.id), {})[capture.item.version, "as seen"] = image
    return done


def named_target(labels: tuple[str, ...] = ()) -> Target:
    """The network of ``faked``, with names of classes or without."""
    net = nn.Identity()
    if labels:
        net.labels = labels  # type: ignore[assignment]  # what a Classifier has
    return Target(model="t", net=net)


class Knows(nn.Module):
    """Recognises an image by its mean colour: right for those of the sheet's labels that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        # The class is the brightness in hundredths: deterministic, and different for clean and dark images.
        return nn.functional.one_hot((x.mean((1, 2, 3)) * 99).long(), 1000).float()


def target(net: nn.Module | None = None, name: str = "knows") -> Target:
    """A network to evaluate."""
    return Target(model=name, net=net or Knows())


@cache
def photos() -> Path:
    """A folder with two photographs of the page."""
    root = Path(tempfile.mkdtemp(prefix="whorl-photos-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, camera in (("a", PRESETS["setting1"]), ("b", PRESETS["setting3"])):
        shot = shoot(small(camera), name)
        (root / f"{name}{shot.suffix}").write_bytes(shot.file)
    return root


@cache
def scored() -> Scored:
    """What came of them."""
    return score([photos()], [sheet()], [target()])
