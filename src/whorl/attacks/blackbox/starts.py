"""Where a black-box attack starts: at the image, anywhere in the ball, or where a transfer attack got to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, Model, check_images
from whorl.attacks.norms import Norm
from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError
from whorl.randomness import Ids

# Images that went through float32 arithmetic stray this far from the ball, and are put back; 8-bit steps are 0.004.
_TOLERANCE = 1e-4
_HALF_LEVEL = 0.5 / 255


@runtime_checkable
class Start(Protocol):
    """Start images that are kept elsewhere, such as in a folder: :class:`whorl.data.StartFolder`."""

    def load(self, x: Tensor, ids: Ids, /) -> Tensor:
        """The starts of (B, C, H, W) images by their ids: same shape, device and dtype; 8-bit levels will do."""
        ...


Init = Annotated[
    Attack | Start | Tensor | Literal["random"] | None,
    "an attack, a tensor of start images, whorl.data.StartFolder(path) for a folder of them, 'random' or None",
]
Given = Attack | Start | Tensor
"""A start that is made or read, rather than drawn."""


def given_start(
    init: Given, surrogate: Model | None, x: Tensor, goal: Goal, *, seed: int, ids: Ids
) -> tuple[Tensor, Tensor]:
    """The images that ``init`` stands for, and the (B,) int64 surrogate gradients they cost."""
    none = torch.zeros_like(goal.labels)
    if isinstance(init, Start):
        return init.load(x, ids), none
    if isinstance(init, Tensor):
        if init.shape != x.shape:
            raise WhorlError(f"init must hold one start per image, {tuple(x.shape)}; got {tuple(init.shape)}.")
        return check_images(init).to(x), none
    if surrogate is None:
        raise WhorlError("an attack as init needs surrogate=, the model or ensemble to craft it on; got none.")
    y, target = (None, goal.labels) if goal.targeted else (goal.labels, None)
    adv, info = init(surrogate, x, y, target=target, seed=seed, ids=ids, return_info=True)
    return adv, none if info.grad_evals is None else info.grad_evals


def slack(init: Init, x: Tensor, norm: Norm) -> float:
    """How far outside the ball a start may lie for no fault of its own; it is then put back."""
    if not isinstance(init, Start):
        return _TOLERANCE
    # They may hold 8 bits: where eps is no whole number of levels, rounding alone may leave the ball by half a level.
    return _TOLERANCE + _HALF_LEVEL * (math.sqrt(x[0].numel()) if norm.name == "l2" else 1.0)


def check_in_ball(start: Tensor, x: Tensor, norm: Norm, eps: float, ids: Ids, *, slack: float) -> None:
    """Refuse a start that lies further than ``eps`` and a ``slack`` from its image."""
    size = norm.size(start - x)
    worst = int(size.argmax())
    if float(size[worst]) > eps * (1 + _TOLERANCE) + slack:
        names: Sequence[object] | Tensor = range(len(x)) if ids is None else ids
        raise WhorlError(
            f"a start must lie in the ball of {norm.name} radius {eps:.4g} around its image; got "
            f"{float(size[worst]):.4g} for image {names[worst]}. Give both attacks the same eps and norm."
        )
