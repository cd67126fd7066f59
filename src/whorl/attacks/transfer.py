"""The common loop, on a source that is changed while it is attacked, with planned draws."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from whorl.attacks.contract import Crafted, Model
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.loop import OnStep
from whorl.attacks.norms import find_norm
from whorl.attacks.objectives import Goal, find_loss, tempered
from whorl.models.backward import Backward
from whorl.randomness import Ids, image_keys, substream
from whorl.records import Positive
from whorl.transforms import InputTransform, Planned

_UNCHANGED = Backward()


@dataclass(frozen=True, kw_only=True, repr=False)
class TransferAttack(GradientAttack):
    """A gradient attack made for networks that it does not see: :class:`GradientAttack` with more settings.

    Attributes:
        backward: changes to the source's backward pass while it is attacked.
        temperature: divides the logits before the loss; above 1 the gradient speaks of more classes.
        overshoot: the loop moves in a ball this many times as large; its result is projected into the ball of ``eps``.

    An input transform that plans its draws, such as :class:`whorl.transforms.SpreadAffine`, is told of all of
    them at once.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x, y = torch.rand(2, 3, 5, 5), torch.tensor([0, 3])
    >>> adv, info = TransferAttack(momentum=1.0, temperature=3.0, overshoot=1.5)(net, x, y, return_info=True)
    >>> bool((adv - x).abs().max() <= 16 / 255 + 1e-6), info.grad_evals.tolist()
    (True, [10, 10])
    """

    backward: Backward = _UNCHANGED
    temperature: Positive = 1.0
    overshoot: Positive = 1.0

    def craft(
        self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids, on_step: OnStep | None = None
    ) -> Crafted:
        """Run the common loop with what these settings amount to."""
        plain = GradientAttack(**{f.name: getattr(self, f.name) for f in fields(GradientAttack)})
        most = 1.0 if self.norm == "linf" else float("inf")  # nothing lies beyond the range of a pixel
        eps = plain.eps if self.overshoot == 1 else _times(plain.eps, self.overshoot, most)
        loss = self.loss if self.temperature == 1 else tempered(find_loss(self.loss), self.temperature)
        with self.backward.applied(model, x) as changed:
            planned = replace(plain, input=self._planned(x, seed, ids), eps=eps, loss=loss)
            made = planned.craft(changed, x, goal, seed=seed, ids=ids, on_step=on_step)
        if self.overshoot == 1:
            return made
        return replace(made, images=find_norm(self.norm).ball(x, plain.radius(x))(made.images))

    def _planned(self, x: Tensor, seed: int, ids: Ids) -> InputTransform:
        if not isinstance(self.input, Planned):
            return self.input
        # The keys that the loop will hand over: of the image, then the step, then the draw.
        steps = torch.arange(self.steps, device=x.device)[:, None, None]
        draws = torch.arange(self.samples, device=x.device)[None, :, None]
        table = substream(image_keys(x, seed, ids)[None, None, :], steps, draws)
        return self.input.plan(table.flatten(0, 1))


def _times(eps: float | tuple[float, ...] | Tensor, factor: float, most: float) -> float | tuple[float, ...]:
    if isinstance(eps, tuple):
        return tuple(min(value * factor, most) for value in eps)
    return min(float(eps) * factor, most)
