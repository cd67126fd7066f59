"""How an image is turned, scaled and moved before a network sees it, one pose or a grid of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from torch import Tensor

from whorl.errors import WhorlError
from whorl.geometry.affine import affine

# The paper gives pixel offsets for its 299-pixel images; they scale with the image.
REFERENCE_SIDE = 299
LARGEST = 1_000_000  # degrees, factor or pixels
MOST_POSES = 10_000
"""Of one grid: each image is shown to each network in each of them, so more is a slip."""


@dataclass(frozen=True, kw_only=True)
class Pose:
    """How the image is turned, scaled and moved before the network sees it.

    >>> import torch
    >>> Pose(angle=30, scale=0.7, shift=(20, 20)).apply(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 3, 32, 32])
    >>> print(Pose(angle=30, scale=0.7, shift=(20, 20)))
    30° ×0.7 (20, 20)
    """

    angle: float = 0.0
    """Degrees, clockwise on screen."""
    scale: float = 1.0
    """Factor; above 1 enlarges."""
    shift: tuple[float, float] = (0.0, 0.0)
    """(right, down) in pixels of a 299-pixel image; scales with the image."""

    def apply(self, x: Tensor) -> Tensor:
        """Transform (B, C, H, W) images; the identity leaves them untouched."""
        if self == Pose():
            return x
        height, width = x.shape[-2:]
        right, down = self.shift
        moved = (right * width / REFERENCE_SIDE, down * height / REFERENCE_SIDE)
        return affine(x, angle=self.angle, scale=self.scale, shift=moved)

    def __str__(self) -> str:
        parts = [f"{self.angle:g}°"]
        if self.scale != 1:
            parts.append(f"×{self.scale:g}")
        if any(self.shift):
            parts.append("({:g}, {:g})".format(*self.shift))
        return " ".join(parts)


PAPER_POSES: tuple[Pose, ...] = (
    *(Pose(angle=angle) for angle in (-30, -15, 0, 15, 30)),
    *(Pose(angle=30, scale=scale, shift=(20, 20)) for scale in (0.5, 0.7, 1.0, 1.3, 1.5)),
    *(Pose(angle=25, scale=0.7, shift=(shift, shift)) for shift in (5, 20)),
)
"""The twelve transforms of the paper's tables 1 to 3."""


def poses(
    *,
    angles: Iterable[float] = (0.0,),
    scales: Iterable[float] = (1.0,),
    shifts: Iterable[float | tuple[float, float]] = (0.0,),
) -> tuple[Pose, ...]:
    """Build every combination of rotations, scales and shifts.

    Args:
        angles: degrees, clockwise on screen.
        scales: factors above 0.
        shifts: in pixels of a 299-pixel image: a number for both directions, or a pair (right, down).

    Returns:
        The product, each pose once; shifts vary fastest, angles slowest.

    Raises:
        WhorlError: one of the three is empty, or holds what is no pose.

    >>> [str(pose) for pose in poses(angles=(-30, 30), scales=(0.5, 1))]
    ['-30° ×0.5', '-30°', '30° ×0.5', '30°']
    """
    turned, scaled = list(angles), list(scales)
    moved = [(shift, shift) if isinstance(shift, int | float) else shift for shift in shifts]
    for name, count in (("angles", len(turned)), ("scales", len(scaled)), ("shifts", len(moved))):
        if not count:
            raise WhorlError(f"{name} must hold at least one value; got none.")
    for number in (*turned, *scaled, *(part for pair in moved for part in pair)):
        if not abs(number) <= LARGEST:
            raise WhorlError(f"angles, scales and shifts must be finite numbers, at most {LARGEST:,}; got {number}.")
    if min(scaled) <= 0:
        raise WhorlError(f"scales must be above 0; got {min(scaled):g}.")
    count = len(turned) * len(scaled) * len(moved)
    if count > MOST_POSES:
        raise WhorlError(
            f"a grid may have {MOST_POSES:,} poses at most; got {count:,}, as {len(turned):,} angles × "
            f"{len(scaled):,} scales × {len(moved):,} shifts. Take fewer, or split them over several runs."
        )
    combined = product(turned, scaled, moved)
    return tuple(dict.fromkeys(Pose(angle=angle, scale=scale, shift=shift) for angle, scale, shift in combined))
