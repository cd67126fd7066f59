"""Parts tried for stronger attacks: turns of two transforms, rules for a source's backward pass, cooled steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.attacks.contract import Crafted, Model, check_finite
from whorl.attacks.loop import OnStep, SampledGradient
from whorl.attacks.objectives import Goal, find_loss, tempered
from whorl.attacks.step import State, Step
from whorl.attacks.transfer import TransferAttack
from whorl.models import backward as shipped
from whorl.models.backward import Backward
from whorl.models.prepared.fold import alias
from whorl.randomness import Ids, image_keys, substream, uniform
from whorl.records import NotNegative, Positive, Record, Share
from whorl.transforms import InputTransform, SpreadAffine
from whorl.transforms.mixed import planned
from whorl.transforms.spread import Lookup, PlannedAffine


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
# The source's backward pass


@dataclass(frozen=True, kw_only=True, repr=False)
class Rules(Backward):
    """More rules for the backward pass.

    Attributes:
        relative: whether ``rectifier`` counts in units of one over the standard deviation of each rectifier's input on
            the first image, instead of absolutely: networks differ tenfold in the size of their activations.
        join: factor on the gradient of a concatenated branch for each convolution by which it is deeper than the
            shallowest branch beside it.
        flat: ``join`` once for every deeper branch, whatever its depth.
        pool: share of max pooling's gradient that goes to all of a window.
        early: share of the residual branches, from the first on, that are left alone.
    """

    relative: bool = False
    join: Positive = 1.0
    flat: bool = False
    pool: Share = 0.0
    early: Share = 0.0

    def _changed(self, model: nn.Module, x: Tensor) -> nn.Module:
        # The same rules are wanted at every eps in turn.
        if (id(model), self) not in _LATEST:
            _LATEST.clear()
            _LATEST[id(model), self] = self._made(model, x)
        return _LATEST[id(model), self]

    def _made(self, model: nn.Module, x: Tensor) -> nn.Module:
        changed = alias(model)
        rectifiers = [module for module in changed.modules() if isinstance(module, shipped._RECTIFIERS)]
        late = rectifiers[round(self.late * len(rectifiers)) :] if self.rectifier is not None else []
        spreads = _spreads(changed, late, x) if self.relative else {}
        branches = shipped.residual_branches(changed, x) if self.skip < 1 else ()
        joins = joined_branches(changed, x) if self.join != 1 else ()
        for rectifier in late:
            assert self.rectifier is not None  # for mypy
            rectifier.inplace = False
            shipped._hook(rectifier, shipped._on_rectifier(rectifier, self.rectifier / spreads.get(rectifier, 1.0)))
        # After the rectifiers: a branch may end in one, whose hook replaces its output.
        for branch in branches[round(self.early * len(branches)) :]:
            shipped._hook(branch, shipped._on_branch(self.skip))
        for branch, deeper in joins:
            if deeper:
                shipped._hook(branch, shipped._on_branch(self.join ** (1 if self.flat else deeper)))
        if self.pool:
            for module in changed.modules():
                if isinstance(module, nn.MaxPool2d):
                    shipped._hook(module, _shared_pool(module, self.pool))
        return changed


_LATEST: dict[tuple[int, Rules], nn.Module] = {}


def _spreads(model: nn.Module, rectifiers: Sequence[nn.Module], x: Tensor) -> dict[nn.Module, float]:
    """Standard deviation of each rectifier's input on the first image."""
    found: dict[nn.Module, Tensor] = {}

    def see(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        found[module] = given[0].float().std().clamp_min(1e-6)

    hooks = [module.register_forward_pre_hook(see) for module in rectifiers]
    with torch.no_grad():
        model(x[:1])
    for hook in hooks:
        hook.remove()
    modules = list(found)
    return dict(zip(modules, torch.stack([found[m] for m in modules]).tolist(), strict=True)) if modules else {}


def _shared_pool(module: nn.MaxPool2d, share: float) -> Any:
    def change(out: Tensor, given: tuple[Tensor, ...]) -> Tensor:
        soft = F.avg_pool2d(given[0], module.kernel_size, module.stride, module.padding, module.ceil_mode)
        return out.detach() + (1 - share) * (out - out.detach()) + share * (soft - soft.detach())

    return change


class _Joins(shipped._Watch):
    """Sees every concatenation of activations."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.joins: list[list[Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("cat", "concat", "concatenate") and args:
            parts = list(args[0])
            if len(parts) > 1 and all(shipped._activation(part) for part in parts):
                self.joins.append([part.grad_fn for part in parts])
        return func(*args, **(kwargs or {}))


def joined_branches(model: nn.Module, x: Tensor) -> tuple[tuple[nn.Module, int], ...]:
    """Find branches that are concatenated.

    Returns:
        For each, the module whose output it is, and by how many convolutions it is deeper than the shallowest one
        beside it.
    """
    watch = _Joins(model)
    with torch.enable_grad(), watch:
        model(x[:1].detach().clone().requires_grad_() * 1)
    watch.remove()
    found = []
    for nodes in watch.joins:
        before = [shipped._ancestors(node) for node in nodes]
        common = set.intersection(*before)
        if not common:
            continue
        depths = [sum("Convolution" in node.name() for node in own - common) for own in before]
        for node, depth in zip(nodes, depths, strict=True):
            once = [module for module in watch.made.get(node, ()) if watch.calls[module] == 1]
            if once:
                found.append((once[0], depth - min(depths)))
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------------
# Losses and the loop


def calibrated(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of logits divided by the gap between the two highest (Weng et al., 2023)."""
    top = logits.detach().topk(2, dim=1).values
    return F.cross_entropy(logits / (top[:, :1] - top[:, 1:]).clamp_min(1e-3), labels, reduction="none")


class _CooledStep(Step):
    """A step whose size shrinks geometrically, and whose direction may leave faint pixels behind."""

    cooling: float = 1.0
    soft: float = 0.0

    def __call__(self, state: State, gradient: Tensor, index: int) -> State:
        full = self.alpha
        self.alpha = full * self.cooling ** (index / max(1, self.steps - 1))
        try:
            return super().__call__(state, gradient, index)
        finally:
            self.alpha = full

    def soften(self) -> None:
        if self.soft:
            self.update = lambda g: (g / (self.soft * g.abs().mean((1, 2, 3), keepdim=True))).clamp(-1, 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchedAttack(TransferAttack):
    """:class:`TransferAttack` on a GPU in bfloat16, with steps that cool.

    Attributes:
        cooling: the last step's size as a share of the first's.
        soft: above 0, a pixel whose accumulated gradient is less than so many times the image's mean moves less.
    """

    cooling: Positive = 1.0
    soft: NotNegative = 0.0

    def craft(
        self,
        model: Model,
        x: Tensor,
        goal: Goal,
        *,
        seed: int,
        ids: Ids,
        on_step: OnStep | None = None,  # noqa: ARG002 - nobody listens to a search
    ) -> Crafted:
        """Step by step."""
        eps = self.radius(x)
        keys = image_keys(x, seed, ids)
        loss = find_loss(self.loss) if self.temperature == 1 else tempered(find_loss(self.loss), self.temperature)
        half = torch.autocast("cuda", torch.bfloat16) if x.is_cuda else nullcontext()
        step = _CooledStep(
            x, eps, eps * (self.pace / self.steps), steps=self.steps, estimator=self.estimator, momentum=self.momentum
        )
        step.cooling, step.soft = self.cooling, self.soft
        step.soften()
        with self.backward.applied(model, x) as changed:
            gradient = SampledGradient(changed, goal, loss, self._planned(x, seed, ids), self.samples, self.chunk)
            state = step.start(x)
            for index in range(self.steps):
                with half:
                    g, _ = gradient(state.adv, keys, index)
                state = step(state, g, index)
        check_finite(state.finite, ids)
        return Crafted(state.adv, grad_evals=torch.full_like(goal.labels, self.steps * self.samples))
