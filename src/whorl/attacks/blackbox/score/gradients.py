"""Gradients from queries: finite differences along random directions, a search distribution, or a guided search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.norms import column, unit
from whorl.errors import WhorlError
from whorl.estimators import Estimator, identity
from whorl.randomness import normal, substream, uniform
from whorl.records import Count, Record

# Streams of a step's randomness.
_DRAWS, _LENGTH = 0, 1
# By this step the gradient's length differs from the first one's, and P-RGF's authors measure it again.
_SETTLED = 3


@dataclass(frozen=True)
class Site:
    """Where a gradient is wanted, and what to query about the surroundings; n images.

    Attributes:
        points: (n, C, H, W).
        value: (n,) the objective at the points, known already.
        keys: (n,) int64, of the step's randomness.
        rows: (n,) places of the images in the batch.
        samples: how many random queries to spend on each image.
        sigma: length of a probe, per pixel.
        width: images per pass.
        ask: from (m, C, H, W) points and their (m,) rows to the (m,) objective; each costs a query.
        prior: from (n, C, H, W) points and their (n,) rows to a surrogate's gradient.
        step: how many steps came before.
        memory: (B,) a number for each image of the batch, kept from step to step; zero at first.
    """

    points: Tensor
    value: Tensor
    keys: Tensor
    rows: Tensor
    samples: int
    sigma: float
    width: int
    ask: Callable[[Tensor, Tensor], Tensor]
    prior: Callable[[Tensor, Tensor], Tensor]
    step: int
    memory: Tensor

    def around(self, offsets: Tensor) -> Tensor:
        """The objective at (s, n, C, H, W) offsets from the points: (s, n), for s queries an image."""
        return self._at(self.points + offsets)

    def both_ways(self, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """The objective at the points plus and minus (s, n, C, H, W) offsets: twice (s, n), for 2s queries an image."""
        # Written where they are read: these are the largest tensors of an attack.
        probes = offsets.new_empty((2, *offsets.shape))
        torch.add(self.points, offsets, out=probes[0])
        torch.sub(self.points, offsets, out=probes[1])
        there, opposite = self._at(probes.flatten(0, 1)).chunk(2)
        return there, opposite

    def _at(self, probes: Tensor) -> Tensor:
        count = len(probes)
        return self.ask(probes.flatten(0, 1), self.rows.repeat(count)).reshape(count, -1)

    def passes(self, count: int, stream: int, *, per_draw: int = 1) -> Iterator[Tensor]:
        """Keys (s, n) of ``count`` draws, as many at a time as fit when each is shown ``per_draw`` times."""
        at_once = max(1, self.width // (per_draw * max(1, len(self.rows))))
        for draws in torch.arange(count, device=self.keys.device).split(at_once):
            yield substream(self.keys[None], stream, draws[:, None])

    def only(self, mask: Tensor) -> Site:
        """The part of the images where (n,) ``mask`` holds."""
        return replace(
            self, points=self.points[mask], value=self.value[mask], keys=self.keys[mask], rows=self.rows[mask]
        )


@runtime_checkable
class QueryGradient(Protocol):
    """Estimates a gradient from queries alone, or with a surrogate's help."""

    needs_prior: bool

    def cost(self, samples: int) -> int:
        """The most queries that one estimate takes of an image."""
        ...

    def __call__(self, site: Site, /) -> Tensor:
        """(n, C, H, W) estimate of the objective's gradient at the site's points, up to a factor per image."""
        ...


Draw = Literal["gaussian", "signs"]


