"""The common loop, on a source that is changed while it is attacked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from torch import Tensor

from whorl.attacks.contract import Crafted, Model
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.loop import OnStep
from whorl.attacks.norms import find_norm
from whorl.attacks.objectives import Goal, find_loss, tempered
from whorl.models.backward import UNCHANGED, BackwardRule
from whorl.randomness import Ids
from whorl.records import Positive


@dataclass(frozen=True, kw_only=True, repr=False)
class TransferAttack(GradientAttack):
    """A gradient attack made for networks that it does not see: :class:`GradientAttack` with more settings.

    Attributes:
        backward: changes to the source's backward pass while it is attacked: a :class:`whorl.models.backward.Backward`,
            or :class:`whorl.models.families.ByFamily`.
        temperature: divides the logits before the loss; above 1 the gradient speaks of more classes.
        overshoot: the loop moves in a ball this many times as large; its result is projected into the ball of ``eps``.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x, y = torch.rand(2, 3, 5, 5), torch.tensor([0, 3])
    >>> adv, info = TransferAttack(momentum=1.0, temperature=3.0, overshoot=1.5)(net, x, y, return_info=True)
    >>> bool((adv - x).abs().max() <= 16 / 255 + 1e-6), info.grad_evals.tolist()
    (True, [10, 10])
    """

    backward: BackwardRule = UNCHANGED
    temperature: Positive = 1.0
    overshoot: Positive = 1.0

    @property
    def source_backward(self) -> BackwardRule:
        """How the source's backward pass is changed."""
        return self.backward

    def changed(self, model: Model, x: Tensor) -> AbstractContextManager[Model]:
        """A copy of a source that is changed by hooks."""
        return self.backward.applied(model, x)

    def craft(
        self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids, on_step: OnStep | None = None
    ) -> Crafted:
        """Run the common loop with what these settings amount to."""
        most = 1.0 if self.norm == "linf" else float("inf")  # nothing lies beyond the range of a pixel
        eps = self.eps if self.overshoot == 1 else _times(self.eps, self.overshoot, most)
        loss = self.loss if self.temperature == 1 else tempered(find_loss(self.loss), self.temperature)
        plain = replace(self, eps=eps, loss=loss, temperature=1.0, overshoot=1.0)
        made = super(TransferAttack, plain).craft(model, x, goal, seed=seed, ids=ids, on_step=on_step)
        if self.overshoot == 1:
            return made
        return replace(made, images=find_norm(self.norm).ball(x, self.radius(x))(made.images))


def _times(eps: float | tuple[float, ...] | Tensor, factor: float, most: float) -> float | tuple[float, ...]:
    if isinstance(eps, tuple):
        return tuple(min(value * factor, most) for value in eps)
    return min(float(eps) * factor, most)
