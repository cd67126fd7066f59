"""Ways to walk along a decision boundary towards an image, from yes-or-no answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.norms import column, l2_size, per_image, unit
from whorl.randomness import normal, substream, uniform
from whorl.records import Count, Limits, Positive, Record

Ask = Callable[[Tensor, Tensor], Tensor]
"""From (n, C, H, W) images and their (n,) rows to (n,) bool: still adversarial. Each costs a query."""

Between = Annotated[float, Limits(above=0, below=1)]
Window = Annotated[int, Limits(least=1, most=10_000)]  # kept for each image

# Streams of a step's randomness.
_NOISE, _CHOICE = 0, 1
# Shares of sideways and of forward steps that stay adversarial, between which the lengths are right.
_FEW, _MANY = 0.2, 0.5


class Walker(Protocol):
    """A walk under way, with a state for every image of the batch."""

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        """Go on from (n, C, H, W) adversarial images of the batch's ``rows``.

        Returns:
            (n, C, H, W) candidates, nearer to the originals, and (n,) bool: which of them are worth a query.
        """
        ...

    def heed(self, rows: Tensor, worth: Tensor, accepted: Tensor) -> None:
        """Learn from the (n,) bool answers to the last candidates; those that were not queried are False."""
        ...


@runtime_checkable
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

    In some steps the point beside is queried by itself before the one ahead; how often each stays adversarial sets
    the lengths of both. The authors look at every tenth step and wait for 100 and 30 answers, as befits 25,000 steps;
    within a budget of 10,000 queries the lengths would hardly ever change, so the defaults here are shorter.

    Attributes:
        directions: most sideways directions to try in a step.
        spherical_step: length of a step sideways, as a share of the distance.
        source_step: length of a step towards the image, likewise.
        adaptation: factor by which lengths change.
        check_every: every how many steps the point beside is queried, for a query more.
        sideways_window: answers about points beside that are awaited before the lengths change.
        forward_window: likewise, answers about points ahead of those that stayed adversarial.

    """

    directions: Count = 25
    spherical_step: Positive = 1e-2
    source_step: Positive = 1e-2
    adaptation: Annotated[float, Limits(above=1)] = 1.5
    check_every: Count = 5
    sideways_window: Window = 10
    forward_window: Window = 10
    cost = 2

    def begin(self, x: Tensor) -> _Boundary:
        """Set out."""
        return _Boundary(self, x)


class _Answers:
    """The last so many yes-or-no answers of each image."""

    def __init__(self, window: int, x: Tensor) -> None:
        self.window, self.last = window, x.new_zeros((len(x), window))
        self.count = torch.zeros(len(x), dtype=torch.int64, device=x.device)

    def add(self, rows: Tensor, answers: Tensor) -> None:
        self.last[rows, self.count[rows] % self.window] = answers.to(self.last.dtype)
        self.count[rows] += 1

    def verdict(self, rows: Tensor) -> Tensor:
        """(n,) factor exponent: 1 where more than half are yes, -1 where less than a fifth, 0 between."""
        share = self.last[rows].mean(dim=1)
        return (share > _MANY).to(share.dtype) - (share < _FEW).to(share.dtype)

    def full(self, rows: Tensor) -> Tensor:
        return self.count[rows] >= self.window


