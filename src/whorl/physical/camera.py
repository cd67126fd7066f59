"""The simulated printer and camera: every setting, presets and variations of them, and what ink makes of a page."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from whorl.data.image_files import Pixels
from whorl.errors import WhorlError, unknown_name
from whorl.geometry.pose import REFERENCE_SIDE
from whorl.physical.homography import Matrix
from whorl.physical.layout import PageLayout
from whorl.physical.libraries import opencv
from whorl.records import Limits, Record, Share

Random = np.random.Generator
Linear = NDArray[np.uint16]
"""Light in linear units, 65535 for all of it."""

FULL = 65535.0
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@dataclass(frozen=True, kw_only=True, repr=False)
class Camera(Record):
    """Every number of a simulated photograph. Lengths in pixels are pixels of the photograph.

    The defaults are a phone held over a page that was printed on office paper. Printer drivers make up for most of the
    dot gain, and phones for most of the lens's vignetting, so the defaults are what is left. What is random
    (directions, which way a colour is off, noise) follows from the seed and the photograph's name.

    Args:
        width: of the photograph in pixels, if the page is upright.
        height: likewise. Of a page that is wider than high, the photograph is too: width and height change places.
        field_of_view: degrees along the diagonal of the photograph; the narrower, the weaker the perspective.
        angle: degrees that the page is rotated, clockwise on screen.
        scale: size of the page in the photograph; at 1 it just fills it.
        offset: how far the page is off the middle at most, right and down, in pixels of a 299-pixel image; drawn at
            random.
        tilt: degrees between the paper and the sensor.
        tilt_direction: degrees, clockwise from the right: which side of the page is farther away. None: any.
        covered: share of the page that something lies on, from a random side.
        dot_gain: share of the paper by which ink that should cover half of it spreads.
        saturation: of the printer's colours; 1 is that of sRGB, 0 is grey.
        black: reflectance of full ink.
        paper: reflectance of the paper in red, green and blue, in [0, 1].
        ink_blur: how far ink runs, as the standard deviation of a Gaussian, in millimetres.
        uneven_light: share by which the light drops from one side of the photograph to the other.
        vignetting: share of light that is lost in the corners.
        exposure: in stops; at 0, white paper is just below the largest value.
        colour_cast: share by which red and blue may be off after the camera's own white balance.
        defocus: radius of the circle that a point becomes, in pixels.
        motion: length of the streak that a point becomes, in pixels.
        electrons: how many a pixel of the sensor holds; relative photon noise falls with their square root. 0: no noise
            at all.
        read_noise: standard deviation of the noise of reading the sensor, in electrons.
        mosaic: whether each pixel of the sensor records one colour (Bayer) and the others are interpolated.
        sharpening: amount of the camera's own unsharp mask.
        jpeg: quality, 1 to 100; 0 keeps the pixels as they are.
    """

    width: Annotated[int, Limits(least=16, most=20000)] = 3000
    height: Annotated[int, Limits(least=16, most=20000)] = 4000
    field_of_view: Annotated[float, Limits(least=1, most=150)] = 75.0
    angle: Annotated[float, Limits(least=-3600, most=3600)] = 0.0
    scale: Annotated[float, Limits(least=0.01, most=100)] = 1.0
    offset: Annotated[float, Limits(least=0, most=1000)] = 0.0
    tilt: Annotated[float, Limits(least=0, most=80)] = 0.0
    tilt_direction: float | None = None
    covered: Share = 0.0
    dot_gain: Annotated[float, Limits(least=0, most=0.25)] = 0.05
    saturation: Share = 0.9
    black: Annotated[float, Limits(least=0, most=0.5)] = 0.02
    paper: tuple[float, float, float] = (0.88, 0.88, 0.84)
    ink_blur: Annotated[float, Limits(least=0, most=2)] = 0.02
    uneven_light: Share = 0.15
    vignetting: Share = 0.1
    exposure: Annotated[float, Limits(least=-6, most=6)] = 0.0
    colour_cast: Annotated[float, Limits(least=0, most=0.9)] = 0.06
    defocus: Annotated[float, Limits(least=0, most=50)] = 0.7
    motion: Annotated[float, Limits(least=0, most=200)] = 1.0
    electrons: Annotated[float, Limits(least=0, most=1e7)] = 4000.0
    read_noise: Annotated[float, Limits(least=0, most=1e4)] = 4.0
    mosaic: bool = True
    sharpening: Annotated[float, Limits(least=0, most=5)] = 0.3
    jpeg: Annotated[int, Limits(least=0, most=100)] = 90

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.black < part <= 1 for part in self.paper):
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

    def place(self, layout: PageLayout, random: Random) -> Matrix:
        """Say where the page appears: millimetres of paper to pixels of the photograph, by a pinhole camera.

        Args:
            layout: of the page.
            random: draws the offset and, if it is not set, the direction of tilt.
        """
        width, height = self.frame(layout)
        direction = random.uniform(0, 360) if self.tilt_direction is None else self.tilt_direction
        drawn = np.array(draw_offset(random, self.offset)) if self.offset else np.zeros(2)
        page = np.array(layout.paper)
        millimetres = drawn / REFERENCE_SIDE * layout.image
        density = self.scale * min(max(width, height) / page.max(), min(width, height) / page.min())
        focal = math.hypot(width, height) / 2 / math.tan(math.radians(self.field_of_view) / 2)
        roll, lean, tilt = (math.radians(degrees) for degrees in (self.angle, direction, self.tilt))
        in_plane = np.array([[math.cos(roll), -math.sin(roll), 0], [math.sin(roll), math.cos(roll), 0], [0, 0, 1]])
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

    def frame(self, layout: PageLayout) -> tuple[int, int]:
        """Width and height of the photograph: the camera is held as the page is."""
        long, short = max(self.width, self.height), min(self.width, self.height)
        return (long, short) if layout.width > layout.height else (short, long)


def random_of(seed: int, name: str) -> Random:
    """Make the generator of all that is random in what has a name, such as a photograph.

    >>> float(random_of(0, "photo").uniform()) == float(random_of(0, "photo").uniform())
    True
    """
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def draw_offset(random: Random, limit: float) -> tuple[float, float]:
    """Draw how far something held by hand is off, right and down, each up to a limit to either side."""
    right, down = random.uniform(0, limit, 2) * random.choice((-1, 1), 2)
    return float(right), float(down)


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


def sweep(base: Mapping[str, Camera], changes: Iterable[str]) -> dict[str, Camera]:
    """Vary settings of cameras.

    Args:
        base: cameras by name.
        changes: as ``tilt=0,20,40``: every value of every setting with every other.

    Returns:
        Cameras by name; a setting that has several values is part of it.

    >>> cameras = sweep({"mine": Camera()}, ["tilt=0,20", "jpeg=50"])
    >>> {name: (camera.tilt, camera.jpeg) for name, camera in cameras.items()}
    {'mine-tilt0': (0.0, 50), 'mine-tilt20': (20.0, 50)}
    """
    axes = [_parse(change) for change in changes]
    varied: dict[str, Camera] = {}
    for name, camera in base.items():
        for values in product(*(values for _, values in axes)):
            chosen = {setting: value for (setting, _), value in zip(axes, values, strict=True)}
            parts = [f"{setting}{chosen[setting]:g}" for setting, several in axes if len(several) > 1]
            varied["-".join([name, *parts])] = camera.with_(**chosen)
    return varied


def _parse(change: str) -> tuple[str, list[Any]]:
    setting, equals, text = change.partition("=")
    setting = setting.strip().replace("-", "_")
    if not equals or not text.strip():
        raise WhorlError(f"expected a setting with its values, such as tilt=0,20,40; got {change!r}.")
    known = [field.name for field in fields(Camera) if field.name != "paper"]
    if setting not in known:
        raise unknown_name("setting", setting, known, hint=f"A camera has: {', '.join(known)}.")
    kind = type(getattr(Camera, setting))
    try:
        # Whole numbers stay whole; all others, the direction of tilt that may be None among them, are floating ones.
        numbers = [int(value) if kind in (int, bool) else float(value) for value in text.split(",")]
    except ValueError as error:
        raise WhorlError(f"{setting} must be numbers joined by commas, such as {setting}=0,1; got {text!r}.") from error
    return setting, [bool(number) if kind is bool else number for number in numbers]


def printed(page: Pixels, layout: PageLayout, camera: Camera) -> Linear:
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


@cache
def to_linear() -> NDArray[np.float64]:
    """Linear light, 0 to 1, of each of the 256 levels of sRGB."""
    level = np.arange(256) / 255
    return np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)


@cache
def from_linear() -> NDArray[np.uint8]:
    """Level of sRGB for each of the 65536 levels of linear light."""
    light = np.arange(65536) / FULL
    level = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(255 * level), np.uint8)


def reflectance(
    page: NDArray[np.uint8],
    *,
    dot_gain: float,
    saturation: float,
    black: float,
    paper: tuple[float, float, float],
) -> Linear:
    """Print a page.

    The level of a channel requires a coverage a with ink, which dot gain g makes a + 4·g·a·(1 - a): Yule and Nielsen's
    effect, in the quadratic form that press standards use. Colours are then drawn towards grey, and the range from full
    ink to bare paper takes the place of the range from nothing to white.

    Args:
        page: (H, W, 3) sRGB, uint8.
        dot_gain: how much half a coverage grows.
        saturation: 1 keeps colours, 0 makes them grey.
        black: reflectance of full ink, 0 to 1.
        paper: reflectance of bare paper in red, green and blue.

    Returns:
        (H, W, 3) linear.

    >>> grey = np.full((1, 1, 3), 128, np.uint8)
    >>> plain = reflectance(grey, dot_gain=0, saturation=1, black=0, paper=(1, 1, 1))
    >>> gained = reflectance(grey, dot_gain=0.15, saturation=1, black=0, paper=(1, 1, 1))
    >>> from_linear()[plain][0, 0, 0], bool(gained[0, 0, 0] < plain[0, 0, 0])
    (np.uint8(128), True)
    """
    cv2 = opencv()
    cover = 1 - to_linear()
    cover = np.clip(cover + 4 * dot_gain * cover * (1 - cover), 0, 1)
    light = cv2.LUT(page, (FULL * (1 - cover)).round().astype(np.uint16))
    mix = saturation * np.eye(3) + (1 - saturation) * np.tile(_LUMINANCE, (3, 1))
    white = np.array(paper)
    matrix = np.column_stack(((white - black)[:, None] * mix, np.full(3, FULL * black)))
    if np.array_equal(matrix, np.eye(3, 4)):
        return np.asarray(light)
    return np.asarray(cv2.transform(light, matrix))
