"""How far adversarial images lie from the clean ones, as sums and maxima that add up."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.similarity import has_similarity, similarity


@dataclass(frozen=True)
class Distance:
    """Distances of many images, in units of the [0, 1] range; ``a + b`` pools two of them.

    L∞ is an image's largest change of any channel of any pixel, L2 the root of the sum of all squared changes, SSIM the
    structural similarity of ``whorl.evaluation.ssim``. SSIM is not defined for images with a side below 11 pixels; one
    such image, or one that was stored before SSIM was measured, leaves that of all of them unknown.

    >>> clean = torch.zeros(2, 3, 2, 2)
    >>> adversarial = torch.stack((torch.full((3, 2, 2), 0.25), torch.zeros(3, 2, 2)))
    >>> distance = Distance.of(clean, adversarial)
    >>> distance.linf_max, distance.linf_mean, round(distance.l2_max, 4)
    (0.25, 0.125, 0.866)
    """

    n: int = 0
    """Images seen."""
    linf_sum: float = 0.0
    """Of the images' L∞ distances."""
    linf_max: float = 0.0
    """The largest of them."""
    l2_sum: float = 0.0
    """Of the images' L2 distances."""
    l2_max: float = 0.0
    """The largest of them."""
    ssim_sum: float | None = None
    """Of the images' structural similarities; None without images or where one's is not known."""
    ssim_min: float | None = None
    """The lowest of them."""

    @classmethod
    def of(cls, clean: Tensor, adversarial: Tensor) -> Distance:
        """Measure one batch.

        Args:
            clean: (B, C, H, W) in [0, 1].
            adversarial: likewise.
        """
        if clean.shape != adversarial.shape or clean.dim() != 4:
            raise WhorlError(
                "images must be (B, C, H, W) and of one shape; got "
                f"{tuple(clean.shape)} and {tuple(adversarial.shape)}."
            )
        if not len(clean):
            return cls()
        change = (adversarial - clean).flatten(1)
        linf = torch.linalg.vector_norm(change, math.inf, dim=1).double()
        # Squares of a large image lose digits in float32, and sums over a data set more.
        l2 = torch.linalg.vector_norm(change, dim=1, dtype=torch.float64)
        figures = [linf.sum(), linf.max(), l2.sum(), l2.max()]
        if has_similarity(clean):
            alike = similarity(clean, adversarial)
            figures += [alike.sum(), alike.min()]
        return cls(len(change), *torch.stack(figures).tolist())  # the device is waited for once

    def __add__(self, other: Distance) -> Distance:
        if not (self.n and other.n):
            return self if self.n else other
        return Distance(
            self.n + other.n,
            self.linf_sum + other.linf_sum,
            max(self.linf_max, other.linf_max),
            self.l2_sum + other.l2_sum,
            max(self.l2_max, other.l2_max),
            _known(operator.add, self.ssim_sum, other.ssim_sum),
            _known(min, self.ssim_min, other.ssim_min),
        )

    @property
    def linf_mean(self) -> float:
        """Mean L∞ distance of an image; NaN without images."""
        return self.linf_sum / self.n if self.n else math.nan

    @property
    def l2_mean(self) -> float:
        """Mean L2 distance of an image; NaN without images."""
        return self.l2_sum / self.n if self.n else math.nan

    @property
    def ssim_mean(self) -> float:
        """Mean structural similarity of an image; NaN without images or where one's is not known."""
        return self.ssim_sum / self.n if self.n and self.ssim_sum is not None else math.nan


def _known(join: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else join(one, other)
