"""Adversarial images that are held to a structural similarity: an optional bound beside ε."""

from __future__ import annotations

import torch
from torch import Tensor

from whorl.attacks.contract import check_images
from whorl.errors import WhorlError
from whorl.evaluation.attacked_images import to_8_bits
from whorl.evaluation.similarity import ssim

_HALVINGS = 12


def bounded_by_ssim(clean: Tensor, adversarial: Tensor, least: float | Tensor, *, shrink: int = 1) -> Tensor:
    """Scale each image's perturbation down until the image, rounded to 8 bits, has at least a given SSIM.

    The factor, between 0 and 1, is found by bisection for each image alone; one that is similar enough is only rounded,
    and one that can never be is the clean image, rounded. L∞ and L2 shrink with the factor.

    Args:
        clean: (B, C, H, W) in [0, 1], H and W at least 11.
        adversarial: likewise.
        least: SSIM to keep, at most 1; one for all, or (B,).
        shrink: see :func:`ssim`.

    Returns:
        (B, C, H, W) in [0, 1], of 8-bit levels, on the images' device.

    Raises:
        WhorlError: a bound above 1 or that is NaN, or images that :func:`ssim` refuses.

    >>> clean = torch.full((1, 3, 16, 16), 0.5)
    >>> noisy = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0)).sign()
    >>> similar = bounded_by_ssim(clean, noisy, 0.9)
    >>> ssim(clean, noisy).item() < 0.2, 0.9 <= ssim(clean, similar).item() < 0.93
    (True, True)
    """
    bound = torch.as_tensor(least, dtype=torch.float64, device=clean.device).expand(len(clean))
    if not bool((bound <= 1).all()):
        raise WhorlError(f"least must be a structural similarity, at most 1; got {least}.")
    clean, adversarial = check_images(clean), check_images(adversarial)
    change = adversarial - clean
    found, whole = to_8_bits(clean), to_8_bits(adversarial)
    enough = ssim(clean, whole, shrink=shrink) >= bound
    found[enough] = whole[enough]
    low, high = torch.zeros_like(bound), torch.ones_like(bound)
    for _ in range(0 if bool(enough.all()) else _HALVINGS):
        middle = (low + high) / 2
        tried = to_8_bits(clean + middle.to(change.dtype).view(-1, 1, 1, 1) * change)
        kept = ~enough & (ssim(clean, tried, shrink=shrink) >= bound)
        found[kept] = tried[kept]
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    return found
