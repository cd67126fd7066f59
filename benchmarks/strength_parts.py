"""Parts that were tried for stronger attacks and are not in whorl: turns of two transforms, further rules, a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.attacks.contract import Crafted, Model
from whorl.attacks.loop import OnStep
from whorl.attacks.objectives import Goal
from whorl.attacks.transfer import TransferAttack
from whorl.models.backward import Backward, Sites
from whorl.models.branches import Structure
from whorl.randomness import Ids, substream, uniform
from whorl.records import NotNegative, Record, Share
from whorl.transforms import InputTransform, SpreadAffine
from whorl.transforms.spread import Lookup, PlannedAffine, planned


@dataclass(frozen=True, kw_only=True, repr=False)
class Interleaved(Record):
    """Two transforms take turns over the draws of an attack, for all images alike.

    Attributes:
        far: what most draws are.
        near: what the others are.
        pattern: for each draw of the attack whether it is a near one; repeated where there are more draws.
    """

    far: InputTransform
    near: InputTransform
    pattern: tuple[bool, ...]

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images outside an attack: far."""
        return self.far(x, substream(keys, 0))

    def plan(self, table: Tensor) -> InputTransform:
        """Take turns by the rows of ``table``, (draws, B); each part's own draws come first in its plan."""
        draws = len(table)
        near = torch.tensor([self.pattern[i % len(self.pattern)] for i in range(draws)], device=table.device)
        far_first, near_first = near.to(torch.int8).argsort(stable=True), (~near).to(torch.int8).argsort(stable=True)
        far = planned(self.far, substream(table[far_first], 0))
        close = planned(self.near, substream(table[near_first], 1))
        lookup, batch = Lookup(table), table.shape[1]

        def turn(x: Tensor, keys: Tensor) -> Tensor:
            which = near[lookup(keys) // batch][:, None, None, None]
            return torch.where(which, close(x, substream(keys, 1)), far(x, substream(keys, 0)))

        return turn


@dataclass(frozen=True, kw_only=True, repr=False)
class NarrowedAffine(SpreadAffine):
    """Poses that come closer to the image as it is, from draw to draw.

    Attributes:
        last: what is left of the ranges in the last draw.
    """

    last: Share = 0.3

    def plan(self, table: Tensor) -> InputTransform:
        """Narrow the points that :class:`SpreadAffine` plans."""
        plan = super().plan(table)
        assert isinstance(plan, PlannedAffine)  # for mypy
        low, high = self.scale
        neutral = plan.points.new_tensor([0.5, min(1.0, max(0.0, (1 - low) / (high - low))), 0.5, 0.5])
        reach = torch.linspace(1, self.last, len(table), device=table.device)
        points = plan.points.unflatten(0, table.shape)
        plan.points = (neutral + reach[:, None, None] * (points - neutral)).flatten(0, 1)
        return plan


@dataclass(frozen=True, kw_only=True, repr=False)
class Neighbour(Record):
    """A random neighbour of the image, uniform in a cube (as variance tuning samples them).

    Attributes:
        radius: half of the cube's side, in units of the [0, 1] range.
    """

    radius: NotNegative = 16 / 255

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Disturb (B, C, H, W) images."""
        return x + uniform(keys, tuple(x.shape[1:]), -self.radius, self.radius).to(x.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# What is done with the result


@dataclass(frozen=True, kw_only=True, repr=False)
class Cornered(TransferAttack):
    """Pixels that end inside the ball, but on one side of it, go on to its surface.

    Attributes:
        corner: from which share of the radius on; 1 changes nothing.
    """

    corner: Share = 1.0

    def craft(
        self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids, on_step: OnStep | None = None
    ) -> Crafted:
        """Run the common loop, then move what is to be moved."""
        made = super().craft(model, x, goal, seed=seed, ids=ids, on_step=on_step)
        if self.corner == 1:
            return made
        moved, radius = made.images - x, self.radius(x)
        far = torch.where(moved.abs() >= self.corner * radius, moved.sign() * radius, moved)
        return replace(made, images=(x + far).clamp(0, 1))


# ---------------------------------------------------------------------------------------------------------------------
# The source's backward pass


@dataclass(frozen=True, kw_only=True, repr=False)
class Rules(Backward):
    """More rules for the backward pass.

    Attributes:
        flat: ``join`` once for every deeper branch, whatever its depth.
        early: share of the residual branches, from the first on, that are left alone.
    """

    flat: bool = False
    early: Share = 0.0

    def found(self, model: nn.Module, seen: Tensor, shown: Structure) -> Sites:
        """Where these numbers apply in a network."""
        residual = shown.residual[round(self.early * len(shown.residual)) :]
        joined = (
            tuple(each._replace(deeper=min(each.deeper, 1)) for each in shown.joined) if self.flat else shown.joined
        )
        return super().found(model, seen, shown._replace(residual=residual, joined=joined))


# ---------------------------------------------------------------------------------------------------------------------
# Losses


def calibrated(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of logits divided by the gap between the two highest (Weng et al., 2023)."""
    top = logits.detach().topk(2, dim=1).values
    return F.cross_entropy(logits / (top[:, :1] - top[:, 1:]).clamp_min(1e-3), labels, reduction="none")
