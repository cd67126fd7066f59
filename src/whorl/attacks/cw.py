"""Carlini and Wagner's L2 attack (2017): the smallest perturbation by Adam, with a binary search over c."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, AttackCost, Crafted, Model, check_finite
from whorl.attacks.norms import l2_size
from whorl.attacks.objectives import Goal, margin
from whorl.attacks.spaces import INSIDE, Tanh, untanh
from whorl.attacks.step import Adam, estimated_by, input_gradient, largest
from whorl.estimators import Estimator, identity
from whorl.models.classifier import forward_cast
from whorl.progress import count_work
from whorl.randomness import Ids
from whorl.records import Count, NotNegative, Positive


@dataclass(frozen=True, kw_only=True, repr=False)
class CarliniWagner(Attack):
    """Minimise ``|δ|² + c·max(-margin, -confidence)`` in tanh space; no ε bounds it.

    Attributes:
        search_steps: rounds of the binary search over c.
        steps: Adam steps in each round. An image leaves its round early when a tenth of the steps bring it no gain.
        learning_rate: Adam's, in tanh space.
        initial_c: first value of c; multiplied by ten until the attack succeeds on the image, bisected from then on.
        confidence: margin in logits, from 0, by which the answer must be wrong.
        estimator: gradient to invariant gradient, applied to the margin's part of the gradient.
    """

    search_steps: Count = 9
    steps: Count = 1000
    learning_rate: Positive = 0.01
    initial_c: Positive = 1e-3
    confidence: NotNegative = 0.0
    estimator: Estimator = identity

    @property
    def cost(self) -> AttackCost:
        """Every step of every round."""
        return AttackCost(self.search_steps * self.steps, "gradients")

    def taste(self) -> Attack:
        """One step of one round."""
        return self.with_(search_steps=1, steps=1)

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:  # noqa: ARG002 - draws nothing
        """Search over c. Returns the nearest adversarial image that was found, or the image itself where none was."""
        c = torch.full_like(goal.labels, self.initial_c, dtype=x.dtype)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        best = Nearest(x)
        finite = torch.ones_like(goal.labels, dtype=torch.bool)
        spent = torch.zeros_like(goal.labels)
        for _ in range(self.search_steps):
            found = self._descend(model, x, goal, c, best, finite, spent)
            high = torch.where(found, torch.minimum(high, c), high)
            low = torch.where(found, low, torch.maximum(low, c))
            c = torch.where(high.isinf(), c * 10, (low + high) / 2)
        check_finite(finite, ids)
        return Crafted(best.image, grad_evals=spent)

    def _descend(
        self, model: Model, x: Tensor, goal: Goal, c: Tensor, best: Nearest, finite: Tensor, spent: Tensor
    ) -> Tensor:
        """One round of Adam at fixed c. Returns (B,) bool: whether some step was adversarial."""
        w = Tanh().enter(x)
        adam = Adam()
        found = torch.zeros_like(finite)
        awake = torch.ones_like(finite)
        least = torch.full_like(c, torch.inf)
        patience = max(1, self.steps // 10)
        for step in range(self.steps):
            tanh = torch.tanh(w)
            adv = untanh(tanh)
            leaf = adv.detach().clamp(0, 1).requires_grad_()
            logits = forward_cast(model, leaf)
            goal.check_classes(logits)
            logits = logits.to(x.dtype)
            # Raising `lead` is what the attack wants; past the confidence it no longer counts.
            lead = goal.objective(logits, margin)
            pull = input_gradient(lead.clamp(max=self.confidence), leaf)
            finite &= largest(pull).isfinite()
            spent += awake
            delta = leaf.detach() - x
            size = l2_size(delta)
            hit = awake & (lead.detach() >= self.confidence) & goal.reached(logits)
            found |= hit
            best.offer(leaf.detach(), size, hit)
            along = estimated_by(self.estimator, pull)
            finite &= largest(along).isfinite() & logits.detach().isfinite().all(1)
            in_pixels = 2 * delta - c[:, None, None, None] * along
            move = adam(in_pixels * (1 - tanh * tanh) / (2 * INSIDE))
            w = torch.where(awake[:, None, None, None], w - self.learning_rate * move, w)
            if step % patience == patience - 1:
                cost = size**2 + c * (self.confidence - lead.detach()).clamp_min(0)
                awake &= cost < 0.9999 * least
                least = torch.minimum(least, cost)
                # The only wait for the device, ten a round, and it changes no result: everyone is asleep.
                if not bool(awake.any()):
                    count_work(self.steps - step, "gradients")  # the rest of the round, which nobody needs
                    break
            count_work(1, "gradients")
        return found


class Nearest:
    """The nearest adversarial image seen so far, per image."""

    def __init__(self, x: Tensor) -> None:
        self.image = x
        self.size = torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device)

    def offer(self, image: Tensor, size: Tensor, valid: Tensor) -> None:
        """Take ``image`` where it is valid and nearer."""
        better = valid & (size < self.size)
        self.size = torch.where(better, size, self.size)
        self.image = torch.where(better[:, None, None, None], image, self.image)
