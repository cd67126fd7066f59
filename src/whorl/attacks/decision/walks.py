"""Ways to walk along a decision boundary towards an image, from yes-or-no answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.norms import column, l2_size, unit
from whorl.attacks.queries import check_above_zero, check_whole
from whorl.errors import WhorlError
from whorl.randomness import normal, substream, uniform
from whorl.records import Record

Ask = Callable[[Tensor, Tensor], Tensor]
"""From (n, C, H, W) images and their (n,) rows to (n,) bool: still adversarial. Each costs a query."""

# Streams of a step's randomness.
_NOISE, _CHOICE = 0, 1


class Walker(Protocol):
    """A walk under way, with a state for every image of the batch."""

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> Tensor:
        """(n, C, H, W) adversarial images of the batch's ``rows`` to as many candidates, nearer to the originals."""
        ...

    def heed(self, rows: Tensor, accepted: Tensor) -> None:
        """Learn from the (n,) bool answers to the last candidates."""
        ...


class Walk(Protocol):
    """Settings of a walk."""

    cost: int
    """The most queries of one step, the candidate's included."""

    def begin(self, x: Tensor) -> Walker:
        """Set out towards ``x``, (B, C, H, W)."""
        ...


@dataclass(frozen=True, kw_only=True, repr=False)
class BoundaryWalk(Record):
    """Step sideways on the sphere around the image, then towards the image (Brendel et al., 2018).

    Attributes:
        directions: steps after which both lengths are adapted, so that about half the sideways steps and a sixth of the
            steps forward stay adversarial.
        spherical_step: length of a step sideways, as a share of the distance.
        source_step: length of a step towards the image, likewise.
        adaptation: factor by which lengths change.
        check_every: every how many steps the sideways step is asked about by itself, for a query more.
    """

    directions: int = 25
    spherical_step: float = 1e-2
    source_step: float = 1e-2
    adaptation: float = 1.5
    check_every: int = 5
    cost = 2

    def __post_init__(self) -> None:
        check_whole(self, "directions", "check_every")
        check_above_zero(self, "spherical_step", "source_step")
        if not self.adaptation > 1:
            raise WhorlError(f"adaptation must be above 1; got {self.adaptation}.")

    def begin(self, x: Tensor) -> _Boundary:
        """Set out."""
        return _Boundary(self, x)


class _Boundary:
    def __init__(self, settings: BoundaryWalk, x: Tensor) -> None:
        self.settings, self.x, self.step = settings, x, 0
        self.sideways = x.new_full((len(x),), settings.spherical_step)
        self.forward = x.new_full((len(x),), settings.source_step)
        self.stayed, self.asked, self.took = (torch.zeros_like(self.sideways) for _ in range(3))

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> Tensor:
        x, sideways = self.x[rows], column(self.sideways[rows])
        way = x - current
        distance = column(l2_size(way))
        noise = normal(keys, x.shape[1:]).to(x.dtype)
        ahead = unit(way)
        across = unit(noise - (noise * ahead).sum(dim=(1, 2, 3), keepdim=True) * ahead)
        # Divided so that the point is as far from the image as before.
        turned = (sideways * distance * across - way) / (1 + sideways**2).sqrt()
        beside = (x + turned).clamp(0, 1)
        if self.step % self.settings.check_every == 0:
            self.stayed[rows] += ask(beside, rows).to(x.dtype)
            self.asked[rows] += 1
        left = x - beside
        # Clipping may have changed the distance: step from where it should have been.
        length = column(l2_size(left))
        share = (column(self.forward[rows]) * distance + length - distance).clamp_min(0) / length.clamp_min(1e-12)
        return (beside + share.clamp(max=1) * left).clamp(0, 1)

    def heed(self, rows: Tensor, accepted: Tensor) -> None:
        self.took[rows] += accepted.to(self.took.dtype)
        self.step += 1
        if self.step % self.settings.directions:
            return
        stayed = self.stayed / self.asked.clamp_min(1)
        took = self.took / self.settings.directions
        by = self.settings.adaptation
        # A boundary that is flat at the scale of the step keeps half of the sideways steps; fewer mean too long a step.
        turn = self._factor(stayed, 0.2, 0.5, by)
        self.sideways *= turn
        self.forward *= turn * self._factor(took, 0.1, 0.25, by)
        for counter in (self.stayed, self.asked, self.took):
            counter.zero_()

    @staticmethod
    def _factor(rate: Tensor, low: float, high: float, by: float) -> Tensor:
        one = torch.ones_like(rate)
        return torch.where(rate > high, one * by, torch.where(rate < low, one / by, one))


