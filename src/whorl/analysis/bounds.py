"""The constants of the paper's three assumptions, measured, and both corollaries beside what they bound.

With x̂ an image, F a drawn transform and J the loss (§4 and appendix A of the paper):

    g₁ = E[F⁻¹(∇J(x̂))]        g₂ = E[F⁻¹(∇J(F(x̂)))]
    c₁ ≥ ‖F⁻¹(∇J(F(x̂))) - F⁻¹(∇J(x̂))‖ / ‖F(x̂) - x̂‖      for every F (assumption 1, where the proof uses it)
    c₂ = E‖F(x̂) - x̂‖                                      (assumption 2)
    c₃ = min(‖g₁‖, ‖g₂‖)                                  (assumption 3)
    ‖g₂ - g₁‖ ≤ c₁·c₂                                     (corollary 1)
    cos(g₁, g₂) ≥ 1 - (c₁·c₂)² / (2·c₃²)                  (corollary 2)

E is the mean over the draws. With c₁ taken over the same draws both corollaries hold by the proof alone, up to
rounding: that is a check of the code. Whether they say something about transforms that were not measured is asked by
taking c₁ from one half of the draws, or from the other images.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

_ROUNDING = 1e-5  # of float32 sums; relative


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


def bounds(g1: Tensor, g2: Tensor, moved: Tensor, changed: Tensor) -> Bounds:
    """Measure the constants over some draws.

    Args:
        g1: (B, C, H, W).
        g2: (B, C, H, W), the mean over the same draws.
        moved: (draws, B), ‖F(x̂) - x̂‖.
        changed: (draws, B), ‖F⁻¹(∇J(F(x̂))) - F⁻¹(∇J(x̂))‖.
    """
    one, two = g1.flatten(1).double(), g2.flatten(1).double()
    lengths = torch.stack((one.norm(dim=1), two.norm(dim=1)))
    tiny = torch.finfo(torch.float64).tiny
    apart, change = moved.double(), changed.double()
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


def join(parts: list[Bounds]) -> Bounds:
    """Put the images of several batches together."""
    return Bounds(**{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Bounds)})
