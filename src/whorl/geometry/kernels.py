"""Kernels: the weights p(m, n) of small shifts, and the weighted sum over those shifts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError

# Pixels along a side: no image is larger, and weights for a billion would fill any memory.
_LARGEST = 2**14 - 1

Kind = Literal["gaussian", "uniform"]
Size = int | tuple[int, int]
Sigma = float | tuple[float, float] | Literal["printed", "reference"]
Weights = tuple[float, ...]


class Kernel(NamedTuple):
    """Weights that can be hashed and cached: two factors where the kernel is separable, else the whole matrix."""

    rows: Weights
    columns: Weights
    matrix: tuple[Weights, ...] | None = None

    def sum_over_rows(self) -> Kernel:
        """Keep only shifts along the columns: the marginal of p over its rows."""
        if self.matrix is None:
            return Kernel((1.0,), tuple(sum(self.rows) * w for w in self.columns))
        return Kernel((1.0,), tuple(sum(column) for column in zip(*self.matrix, strict=True)))

    def sum_over_columns(self) -> Kernel:
        """Keep only shifts along the rows: the marginal of p over its columns."""
        if self.matrix is None:
            return Kernel(tuple(sum(self.columns) * w for w in self.rows), (1.0,))
        return Kernel(tuple(sum(row) for row in self.matrix), (1.0,))


def gaussian_kernel(size: Size, sigma: Sigma = "reference") -> Tensor:
    """Gaussian weights that sum to 1.

    Args:
        size: odd number of pixels 2l+1, or (rows, columns).
        sigma: standard deviation in pixels, or (along rows, along columns); ``"reference"`` is l/6 (the authors' code),
            ``"printed"`` l/√3 (the paper's text). With two sizes both take σ² = σ₁σ₂; a side of one pixel does not
            count.

    Returns:
        (rows, columns) float64.

    >>> [round(w, 3) for w in gaussian_kernel((1, 3), sigma=1.0)[0].tolist()]
    [0.274, 0.452, 0.274]
    """
    return torch.outer(*_bells(size, sigma))


def gaussian_factors(size: Size, sigma: Sigma = "reference") -> Kernel:
    """What :func:`factor` makes of :func:`gaussian_kernel`, without the matrix, which may have millions of weights.

    >>> gaussian_factors((1, 5), 1.0) == factor(gaussian_kernel((1, 5), 1.0))
    True
    """
    rows, columns = _bells(size, sigma)
    middle, centre = rows[len(rows) // 2], columns[len(columns) // 2]
    return _of_cross(rows * centre, middle * columns, float(middle * centre))


def uniform_kernel(size: Size) -> Tensor:
    """Equal weights that sum to 1.

    Args:
        size: odd number of pixels, or (rows, columns).

    Returns:
        (rows, columns) float64.

    >>> uniform_kernel((1, 5)).tolist()
    [[0.2, 0.2, 0.2, 0.2, 0.2]]
    """
    rows, columns = _sides(size)
    return torch.full((rows, columns), 1 / (rows * columns), dtype=torch.float64)


def uniform_factors(size: Size) -> Kernel:
    """What :func:`factor` makes of :func:`uniform_kernel`, without the matrix."""
    weights = [
        torch.full((side,), 1 / math.prod(sides), dtype=torch.float64) for sides in [_sides(size)] for side in sides
    ]
    return _of_cross(weights[0], weights[1], float(weights[0][0]))


def ring(sigma: float, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Gaussian weights around a circle that sum to 1: what goes beyond half of it comes in from the other side.

    Args:
        sigma: standard deviation in cells.
        count: cells around the circle.
        device: where to make them. Nothing waits for it.

    Returns:
        (count,) float64, those of shifts by 0, 1, ... cells; symmetric.

    >>> [round(w, 3) for w in ring(1.0, 4).tolist()]
    [0.399, 0.246, 0.108, 0.246]
    """
    rounds = math.ceil(6 * sigma / count)
    shift = torch.arange(count, dtype=torch.float64, device=device)
    turn = torch.arange(-rounds - 1, rounds + 1, dtype=torch.float64, device=device) * count
    weights = torch.exp(-((shift[:, None] + turn) ** 2) / (2 * sigma**2)).sum(1)
    return weights / weights.sum()


def turn(polar: Tensor, weights: Tensor) -> Tensor:
    """Sum copies of ``polar`` that are shifted around the circle, by way of its Fourier series.

    Args:
        polar: (..., count), float32 or float64.
        weights: (count,) as :func:`ring` gives them: symmetric.

    Returns:
        As ``polar``.
    """
    response = torch.fft.rfft(weights).real.to(polar.dtype)
    blurred: Tensor = torch.fft.irfft(torch.fft.rfft(polar) * response, n=polar.shape[-1])
    return blurred


def blur(x: Tensor, kernel: Tensor | Kernel, *, circular: bool = False) -> Tensor:
    """Sum shifted copies of ``x``: ``out[i, j] = Σ p[m, n] · x[i+m, j+n]``, m and n counted from the centre (Eq. 9).

    Separable kernels cost two 1-D passes.

    Args:
        x: (B, C, H, W), float32 or float64.
        kernel: (rows, columns) weights p, both sides odd.
        circular: whether the columns wrap around (angles do). Rows, and otherwise columns, are zero outside.

    Returns:
        (B, C, H, W).

    >>> [round(v, 3) for v in blur(torch.ones(1, 1, 4, 4), uniform_kernel(3))[0, 0, 0].tolist()]
    [0.444, 0.667, 0.667, 0.444]
    """
    k = kernel if isinstance(kernel, Kernel) else factor(kernel)
    if k.matrix is not None:
        return _shifted_sum(x, k.matrix, circular=circular)
    x = _shifted_sum(x, (k.columns,), circular=circular)
    return _shifted_sum(x, tuple((weight,) for weight in k.rows), circular=False)


def factor(weights: Tensor) -> Kernel:
    """Turn a 2-D tensor of weights into a :class:`Kernel`, split into two factors if it is an outer product.

    >>> factor(uniform_kernel((3, 1))).columns
    (1.0,)
    """
    if weights.dim() != 2:
        raise WhorlError(f"a kernel must be 2-D, (rows, columns); got shape {tuple(weights.shape)}.")
    _sides((weights.shape[0], weights.shape[1]))
    p = weights.detach().to("cpu", torch.float64)
    if not bool(p.isfinite().all()):
        raise WhorlError("a kernel's weights must be finite; got NaN or infinity.")
    peak = int(p.abs().argmax())
    row, column = divmod(peak, p.shape[1])
    top = float(p[row, column])
    if top == 0:
        raise WhorlError("a kernel must have a weight other than 0; got all zeros.")
    # An outer product is the product of its cross through the largest weight.
    if float((torch.outer(p[:, column], p[row] / top) - p).abs().max()) <= 1e-12 * abs(top):
        return _of_cross(p[:, column], p[row], top)
    return Kernel((), (), tuple(tuple(line) for line in p.tolist()))


def _of_cross(column: Tensor, row: Tensor, top: float) -> Kernel:
    """The kernel whose largest weight is ``top``, by the column and the row through it."""
    along = row / top
    # Share the scale so that a normalised kernel has normalised factors.
    total = float(along.sum()) or 1.0
    return Kernel(tuple((column * total).tolist()), tuple((along / total).tolist()))


def spread(weights: Weights, kind: Kind) -> float:
    """Read σ off a sampled bell curve, or the half width off equal weights, in cells; 0 for a single weight.

    >>> round(spread(factor(gaussian_kernel(15, "reference")).columns, "gaussian"), 4)
    1.1667
    """
    if len(weights) == 1:
        return 0.0
    if kind == "uniform":
        return len(weights) / 2
    centre = len(weights) // 2
    falls = weights[centre + 1] / weights[centre]
    return math.sqrt(-0.5 / math.log(falls)) if falls > 0 else 0.0


def odd(width: float) -> int:
    """The odd number of cells that is nearest to a width.

    >>> [odd(width) for width in (0.3, 1.9, 2.1, 40.0)]
    [1, 1, 3, 41]
    """
    return 2 * max(0, round((width - 1) / 2)) + 1


def _sides(size: Size) -> tuple[int, int]:
    rows, columns = (size, size) if isinstance(size, int) else size
    for side in (rows, columns):
        if isinstance(side, bool) or not isinstance(side, int) or side < 1 or side % 2 == 0:
            raise WhorlError(f"kernel_size must be odd and at least 1 (a kernel has a centre); got {size!r}.")
        if side > _LARGEST:
            raise WhorlError(f"kernel_size must be at most {_LARGEST}, beyond any image; got {size!r}.")
    return rows, columns


def _sigmas_in_pixels(rows: int, columns: int, sigma: Sigma) -> tuple[float, float]:
    if isinstance(sigma, str):
        width = _named_sigma(rows, columns, sigma)
        return width, width
    given = sigma if isinstance(sigma, Sequence) else (sigma, sigma)
    if len(given) != 2 or not all(isinstance(one, Real) and 0 < one < math.inf for one in given):
        raise WhorlError(f"sigma must be a positive number of pixels, or two; got {sigma}.")
    return float(given[0]), float(given[1])


def _named_sigma(rows: int, columns: int, name: str) -> float:
    per_pixel = {"printed": 1 / math.sqrt(3), "reference": 1 / 6}.get(name)
    if per_pixel is None:
        raise WhorlError(f"sigma must be 'reference', 'printed', a number of pixels, or two; got {name!r}.")
    reach = [side // 2 for side in (rows, columns) if side > 1]
    return per_pixel * math.prod(reach) ** (1 / len(reach)) if reach else 1.0


def _bells(size: Size, sigma: Sigma) -> tuple[Tensor, Tensor]:
    rows, columns = _sides(size)
    down, right = _sigmas_in_pixels(rows, columns, sigma)
    return _bell(rows, down), _bell(columns, right)


def _bell(side: int, sigma: float) -> Tensor:
    offset = torch.arange(side, dtype=torch.float64) - side // 2
    weights = torch.exp(-(offset**2) / (2 * sigma**2))
    return weights / weights.sum()


def _shifted_sum(x: Tensor, matrix: tuple[Weights, ...], *, circular: bool) -> Tensor:
    if matrix == ((1.0,),):
        return x
    matrix = (_felt if torch.compiler.is_compiling() else _felt_before)(matrix, torch.finfo(x.dtype).eps)
    # On a CPU fifteen shifted additions beat every convolution. Where a convolution is faster, it sees zeros beyond the
    # ends, and only what wraps around the seam is left to add. Neither takes a padded copy.
    convolved = _as_convolution(x)
    out = _convolve(x, matrix) if convolved else torch.zeros_like(x)
    height, width = x.shape[-2:]
    for down, row in enumerate(matrix, start=-(len(matrix) // 2)):
        for right, weight in enumerate(row, start=-(len(row) // 2)):
            for wrap in _wraps(right, width) if circular else (0,):
                top, bottom = max(0, -down), min(height, height - down)
                left, end = max(0, wrap - right), min(width, width + wrap - right)
                if weight == 0 or top >= bottom or left >= end or (convolved and wrap == 0):
                    continue
                source = x[..., top + down : bottom + down, left + right - wrap : end + right - wrap]
                out[..., top:bottom, left:end].add_(source, alpha=weight)
    return out


def _felt(matrix: tuple[Weights, ...], eps: float) -> tuple[Weights, ...]:
    """Leave out rows and columns at both ends, pair by pair, whose weights are below eps² of the largest.

    No sum feels them, and they cost: a narrow bell curve on many points has tails that are subnormal in float32.
    """
    least = eps**2 * max(abs(weight) for row in matrix for weight in row)
    while len(matrix) > 1 and all(abs(weight) < least for row in (matrix[0], matrix[-1]) for weight in row):
        matrix = matrix[1:-1]
    while len(matrix[0]) > 1 and all(abs(weight) < least for row in matrix for weight in (row[0], row[-1])):
        matrix = tuple(row[1:-1] for row in matrix)
    return matrix


_felt_before = lru_cache(maxsize=64)(_felt)


def _wraps(offset: int, length: int) -> range:
    """The multiples of ``length`` that some position p + offset, 0 ≤ p < length, must be reduced by."""
    return range((offset // length) * length, ((length - 1 + offset) // length) * length + 1, length)


def _as_convolution(x: Tensor) -> bool:
    # Depthwise on purpose: torch runs that in full float32, where an ordinary convolution, such as that of a single
    # channel, may drop to TF32. A compiler fuses the shifted additions instead.
    return x.is_cuda and not torch.compiler.is_compiling() and x.shape[0] * x.shape[1] > 1


def _convolve(x: Tensor, matrix: tuple[Weights, ...]) -> Tensor:
    if x.shape[1] == 1:
        # The images of a batch serve as channels where there is but one.
        return _convolve(x.transpose(0, 1), matrix).transpose(0, 1)
    weight = _weight_tensor(matrix, x.device, x.dtype).expand(x.shape[1], 1, -1, -1)
    with torch.autocast(x.device.type, enabled=False):
        return F.conv2d(x, weight, padding=(len(matrix) // 2, len(matrix[0]) // 2), groups=x.shape[1])


@lru_cache(maxsize=64)
def _weight_tensor(matrix: tuple[Weights, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(matrix, dtype=dtype, device=device)
