"""A camera that photographs a printed page, in the order in which light meets it: ink, paper, lens, sensor, file."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError, unknown_name
from whorl.physical.homography import Matrix, move
from whorl.physical.ink import FULL, Linear, from_linear, reflectance
from whorl.physical.layout import Layout, Points
from whorl.physical.libraries import opencv
from whorl.records import Record

Pixels = NDArray[np.uint8]
Random = np.random.Generator

_BAYER = ((0, 1), (1, 2))  # red, green; green, blue
_DESK = (0.13, 0.10, 0.075)
_COVER = (0.35, 0.24, 0.19)  # a hand, or whatever lies on the page


@dataclass(frozen=True, kw_only=True, repr=False)
class Camera(Record):
    """Every number of a simulated photograph. Lengths in pixels are pixels of the photograph.

    The defaults are a phone held over a page that was printed on office paper. Printer drivers make up for most of the
    dot gain, and phones for most of the lens's vignetting, so the defaults are what is left. What is random
    (directions, which way a colour is off, noise) follows from the seed and the photograph's name.

    Args:
        width: of the photograph, if the page is upright.
        height: likewise. A page that is wider than high is photographed with a camera that is, too.
        field_of_view: degrees along the diagonal; the narrower, the weaker the perspective.
        angle: degrees that the page is turned, clockwise on screen.
        scale: 1 where the page just fills the photograph.
        offset: the page is off the middle by up to so many pixels of a 299-pixel image, right and down.
        tilt: degrees between the paper and the sensor.
        tilt_direction: degrees, clockwise from the right: which side of the page is farther away. None: any.
        covered: share of the page that something lies on, from a random side.
        dot_gain: how much ink that should cover half the paper spreads.
        saturation: of the printer's colours, 1 for those of sRGB.
        black: reflectance of full ink.
        paper: reflectance of the paper in red, green and blue.
        ink_blur: how far ink runs, as the standard deviation of a Gaussian, in millimetres.
        uneven_light: share by which the light drops from one side of the photograph to the other.
        vignetting: share of light that is lost in the corners.
        exposure: stops; at 0 white paper is just below the largest value.
        colour_cast: share by which red and blue may be off after the camera's own white balance.
        defocus: radius of the circle that a point becomes, in pixels.
        motion: length of the streak that a point becomes, in pixels.
        electrons: that a sensor's pixel holds; photon noise falls with their square root. 0: no noise at all.
        read_noise: electrons.
        mosaic: whether each sensor pixel sees one colour, and the others are interpolated.
        sharpening: amount of the camera's own unsharp mask.
        jpeg: quality, 1 to 100; 0 keeps the pixels as they are.
    """

    width: int = 3000
    height: int = 4000
    field_of_view: float = 75.0
    angle: float = 0.0
    scale: float = 1.0
    offset: float = 0.0
    tilt: float = 0.0
    tilt_direction: float | None = None
    covered: float = 0.0
    dot_gain: float = 0.05
    saturation: float = 0.9
    black: float = 0.02
    paper: tuple[float, float, float] = (0.88, 0.88, 0.84)
    ink_blur: float = 0.02
    uneven_light: float = 0.15
    vignetting: float = 0.1
    exposure: float = 0.0
    colour_cast: float = 0.06
    defocus: float = 0.7
    motion: float = 1.0
    electrons: float = 4000.0
    read_noise: float = 4.0
    mosaic: bool = True
    sharpening: float = 0.3
    jpeg: int = 90

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float]] = {
            "width": (16, 20000), "height": (16, 20000), "field_of_view": (1, 150), "angle": (-3600, 3600),
            "scale": (0.01, 100), "offset": (0, 1000), "tilt": (0, 80), "covered": (0, 1), "dot_gain": (0, 0.25),
            "saturation": (0, 1), "black": (0, 0.5), "ink_blur": (0, 2), "uneven_light": (0, 1), "vignetting": (0, 1),
            "exposure": (-6, 6), "colour_cast": (0, 0.9), "defocus": (0, 50), "motion": (0, 200),
            "electrons": (0, 1e7), "read_noise": (0, 1e4), "sharpening": (0, 5), "jpeg": (0, 100),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise WhorlError(f"{name} must be from {low:g} to {high:g}; got {value!r}.")
        if len(self.paper) != 3 or not all(self.black < part <= 1 for part in self.paper):
            raise WhorlError(
                f"paper must be three numbers above black ({self.black:g}) and up to 1; got {self.paper!r}."
            )

    @classmethod
    def perfect(cls, **settings: Any) -> Self:
        """Make a camera, and a printer, that changes nothing but the geometry."""
        spotless: dict[str, Any] = dict.fromkeys(
            ("dot_gain", "black", "ink_blur", "uneven_light", "vignetting", "exposure", "colour_cast"), 0.0
        )
        spotless |= dict.fromkeys(("defocus", "motion", "electrons", "read_noise", "sharpening"), 0.0)
        spotless |= {"saturation": 1.0, "paper": (1.0, 1.0, 1.0), "mosaic": False, "jpeg": 0}
        return cls(**(spotless | settings))

    def place(self, layout: Layout, random: Random) -> Matrix:
        """Say where the page appears: millimetres of paper to pixels of the photograph, by a pinhole camera.

        Args:
            layout: of the page.
            random: draws the offset and, if it is not set, the direction of tilt.
        """
        width, height = self.frame(layout)
        direction = random.uniform(0, 360) if self.tilt_direction is None else self.tilt_direction
        drawn = random.uniform(0, self.offset, 2) * random.choice((-1, 1), 2) if self.offset else np.zeros(2)
        page = np.array(layout.paper)
        millimetres = drawn / 299 * layout.picture
        density = self.scale * min(max(width, height) / page.max(), min(width, height) / page.min())
        focal = math.hypot(width, height) / 2 / math.tan(math.radians(self.field_of_view) / 2)
        turn, lean, tilt = (math.radians(degrees) for degrees in (self.angle, direction, self.tilt))
        in_plane = np.array([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0], [0, 0, 1]])
        axis = np.array([[math.cos(lean), -math.sin(lean), 0], [math.sin(lean), math.cos(lean), 0], [0, 0, 1]])
        about = np.array([[math.cos(tilt), 0, math.sin(tilt)], [0, 1, 0], [-math.sin(tilt), 0, math.cos(tilt)]])
        rotation = axis @ about @ axis.T @ in_plane
        # The farther side is the one that the direction points to.
        rotation[2] *= -1
        middle = np.array([[1, 0, -page[0] / 2], [0, 1, -page[1] / 2], [0, 0, 1]])
        pose = np.column_stack((rotation[:, 0], rotation[:, 1], (*(in_plane[:2, :2] @ millimetres), focal / density)))
        lens = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
        matrix = lens @ pose @ middle
        return np.asarray(matrix / matrix[2, 2])

    def frame(self, layout: Layout) -> tuple[int, int]:
        """Width and height of the photograph: the camera is held as the page is."""
        long, short = max(self.width, self.height), min(self.width, self.height)
        return (long, short) if layout.width > layout.height else (short, long)


@dataclass(frozen=True, eq=False, kw_only=True)
class Shot:
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
        height, width = self.photo.shape[:2]
        there = move(self.paper, points)
        inside = (there >= 0).all() and (there[:, 0] <= width - 1).all() and (there[:, 1] <= height - 1).all()
        return bool(inside) and not _overlap(self.cover, points)


def printed(page: Pixels, layout: Layout, camera: Camera) -> Linear:
    """Print a page: ink, paper, and how far ink runs.

    Args:
        page: (H, W, 3) RGB, uint8, of any resolution.
        layout: says how large it is.
        camera: has the printer's settings too.

    Returns:
        (H, W, 3) linear light.
    """
    cv2 = opencv()
    # The paper is not needed much finer than the sensor sees it, and averaging now keeps finer detail from aliasing.
    seen = max(camera.width, camera.height) / max(layout.paper) * camera.scale
    factor = 1.5 * seen / (page.shape[0] / layout.paper[1])
    if factor < 0.95:
        page = cv2.resize(page, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    inked = reflectance(
        page, dot_gain=camera.dot_gain, saturation=camera.saturation, black=camera.black, paper=camera.paper
    )
    blur = camera.ink_blur * page.shape[0] / layout.paper[1]
    return cv2.GaussianBlur(inked, (0, 0), blur) if blur > 0.1 else inked


def photograph(paper: Linear, layout: Layout, camera: Camera, *, name: str, seed: int = 0) -> Shot:
    """Take a photograph of a printed page.

    Args:
        paper: from ``printed``.
        layout: of the page.
        camera: every setting.
        name: of the photograph; with the seed it decides all that is random.
        seed: any integer.
    """
    cv2 = opencv()
    random = _random(seed, name)
    place, (width, height) = camera.place(layout, random), camera.frame(layout)
    cover = _cover(camera.covered, layout, random)
    if len(cover):
        paper = paper.copy()
        corners = cover * (paper.shape[1] / layout.paper[0], paper.shape[0] / layout.paper[1]) - 0.5
        cv2.fillPoly(paper, [corners.round().astype(np.int32)], [FULL * part for part in _COVER])
    across, down = layout.paper[0] / paper.shape[1], layout.paper[1] / paper.shape[0]
    pixels = np.array([[across, 0, across / 2], [0, down, down / 2], [0, 0, 1]])
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
    return Shot(photo=np.ascontiguousarray(seen), file=encoded.tobytes(), paper=place, cover=cover)


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


def _cover(share: float, layout: Layout, random: Random) -> Points:
    """A half plane, nearly along one of the sides, that hides a share of the page: its outline in millimetres."""
    if not share:
        return np.empty((0, 2))
    side, slant = random.integers(4), random.uniform(-0.15, 0.15)
    width, height = layout.paper
    far = 3 * max(width, height)
    # Hidden from the left, in a page that is turned to the chosen side afterwards.
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


def _random(seed: int, name: str) -> Random:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


PRESETS: dict[str, Camera] = {
    "perfect": Camera.perfect(),
    "setting1": Camera(offset=20.0),
    "setting2": Camera(angle=5.0, scale=0.9, offset=20.0),
    "setting3": Camera(angle=15.0, scale=0.8, offset=20.0),
}
"""The three settings of the paper's table 5, and a camera that changes nothing."""


def preset(name: str) -> Camera:
    """Find a camera by name.

    >>> preset("setting2").angle
    5.0
    """
    plain = name.strip().lower().replace(" ", "").replace("-", "")
    if plain not in PRESETS:
        raise unknown_name("camera", name, PRESETS, hint="`whorl physical simulate --help` lists all.")
    return PRESETS[plain]


def setting_names() -> list[str]:
    """Every setting of a camera by name."""
    return [field.name for field in fields(Camera)]