@dataclass(frozen=True, kw_only=True, repr=False)
class EvolutionaryWalk(Record):
    """A (1+1) evolution strategy with a diagonal covariance learnt on the way (Dong et al., 2019).

    Attributes:
        mu: first step towards the image, as a share of the distance; adapted so that a fifth of the steps succeed.
        sigma: length of the random step, as a share of the distance.
        c: how fast the covariance follows the path of steps that succeeded.
        decay: of that path, at each success.
        side: rows and columns of the grid that steps are drawn on, then enlarged; None is the image's own.
        share: of the grid's coordinates that a step moves, those of large variance more often.
        directions: steps after which ``mu`` is adapted.
    """

    mu: float = 0.01
    sigma: float = 0.03
    c: float = 0.001
    decay: float = 0.99
    side: int | None = 32
    share: float = 0.05
    directions: int = 30
    cost = 1

    def __post_init__(self) -> None:
        check_whole(self, "side", "directions")
        check_above_zero(self, "sigma")
        for name in ("mu", "c", "decay", "share"):
            if not 0 < getattr(self, name) < 1:
                raise WhorlError(f"{name} must lie between 0 and 1; got {getattr(self, name)!r}.")

    def begin(self, x: Tensor) -> _Evolution:
        """Set out."""
        return _Evolution(self, x)


class _Evolution:
    def __init__(self, settings: EvolutionaryWalk, x: Tensor) -> None:
        self.settings, self.x, self.step = settings, x, 0
        edges = x.shape[2:] if settings.side is None else [min(settings.side, edge) for edge in x.shape[2:]]
        self.variance = x.new_ones((len(x), x.shape[1], *edges))
        self.path = torch.zeros_like(self.variance)
        self.last = torch.zeros_like(self.variance)
        self.mu = x.new_full((len(x),), settings.mu)
        self.took = torch.zeros_like(self.mu)

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> Tensor:  # noqa: ARG002 - needs no query
        x, way = self.x[rows], self.x[rows] - current
        moved = self._draw(rows, keys)
        self.last[rows] = moved
        if moved.shape != x.shape:
            moved = F.interpolate(moved, size=x.shape[2:], mode="bilinear", align_corners=False)
        biased = current + column(self.mu[rows]) * way
        candidate = biased + self.settings.sigma * column(l2_size(way)) * unit(moved)
        # Back to the distance that mu alone would have left, so that every success is a gain.
        return (x - unit(x - candidate) * column(l2_size(x - biased))).clamp(0, 1)

    def _draw(self, rows: Tensor, keys: Tensor) -> Tensor:
        variance = self.variance[rows]
        draw = normal(substream(keys, _NOISE), variance.shape[1:]).to(variance.dtype) * variance.sqrt()
        count = max(1, int(self.settings.share * variance[0].numel()))
        # The largest of log p plus Gumbel noise are a sample without replacement, with chances p.
        chance = uniform(substream(keys, _CHOICE), variance.shape[1:], 1e-7, 1).to(variance.dtype)
        score = (variance.log() - (-chance.log()).log()).flatten(1)
        chosen = torch.zeros_like(score).scatter_(1, score.topk(count, dim=1).indices, 1)
        return draw * chosen.reshape(draw.shape)

    def heed(self, rows: Tensor, accepted: Tensor) -> None:
        won, settings = rows[accepted], self.settings
        self.path[won] = settings.decay * self.path[won] + (1 - settings.decay**2) ** 0.5 * self.last[won]
        self.variance[won] = (1 - settings.c) * self.variance[won] + settings.c * self.path[won] ** 2
        self.took[won] += 1
        self.step += 1
        if self.step % settings.directions == 0:
            # A tenth of the distance in one step is already more than the boundary ever allows for long.
            self.mu = (self.mu * torch.exp(self.took / settings.directions - 0.2)).clamp(max=0.1)
            self.took.zero_()
