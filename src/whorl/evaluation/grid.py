"""Transform first, then ask: success rates over poses of the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.success import SuccessRate
from whorl.geometry.affine import affine
from whorl.transforms import REFERENCE_SIDE


@dataclass(frozen=True, kw_only=True)
class Pose:
    """How the picture is turned, scaled and moved before the network sees it.

    >>> Pose(angle=30, scale=0.7, shift=(20, 20)).apply(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 3, 32, 32])
    """

    angle: float = 0.0
    """Degrees, clockwise on screen."""
    scale: float = 1.0
    """Factor; above 1 enlarges."""
    shift: tuple[float, float] = (0.0, 0.0)
    """(right, down) in pixels of a 299-pixel picture; scales with the picture."""

    def apply(self, x: Tensor) -> Tensor:
        """Transform (B, C, H, W) images; the identity leaves them untouched."""
        if self == Pose():
            return x
        height, width = x.shape[-2:]
        right, down = self.shift
        moved = (right * width / REFERENCE_SIDE, down * height / REFERENCE_SIDE)
        return affine(x, angle=self.angle, scale=self.scale, shift=moved)


PAPER_POSES: tuple[Pose, ...] = (
    *(Pose(angle=angle) for angle in (-30, -15, 0, 15, 30)),
    *(Pose(angle=30, scale=scale, shift=(20, 20)) for scale in (0.5, 0.7, 1.0, 1.3, 1.5)),
    *(Pose(angle=25, scale=0.7, shift=(shift, shift)) for shift in (5, 20)),
)
"""The twelve transforms of the paper's tables 1 to 3."""


def to_8_bits(x: Tensor) -> Tensor:
    """Round images in [0, 1] to what an 8-bit file holds.

    >>> (to_8_bits(torch.tensor([0.0, 0.501, 1.0])) * 255).tolist()
    [0.0, 128.0, 255.0]
    """
    return (x.clamp(0, 1) * 255).round() / 255


@torch.no_grad()
def success_rates(
    targets: Mapping[str, Callable[[Tensor], Tensor]],
    x: Tensor,
    adversarial: Mapping[str, Tensor],
    y: Tensor,
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    batch_size: int = 64,
) -> dict[tuple[str, str, Pose], SuccessRate]:
    """Count successes of several attacks on several targets over several poses.

    Each picture is warped once a pose for all targets, and the clean side is shared by all attacks.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        x: (N, C, H, W) clean images.
        adversarial: attack's name to (N, C, H, W) images; rounded to 8 bits first.
        y: (N,) true labels.
        poses: transforms to apply.
        batch_size: images per forward pass.

    Returns:
        Counts by (attack, target, pose).
    """
    for name, images in adversarial.items():
        if images.shape != x.shape:
            raise WhorlError(
                f"adversarial images of {name!r} must match x, {tuple(x.shape)}; got {tuple(images.shape)}."
            )
    rounded = {name: to_8_bits(images) for name, images in adversarial.items()}
    counts = {(a, t, p): SuccessRate() for a in adversarial for t in targets for p in poses}
    for start in range(0, len(x), batch_size):
        part = slice(start, start + batch_size)
        for pose in poses:
            seen = pose.apply(x[part])
            clean = {name: target(seen).argmax(1) for name, target in targets.items()}
            for attack, images in rounded.items():
                seen = pose.apply(images[part])
                for name, target in targets.items():
                    batch = SuccessRate.of(clean=clean[name], adversarial=target(seen).argmax(1), y=y[part])
                    counts[attack, name, pose] += batch
    return counts
