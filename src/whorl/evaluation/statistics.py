"""Whether two attacks differ on the same images (McNemar's test, exact), and intervals over resampled images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.errors import WhorlError

Interval = tuple[float, float]
"""Lower and upper end."""


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two attacks: only images on which they differ count.

    >>> clear = Comparison(n=100, b=9, c=1)
    >>> round(clear.p_value, 4), clear.differs()
    (0.0215, True)
    """

    n: int
    """Images compared: clean version right, in at least one pose."""
    b: int
    """Of those, the first attack did better: it succeeded where the second did not, or in more poses."""
    c: int
    """Of those, the second attack did better."""

    @property
    def p_value(self) -> float:
        """How likely so uneven a split is if neither attack is better: exact, two-sided, binomial with p = 1/2."""
        trials, fewer = self.b + self.c, min(self.b, self.c)
        tail = term = 1
        for k in range(fewer):
            term = term * (trials - k) // (k + 1)  # the next binomial coefficient
            tail += term
        # Whole numbers up to here, so the division is the only rounding, however many images there are.
        return min(1.0, 2 * tail / (1 << trials))

    def differs(self, alpha: float = 0.05) -> bool:
        """Whether the difference is significant at a level."""
        return self.p_value < alpha


def compare(clean: Tensor, first: Tensor, second: Tensor) -> Comparison:
    """Compare two attacks on the same images, target and poses.

    With one pose this is McNemar's exact test. One image in several poses is not several images, so with more than one
    each image has a single vote, for the attack that succeeded on it in more poses: the exact sign test, of which
    McNemar's is the case of one pose.

    Args:
        clean: (N,) or (poses, N) bool: the transformed clean image is recognised.
        first: the same of one attack's adversarial images.
        second: the same of the other's, images and poses in the same order.

    Raises:
        WhorlError: the shapes differ.

    >>> clean = torch.tensor([True, True, True, False])
    >>> strong, weak = torch.tensor([False, False, True, False]), torch.tensor([True, False, True, False])
    >>> compare(clean, strong, weak)
    Comparison(n=3, b=1, c=0)
    """
    if not clean.shape == first.shape == second.shape or clean.dim() not in (1, 2):
        raise WhorlError(
            "two attacks can be compared only on the same images, target and poses, (N,) or (poses, N) and of one "
            f"shape; got {tuple(clean.shape)}, {tuple(first.shape)} and {tuple(second.shape)}."
        )
    clean, first, second = torch.atleast_2d(clean), torch.atleast_2d(first), torch.atleast_2d(second)
    lead = (clean & ~first).sum(0) - (clean & ~second).sum(0)
    return Comparison(n=int(clean.any(0).sum()), b=int((lead > 0).sum()), c=int((lead < 0).sum()))


def weighted_rates(clean: Tensor, success: Tensor, weights: Tensor) -> Tensor:
    """Success rates in [0, 1], each pose counting the same.

    Args:
        clean: (T, P, N) bool.
        success: (..., T, P, N) bool.
        weights: (N,) how often each image counts; (B, N) for B resamples.

    Returns:
        (..., T), or (B, ..., T). NaN where no clean image is recognised in any pose.

    >>> clean = torch.tensor([[[True, True, False], [True, True, True]]])
    >>> weighted_rates(clean, torch.tensor([[[True, False, False], [True, True, True]]]), torch.ones(3)).tolist()
    [0.75]
    """
    w = weights.to(torch.float32)
    below = torch.einsum("tpn,...n->...tp", clean.to(w), w)
    above = torch.einsum("xtpn,...n->...xtp", success.reshape(-1, *clean.shape).to(w), w)
    rate = above / below.unsqueeze(-3)  # a pose without a recognised image becomes NaN, and is left out
    return rate.nanmean(-1).reshape(*weights.shape[:-1], *success.shape[:-3], clean.shape[0])


def resampled(count: int, resamples: int, generator: torch.Generator) -> Tensor:
    """Draw images with replacement: how often each of them comes in each resample, (resamples, count) float.

    An image's poses go together, so that poses are not taken for images.
    """
    chosen = torch.randint(count, (resamples, count), generator=generator)
    return torch.zeros(resamples, count).scatter_add_(1, chosen, torch.ones(resamples, count))


def percentile_interval(values: Tensor) -> Interval:
    """The middle 95% of (resamples,) values; those that are NaN are left out.

    >>> percentile_interval(torch.arange(101.0))
    (2.5, 97.5)
    """
    found = values[~values.isnan()]
    if not len(found):
        return (math.nan, math.nan)
    low, high = found.quantile(torch.tensor([0.025, 0.975], dtype=found.dtype)).tolist()
    return (low, high)
