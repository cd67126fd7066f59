"""How an image is transformed before a network sees it: one pose, a grid of them, or another one for each image."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from whorl.errors import WhorlError, quoted, unknown_name
from whorl.geometry.affine import affine, rotation, warp
from whorl.geometry.photometry import adjust, defocus
from whorl.geometry.projection import composed, project
from whorl.records import Record

# The paper gives pixel offsets for its 299-pixel images; they scale with the image, and so does a blur.
REFERENCE_SIDE = 299
LARGEST = 1_000_000  # degrees, factor or pixels
MOST_POSES = 10_000
"""Of one grid: each image is shown to each network in each of them, so more is a slip."""


class PoseNumber(NamedTuple):
    """One of the numbers that make up a pose."""

    name: str
    """As columns of tables have it."""
    words: str
    """What it is, and its unit in brackets if it has one."""
    neutral: float
    """The value that changes nothing."""
    lowest: float = -math.inf
    highest: float = math.inf
    allowed: str = "a finite number"
    """What lies strictly between these two, in words."""


_TURN = (-90.0, 90.0, "inside (-90, 90) degrees")
_FACTOR = (0.0, math.inf, "above 0")
_FROM_0 = (-math.ulp(0.0), math.inf, "at least 0")
PAPER_NUMBERS: tuple[PoseNumber, ...] = (
    PoseNumber("angle", "angle (°)", 0.0),
    PoseNumber("scale", "scale", 1.0, *_FACTOR),
    PoseNumber("shift_x", "shift right (pixels of 299)", 0.0),
    PoseNumber("shift_y", "shift down (pixels of 299)", 0.0),
)
"""The paper's four."""
FURTHER_NUMBERS: tuple[PoseNumber, ...] = (
    PoseNumber("shear", "shear (°)", 0.0, *_TURN),
    PoseNumber("stretch_x", "stretch of the width", 1.0, *_FACTOR),
    PoseNumber("stretch_y", "stretch of the height", 1.0, *_FACTOR),
    PoseNumber("tilt_x", "tilt of the right edge (°)", 0.0, *_TURN),
    PoseNumber("tilt_y", "tilt of the bottom edge (°)", 0.0, *_TURN),
    PoseNumber("brightness", "brightness (of the range)", 0.0),
    PoseNumber("contrast", "contrast", 1.0, *_FROM_0),
    PoseNumber("blur", "blur (σ in pixels of 299)", 0.0, *_FROM_0),
)
"""What a pose may have beside them."""
NUMBERS = (*PAPER_NUMBERS, *FURTHER_NUMBERS)
"""All numbers of a pose, in the order of ``Pose.numbers``."""
PAIRED = ("shift", "stretch", "tilt")
"""Those that are pairs."""
_PLACE = {number.name: place for place, number in enumerate(NUMBERS)}
_PAPER_NAMES = frozenset(number.name for number in PAPER_NUMBERS)


