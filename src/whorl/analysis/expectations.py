"""What is computed of expectations that were drawn: cosines and distances without the noise, and the corollaries.

The mean of N drawn gradients is the expectation plus noise, and in 150,000 dimensions the noise is long. Its inner
product with an independent mean has expectation 0, so inner products between two independent halves of the draws
estimate those of the expectations without bias, also of a mean with itself. Everything here follows from such products.

The constants of the paper's three assumptions, measured, and both corollaries beside what they bound.

With x̂ an image, F a drawn transform and J the loss (§4 and appendix A of the paper):

    g₁ = E[F⁻¹(∇J(x̂))]        g₂ = E[F⁻¹(∇J(F(x̂)))]
    c₁ ≥ ‖F⁻¹(∇J(F(x̂))) - F⁻¹(∇J(x̂))‖ / ‖F(x̂) - x̂‖      for every F (assumption 1, where the proof uses it)
    c₂ = E‖F(x̂) - x̂‖                                      (assumption 2)
    c₃ = min(‖g₁‖, ‖g₂‖)                                  (assumption 3)
    ‖g₂ - g₁‖ ≤ c₁·c₂                                     (corollary 1)
    cos(g₁, g₂) ≥ 1 - (c₁·c₂)² / (2·c₃²)                  (corollary 2)

E is the mean over the draws. With c₁ taken over the same draws both corollaries hold by the proof alone, up to
rounding: that is a check of the code. Whether they say something about transforms that were not measured is tested by
taking c₁ from one half of the draws, or from the other images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from whorl.evaluation.image_counts import percentile_interval

_ROUNDING = 1e-5  # of float32 sums; relative
_RESAMPLES = 1000


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

    @classmethod
    def joined(cls, parts: Sequence[Gram]) -> Gram:
        """Put the images of several batches together."""
        products, lengths = (torch.cat([getattr(part, name) for part in parts]) for name in ("products", "lengths"))
        return cls(names=parts[0].names, products=products, lengths=lengths)

    def cosine(self, one: str, other: str) -> float:
        """Cosine between two expectations, each image counting the same; NaN where noise hides one of them.

        Lengths are divided out image by image before the mean, so that no image outweighs the others.
        """
        return float(_cosine(*(part.mean() for part in self._shares(one, other))))

    def interval(self, one: str, other: str) -> tuple[float, float]:
        """95% of the cosine over resampled images."""
        count = len(self.products)
        chosen = torch.randint(count, (_RESAMPLES, count), generator=torch.Generator().manual_seed(0))
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


def _cosine(product: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Divide mean products by mean lengths; NaN where noise made a squared length negative."""
    there = (own > 0) & (other > 0)
    return torch.where(there, product / (own * other).abs().sqrt(), math.nan)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bounds:
    """Constants, and what they bound, for each of N images; all (N,) float64.

    Attributes:
        c1: largest ratio over the draws.
        c2: mean distance of the transformed images.
        c3: the shorter of g₁ and g₂.
        distance: ‖g₂ - g₁‖.
        mean_distance: E‖F⁻¹(∇J(F(x̂))) - F⁻¹(∇J(x̂))‖, which stands between the two sides of corollary 1.
        cosine: between g₁ and g₂.
    """

    c1: Tensor
    c2: Tensor
    c3: Tensor
    distance: Tensor
    mean_distance: Tensor
    cosine: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Bounds]) -> Bounds:
        """Put the images of several batches together."""
        return cls(**{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)})

    def distance_bound(self, c1: Tensor | None = None) -> Tensor:
        """Corollary 1's c₁·c₂, with this or another c₁."""
        return (self.c1 if c1 is None else c1) * self.c2

    def cosine_bound(self, c1: Tensor | None = None) -> Tensor:
        """Corollary 2's lower bound; below -1 it says nothing."""
        tiny = torch.finfo(self.c3.dtype).tiny
        return 1 - (self.distance_bound(c1) / self.c3.clamp_min(tiny)) ** 2 / 2

    def holds(self, c1: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Whether each corollary holds, (N,) bool each, with this or another c₁."""
        first = self.distance <= self.distance_bound(c1) * (1 + _ROUNDING)
        return first, self.cosine >= self.cosine_bound(c1) - _ROUNDING

    def c1_of_others(self) -> Tensor:
        """The largest c₁ of all other images, (N,); of a single image its own."""
        if len(self.c1) == 1:
            return self.c1
        top = self.c1.topk(2).values
        return torch.where(self.c1 == top[0], top[1], top[0])


def bounds(g1: Tensor, g2: Tensor, displaced: Tensor, changed: Tensor) -> Bounds:
    """Measure the constants over some draws.

    Args:
        g1: (B, C, H, W).
        g2: (B, C, H, W), the mean over the same draws.
        displaced: (draws, B), ‖F(x̂) - x̂‖.
        changed: (draws, B), ‖F⁻¹(∇J(F(x̂))) - F⁻¹(∇J(x̂))‖.
    """
    one, two = g1.flatten(1).double(), g2.flatten(1).double()
    lengths = torch.stack((one.norm(dim=1), two.norm(dim=1)))
    tiny = torch.finfo(torch.float64).tiny
    apart, change = displaced.double(), changed.double()
    # A transform that left the image as it was left its gradient as it was.
    ratio = torch.where(apart > 0, change / apart.clamp_min(tiny), torch.zeros_like(change))
    measured = Bounds(
        c1=ratio.amax(0),
        c2=apart.mean(0),
        c3=lengths.amin(0),
        distance=(two - one).norm(dim=1),
        mean_distance=change.mean(0),
        cosine=(one * two).sum(1) / lengths.prod(0).clamp_min(tiny),
    )
    return Bounds(**{field.name: getattr(measured, field.name).cpu() for field in fields(Bounds)})
