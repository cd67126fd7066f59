"""The definitions of DESIGN §4 written out literally: float64 numpy, no speed, no code shared with whorl.

Images are arrays (..., H, W). Vectorised over pixels only; every average over transforms is an explicit sum.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def bilinear(x: Array, rows: Array, cols: Array, *, circular: bool = False) -> Array:
    """Values of x between its pixels; a neighbour outside counts as 0, or wraps along the columns if circular."""
    height, width = x.shape[-2:]
    top, left = np.floor(rows), np.floor(cols)
    out = np.zeros((*x.shape[:-2], *rows.shape))
    for row, row_weight in ((top, top + 1 - rows), (top + 1, rows - top)):
        for col, col_weight in ((left, left + 1 - cols), (left + 1, cols - left)):
            i, j = row.astype(int), col.astype(int)
            if circular:
                j = j % width
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            value = x[..., np.where(inside, i, 0), np.where(inside, j, 0)]
            out += np.where(inside, row_weight * col_weight * value, 0.0)
    return out


def affine(x: Array, angle: float, scale: float, shift: tuple[float, float]) -> Array:
    """Pixel by pixel: what stood at p stands at p' = s·R(θ)·p + t, in (right, down) axes about the centre."""
    height, width = x.shape[-2:]
    cy, cx = (height - 1) / 2, (width - 1) / 2
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    out = np.zeros_like(x)
    for row in range(height):
        for col in range(width):
            right, down = (col - cx - shift[0]) / scale, (row - cy - shift[1]) / scale
            source_right, source_down = cos * right + sin * down, -sin * right + cos * down  # R(-θ)
            out[..., row, col] = bilinear(x, np.array(cy + source_down), np.array(cx + source_right))
    return out


def corner_radius(height: int, width: int) -> float:
    return math.hypot((height - 1) / 2, (width - 1) / 2)


def radius_step(height: int, width: int) -> float:
    """Pixels between two neighbouring radii. An image of one pixel has one radius, 0."""
    n = max(height, width)
    return corner_radius(height, width) / (n - 1) if n > 1 else 1.0


def to_polar(x: Array, angles: int | None = None) -> Array:
    height, width = x.shape[-2:]
    n = max(height, width)
    around = angles or n
    radius = (np.arange(n) * radius_step(height, width))[:, None]
    theta = (2 * math.pi * np.arange(around) / around)[None, :]
    return bilinear(x, (height - 1) / 2 + radius * np.sin(theta), (width - 1) / 2 + radius * np.cos(theta))


def from_polar(p: Array, size: tuple[int, int]) -> Array:
    height, width = size
    n = p.shape[-1]
    down, right = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    theta = np.arctan2(down, right) % (2 * math.pi)
    return bilinear(p, np.hypot(right, down) / radius_step(height, width), theta * n / (2 * math.pi), circular=True)


def average_of_shifts(x: Array, p: Array, *, circular: bool = False) -> Array:
    """Eq. 9: the sum over m, n of p(m, n) · shift(x, -m, -n), with p indexed from its centre.

    shift(x, -m, -n) is the image whose pixel (i, j) is x[i + m, j + n]: a window on x laid among zeros, or among
    copies of its own columns if circular.
    """
    height, width = x.shape[-2:]
    rows, cols = p.shape[0] // 2, p.shape[1] // 2
    still = [(0, 0)] * (x.ndim - 2)
    wide = np.pad(x, [*still, (0, 0), (cols, cols)], mode="wrap" if circular else "constant")
    wide = np.pad(wide, [*still, (rows, rows), (0, 0)])
    out = np.zeros_like(x)
    for m in range(-rows, rows + 1):
        for n in range(-cols, cols + 1):
            shifted = wide[..., rows + m : rows + m + height, cols + n : cols + n + width]
            out += p[rows + m, cols + n] * shifted
    return out