@dataclass(frozen=True, kw_only=True, repr=False)
class Pose(Record):
    """How the image is transformed before the network sees it.

    Contrast and brightness change first; then the image is stretched, sheared, rotated and scaled, tilted, and shifted,
    all about its centre and in one interpolation, with zeros outside; what comes of it is blurred.

    >>> Pose(angle=30, scale=0.7, shift=(20, 20)).apply(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 3, 32, 32])
    >>> print(Pose(angle=30, scale=0.7, shift=(20, 20)), "|", Pose(tilt=(20, 0), brightness=-0.1, blur=2))
    30° ×0.7 (20, 20) | 0° tilt (20°, 0°) brightness -0.1 blur 2
    """

    _always_shown: ClassVar[tuple[str, ...]] = ("angle", "scale", "shift")

    angle: float = 0.0
    """Degrees, clockwise on screen."""
    scale: float = 1.0
    """Factor; above 1 enlarges."""
    shift: tuple[float, float] = (0.0, 0.0)
    """(right, down) in pixels of a 299-pixel image; scales with the image."""
    shear: float = 0.0
    """Degrees; the bottom goes to the right: what is d pixels below the centre moves by tan(shear) · d."""
    stretch: tuple[float, float] = (1.0, 1.0)
    """Factors of (width, height), beside the scale and before the shear and the rotation."""
    tilt: tuple[float, float] = (0.0, 0.0)
    """Degrees by which the (right, bottom) edge goes away from the camera; see :func:`whorl.geometry.project`."""
    brightness: float = 0.0
    """Added to every value, in units of the [0, 1] range; see :func:`whorl.geometry.adjust`."""
    contrast: float = 1.0
    """Factor about middle grey, before the brightness."""
    blur: float = 0.0
    """σ of a Gaussian, in pixels of a 299-pixel image; scales with the image. See :func:`whorl.geometry.defocus`."""

    def __post_init__(self) -> None:
        # Not as other records: a whole number stays one.
        for name in PAIRED:
            pair = getattr(self, name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise WhorlError(f"{name} must be a pair (right, down); got {quoted(pair)}.")
            object.__setattr__(self, name, tuple(pair))
        for value, number in zip(self.numbers, NUMBERS, strict=True):
            check_number(number.name, value, number)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The twelve numbers, in the order of the fields above; of a pair first (right), then (down)."""
        tones = (self.brightness, self.contrast, self.blur)
        return (self.angle, self.scale, *self.shift, self.shear, *self.stretch, *self.tilt, *tones)

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Pose:
        """The pose that has these twelve numbers, in the order of ``numbers``.

        >>> Pose.of(Pose(angle=10, blur=2).numbers) == Pose(angle=10, blur=2)
        True
        """
        angle, scale, right, down, shear, wide, high, first, second, brightness, contrast, blur = numbers
        plane = {"angle": angle, "scale": scale, "shear": shear, "stretch": (wide, high), "tilt": (first, second)}
        return cls(**plane, shift=(right, down), brightness=brightness, contrast=contrast, blur=blur)  # type: ignore[arg-type]  # a plain table

    def values(self, shown: Iterable[PoseNumber]) -> tuple[float, ...]:
        """Those of its numbers that are listed, as a table of poses shows them."""
        return tuple(self.numbers[_PLACE[number.name]] for number in shown)

    @property
    def changed(self) -> dict[str, float]:
        """The numbers that differ from the neutral ones, by name.

        >>> Pose(angle=30, tilt=(0, 20)).changed
        {'angle': 30, 'tilt_y': 20}
        """
        listed = zip(NUMBERS, self.numbers, strict=True)
        return {number.name: value for number, value in listed if value != number.neutral}

    def apply(self, x: Tensor) -> Tensor:
        """Transform (B, C, H, W) images; the identity leaves them untouched."""
        changed = self.changed
        if not changed:
            return x
        if changed.keys() <= _PAPER_NAMES:
            height, width = x.shape[-2:]
            right, down = self.shift
            moved = (right * width / REFERENCE_SIDE, down * height / REFERENCE_SIDE)
            return affine(x, angle=self.angle, scale=self.scale, shift=moved)
        numbers = torch.tensor(self.numbers, dtype=torch.float64, device=x.device)
        return posed(x, numbers.expand(len(x), -1), changed)

    def __str__(self) -> str:
        parts = [f"{self.angle:g}°"]
        if self.scale != 1:
            parts.append(f"×{self.scale:g}")
        if any(self.shift):
            parts.append("({:g}, {:g})".format(*self.shift))
        if self.shear:
            parts.append(f"shear {self.shear:g}°")
        if self.stretch != (1, 1):
            parts.append("stretch ({:g}, {:g})".format(*self.stretch))
        if any(self.tilt):
            parts.append("tilt ({:g}°, {:g}°)".format(*self.tilt))
        if self.brightness:
            parts.append(f"brightness {self.brightness:+g}")
        if self.contrast != 1:
            parts.append(f"contrast ×{self.contrast:g}")
        if self.blur:
            parts.append(f"blur {self.blur:g}")
        return " ".join(parts)


def numbers_of(several: Iterable[Pose]) -> tuple[PoseNumber, ...]:
    """The numbers that a table of poses shows: the paper's four, and of the further ones those that some pose has.

    >>> [number.name for number in numbers_of([Pose(angle=30), Pose(blur=2)])]
    ['angle', 'scale', 'shift_x', 'shift_y', 'blur']
    """
    there = {name for pose in several for name in pose.changed} | _PAPER_NAMES
    return tuple(number for number in NUMBERS if number.name in there)


def posed(x: Tensor, numbers: Tensor, used: Collection[str]) -> Tensor:
    """Put each image into a pose of its own: what :meth:`Pose.apply` does, bit for bit if the numbers are float64.

    Differentiable in the images and in the numbers. Never waits for a device.

    Args:
        x: (B, C, H, W) in [0, 1].
        numbers: (B, 12) in the order of ``NUMBERS``, within their bounds, float32 or float64.
        used: names of the numbers that may differ from the neutral ones; the others are taken to be neutral.

    Returns:
        (B, C, H, W), dtype of ``x``.
    """
    # As in ``affine``: half precision places a pixel only to within 0.1 px.
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    of = {name: numbers[:, place].to(dtype) for name, place in _PLACE.items()}
    height, width = x.shape[-2:]

    def in_pixels(first: str, second: str) -> Tensor:
        across, along = numbers[:, _PLACE[first]] * width, numbers[:, _PLACE[second]] * height
        return (torch.stack((across, along), dim=1) / REFERENCE_SIDE).to(dtype)

    if not {"brightness", "contrast"}.isdisjoint(used):
        x = adjust(x, of["brightness"], of["contrast"])
    shift = in_pixels("shift_x", "shift_y")
    tilted = not {"tilt_x", "tilt_y"}.isdisjoint(used)
    if tilted or not {"shear", "stretch_x", "stretch_y"}.isdisjoint(used):
        skewed = _upper(of["stretch_x"], torch.tan(torch.deg2rad(of["shear"])) * of["stretch_y"], of["stretch_y"])
        tilt = torch.stack((of["tilt_x"], of["tilt_y"]), dim=1) if tilted else None
        x = project(x, composed(skewed, rotation(of["angle"], of["scale"])), shift, tilt)
    elif not _PAPER_NAMES.isdisjoint(used):
        x = warp(x, of["angle"], of["scale"], shift)
    if "blur" in used:
        x = defocus(x, in_pixels("blur", "blur"))
    return x


def check_number(called: str, value: object, number: PoseNumber, kind: str = "a finite number") -> None:
    """Refuse what is no such number of a pose.

    Raises:
        WhorlError: it is not finite, or not within its bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise WhorlError(f"{called} must be {kind}, at most {LARGEST:,}; got {quoted(value)}.")
    if not number.lowest < value < number.highest:
        raise WhorlError(f"{called} must be {number.allowed}; got {value:g}.")


PAPER_POSES: tuple[Pose, ...] = (
    *(Pose(angle=angle) for angle in (-30, -15, 0, 15, 30)),
    *(Pose(angle=30, scale=scale, shift=(20, 20)) for scale in (0.5, 0.7, 1.0, 1.3, 1.5)),
    *(Pose(angle=25, scale=0.7, shift=(shift, shift)) for shift in (5, 20)),
)
"""The twelve transforms of the paper's tables 1 to 3."""

GRID_AXES = {
    "angles": "angle",
    "scales": "scale",
    "shifts": "shift",
    "shears": "shear",
    "stretches": "stretch",
    "tilts": "tilt",
    "brightnesses": "brightness",
    "contrasts": "contrast",
    "blurs": "blur",
}
"""What a grid calls its lists of values, and what a pose calls one of them."""


def poses(**values: Iterable[float | tuple[float, float]]) -> tuple[Pose, ...]:
    """Build every combination of some values of what a pose is made of.

    Args:
        values: lists by name: ``angles`` (degrees, clockwise on screen), ``scales`` (factors above 0), ``shifts`` (in
            pixels of a 299-pixel image), ``shears``, ``stretches``, ``tilts``, ``brightnesses``, ``contrasts``,
            ``blurs``; units as in :class:`Pose`. Of a shift, a stretch and a tilt, a number stands for both directions,
            or a pair says (right, down).

    Returns:
        Every combination once; in the order above, the last of them vary fastest and angles slowest.

    Raises:
        WhorlError: an unknown name, an empty list, or a value out of range.

    >>> [str(pose) for pose in poses(angles=(-30, 30), scales=(0.5, 1))]
    ['-30° ×0.5', '-30°', '30° ×0.5', '30°']
    >>> [str(pose) for pose in poses(tilts=((20, 0), (0, 20)), blurs=(0, 2))]
    ['0° tilt (20°, 0°)', '0° tilt (20°, 0°) blur 2', '0° tilt (0°, 20°)', '0° tilt (0°, 20°) blur 2']
    """
    axes: dict[str, list[float | tuple[float, ...]]] = {}
    for name in values:
        if name not in GRID_AXES:
            raise unknown_name("axis of a grid of poses", name, GRID_AXES, hint=f"Expected {', '.join(GRID_AXES)}.")
    for name, field in GRID_AXES.items():
        if name in values:
            axes[field] = [_checked(name, field, value) for value in values[name]]
            if not axes[field]:
                raise WhorlError(f"{name} must hold at least one value; got none.")
    count = math.prod(map(len, axes.values()))
    if count > MOST_POSES:
        several = [f"{len(axes[field]):,} {name}" for name, field in GRID_AXES.items() if len(axes.get(field, "")) > 1]
        raise WhorlError(
            f"a grid may have {MOST_POSES:,} poses at most; got {count:,}, as {' × '.join(several)}. "
            "Take fewer, or split them over several runs."
        )
    combined = (dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values()))
    return tuple(dict.fromkeys(Pose(**settings) for settings in combined))  # type: ignore[arg-type]  # a plain table


def _checked(name: str, field: str, value: float | tuple[float, ...]) -> float | tuple[float, ...]:
    """One value of a grid, a pair where it should be one."""
    if field not in PAIRED:
        check_number(name, value, NUMBERS[_PLACE[field]], "finite numbers")
        return value
    pair = (value, value) if isinstance(value, int | float) else value
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise WhorlError(f"{name} must be numbers or pairs (right, down); got {quoted(value)}.")
    for part, end in zip(pair, ("_x", "_y"), strict=True):
        check_number(name, part, NUMBERS[_PLACE[field + end]], "finite numbers")
    return tuple(pair)


def _upper(a: Tensor, b: Tensor, d: Tensor) -> Tensor:
    """Matrices [[a, b], [0, d]] of (B,) numbers: (B, 2, 2)."""
    return torch.stack((a, b, torch.zeros_like(a), d), dim=1).reshape(-1, 2, 2)
