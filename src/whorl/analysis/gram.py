"""Cosines and distances between noisy means, without the noise.

The mean of N drawn gradients is the expectation plus noise, and in 150,000 dimensions the noise is long. Its inner
product with an independent mean has expectation 0, so inner products between two independent halves of the draws
estimate those of the expectations without bias, also of a mean with itself. Everything here follows from such products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.evaluation.statistics import percentile_interval


@dataclass(frozen=True, eq=False, kw_only=True)
class Gram:
    """Inner products between expectations, image by image.

    Attributes:
        names: of the vectors.
        products: (images, names, names) float64, each the mean of the two products between halves.
        lengths: (images, names) float64, of the means over all draws, noise and all.
    """

    names: tuple[str, ...]
    products: Tensor
    lengths: Tensor

    def cosine(self, one: str, other: str) -> float:
        """Cosine between two expectations, each image counting the same; NaN where noise hides one of them.

        Lengths are divided out image by image before the mean, so that no image outweighs the others.
        """
        return float(_cosine(*(part.mean() for part in self._shares(one, other))))

    def interval(self, one: str, other: str, *, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
        """95% of the cosine over resampled images."""
        count = len(self.products)
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randint(count, (resamples, count), generator=generator)
        return percentile_interval(_cosine(*(part[chosen].mean(1) for part in self._shares(one, other))))

    def reliability(self, name: str) -> float:
        """How much of a mean is no noise: 1 if more draws would change nothing, near 0 if it is all noise."""
        at = self.names.index(name)
        length = self.lengths[:, at].square().clamp_min(torch.finfo(torch.float64).tiny)
        return float((self.products[:, at, at] / length).mean())

    def relative(self, one: str, other: str) -> float:
        """Distance between two expectations over the length of the other; NaN where noise hides the latter."""
        i, j = self.names.index(one), self.names.index(other)
        scale = self.lengths[:, j].square().clamp_min(torch.finfo(torch.float64).tiny)
        p = self.products
        apart = ((p[:, i, i] - 2 * p[:, i, j] + p[:, j, j]) / scale).mean()
        long = (p[:, j, j] / scale).mean()
        return math.sqrt(max(0.0, float(apart)) / float(long)) if float(long) > 0 else math.nan

    def _shares(self, one: str, other: str) -> tuple[Tensor, Tensor, Tensor]:
        i, j = self.names.index(one), self.names.index(other)
        tiny = torch.finfo(torch.float64).tiny
        a, b = self.lengths[:, i].clamp_min(tiny), self.lengths[:, j].clamp_min(tiny)
        p = self.products
        return p[:, i, j] / (a * b), p[:, i, i] / (a * a), p[:, j, j] / (b * b)


def gram(halves: Sequence[Mapping[str, Tensor]]) -> Gram:
    """Take the inner products of means over two independent halves of the draws.

    Args:
        halves: two tables, name to (B, C, H, W) mean over that half. A vector that is not drawn is in both.

    >>> torch.manual_seed(0); e = torch.ones(1, 1, 1, 1000)
    <torch._C.Generator object at ...>
    >>> noisy = [{"e": e, "n": e + 3 * torch.randn_like(e)} for _ in range(2)]
    >>> abs(gram(noisy).cosine("e", "n") - 1) < 0.2, gram(noisy).reliability("n") < 0.35
    (True, True)
    """
    first, second = halves
    names = tuple(first)
    a, b = (torch.stack([half[name].flatten(1).double() for name in names], dim=1) for half in (first, second))
    cross = a @ b.mT
    return Gram(
        names=names,
        products=((cross + cross.mT) / 2).cpu(),
        lengths=torch.linalg.vector_norm((a + b) / 2, dim=2).cpu(),
    )


def join(parts: Sequence[Gram]) -> Gram:
    """Put the images of several batches together."""
    return Gram(
        names=parts[0].names,
        products=torch.cat([part.products for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
    )


def _cosine(product: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Divide mean products by mean lengths; NaN where noise made a squared length negative."""
    there = (own > 0) & (other > 0)
    return torch.where(there, product / (own * other).abs().sqrt(), math.nan)
