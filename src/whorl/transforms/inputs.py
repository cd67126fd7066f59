"""Random input transforms used inside attacks: what the network sees instead of the image itself.

A transform is callable on (images, keys): ``keys`` is one int64 per image (:mod:`whorl.randomness`), and every draw
depends on nothing else. All keep the spatial shape, so that a compiled loop compiles once. One that is a function of
its tensors alone has a true ``pure``: a recorded graph of it then stands for calling it each time. One that images in
bfloat16 will do for, because it adds up in float32, has a true ``short``. One with ``view(x, keys)`` says what it would
show (:class:`whorl.geometry.views.View`), so that several can be shown at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError
from whorl.geometry.pose import FURTHER_NUMBERS, NUMBERS, PAPER_NUMBERS, REFERENCE_SIDE, check_number, posed
from whorl.geometry.sums import lines, resample
from whorl.geometry.views import AffinePose, View, shown
from whorl.randomness import uniform
from whorl.records import Limits, NotNegative, Positive, Record, Registry, Share


@runtime_checkable
class InputTransform(Protocol):
    """Anything that maps (B, C, H, W) images to (B, C, any, any) images, differentiably, at random.

    ``keys``, (B,) int64, is all its randomness: the same image and key give the same result in any batch.
    """

    def __call__(self, x: Tensor, keys: Tensor, /) -> Tensor:
        """Transform ``x``, (B, C, H, W), by the draws of ``keys``, (B,) int64."""
        ...


@dataclass(frozen=True, repr=False)
class Plain(Record):
    """Shows the image as it is."""

    pure: ClassVar[bool] = True

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - draws nothing
        """Return ``x``."""
        return x


plain = Plain()

TRANSFORMS: Registry[Callable[..., InputTransform]] = Registry("input transform")
"""Every random input transform by the name of its class."""


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class DiverseInput(Record):
    """Diverse inputs (Xie et al., 2019): enlarge a little, place at random on a larger canvas, view it at the old size.

    The three steps (enlarge by a factor from 1 to ``largest``, nearest; zero-pad to ``largest``; shrink back,
    antialiased) are one warp, a matrix for the rows and one for the columns, so that the spatial shape never changes.

    Attributes:
        probability: share of draws that are transformed at all; the others are shown exactly as they are.
        largest: side of the canvas, as a multiple of the image's.

    >>> DiverseInput()(torch.rand(2, 3, 32, 32), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 32])
    """

    pure: ClassVar[bool] = True
    short: ClassVar[bool] = True
    probability: Share = 0.7
    largest: Annotated[float, Limits(least=1, below=2)] = 1.1

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        draws = uniform(keys, (4,))
        if x.dtype in (torch.float16, torch.bfloat16):
            return self._aligned(x, draws)
        if x.device.type == "cpu":
            return self._line_by_line(x, draws)
        rows = self._warp(x.shape[-2], draws[:, 1], draws[:, 2], x.dtype)
        columns = self._warp(x.shape[-1], draws[:, 1], draws[:, 3], x.dtype)
        warped = rows[:, None] @ x @ columns[:, None].mT
        return torch.where((draws[:, 0] < self.probability)[:, None, None, None], warped, x)

    def _aligned(self, x: Tensor, draws: Tensor) -> Tensor:
        """The same for tensor cores, which want multiples of eight; an identity where nothing is to be done."""
        batch, channels, height, width = x.shape
        high, wide = _room(height), _room(width)
        changed = (draws[:, 0] < self.probability)[:, None, None]
        rows = self._warp(height, draws[:, 1], draws[:, 2], x.dtype, high).where(changed, _eye(high, x.device, x.dtype))
        columns = self._warp(width, draws[:, 1], draws[:, 3], x.dtype, wide).where(
            changed, _eye(wide, x.device, x.dtype)
        )
        padded = F.pad(x, (0, wide - width, 0, high - height))
        across = torch.bmm(padded.reshape(batch, channels * high, wide), columns.mT)
        # One copy of an image's matrix for each of its channels, made once for both directions.
        down = torch.bmm(rows.repeat_interleave(channels, 0), across.reshape(batch * channels, high, wide))
        return down.reshape(batch, channels, high, wide)[:, :, :height, :width]

    def _line_by_line(self, x: Tensor, draws: Tensor) -> Tensor:
        """The same for a CPU, without the zeros of the matrices."""
        changed = draws[:, 0] < self.probability
        rows = self._taps(x.shape[-2], changed, draws[:, 1], draws[:, 2], x)
        columns = self._taps(x.shape[-1], changed, draws[:, 1], draws[:, 3], x)
        return resample(x, lines(*rows, x.shape[1]), lines(*columns, x.shape[1]))

    def _taps(self, side: int, changed: Tensor, enlarge: Tensor, place: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`_warp` has in matrices, as weighted sums of lines; just the line where nothing is to be done."""
        canvas, resized, offset = self._placed(side, enlarge, place)
        position, share = _shrink_taps(canvas, side, like.dtype)
        on_resized = position - offset[:, None, None]
        source = (on_resized * side).div(resized[:, None, None], rounding_mode="floor")
        weight = share.where((on_resized >= 0) & (on_resized < resized[:, None, None]), 0)
        # A line that was enlarged to two counts once, with both weights.
        first = source[:, :, :1]
        merged = torch.zeros_like(weight).scatter_add_(2, source - first, weight)
        tap = torch.arange(source.shape[2], device=like.device)
        first = first.where(changed[:, None, None], torch.arange(side, device=like.device)[:, None])
        return first + tap, merged.where(changed[:, None, None], (tap == 0).to(merged))

    def _placed(self, side: int, enlarge: Tensor, place: Tensor) -> tuple[int, Tensor, Tensor]:
        """Side of the canvas; (B,) sides of the enlarged images; (B,) where on the canvas they begin."""
        canvas = int(side * self.largest)
        resized = (side + enlarge * (canvas - side + 1)).floor().clamp(max=canvas).long()
        return canvas, resized, (place * (canvas - resized + 1)).floor().long()

    def _warp(self, side: int, enlarge: Tensor, place: Tensor, dtype: torch.dtype, room: int | None = None) -> Tensor:
        """Matrices from source positions to output positions, for draws (B,) in [0, 1).

        Args:
            side: of the image.
            enlarge: how much of the possible enlargement.
            place: where on the canvas.
            dtype: of the result.
            room: None for (B, side, side); else (B, room, room), zeros beyond the image.
        """
        canvas, resized, offset = self._placed(side, enlarge, place)
        positions = canvas if room is None else _room(canvas)
        on_resized = torch.arange(positions, device=place.device) - offset[:, None]
        inside = (on_resized >= 0) & (on_resized < resized[:, None])
        # Nearest as torch means it: floor(position * from / to). Outside the image no source matches.
        source = (on_resized * side).div(resized[:, None], rounding_mode="floor").where(inside, -1)
        pick = source[:, :, None] == torch.arange(room or side, device=place.device)
        if room is None:
            return _shrink(canvas, side, place.device, dtype) @ pick.to(dtype)
        shrink = _roomy_shrink(canvas, side, place.device, dtype)
        return torch.bmm(shrink.expand(len(place), -1, -1), pick.to(dtype))


