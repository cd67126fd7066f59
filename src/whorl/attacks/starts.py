"""Where a black-box attack starts: at the image, anywhere in the ball, or where a transfer attack got to."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, Model, check_images
from whorl.attacks.norms import Norm
from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError
from whorl.randomness import Ids

Init = Attack | Tensor | Literal["random"] | None

# Images that went through float32 arithmetic stray this far from the ball, and are put back; 8-bit steps are 0.004.
_TOLERANCE = 1e-4


def check_init(init: Init) -> None:
    """Refuse what cannot be a start."""
    if not (init is None or isinstance(init, Attack | Tensor) or init == "random"):
        raise WhorlError(f"init must be an attack, a tensor of start images, 'random' or None; got {init!r}.")


def given_start(
    init: Attack | Tensor, surrogate: Model | None, x: Tensor, goal: Goal, *, seed: int, ids: Ids
) -> tuple[Tensor, Tensor]:
    """The images that ``init`` stands for, and the (B,) int64 surrogate gradients they cost."""
    none = torch.zeros_like(goal.labels)
    if isinstance(init, Tensor):
        if init.shape != x.shape:
            raise WhorlError(f"init must hold one start per image, {tuple(x.shape)}; got {tuple(init.shape)}.")
        return check_images(init).to(x), none
    if surrogate is None:
        raise WhorlError("an attack as init needs surrogate=, the model or ensemble to craft it on; got none.")
    y, target = (None, goal.labels) if goal.targeted else (goal.labels, None)
    adv, info = init(surrogate, x, y, target=target, seed=seed, ids=ids, return_info=True)
    return adv, none if info.grad_evals is None else info.grad_evals


def check_in_ball(start: Tensor, x: Tensor, norm: Norm, eps: float, ids: Ids) -> None:
    """Refuse a start that lies further than ``eps`` from its image."""
    size = norm.size(start - x)
    worst = int(size.argmax())
    if float(size[worst]) > eps * (1 + _TOLERANCE) + _TOLERANCE:
        name = worst if ids is None else ids[worst]
        raise WhorlError(
            f"a start must lie in the ball of {norm.name} radius {eps:.4g} around its image; got "
            f"{float(size[worst]):.4g} for image {name}. Give both attacks the same eps and norm."
        )
