"""Adversarial images for the student to learn from, made within a training step.

The gradient and the step of :mod:`whorl.attacks`, without its checks: those look at values, which makes a device wait,
and a radius for each image has to stay on the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.contract import Model
from whorl.attacks.loop import SampledGradient
from whorl.attacks.objectives import Goal, cross_entropy
from whorl.attacks.step import Step
from whorl.hardening.recipes import Examples, Kind, Recipe
from whorl.progress import count_work
from whorl.randomness import substream, uniform

STUDENT = "student"
_RADIUS, _START, _STEP = 0, 1, 2


def perturb(
    kind: Examples,
    maker: Model,
    x: Tensor,
    y: Tensor,
    keys: Tensor,
    *,
    growth: float | Tensor = 1.0,
    like: Tensor | None = None,
) -> Tensor:
    """Make adversarial versions of a batch.

    Args:
        kind: how.
        maker: network whose gradient is followed, (B, C, H, W) in [0, 1] to logits.
        x: (B, C, H, W) in [0, 1].
        y: (B,) true labels.
        keys: (B,) int64, one an image and step of the training.
        growth: factor on every radius; a number, or a () tensor on the device.
        like: (B, classes) log-probabilities to leave, where the kind's loss is ``"kl"``.

    Returns:
        (B, C, H, W) in [0, 1], within each image's radius.
    """
    low, high = kind.eps
    eps = (uniform(substream(keys, _RADIUS), (1, 1, 1), low, high) * growth).to(x.dtype)
    alpha = eps * (kind.reach / kind.steps)

    def leave(logits: Tensor, labels: Tensor) -> Tensor:
        if kind.loss == "ce" or like is None:
            return cross_entropy(logits, labels)
        return F.kl_div(F.log_softmax(logits, dim=1), like, log_target=True, reduction="none").sum(1)

    goal = Goal(y, False, 0)  # labels were checked against the classes before the training
    gradient = SampledGradient(maker, goal, leave, kind.input, 1, None)
    step = Step(x, eps, alpha, steps=kind.steps, estimator=kind.estimator, momentum=kind.momentum)
    start = x
    # KL to the student's own answer has no slope at the image itself.
    if kind.random_start:
        start = step.project(x + step.norm.random(x, substream(keys, _START), eps))
    state = step.start(start)
    for index in range(kind.steps):
        g, _ = gradient(state.adv, keys, _STEP, index)
        state = step(state, g, index)
    return state.adv.detach()


@dataclass(frozen=True, eq=False)
class Group:
    """Places of a batch whose images are made alike: (n,) local indices, by which network, and how."""

    places: Tensor
    maker: str
    kind: Kind


def assign(recipe: Recipe, pool: Sequence[str], *, first: int, count: int, device: torch.device) -> list[Group]:
    """Deal the places of a batch out to the recipe's kinds and their makers, in turn.

    Which place gets what depends on its number in the whole batch alone, so that several processes that share a batch
    do what one would.

    Args:
        recipe: the kinds.
        pool: names of the static networks.
        first: number of this process's first place in the whole batch.
        count: how many places it has.
        device: where to keep the indices.

    >>> from whorl.hardening.recipes import recipe
    >>> groups = assign(recipe("ens-at"), ["a", "b"], first=0, count=7, device=torch.device("cpu"))
    >>> [(group.maker, group.places.tolist()) for group in groups]
    [('a', [0, 3, 6]), ('b', [1, 4]), ('student', [2, 5])]
    """
    makers = {"pool": [*pool], "student": [STUDENT], "both": [*pool, STUDENT]}
    rounds = math.lcm(*(len(makers[kind.makers]) for kind in recipe.examples))
    slots = [
        (makers[kind.makers][turn % len(makers[kind.makers])], kind)
        for turn in range(rounds)
        for kind in recipe.examples
        for _ in range(kind.weight)
    ]
    groups = []
    for maker, kind in dict.fromkeys(slots):
        places = [i for i in range(count) if slots[(first + i) % len(slots)] == (maker, kind)]
        if places:
            groups.append(Group(torch.tensor(places, device=device), maker, kind))
    return groups


def make(
    groups: Sequence[Group],
    makers: Mapping[str, Model],
    x: Tensor,
    y: Tensor,
    keys: Tensor,
    *,
    growth: float | Tensor = 1.0,
    like: Tensor | None = None,
) -> Tensor:
    """Make the adversarial versions of a batch, group by group; what is crafted ahead stays as it is for now.

    Args:
        groups: from :func:`assign`.
        makers: name to network; the student under :data:`STUDENT`.
        x: (B, C, H, W) in [0, 1].
        y: (B,) true labels.
        keys: (B,) int64.
        growth: factor on every radius; a number, or a () tensor on the device.
        like: as in :func:`perturb`.
    """
    out = x.clone()
    for group in groups:
        part = group.places
        if isinstance(group.kind, Examples):
            own = None if like is None else like[part]
            out[part] = perturb(group.kind, makers[group.maker], x[part], y[part], keys[part], growth=growth, like=own)
        count_work(len(part), "examples")
    return out
