"""Chooses how an estimate is computed: weighted row sums on a CPU, fused kernels on a GPU, or plain torch.

Both fast ways give what plain torch gives, to the rounding of float32. They serve separable kernels and gradients that
nothing is differentiated through; for the rest there is plain torch.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from whorl.estimators.cpu import estimate_on_cpu, rotations_on_cpu
from whorl.geometry.kernels import Kernel, Weights
from whorl.geometry.triton_modules import wrapped

# A weight below this share of the largest is lost in the rounding of a float32 sum, or of a bfloat16 result.
_UNFELT, _UNFELT_IN_BFLOAT16 = 3e-8, 2**-11
# A GPU keeps this many sums of every pixel in registers.
_MOST_TAPS = 63
# Positions are packed beside two fractions of 20 bits into 64.
_MOST_PIXELS = 2**22
_HAS_TRITON = find_spec("triton") is not None
# The way out, should a driver or compiler not agree with the kernels.
_FUSED = os.environ.get("WHORL_FUSED", "1") != "0"
_STILL = Kernel((1.0,), (1.0,))
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def estimate(gradient: Tensor, kernel: Kernel | None, polar_kernel: Kernel | None) -> Tensor | None:
    """Compute ``P⁻¹(polar_kernel * P(kernel * gradient))`` in a fast way, if there is one for what is given.

    Args:
        gradient: (B, C, H, W), any floating dtype.
        kernel: the translation kernel. None: no translations.
        polar_kernel: rows are radii, columns angles. None: the polar part is left out.

    Returns:
        (B, C, H, W), dtype of ``gradient``; None where plain torch is to do it.

    >>> from whorl.geometry.kernels import factor, gaussian_kernel
    >>> kernel = factor(gaussian_kernel(3))
    >>> estimate(torch.rand(2, 3, 16, 16), kernel, kernel).shape
    torch.Size([2, 3, 16, 16])
    >>> estimate(torch.rand(2, 3, 16, 16, dtype=torch.float64), kernel, kernel) is None
    True
    """
    if kernel is None and polar_kernel is None:
        return gradient
    still = kernel or _STILL
    whole = still.matrix is not None or (polar_kernel is not None and polar_kernel.matrix is not None)
    if whole or not fits(gradient, max(gradient.shape[-2:]) if polar_kernel else 0):
        return None
    short = trimmed if torch.compiler.is_compiling() else _trimmed_before
    least = _unfelt(gradient)
    rows, columns = short(still.rows, least), short(still.columns, least)
    radii = short(polar_kernel.rows, least) if polar_kernel else ()
    angles = short(polar_kernel.columns, least) if polar_kernel else ()
    if on_gpu(gradient):
        if not fused() or max(map(len, (rows, columns, radii, angles))) > _MOST_TAPS:
            return None
        from whorl.estimators.gpu import estimate_on_gpu

        return estimate_on_gpu(gradient, rows, columns, radii, angles)
    # A blur alone is faster as plain torch does it, and a compiler fuses the plain operations. How large the batch is
    # has no say: it must not change a result.
    if gradient.device.type != "cpu" or polar_kernel is None or torch.compiler.is_compiling():
        return None
    return estimate_on_cpu(gradient, rows, columns, radii, angles)


def _unfelt(gradient: Tensor) -> float:
    return _UNFELT_IN_BFLOAT16 if gradient.dtype == torch.bfloat16 else _UNFELT


def trimmed(weights: Weights, share: float = _UNFELT) -> Weights:
    """Leave out weights at both ends, pair by pair, below a share of the largest: what a float32 sum does not feel.

    >>> trimmed((1e-9, 0.25, 0.5, 0.25, 0.0))
    (0.25, 0.5, 0.25)
    """
    least = share * max(map(abs, weights))
    reach = len(weights) // 2
    middle = reach
    while reach > 0 and max(abs(weights[middle - reach]), abs(weights[middle + reach])) < least:
        reach -= 1
    return weights[middle - reach : middle + reach + 1]


_trimmed_before = lru_cache(maxsize=64)(trimmed)


def fits(gradient: Tensor, angles: int) -> bool:
    """Whether a gradient is one that a fast way is for.

    Args:
        gradient: (B, C, H, W).
        angles: of the polar grid; 0 where there is none.
    """
    n = max(gradient.shape[-2:])
    return (
        gradient.dtype in _DTYPES
        and gradient.numel() > 0
        and (n > 1 or not angles)
        and (n + 2) * (max(n, angles) + 2) <= _MOST_PIXELS
        and not (gradient.requires_grad and torch.is_grad_enabled())
        and not wrapped(gradient)
    )


def fused() -> bool:
    """Whether there are kernels for a GPU, and they are wanted."""
    return _FUSED and _HAS_TRITON


def on_gpu(gradient: Tensor) -> bool:
    """Whether a gradient lies on a GPU."""
    return gradient.is_cuda


def average_rotations(gradient: Tensor, sigma: float, angles: int) -> Tensor | None:
    """Average a gradient over rotations about the image's centre, if there is a fast way for it.

    Args:
        gradient: (B, C, H, W), any floating dtype.
        sigma: standard deviation of the bell curve, in cells around the circle.
        angles: so many cells are there around it.

    Returns:
        (B, C, H, W), dtype of ``gradient``; None where plain torch is to do it.

    >>> average_rotations(torch.rand(2, 3, 16, 16), 2.0, 32).shape
    torch.Size([2, 3, 16, 16])
    """
    # A compiler fuses the plain operations.
    if torch.compiler.is_compiling() or not fits(gradient, angles):
        return None
    if on_gpu(gradient):
        if not fused():
            return None
        from whorl.estimators.rotations_gpu import rotations_on_gpu

        return rotations_on_gpu(gradient, sigma, angles, _unfelt(gradient))
    return rotations_on_cpu(gradient, sigma, angles) if gradient.device.type == "cpu" else None


def average_rotations_by_step(gradient: Tensor, sigmas: tuple[float, ...], step: Tensor, angles: int) -> Tensor:
    """Do what :func:`average_rotations` does with one of several ``sigmas``, on a GPU that reads which.

    Args:
        gradient: (B, C, H, W), such that :func:`rotates_by_step`.
        sigmas: standard deviations in cells, of every step.
        step: () int64 on the gradient's device.
        angles: cells around the circle.
    """
    from whorl.estimators.rotations_gpu import curves_of, rotations_of_step

    curves = curves_of(sigmas, angles, _unfelt(gradient), gradient.device)
    assert curves is not None  # noqa: S101 - the caller has looked
    return rotations_of_step(gradient, curves, step, angles)


def rotates_by_step(gradient: Tensor, sigmas: tuple[float, ...], angles: int) -> bool:
    """Whether gradients of such a size and device can be averaged by kernels that read the step."""
    if not (on_gpu(gradient) and fused() and fits(gradient, angles)):
        return False
    from whorl.estimators.rotations_gpu import curves_of

    return curves_of(sigmas, angles, _UNFELT, gradient.device) is not None  # what float32 takes, the others take too
