"""One loop for every score-based attack: [start] → check → gradient from queries → step → project."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whorl.attacks.blackbox.queries import BestSoFar, QueriedTarget, in_8_bits
from whorl.attacks.blackbox.score.gradients import QueryGradient, Site, antithetic
from whorl.attacks.blackbox.starts import Init, check_in_ball, given_start, slack
from whorl.attacks.contract import Attack, Crafted, Model, check_device, check_finite, held_in_eval
from whorl.attacks.loop import SampledGradient
from whorl.attacks.norms import InBall, Norm, NormName, column, find_norm
from whorl.attacks.objectives import Goal, LossName
from whorl.attacks.spaces import Pixels, Space, pixels
from whorl.attacks.step import Adam, largest
from whorl.errors import WhorlError
from whorl.randomness import Ids, image_keys, substream, uniform
from whorl.records import Count, Positive
from whorl.transforms import plain

# Streams of an image's randomness: one for the start, then one for each step, and within it one for a step in the dark.
_START = -1
_DARK = -1

Optimizer = Literal["sign", "adam", "ascent"]


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreAttack(InBall, Attack):
    """Any ε-bounded attack that gets nothing from its target but scores (logits), as a composition of parts.

    An image is done, and leaves the batch, once the target answers as wanted or what is left of its budget is less than
    one more step costs. A step costs the gradient's queries and one to check where it led; the start is checked as
    well.

    Attributes:
        eps: radius of the ball, in units of the [0, 1] range.
        norm: ``"linf"`` or ``"l2"``.
        loss: ``"margin"``, ``"ce"``, ``"logit"`` or ``"relative"``, as of :class:`whorl.attacks.GradientAttack`.
        budget: queries (images shown to the target) for each attacked image at most.
        samples: random queries in a step.
        sigma: standard deviation, or size, of the random directions in each pixel: in units of the [0, 1] range, or of
            tanh space.
        gradient: how queries become a gradient: ``FiniteDifferences()``, the default, ``GaussianSearch()`` or
            ``PriorGuided()``, of ``whorl.attacks.blackbox.score``.
        space: what the attack moves: pixels, ``Pixels()``, or a point in tanh space, ``Tanh()``; of the same package.
        optimizer: ``"sign"`` takes the steepest step of the norm (the sign of the gradient, or in L2 the gradient
            scaled to length 1), ``"adam"`` Adam's, ``"ascent"`` the gradient itself.
        learning_rate: size of the first step, in units of the [0, 1] range, or of tanh space; None is eps/10.
        plateau: an image's learning rate is halved when its loss, over so many checks in a row, ends lower than it
            began; None never halves it.
        least_rate: share of the learning rate, in (0, 1], at which halving ends.
        init: where to start: an attack, crafted on ``surrogate``; a tensor of start images;
            :class:`whorl.data.StartFolder` for a folder of them, named by id; ``"random"``, anywhere in the ball; None,
            the image itself.
        surrogate: model or ensemble that gives gradients, to ``init`` and to ``PriorGuided``.
        rounded: whether the images that are checked are rounded to 8 bits, so that what succeeds still does once it is
            saved as an image file. Queries for the gradient are not rounded.
        chunk: images per pass through the target; None for as many as fit.
        trace: whether to report queries, loss and distance after each step.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x = torch.rand(2, 3, 5, 5)
    >>> adv, info = ScoreAttack(budget=500, samples=20)(net, x, net(x).argmax(1), return_info=True)
    >>> bool((adv - x).abs().max() <= 16 / 255 + 1e-6), bool((info.queries <= 500).all())
    (True, True)
    """

    black_box: ClassVar[bool] = True

    eps: Positive = 16 / 255
    norm: NormName = "linf"
    loss: LossName = "margin"
    budget: Count = 10_000
    samples: Count = 100
    sigma: Positive = 1e-3
    gradient: QueryGradient = antithetic
    space: Space = pixels
    optimizer: Optimizer = "sign"
    learning_rate: Positive | None = None
    plateau: Count | None = 20
    least_rate: Positive = 0.1
    init: Init = field(default=None, compare=False)
    surrogate: Model | None = field(default=None, compare=False)
    rounded: bool = False
    chunk: Count | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient.needs_prior and not isinstance(self.space, Pixels):
            raise WhorlError(f"a surrogate's gradient is one of pixels, so space must be Pixels(); got {self.space!r}.")
        least = self._step_cost + 1
        if self.budget < least:
            raise WhorlError(
                f"budget must pay for one step: a check of the start, {least - 2} queries for the gradient and "
                f"a check of the step make {least}; got {self.budget}. Raise budget or lower samples."
            )

    @property
    def _step_cost(self) -> int:
        return self.gradient.cost(self.samples) + 1

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Run the loop. Returns the image that succeeded, or else the best that was checked."""
        self._check_surrogate(x)
        norm = find_norm(self.norm)
        keys = image_keys(x, seed, ids)
        start, grad_evals = self._start(norm, x, goal, keys, seed=seed, ids=ids)
        target = QueriedTarget(model, x, goal, budget=self.budget, chunk=self.chunk)
        progress = BestSoFar(x, start, target, norm, trace=self.trace, grad_evals=grad_evals)
        with progress.kept_on_failure():
            self._climb(target, progress, start, keys)
        return progress.crafted()

    def _check_surrogate(self, x: Tensor) -> None:
        if self.surrogate is not None:
            if not (self.gradient.needs_prior or isinstance(self.init, Attack)):
                raise WhorlError("surrogate is of no use here: give init= an attack to craft on it, or leave it out.")
            check_device(self.surrogate, x)
        elif self.gradient.needs_prior:
            raise WhorlError(
                f"{type(self.gradient).__name__} needs surrogate=, the model or ensemble it is guided by; got none."
            )

    def _start(self, norm: Norm, x: Tensor, goal: Goal, keys: Tensor, *, seed: int, ids: Ids) -> tuple[Tensor, Tensor]:
        eps = torch.tensor(self.eps, dtype=x.dtype, device=x.device)
        if self.init is None:
            return x, torch.zeros_like(goal.labels)
        if isinstance(self.init, str):
            return norm.ball(x, eps)(x + norm.random(x, substream(keys, _START), eps)), torch.zeros_like(goal.labels)
        start, grad_evals = given_start(self.init, self.surrogate, x, goal, seed=seed, ids=ids)
        check_in_ball(start, x, norm, self.eps, ids, slack=slack(self.init, x, norm))
        return norm.ball(x, eps)(start), grad_evals

    def _climb(self, target: QueriedTarget, progress: BestSoFar, start: Tensor, keys: Tensor) -> None:
        """Step until every image is done. States are kept for the whole batch; ``rows`` are the images still at it."""
        x = progress.x
        eps = torch.tensor(self.eps, dtype=x.dtype, device=x.device)
        points = self.space.enter(start).clone()
        move = Mover(self.optimizer, progress.norm, x)
        rate = LearningRate(
            self.eps / 10 if self.learning_rate is None else self.learning_rate, self.plateau, self.least_rate, x
        )
        rows, memory = torch.arange(len(x), device=x.device), x.new_zeros(len(x))
        while len(rows):
            shown = self.space.shown(points[rows], progress.norm.ball(x[rows], eps))
            if self.rounded:
                shown = in_8_bits(shown, x[rows], progress.norm, self.eps)
            value, reached = target.objective(shown, rows, self.loss)
            # What succeeds is taken whatever its loss: cross entropy may be higher where the answer is still right.
            progress.offer(rows, shown, torch.where(reached, torch.inf, value), reached, loss=value)
            rate.heed(rows, value)
            going = ~reached & target.affords(rows, self._step_cost)
            rows, value = rows[going], value[going]
            if not len(rows):
                break
            site = Site(
                # Where the value is known: one-sided differences would take a rounding for a slope.
                points=shown[going] if isinstance(self.space, Pixels) else points[rows],
                value=value,
                keys=substream(keys[rows], target.step),
                rows=rows,
                samples=self.samples,
                sigma=self.sigma,
                width=target.chunk,
                ask=self._asker(target, x, eps),
                prior=self._prior(target.goal, progress.grad_evals),
                step=target.step,
                memory=memory,
            )
            step = column(rate.now[rows]) * move(_or_random(self.gradient(site), site.keys), rows)
            points[rows] = self.space.settled(points[rows] + step, progress.norm.ball(x[rows], eps))
            target.step += 1

    def _asker(self, target: QueriedTarget, x: Tensor, eps: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        norm = find_norm(self.norm)

        def ask(points: Tensor, rows: Tensor) -> Tensor:
            return target.objective(self.space.shown(points, norm.ball(x[rows], eps)), rows, self.loss)[0]

        return ask

    def _prior(self, goal: Goal, grad_evals: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        def prior(points: Tensor, rows: Tensor) -> Tensor:
            assert self.surrogate is not None  # noqa: S101 - checked before the loop
            part = goal.rows(rows)
            grad_evals.index_add_(0, rows, torch.ones_like(rows))
            with held_in_eval(self.surrogate), torch.enable_grad():
                gradient = SampledGradient(self.surrogate, part, self.loss, plain, 1, None)
                found = gradient(points, rows)[0]
            check_finite(largest(found).isfinite(), rows.tolist())
            return found

        return prior


def _or_random(gradient: Tensor, keys: Tensor) -> Tensor:
    """Give an image whose queries all scored the same a direction of random signs instead of none.

    A defence that rounds images to 8 bits, as JPEG does, answers the same to anything within half a level of a clean
    image. Without this, an attack with smaller draws would stand there until its budget is spent.
    """
    flat = gradient.flatten(1).count_nonzero(1) == 0
    if not bool(flat.any()):  # nearly always; the loop has just waited for the device anyway
        return gradient
    signs = uniform(substream(keys, _DARK), gradient.shape[1:], -1.0, 1.0).sign().to(gradient.dtype)
    return torch.where(column(flat), signs, gradient)


class Mover:
    """From gradient to step: the norm's steepest direction, Adam's, or the gradient itself; per image."""

    def __init__(self, optimizer: Optimizer, norm: Norm, x: Tensor) -> None:
        self.optimizer, self.norm, self.adam = optimizer, norm, Adam()
        self.whole = torch.zeros_like(x)
        # Adam moves each pixel by about 1: as long a step as the sign's in L∞, and √D times the unit step in L2.
        self.length = math.sqrt(x[0].numel()) if norm.name == "l2" else 1.0

    def __call__(self, gradient: Tensor, rows: Tensor) -> Tensor:
        """(n, C, H, W) gradient of the batch's ``rows`` to a step of about norm 1, or for ``"ascent"`` any."""
        if self.optimizer == "sign":
            return self.norm.steepest(gradient)
        if self.optimizer == "ascent":
            return gradient
        # Those that left feed Adam zeros, which touches nobody else.
        self.whole.zero_()[rows] = gradient
        return self.adam(self.whole)[rows] / self.length


class LearningRate:
    """A learning rate for each image, halved whenever its loss ends a stretch of checks lower than it began it."""

    def __init__(self, first: float, plateau: int | None, least_share: float, x: Tensor) -> None:
        self.plateau, self.least = plateau, first * least_share
        self.now = x.new_full((len(x),), first)
        # The last losses of each image, the oldest first; NaN where the stretch is not that long yet.
        self.last = x.new_full((len(x), plateau or 1), torch.nan)

    def heed(self, rows: Tensor, value: Tensor) -> None:
        """Take in the (n,) objective of the batch's ``rows``."""
        if self.plateau is None:
            return
        last = torch.cat([self.last[rows, 1:], value[:, None]], dim=1)
        # Comparing with NaN is false, so a stretch that is too short halves nothing.
        fell = last[:, -1] < last[:, 0]
        self.now[rows] = torch.where(fell, (self.now[rows] / 2).clamp_min(self.least), self.now[rows])
        self.last[rows] = last.masked_fill(fell[:, None], torch.nan)