@dataclass(frozen=True, kw_only=True, repr=False)
class FiniteDifferences(Record):
    """Central differences along random directions, each taken both ways (antithetic).

    With Gaussian directions this is NES (Ilyas et al., 2018), with random signs SPSA (Uesato et al., 2018).

    Attributes:
        draw: ``"gaussian"`` or ``"signs"``.
        side: rows and columns of the grid that directions are drawn on, then enlarged; None is the image's own.
    """

    draw: Draw = "gaussian"
    side: Count | None = None
    needs_prior = False

    def cost(self, samples: int) -> int:
        """Every sample is a query; they come in pairs."""
        if samples % 2:
            raise WhorlError(f"samples must be even, for they are taken in pairs; got {samples}.")
        return samples

    def __call__(self, site: Site) -> Tensor:
        """Average slope times direction."""
        total = torch.zeros_like(site.points)
        for keys in site.passes(site.samples // 2, _DRAWS, per_draw=2):
            u = directions(keys, site.points, self.draw, self.side)
            there, opposite = site.both_ways(u * site.sigma)
            total += _weighted((there - opposite) / (2 * site.sigma), u)
        return total / (site.samples // 2)


antithetic = FiniteDifferences()


@dataclass(frozen=True, kw_only=True, repr=False)
class GaussianSearch(Record):
    """The gradient of a Gaussian's mean under standardised scores, NAttack's (Li et al., 2019).

    Attributes:
        side: rows and columns of the grid that samples are drawn on, then enlarged; None is the image's own. The
            authors draw on 32.
    """

    side: Count | None = 32
    needs_prior = False

    def cost(self, samples: int) -> int:
        """Every sample is a query."""
        if samples < 2:
            raise WhorlError(f"samples must be >= 2, or scores cannot be standardised; got {samples}.")
        return samples

    def __call__(self, site: Site) -> Tensor:
        """Average standardised score times direction, over sigma."""
        weighted, plain = torch.zeros_like(site.points), torch.zeros_like(site.points)
        gains = []
        for keys in site.passes(site.samples, _DRAWS):
            u = directions(keys, site.points, "gaussian", self.side)
            # Relative to the score at the mean, which costs nothing and keeps the sums small.
            gains.append(site.around(u * site.sigma) - site.value)
            weighted += _weighted(gains[-1], u)
            plain += u.sum(dim=0)
        gain = torch.cat(gains)
        mean, spread = gain.mean(dim=0), gain.std(dim=0)
        # Σ (gain - mean)·u in one pass, so that no sample is kept or drawn twice.
        total = weighted - column(mean) * plain
        # Where every score is the same, what is left of the sum is rounding.
        tells = spread > 1e-6 * gain.abs().amax(dim=0)
        return total * column(torch.where(tells, 1 / spread, 0)) / (site.samples * site.sigma)


@dataclass(frozen=True, kw_only=True, repr=False)
class PriorGuided(Record):
    """Random directions that lean towards a surrogate's gradient, as far as it proves right (Cheng et al., 2019).

    Each step measures the slope along the surrogate's gradient, and some steps the true gradient's length. They give
    the cosine between the two, and that the lean of least expected error. A gradient that is all right costs no
    further query.

    Attributes:
        estimator: surrogate gradient to invariant gradient, such as :class:`whorl.AffineInvariant`.
        length_samples: queries that measure the true gradient's length.
        length_every: steps until it is measured anew. It is also measured in the fourth step, when the image has left
            the flat surroundings of where it started.
        side: rows and columns of the grid that directions are drawn on, then enlarged; None is the image's own.
    """

    estimator: Estimator = identity
    length_samples: Count = 10
    length_every: Count = 10
    side: Count | None = None
    needs_prior = True

    def cost(self, samples: int) -> int:
        """One query along the prior, some for the length, and the samples."""
        return 1 + self.length_samples + samples

    def __call__(self, site: Site) -> Tensor:
        """Weigh the prior, then search around it."""
        size = site.points[0].numel()
        # Directions have the length that Gaussian ones have, so that sigma means the same for every method.
        length = math.sqrt(size)
        prior = unit(self.estimator(site.prior(site.points, site.rows)))
        along = _slopes(site, prior[None] * length)[0]
        if site.step % self.length_every == 0 or site.step == _SETTLED:
            site.memory[site.rows] = self._squared_length(site, length)
        true = site.memory[site.rows]
        cosine_2 = (along.square() / size / true.clamp_min(torch.finfo(true.dtype).tiny)).clamp(max=1)
        lean = best_lean(cosine_2, size, site.samples)
        gradient = column(along) * prior
        unsure = lean < 1
        if bool(unsure.any()):
            gradient[unsure] = self._search(site.only(unsure), prior[unsure], lean[unsure], length)
        return gradient

    def _squared_length(self, site: Site, length: float) -> Tensor:
        """(n,) of the true gradient. Along random directions of that length, slopes square to it on average."""
        squares = torch.zeros_like(site.value)
        for keys in site.passes(self.length_samples, _LENGTH):
            u = unit(directions(keys, site.points, "gaussian", self.side).flatten(0, 1)).reshape(-1, *site.points.shape)
            squares += _slopes(site, u * length).square().sum(dim=0)
        return squares / self.length_samples

    def _search(self, site: Site, prior: Tensor, lean: Tensor, length: float) -> Tensor:
        total = torch.zeros_like(site.points)
        for keys in site.passes(site.samples, _DRAWS):
            free = directions(keys, site.points, "gaussian", self.side)
            across = free - (free * prior).sum(dim=(2, 3, 4), keepdim=True) * prior
            across = unit(across.flatten(0, 1)).reshape(free.shape)
            u = column(lean.sqrt()) * prior + column((1 - lean).sqrt()) * across
            total += _weighted(_slopes(site, u * length), u)
        return total / site.samples


def best_lean(cosine_2: Tensor, size: int, samples: int) -> Tensor:
    """The share λ* of the prior in each direction that makes the estimate best (Cheng et al., 2019).

    Args:
        cosine_2: (n,) squared cosine between prior and true gradient.
        size: dimensions D.
        samples: directions q.

    Returns:
        (n,) in [0, 1].

    >>> best_lean(torch.tensor([0.0, 0.01, 1.0]), 1000, 50).tolist()[::2]
    [0.0, 1.0]
    """
    spread = size + 2 * samples - 2
    upper = (1 - cosine_2) * (cosine_2 * spread - 1)
    lower = 2 * cosine_2 * size * samples - cosine_2.square() * size * spread - 1
    between = (upper / lower).clamp(0, 1)
    lean = torch.where(cosine_2 * spread <= 1, torch.zeros_like(cosine_2), between)
    return torch.where(cosine_2 * spread >= 2 * samples - 1, torch.ones_like(cosine_2), lean)


def directions(keys: Tensor, like: Tensor, draw: Draw, side: int | None) -> Tensor:
    """Draw random directions.

    Args:
        keys: (s, n) int64.
        like: (n, C, H, W) images.
        draw: ``"gaussian"`` or ``"signs"``.
        side: draw on at most this many rows and columns, and enlarge.

    Returns:
        (s, n, C, H, W), dtype of ``like``.
    """
    channels, *full = like.shape[1:]
    grid = full if side is None else [min(side, edge) for edge in full]
    flat = keys.flatten()
    if draw == "gaussian":
        u = normal(flat, (channels, *grid))
    else:
        u = uniform(flat, (channels, *grid), -1, 1)
        # A zero has a sign too, the positive one.
        u = torch.copysign(u.new_ones(()), u)
    if grid != full:
        u = F.interpolate(u, size=full, mode="bilinear", align_corners=False)
    return u.to(like.dtype).reshape(*keys.shape, *like.shape[1:])


def _slopes(site: Site, steps: Tensor) -> Tensor:
    return (site.around(steps * site.sigma) - site.value) / site.sigma


def _weighted(weights: Tensor, u: Tensor) -> Tensor:
    return torch.einsum("sn,snchw->nchw", weights, u)