@lru_cache(maxsize=32)
def _shrink(canvas: int, side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(side, canvas) matrix of an antialiased resize, the one that a classifier does to an image of another size."""
    with torch.inference_mode(False):
        identity = torch.eye(canvas, dtype=dtype, device=device)[None, None]
        return F.interpolate(identity, (side, canvas), mode="bilinear", align_corners=False, antialias=True)[0, 0]


@lru_cache(maxsize=32)
def _shrink_taps(canvas: int, side: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same as (side, taps) neighbouring positions on the canvas, and their weights, on a CPU."""
    with torch.inference_mode(False):
        matrix = _shrink(canvas, side, torch.device("cpu"), dtype)
        first = (matrix != 0).int().argmax(1, keepdim=True)
        position = first + torch.arange(int((matrix != 0).sum(1).max()), device="cpu")
        # What would lie beyond the canvas, or beyond a line's own weights, weighs nothing.
        return position, F.pad(matrix, (0, position.shape[1])).gather(1, position)


@lru_cache(maxsize=32)
def _roomy_shrink(canvas: int, side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same with both sides made multiples of eight by zeros, computed in float64 and rounded once."""
    with torch.inference_mode(False):
        exact = _shrink(canvas, side, torch.device("cpu"), torch.float64)
        return F.pad(exact, (0, _room(canvas) - canvas, 0, _room(side) - side)).to(device, dtype)


@lru_cache(maxsize=32)
def _eye(side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.eye(side, dtype=dtype, device=device)


def _room(side: int) -> int:
    return -(-side // 8) * 8


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class RandomAffine(Record):
    """A random pose of each image, uniform over the stated ranges (Athalye et al., 2018).

    By default rotations, scalings and shifts; the rest of what a :class:`whorl.evaluation.Pose` has, defined there, may
    be drawn too.

    Attributes:
        angle: degrees, drawn from [-angle, angle].
        scale: (lowest, highest) factor.
        shift: pixels of a 299-pixel image, drawn from [-shift, shift] for each axis; scales with the image.
        shear: degrees, drawn from [-shear, shear].
        stretch: (lowest, highest) factor of the width and of the height, one draw each.
        tilt: degrees, drawn from [-tilt, tilt] for each axis.
        brightness: in units of the [0, 1] range, drawn from [-brightness, brightness].
        contrast: (lowest, highest) factor.
        blur: σ in pixels of a 299-pixel image, drawn from [0, blur]; scales with the image.

    >>> RandomAffine()(torch.rand(2, 3, 32, 32), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 32, 32])
    >>> RandomAffine(tilt=20, contrast=(0.5, 1)).dimensions
    7
    """

    pure: ClassVar[bool] = True
    angle: float = 30.0
    scale: tuple[Positive, Positive] = (0.5, 1.5)
    shift: float = 20.0
    shear: float = 0.0
    stretch: tuple[Positive, Positive] = (1.0, 1.0)
    tilt: float = 0.0
    brightness: float = 0.0
    contrast: tuple[Positive, Positive] = (1.0, 1.0)
    blur: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "stretch", "contrast"):
            low, high = getattr(self, name)
            if low > high:
                raise WhorlError(
                    f"{name} must be (lowest, highest) with 0 < lowest <= highest; got {getattr(self, name)}."
                )
        for number in NUMBERS:
            for end in self.ranges[number.name]:
                check_number(number.name, end, number)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest value of each number of a pose, by name: ``angle``, ``scale``, ``shift_x``, ..."""
        shift, tilt = (-self.shift, self.shift), (-self.tilt, self.tilt)
        return {
            "angle": (-self.angle, self.angle),
            "scale": self.scale,
            "shift_x": shift,
            "shift_y": shift,
            "shear": (-self.shear, self.shear),
            "stretch_x": self.stretch,
            "stretch_y": self.stretch,
            "tilt_x": tilt,
            "tilt_y": tilt,
            "brightness": (-self.brightness, self.brightness),
            "contrast": self.contrast,
            "blur": (0.0, self.blur),
        }

    @property
    def drawn(self) -> tuple[str, ...]:
        """The numbers that a draw decides: the paper's four, and what else has a range."""
        further = (number for number in FURTHER_NUMBERS if self.ranges[number.name] != (number.neutral,) * 2)
        return tuple(number.name for number in (*PAPER_NUMBERS, *further))

    @property
    def dimensions(self) -> int:
        """How many numbers from the unit interval decide a pose: one for each of ``drawn``."""
        return len(self.drawn)

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return self.pose(x, uniform(keys, (self.dimensions,)))

    def pose(self, x: Tensor, draws: Tensor) -> Tensor:
        """Put each image into the pose of its draws from the unit cube.

        Args:
            x: (B, C, H, W).
            draws: (B, dimensions) in [0, 1]: angle, scale, shift to the right, shift down, then the rest of ``drawn``.
        """
        if self.short:
            return shown(x, self.view_of(x, draws))
        return posed(x, self.numbers(draws.to(torch.promote_types(x.dtype, torch.float32))), self.drawn)

    @property
    def short(self) -> bool:
        """Whether it draws the paper's four numbers alone (angle, scale, shift): affine maps, fine in bfloat16."""
        return self.dimensions == len(PAPER_NUMBERS)

    def view(self, x: Tensor, keys: Tensor) -> View | None:
        """What ``keys`` draw, as one affine map for each image; None where a pose is more than that."""
        return self.view_of(x, uniform(keys, (self.dimensions,))) if self.short else None

    def view_of(self, x: Tensor, draws: Tensor) -> View:
        """The affine maps of ``draws``, (B, 4) in [0, 1]: angle, scale, shift to the right, shift down."""
        draws = draws.to(torch.promote_types(x.dtype, torch.float32))
        low, high = self.scale
        height, width = x.shape[-2:]
        reach = self.shift / REFERENCE_SIDE
        signed = draws * 2 - 1
        pose = AffinePose(
            angle=signed[:, 0] * self.angle,
            scale=(low + high) / 2 + signed[:, 1] * ((high - low) / 2),
            shift=torch.stack((signed[:, 2] * (reach * width), signed[:, 3] * (reach * height)), dim=1),
        )
        return View(pose=pose)

    def numbers(self, draws: Tensor) -> Tensor:
        """The poses of (B, dimensions) draws: (B, 12), in the order of ``ranges``.

        >>> RandomAffine().numbers(torch.tensor([[0.0, 1.0, 0.5, 0.5]]))[0, :4].tolist()
        [-30.0, 1.5, 0.0, 0.0]
        """
        ranges, column = self.ranges, dict(zip(self.drawn, draws.unbind(1), strict=True))
        made = []
        for number in NUMBERS:
            low, high = ranges[number.name]
            fixed = draws.new_full((len(draws),), number.neutral)
            made.append(low + (high - low) * column[number.name] if number.name in column else fixed)
        return torch.stack(made, dim=1)
