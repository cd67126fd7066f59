"""The optimiser of a student."""

from __future__ import annotations

from typing import Any

import torch

from whorl.hardening.settings import Training
from whorl.hardening.student import trainable
from whorl.models.classifier import Classifier


def make_optimizer(student: Classifier, training: Training) -> torch.optim.Optimizer:
    """The optimiser over what may change; weight decay on matrices and kernels alone."""
    parameters = list(trainable(student).values())
    listed: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in listed if group["params"]]
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.rate, momentum=0.9, nesterov=True)
    # A second moment that looks back 100 steps, as a few hundred is all there may be.
    return torch.optim.AdamW(groups, lr=training.rate, betas=(0.9, 0.99))
