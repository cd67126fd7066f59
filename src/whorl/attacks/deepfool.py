"""DeepFool (Moosavi-Dezfooli et al., 2016): walk to the nearest decision boundary, linearised anew at every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, Crafted, Model, answers, check_finite
from whorl.attacks.norms import l2_size, per_image
from whorl.attacks.objectives import Goal
from whorl.attacks.step import estimated_by, input_gradient, largest
from whorl.estimators import Estimator, identity
from whorl.models.classifier import forward, network_dtype
from whorl.randomness import Ids
from whorl.records import Count, NotNegative


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepFool(Attack):
    """A small L2 perturbation that crosses the decision boundary; no ε bounds it.

    Attributes:
        steps: how many times to linearise the network at most.
        candidates: how many of the likeliest other classes compete to be the nearest.
        overshoot: how far past the boundary to go, as a share of the way.
        estimator: gradient to invariant gradient, applied to each boundary's normal.
    """

    steps: Count = 50
    candidates: Count = 9
    overshoot: NotNegative = 0.02
    estimator: Estimator = identity

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:  # noqa: ARG002 - draws nothing
        """Step to the nearest boundary until it is crossed. An image that is as wanted already comes back unchanged."""
        precision = network_dtype(model, x)
        way = torch.zeros_like(x)
        adv = x
        rivals = self._rivals(answers(model, x, goal), goal)
        finite = torch.ones_like(goal.labels, dtype=torch.bool)
        spent = torch.zeros_like(goal.labels)
        for _ in range(self.steps):
            leaf = adv.detach().requires_grad_()
            logits = forward(model, leaf.to(precision, copy=True))  # it may work in place
            goal.check_classes(logits)
            logits = logits.to(x.dtype)
            active = ~goal.reached(logits)
            # One wait for the device against ten gradients, and it changes no result: everyone has arrived.
            if not bool(active.any()):
                break
            nearest = torch.full_like(goal.labels, torch.inf, dtype=x.dtype)
            step = torch.zeros_like(x)
            own = self._anchor(logits, goal)
            # A step that lands on the boundary itself must still cross it, in the precision the network answers in.
            hair = 1e-4 + torch.finfo(precision).eps * logits.detach().abs().amax(dim=1)
            for k in range(rivals.shape[1]):
                lead = logits.gather(1, rivals[:, k : k + 1])[:, 0] - own
                normal = input_gradient(lead, leaf, keep=k + 1 < rivals.shape[1])
                finite &= largest(normal).isfinite()
                along = estimated_by(self.estimator, normal)
                finite &= largest(along).isfinite() & logits.detach().isfinite().all(1)
                # Per unit of `along` the lead grows by <normal, along>: for the plain gradient, its squared length.
                slope = per_image(lambda one: one.sum(dim=(1, 2, 3)), normal * along)
                gap = (lead.detach().abs() + hair) / slope.clamp_min(torch.finfo(x.dtype).tiny)
                distance = gap * l2_size(along)
                closer = (distance < nearest) & (slope > 0)
                nearest = torch.where(closer, distance, nearest)
                step = torch.where(closer[:, None, None, None], gap[:, None, None, None] * along, step)
            spent += active * rivals.shape[1]
            way = torch.where(active[:, None, None, None], way + step, way)
            adv = (x + (1 + self.overshoot) * way).clamp(0, 1)
        check_finite(finite, ids)
        return Crafted(adv, grad_evals=spent)

    def _rivals(self, logits: Tensor, goal: Goal) -> Tensor:
        """(B, k) classes whose boundary may be crossed: the target, or the likeliest classes other than the label."""
        if goal.targeted:
            return goal.labels[:, None]
        others = logits.scatter(1, goal.labels[:, None], -torch.inf)
        return others.topk(min(self.candidates, logits.shape[1] - 1), dim=1).indices

    @staticmethod
    def _anchor(logits: Tensor, goal: Goal) -> Tensor:
        """(B,) the logit to overtake: the label's, or on the way to a target that of the likeliest other class."""
        if goal.targeted:
            return logits.scatter(1, goal.labels[:, None], -torch.inf).amax(dim=1)
        return logits.gather(1, goal.labels[:, None])[:, 0]
