# mypy: ignore-errors
# Triton's language is Python to read, not to type-check.
"""The Triton kernel behind :mod:`whorl.attacks.step_gpu`; imported where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_FLAT = 2048


@triton.jit
def _linf_step(
    g, x, eps, alpha, size, momentum, velocity, adv, pixels, has_momentum: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    image = tl.program_id(1)
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < pixels
    at = image.to(tl.int64) * pixels + at
    direction = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    if has_momentum:
        before = tl.load(velocity + at, mask=inside, other=0.0)
        direction = momentum * before + direction / tl.load(size + image)
        tl.store(velocity + at, direction, mask=inside)
    sign = tl.where(direction > 0, 1.0, 0.0) - tl.where(direction < 0, 1.0, 0.0)
    radius = tl.load(eps + image)
    clean = tl.load(x + at, mask=inside, other=0.0)
    moved = tl.load(adv + at, mask=inside, other=0.0) + tl.load(alpha + image) * sign
    low = tl.maximum(clean - radius, 0.0)
    high = tl.minimum(clean + radius, 1.0)
    tl.store(adv + at, tl.minimum(tl.maximum(moved, low), high), mask=inside)


def linf_step(
    g: Tensor, x: Tensor, eps: Tensor, alpha: Tensor, size: Tensor, momentum: float, velocity: Tensor, adv: Tensor
) -> None:
    """See :func:`whorl.attacks.step_gpu.move_in_place`; all dense, float32, the gradient perhaps shorter."""
    pixels = g[0].numel()
    _linf_step[(triton.cdiv(pixels, _FLAT), g.shape[0])](
        g, x, eps, alpha, size, float(momentum), velocity, adv, pixels, has_momentum=momentum != 0, block=_FLAT
    )
