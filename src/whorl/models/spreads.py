"""How widely a network's activations spread: on a few synthetic images that are the same for everyone.

What an attack does to one image must not depend on the others, so no image of a batch may say what is large in a
network. Noise with the statistics of photographs stands in for them: amplitudes that fall with the frequency, channels
that mostly agree. ``benchmarks/spreads.py`` compares it with photographs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from whorl.models.classifier import network_dtype

_IMAGES = 4
_POWER = 1.25  # amplitudes fall with the frequency to this power
_MEAN, _STD = 0.45, 0.3
_SHARED = 0.7  # of the variance, what all channels have in common
# A rectifier whose input is the same everywhere has no scale of its own.
_LEAST = 1e-6


@lru_cache(maxsize=8)
def probe(channels: int, size: Sequence[int]) -> Tensor:
    """Noise that looks to a network as photographs do: (4, channels, height, width) in [0, 1], always the same.

    >>> bool(probe(3, (8, 8)).min() >= 0), probe(3, (8, 8)).shape
    (True, torch.Size([4, 3, 8, 8]))
    """
    return coloured(channels, size, _POWER)


def coloured(channels: int, size: Sequence[int], power: float) -> Tensor:
    """Four images of seeded noise whose amplitudes fall with the frequency to some power: (4, channels, H, W)."""
    height, width = size
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False):
        white = torch.randn(_IMAGES, 1 + channels, height, width, generator=generator, dtype=torch.float64)
        rows, columns = torch.fft.fftfreq(height, dtype=torch.float64), torch.fft.rfftfreq(width, dtype=torch.float64)
        frequency = torch.hypot(rows[:, None], columns[None])
        frequency[0, 0] = math.inf  # the mean is set below
        field = torch.fft.irfft2(torch.fft.rfft2(white) / frequency**power, s=(height, width))
        field = field / field.square().mean((-2, -1), keepdim=True).sqrt().clamp_min(1e-12)
        mixed = _SHARED**0.5 * field[:, :1] + (1 - _SHARED) ** 0.5 * field[:, 1:]
        images: Tensor = (_MEAN + _STD * mixed).clamp(0, 1).float()
    return images


def only_input(given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """The one input of a module that takes one, whether it was given by its place or by its name."""
    only: Tensor = given[0] if given else next(iter(named.values()))
    return only


def rectifier_spreads(model: nn.Module, rectifiers: Sequence[nn.Module], x: Tensor) -> dict[nn.Module, float]:
    """Standard deviation of what goes into each rectifier: of an image's activations, quadratic mean over images.

    Args:
        model: in eval mode; hooked while it runs.
        rectifiers: some of its modules. One that runs several times has the mean of its variances.
        x: (B, C, H, W) images.

    Returns:
        By module, of those that ran.
    """
    variances: dict[nn.Module, list[Tensor]] = {}

    def see(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        variances.setdefault(module, []).append(only_input(given, named).double().var(correction=0))

    handles = [module.register_forward_pre_hook(see, with_kwargs=True) for module in rectifiers]
    try:
        with torch.no_grad():
            for image in x.split(1):
                model(image.to(network_dtype(model, image)))
    finally:
        for handle in handles:
            handle.remove()
    return {module: max(float(torch.stack(seen).mean().sqrt()), _LEAST) for module, seen in variances.items()}
