"""What the student is told: soft targets, and the objectives of the recipes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.hardening.recipes import Recipe


def soft_targets(answers: Tensor | None, labels: Tensor, *, trust: float) -> Tensor:
    """Mix a teacher's answers with the labels.

    Args:
        answers: (B, classes) probabilities of the teacher on the clean images; None if there is no teacher.
        labels: (B, classes) the labels as probabilities.
        trust: weight of the teacher, in [0, 1]; the labels get the rest.

    Returns:
        (B, classes) probabilities.

    >>> soft_targets(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 1.0]]), trust=0.8)
    tensor([[0.4000, 0.6000]])
    """
    return labels if answers is None else torch.lerp(labels.to(answers.dtype), answers, trust)


def objective(recipe: Recipe, clean: Tensor, adversarial: Tensor, targets: Tensor) -> Tensor:
    """The number to lower, averaged over a batch.

    Args:
        recipe: which objective, and its weights.
        clean: (B, classes) logits of the clean images.
        adversarial: (B, classes) logits of their adversarial versions.
        targets: (B, classes) probabilities that both should get.
    """
    targets = targets.to(clean.dtype)
    if recipe.objective == "trades":
        own = F.log_softmax(clean, dim=1)
        apart = F.kl_div(F.log_softmax(adversarial, dim=1), own, log_target=True, reduction="batchmean")
        return F.cross_entropy(clean, targets) + recipe.strength * apart
    loss = recipe.clean * F.cross_entropy(clean, targets) + (1 - recipe.clean) * F.cross_entropy(adversarial, targets)
    if recipe.objective == "pairing":
        # Kannan et al. (2018): the mean squared difference of the logits; both sides move.
        loss = loss + recipe.strength * (clean - adversarial).square().mean()
    return loss