class _Boundary:
    def __init__(self, settings: BoundaryWalk, x: Tensor) -> None:
        self.settings, self.x = settings, x
        self.sideways = x.new_full((len(x),), settings.spherical_step)
        self.forward = x.new_full((len(x),), settings.source_step)
        # Images need different numbers of tries, so each has a step of its own.
        self.step = torch.ones(len(x), dtype=torch.int64, device=x.device)
        self.tries = torch.zeros_like(self.step)
        self.beside, self.ahead = (_Answers(size, x) for size in (settings.sideways_window, settings.forward_window))

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        x, sideways = self.x[rows], column(self.sideways[rows])
        way = x - current
        distance = column(l2_size(way))
        noise = normal(keys, x.shape[1:]).to(x.dtype)
        ahead = unit(way)
        across = unit(noise - column(per_image(lambda one: one.sum(dim=(1, 2, 3)), noise * ahead)) * ahead)
        # Divided so that the point is as far from the image as before.
        stepped = (sideways * distance * across - way) / (1 + sideways**2).sqrt()
        beside = (x + stepped).clamp(0, 1)
        worth = torch.ones_like(rows, dtype=torch.bool)
        checked = self._checks(rows)
        if bool(checked.any()):
            stayed = ask(beside[checked], rows[checked])
            self.beside.add(rows[checked], stayed)
            worth[checked] = stayed
        left = x - beside
        # Clipping may have changed the distance: step from where it should have been.
        length = column(l2_size(left))
        share = (column(self.forward[rows]) * distance + length - distance).clamp_min(0) / length.clamp_min(1e-12)
        return (beside + share.clamp(max=1) * left).clamp(0, 1), worth

    def _checks(self, rows: Tensor) -> Tensor:
        return self.step[rows] % self.settings.check_every == 0

    def heed(self, rows: Tensor, worth: Tensor, accepted: Tensor) -> None:
        told = self._checks(rows) & worth
        self.ahead.add(rows[told], accepted[told])
        self.tries[rows] += 1
        ended = rows[accepted | (self.tries[rows] >= self.settings.directions)]
        self.tries[ended] = 0
        self.step[ended] += 1
        sure = ended[self.beside.full(ended) & self.ahead.full(ended)]
        # A boundary that is flat at the scale of the step keeps half of the sideways steps; fewer mean too long a step.
        turn, push = self.beside.verdict(sure), self.ahead.verdict(sure)
        self.sideways[sure] *= self.settings.adaptation**turn
        self.forward[sure] *= self.settings.adaptation ** (turn + push)
        self.beside.count[sure[turn != 0]] = 0
        self.ahead.count[sure[push != 0]] = 0


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

    mu: Between = 0.01
    sigma: Positive = 0.03
    c: Between = 0.001
    decay: Between = 0.99
    side: Count | None = 32
    share: Between = 0.05
    directions: Count = 30
    cost = 1

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

    def propose(self, current: Tensor, rows: Tensor, keys: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - needs no query
        x, way = self.x[rows], self.x[rows] - current
        moved = self._draw(rows, keys)
        self.last[rows] = moved
        if moved.shape != x.shape:
            moved = F.interpolate(moved, size=x.shape[2:], mode="bilinear", align_corners=False)
        biased = current + column(self.mu[rows]) * way
        candidate = biased + self.settings.sigma * column(l2_size(way)) * unit(moved)
        # Back to the distance that mu alone would have left, so that every success is a gain.
        nearer = (x - unit(x - candidate) * column(l2_size(x - biased))).clamp(0, 1)
        return nearer, torch.ones_like(rows, dtype=torch.bool)

    def _draw(self, rows: Tensor, keys: Tensor) -> Tensor:
        variance = self.variance[rows]
        draw = normal(substream(keys, _NOISE), variance.shape[1:]).to(variance.dtype) * variance.sqrt()
        count = max(1, int(self.settings.share * variance[0].numel()))
        # The largest of log p plus Gumbel noise are a sample without replacement, with chances p.
        chance = uniform(substream(keys, _CHOICE), variance.shape[1:], 1e-7, 1).to(variance.dtype)
        score = (variance.log() - (-chance.log()).log()).flatten(1)
        chosen = torch.zeros_like(score).scatter_(1, score.topk(count, dim=1).indices, 1)
        return draw * chosen.reshape(draw.shape)

    def heed(self, rows: Tensor, worth: Tensor, accepted: Tensor) -> None:  # noqa: ARG002 - all of them are
        won, settings = rows[accepted], self.settings
        self.path[won] = settings.decay * self.path[won] + (1 - settings.decay**2) ** 0.5 * self.last[won]
        self.variance[won] = (1 - settings.c) * self.variance[won] + settings.c * self.path[won] ** 2
        self.took[won] += 1
        self.step += 1
        if self.step % settings.directions == 0:
            # A tenth of the distance in one step is already more than the boundary ever allows for long.
            self.mu = (self.mu * torch.exp(self.took / settings.directions - 0.2)).clamp(max=0.1)
            self.took.zero_()
