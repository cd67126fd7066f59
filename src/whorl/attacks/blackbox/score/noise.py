"""What any black-box attack must beat: noise on the surface of the ball, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from whorl.attacks.blackbox.queries import BestSoFar, QueriedTarget
from whorl.attacks.blackbox.score.gradients import Draw, directions
from whorl.attacks.contract import Attack, Crafted, Model
from whorl.attacks.norms import InBall, NormName, find_norm, unit
from whorl.attacks.objectives import Goal, LossName
from whorl.randomness import Ids, image_keys, substream
from whorl.records import Count, Positive


@dataclass(frozen=True, kw_only=True, repr=False)
class NoiseSearch(InBall, Attack):
    """Random noise of full strength until the target gives way: the baseline, not an attack to use.

    In L∞ every pixel is moved by ±eps, which is the strongest noise there is; in L2 the direction is uniform.

    Attributes:
        eps: radius of the ball, in units of the [0, 1] range.
        norm: ``"linf"`` or ``"l2"``.
        loss: ranks the draws.
        budget: most images the target may see for each image under attack.
        samples: draws that are queried together. An image that gave way is left alone after them.
        chunk: images per pass through the target; None for as many as fit.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x = torch.rand(2, 3, 5, 5)
    >>> adv, info = NoiseSearch(budget=50)(net, x, net(x).argmax(1), return_info=True)
    >>> bool((info.queries <= 50).all())
    True
    """

    black_box: ClassVar[bool] = True

    eps: Positive = 16 / 255
    norm: NormName = "linf"
    loss: LossName = "margin"
    budget: Count = 10_000
    samples: Count = 10
    chunk: Count | None = None

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Draw until every image is done. The image itself is queried first."""
        norm, keys = find_norm(self.norm), image_keys(x, seed, ids)
        target = QueriedTarget(model, x, goal, budget=self.budget, chunk=self.chunk)
        progress = BestSoFar(x, x, target, norm, trace=False, grad_evals=torch.zeros_like(goal.labels))
        rows = torch.arange(len(x), device=x.device)
        with progress.kept_on_failure():
            value, reached = target.objective(x, rows, self.loss)
            progress.offer(rows, x, torch.where(reached, torch.inf, value), reached)
            rows = rows[~reached]
            while len(rows := rows[target.affords(rows, 1)]):
                # Those that are left have been queried equally often, so one count speaks for all.
                queried = int(target.queries[rows[0]])
                draws = torch.arange(queried, min(queried + self.samples, self.budget), device=x.device)
                images = (x[rows] + self._draw(x[rows], substream(keys[rows][None], draws[:, None]))).clamp(0, 1)
                value, reached = target.objective(images.flatten(0, 1), rows.repeat(len(draws)), self.loss)
                value = torch.where(reached, torch.inf, value).reshape(len(draws), -1)
                best = value.argmax(dim=0)
                at = torch.arange(len(rows), device=x.device)
                progress.offer(rows, images[best, at], value[best, at], reached.reshape(len(draws), -1)[best, at])
                rows = rows[~progress.success[rows]]
                target.step += 1
        return progress.crafted()

    def _draw(self, x: Tensor, keys: Tensor) -> Tensor:
        kind: Draw = "signs" if self.norm == "linf" else "gaussian"
        noise = directions(keys, x, kind, None)
        if self.norm == "l2":
            noise = unit(noise.flatten(0, 1)).reshape(noise.shape)
        return self.eps * noise
