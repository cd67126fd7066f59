"""What light and lens do to an image: contrast, brightness, blur; another amount for each image."""

from __future__ import annotations

import torch
from torch import Tensor

# A blur of less moves no float32 by a single bit, and 0/0 stays out of the weights.
_SHARPEST = 0.01


def adjust(x: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Change contrast about middle grey, then brightness: ``contrast · (x - 0.5) + 0.5 + brightness``, cut to [0, 1].

    Differentiable in the images and in both amounts; where a value is cut, the gradient is 0.

    Args:
        x: (B, C, H, W) in [0, 1].
        brightness: (B,) in units of the [0, 1] range, added.
        contrast: (B,) factors from 0.

    Returns:
        (B, C, H, W) in [0, 1], dtype of ``x``.

    >>> x = torch.tensor([0.0, 0.5, 0.9]).reshape(1, 1, 1, 3)
    >>> adjust(x, torch.tensor([0.25]), torch.tensor([0.5])).flatten().tolist()
    [0.5, 0.75, 0.949999988079071]
    """
    brightness, contrast = (amount.to(x.dtype)[:, None, None, None] for amount in (brightness, contrast))
    return (contrast * (x - 0.5) + (0.5 + brightness)).clamp(0, 1)


def defocus(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur by a Gaussian as wide as the image; at the border its weights are those inside the image, and sum to 1.

    So a constant image stays constant, and nothing is cut off or continued. A σ of 0 changes nothing. Differentiable in
    the images and in σ.

    Args:
        x: (B, C, H, W), any floating dtype.
        sigma: (B, 2) pixels, from 0: along the width, along the height.

    Returns:
        (B, C, H, W), dtype of ``x``.

    >>> x = torch.zeros(1, 1, 1, 5); x[..., 2] = 1
    >>> [round(value, 3) for value in defocus(x, torch.tensor([[1.0, 0.0]])).flatten().tolist()]
    [0.077, 0.257, 0.403, 0.257, 0.077]
    """
    # Not by autocast: what an image is must not depend on what a network computes in.
    with torch.autocast(x.device.type, enabled=False):
        rows, columns = _weights(x.shape[-2], sigma[:, 1]), _weights(x.shape[-1], sigma[:, 0])
        blurred = rows[:, None] @ x.to(rows.dtype) @ columns[:, None].mT
    return blurred.to(x.dtype)


def _weights(side: int, sigma: Tensor) -> Tensor:
    """(B, side, side): what each output line takes of each input line."""
    place = torch.arange(side, dtype=sigma.dtype, device=sigma.device)
    apart = (place[:, None] - place) / sigma.clamp(min=_SHARPEST)[:, None, None]
    return (-apart.square() / 2).softmax(-1)