def gaussian(size: int | tuple[int, int], sigma: str | float) -> Array:
    rows, cols = (size, size) if isinstance(size, int) else size
    divisor = {"printed": math.sqrt(3), "reference": 6.0}
    half_rows, half_cols = (rows - 1) // 2, (cols - 1) // 2
    if isinstance(sigma, str):
        widths = [half / divisor[sigma] for half in (half_rows, half_cols) if half > 0]
        variance = widths[0] * widths[-1] if widths else 1.0  # one pixel: any σ gives the kernel [[1]]
    else:
        variance = sigma**2
    p = np.zeros((rows, cols))
    for m in range(-half_rows, half_rows + 1):
        for n in range(-half_cols, half_cols + 1):
            p[m + half_rows, n + half_cols] = math.exp(-(m * m + n * n) / (2 * variance))
    normalised: Array = p / p.sum()
    return normalised


def uniform(size: int | tuple[int, int]) -> Array:
    rows, cols = (size, size) if isinstance(size, int) else size
    return np.full((rows, cols), 1.0 / (rows * cols))


def polar_average(x: Array, p: Array) -> Array:
    """P^-1( Kq * P(x) ): rows of p move along the radius (zeros beyond both ends), columns around the circle."""
    return from_polar(average_of_shifts(to_polar(x), p, circular=True), (x.shape[-2], x.shape[-1]))


def rotation_average(x: Array, degrees: float) -> Array:
    """P^-1 of the sum over all turns of P(x), weighted by a bell curve; 2 n angles, or the next multiple of 16."""
    angles = math.ceil(2 * max(x.shape[-2:]) / 16) * 16
    polar, total = to_polar(x, angles), 0.0
    out = np.zeros_like(polar)
    for turn in range(-4 * angles, 4 * angles + 1):
        weight = math.exp(-((turn * 360 / angles) ** 2) / (2 * degrees**2))
        out, total = out + weight * np.roll(polar, turn, axis=-1), total + weight
    return from_polar(out / total, (x.shape[-2], x.shape[-1]))


def affine_average(
    x: Array, p: Array, q: Array, *, translation: bool = True, rotation: bool = True, scaling: bool = True
) -> Array:
    """P^-1( Kq * P( Kt * x ) ); a part switched off leaves its kernel summed over that part's axis."""
    if translation:
        x = average_of_shifts(x, p)
    if not rotation:
        q = q.sum(axis=1, keepdims=True)
    if not scaling:
        q = q.sum(axis=0, keepdims=True)
    return polar_average(x, q) if rotation or scaling else x


def nearest(x: Tensor, height: int, width: int) -> Tensor:
    """Nearest-neighbour resize by integer arithmetic: output i shows input floor(i * from / to)."""
    rows = [i * x.shape[-2] // height for i in range(height)]
    columns = [j * x.shape[-1] // width for j in range(width)]
    return x[..., rows, :][..., columns]


def diverse_input(x: Tensor, draws: list[float], probability: float = 0.7, largest: float = 1.1) -> Tensor:
    """DIM's transform of one (C, H, W) image: enlarge, pad and shrink back as three separate steps."""
    use, enlarge, down, right = draws
    if use >= probability:
        return x
    height, width = x.shape[-2:]
    canvas_h, canvas_w = int(height * largest), int(width * largest)
    new_h = min(canvas_h, int(height + enlarge * (canvas_h - height + 1)))
    new_w = min(canvas_w, int(width + enlarge * (canvas_w - width + 1)))
    top, left = int(down * (canvas_h - new_h + 1)), int(right * (canvas_w - new_w + 1))
    padded = F.pad(nearest(x, new_h, new_w), (left, canvas_w - new_w - left, top, canvas_h - new_h - top))
    back = F.interpolate(padded[None], (height, width), mode="bilinear", align_corners=False, antialias=True)
    return back[0]


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """White noise, the hardest image for an interpolation to get right."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def relative_error(out: Tensor, expected: Array) -> float:
    return float(np.linalg.norm(out.double().numpy() - expected) / np.linalg.norm(expected))


def soft_step(x: Tensor, sharpness: float) -> Tensor:
    """Derivative of x·sigmoid(βx), by autograd, in float64."""
    leaf = x.detach().double().requires_grad_()
    (slope,) = torch.autograd.grad((leaf * torch.sigmoid(sharpness * leaf)).sum(), leaf)
    return slope
