"""How alike two images look: the structural similarity of Wang et al. (2004)."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.contract import check_images
from whorl.errors import WhorlError
from whorl.geometry.kernels import Kernel, blur, factor, gaussian_kernel
from whorl.records import Count, checked

WINDOW = 11
"""Side of the window in pixels; no smaller image has a structural similarity."""
_SIGMA = 1.5
_C1, _C2 = 0.01**2, 0.03**2  # (K · range)², the range being 1


def ssim(x: Tensor, y: Tensor, *, shrink: int = 1) -> Tensor:
    """Structural similarity of images: 1 where they are equal, less the more of their structure differs.

    Wang et al. (2004): means, variances and covariance in Gaussian windows of 11×11 pixels with σ = 1.5, K₁ = 0.01,
    K₂ = 0.03 and a range of 1, population statistics. Only windows that lie inside the image count, and the mean is
    over windows and channels, as ``skimage.metrics.structural_similarity(..., gaussian_weights=True, sigma=1.5,
    use_sample_covariance=False, data_range=1, channel_axis=...)`` has it.

    A window of 11 pixels sees fine structure; of shapes larger than itself it sees little. ``shrink=4`` gives the
    similarity of the images at a quarter of their size, as from four times as far away.

    Args:
        x: (B, C, H, W) in [0, 1], H and W at least 11 times ``shrink``.
        y: likewise.
        shrink: side of the squares, in pixels, that are averaged to one pixel first; what is left over at the right and
            at the bottom is cut off.

    Returns:
        (B,) float64, in [-1, 1].

    Raises:
        WhorlError: not images, of two shapes, too small, or with NaN; or ``shrink`` is no whole number from 1.

    >>> x = torch.linspace(0, 1, 16).expand(1, 3, 16, 16)
    >>> ssim(x, x).tolist(), [round(value, 4) for value in ssim(x, 0.9 * x + 0.05).tolist()]
    ([1.0], [0.9944])
    """
    checked("shrink", shrink, Count)
    x, y = check_images(x), check_images(y)
    if x.shape != y.shape:
        raise WhorlError(f"images must be of one shape; got {tuple(x.shape)} and {tuple(y.shape)}.")
    sides = tuple(side // shrink for side in x.shape[-2:])
    if min(sides) < WINDOW:
        shrunk = f", shrunk to 1/{shrink}" if shrink > 1 else ""
        raise WhorlError(f"SSIM needs images of at least {WINDOW}×{WINDOW} pixels; got {sides}{shrunk}.")
    if shrink > 1:
        x, y = F.avg_pool2d(x, shrink), F.avg_pool2d(y, shrink)
    return similarity(x, y)


def has_similarity(x: Tensor) -> bool:
    """Whether images are large enough for a window of SSIM."""
    return min(x.shape[-2:]) >= WINDOW


def similarity(x: Tensor, y: Tensor) -> Tensor:
    """:func:`ssim` of images that were checked; nothing waits for the device."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    # A few at a time: what is made of them stays in a CPU's cache, and small beside a network's on a GPU.
    size = 16 if x.is_cuda else 1
    parts = zip(x.to(dtype).split(size), y.to(dtype).split(size), strict=True)
    return torch.cat([_similarity(*part) for part in parts]) if len(x) else x.new_zeros(0, dtype=torch.float64)


def _similarity(x: Tensor, y: Tensor) -> Tensor:
    # By sum and difference, s = x + y - 1 and d = x - y: with m and v for their mean and variance in a window,
    # 4 μx μy = m(s+1)² - m(d)² and 4 σxy = v(s) - v(d), and with plus signs 2 (μx² + μy²) and 2 (σx² + σy²). That takes
    # four sums and not five, is the same for (y, x) to the last bit, exactly 1 for equal images, and exact where the
    # change is small; the -1 keeps squares small, and so the digits of their differences.
    s, d = x + y - 1, x - y
    edge = WINDOW // 2
    sums = blur(torch.cat((s, d, s * s, d * d), 1), _window())[..., edge:-edge, edge:-edge]
    mean_s, mean_d, square_s, square_d = sums.chunk(4, 1)
    var_s, var_d = square_s - mean_s**2, square_d - mean_d**2
    mean_s, mean_d = (mean_s + 1) ** 2 + 2 * _C1, mean_d**2
    var_s = var_s + 2 * _C2
    found = (mean_s - mean_d) * (var_s - var_d) / ((mean_s + mean_d) * (var_s + var_d))
    return found.mean((1, 2, 3), dtype=torch.float64)


@lru_cache(maxsize=1)
def _window() -> Kernel:
    return factor(gaussian_kernel(WINDOW, _SIGMA))
