"""One loop for every decision-based attack: start anywhere adversarial, bisect to the boundary, walk along it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from whorl.attacks.blackbox.decision.walks import BoundaryWalk, Walk
from whorl.attacks.blackbox.queries import BestSoFar, QueriedTarget
from whorl.attacks.blackbox.starts import Given, Init, given_start
from whorl.attacks.contract import Attack, Crafted, Model
from whorl.attacks.norms import column, find_norm, l2_size
from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError
from whorl.randomness import Ids, image_keys, substream, uniform
from whorl.records import Count, Limits, Positive

# Streams of an image's randomness.
_TRY, _STEP = 0, 1

_WALK = BoundaryWalk()


@dataclass(frozen=True, kw_only=True, repr=False)
class DecisionAttack(Attack):
    """Any attack that gets nothing from its target but labels, and seeks a small L2 perturbation.

    The target may return (B, classes) scores or (B,) integer labels. The image itself is queried first, and comes
    back if it is answered as wanted already, or if nothing adversarial was found.

    Attributes:
        walk: how to come nearer to the image: ``BoundaryWalk()`` or ``EvolutionaryWalk()``, of
            ``whorl.attacks.blackbox.decision``.
        budget: queries (images shown to the target) for each attacked image at most.
        eps: L2 distance, in units of the [0, 1] range, at which an image is done; None spends the whole budget. Where
            it is given, success means an adversarial image at most that far away.
        tries: images of noise to try at most, until one is adversarial and the attack can start.
        bisections: queries to bring the start near the boundary.
        init: where to start: an attack, crafted on ``surrogate``; a tensor of start images;
            :class:`whorl.data.StartFolder` for a folder of them, named by id; ``"random"`` or None, noise. A
            given start that is not adversarial is replaced by noise where the attack is untargeted, and given up where
            it is targeted.
        surrogate: model or ensemble that ``init`` is crafted on.
        rounded: whether images are rounded to 8 bits before they are queried, so that what succeeds still does once
            it is saved as an image file.
        chunk: images per pass through the target; None for as many as fit.
        trace: whether to report queries and distance after each step.
    """

    black_box: ClassVar[bool] = True

    walk: Walk = _WALK
    budget: Count = 10_000
    eps: Positive | None = None
    tries: Count = 50
    bisections: Annotated[int, Limits(least=0)] = 10
    init: Init = field(default=None, compare=False)
    surrogate: Model | None = field(default=None, compare=False)
    rounded: bool = False
    chunk: Count | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 + self.bisections + self.walk.cost
        if self.budget < least:
            raise WhorlError(
                f"budget must pay for one step: the image, a start, {self.bisections} bisections and {self.walk.cost} "
                f"for the step make {least}; got {self.budget}."
            )

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Start, bisect, walk. Returns the nearest adversarial image that was found."""
        if goal.targeted and not isinstance(self.init, Given):
            raise WhorlError(
                "a targeted decision-based attack needs init=: start images that the target already answers as wanted, "
                "or an attack and a surrogate; got none."
            )
        if self.surrogate is not None and not isinstance(self.init, Attack):
            raise WhorlError("surrogate is of no use here: give init= an attack to craft on it, or leave it out.")
        keys = image_keys(x, seed, ids)
        start, grad_evals = None, torch.zeros_like(goal.labels)
        if isinstance(self.init, Given):
            start, grad_evals = given_start(self.init, self.surrogate, x, goal, seed=seed, ids=ids)
        target = QueriedTarget(model, x, goal, budget=self.budget, chunk=self.chunk, labels_suffice=True)
        progress = BestSoFar(x, x, target, find_norm("l2"), trace=self.trace, grad_evals=grad_evals)
        with progress.kept_on_failure():
            rows = torch.arange(len(x), device=x.device)
            rows = rows[~self._offer(target, progress, x, rows)]
            rows = self._begin(target, progress, start, rows, keys)
            self._bisect(target, progress, rows)
            self._walk(target, progress, self._unfinished(progress, rows), keys)
        return progress.crafted()

    def _offer(self, target: QueriedTarget, progress: BestSoFar, images: Tensor, rows: Tensor) -> Tensor:
        """Query images and keep those that are adversarial and nearer: (n,) bool, adversarial."""
        if self.rounded:
            images = (images * 255).round() / 255
        reached = target.reached(images, rows)
        distance = l2_size(images - progress.x[rows])
        near = reached if self.eps is None else reached & (distance <= self.eps)
        progress.offer(rows[reached], images[reached], -distance[reached], near[reached])
        return reached

    def _unfinished(self, progress: BestSoFar, rows: Tensor) -> Tensor:
        return rows if self.eps is None else rows[~progress.success[rows]]

    def _begin(
        self, target: QueriedTarget, progress: BestSoFar, start: Tensor | None, rows: Tensor, keys: Tensor
    ) -> Tensor:
        """Find a start for each of ``rows``; returns those that have one."""
        found = [rows[:0]]
        if start is not None and len(rows):
            reached = self._offer(target, progress, start[rows], rows)
            found.append(rows[reached])
            rows = rows[~reached]
        for attempt in range(0 if target.goal.targeted else self.tries):
            rows = rows[target.affords(rows, 1)]
            if not len(rows):
                break
            noise = uniform(substream(keys[rows], _TRY, attempt), progress.x.shape[1:]).to(progress.x.dtype)
            reached = self._offer(target, progress, noise, rows)
            found.append(rows[reached])
            rows = rows[~reached]
        return torch.cat(found).sort().values

    def _bisect(self, target: QueriedTarget, progress: BestSoFar, rows: Tensor) -> None:
        x, far = progress.x, progress.best.clone()
        low, high = (progress.value.new_full(progress.value.shape, share) for share in (0.0, 1.0))
        for _ in range(self.bisections):
            rows = self._unfinished(progress, rows[target.affords(rows, 1)])
            if not len(rows):
                return
            middle = (low[rows] + high[rows]) / 2
            images = x[rows] + column(middle) * (far[rows] - x[rows])
            reached = self._offer(target, progress, images, rows)
            high[rows] = torch.where(reached, middle, high[rows])
            low[rows] = torch.where(reached, low[rows], middle)

    def _walk(self, target: QueriedTarget, progress: BestSoFar, rows: Tensor, keys: Tensor) -> None:
        walker = self.walk.begin(progress.x)
        while True:
            rows = self._unfinished(progress, rows[target.affords(rows, self.walk.cost)])
            if not len(rows):
                return
            step_keys = substream(keys[rows], _STEP, target.step)
            candidates, worth = walker.propose(progress.best[rows], rows, step_keys, target.reached)
            before = progress.value[rows]
            if bool(worth.any()):
                self._offer(target, progress, candidates[worth], rows[worth])
            walker.heed(rows, worth, progress.value[rows] > before)
            target.step += 1
