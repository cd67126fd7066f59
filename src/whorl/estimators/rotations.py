"""Chooses how an average over rotations is computed: Fourier series on a CPU, matrix products on a GPU, or plain torch.

All give what plain torch gives, to the rounding of what they compute in. A wide bell curve has hundreds of weights, and
neither way cares how many there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whorl.estimators import fast as estimator
from whorl.estimators.cpu import polar_sums
from whorl.geometry.kernels import ring

# Planes at a time: what a step reads and writes stays in a cache of a few megabytes.
_GROUP = 12


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
    if torch.compiler.is_compiling() or not estimator.fits(gradient, angles):
        return None
    if estimator.on_gpu(gradient):
        if not estimator.fused():
            return None
        from whorl.estimators.gpu import rotations_on_gpu

        return rotations_on_gpu(gradient, sigma, angles)
    return _on_cpu(gradient, sigma, angles) if gradient.device.type == "cpu" else None


def _on_cpu(gradient: Tensor, sigma: float, angles: int) -> Tensor:
    height, width = gradient.shape[-2:]
    there, back = polar_sums(height, width, angles)
    response = torch.fft.rfft(ring(sigma, angles)).real.float()
    planes = gradient.float().reshape(-1, height * width)
    out = torch.empty_like(planes)
    # Not by autocast, which knows embedding_bag among what it may lower.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for first in range(0, len(planes), _GROUP):
            polar = there.of(planes[first : first + _GROUP].T.contiguous())
            series = torch.fft.rfft(polar.T.reshape(polar.shape[1], -1, angles)).mul_(response)
            turned = torch.fft.irfft(series, n=angles)
            out[first : first + _GROUP] = back.of(turned.flatten(1).T.contiguous()).T
    return out.view(gradient.shape).to(gradient.dtype)
