"""The loop of every gradient attack: [input transform] → gradient → [estimator] → [momentum] → [step, project]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model, loss_terms
from whorl.attacks.objectives import Goal, Loss, LossName
from whorl.attacks.step import Step, input_gradient, largest
from whorl.errors import WhorlError, first_line
from whorl.models.prepared.copies import shares, side_by_side
from whorl.models.prepared.fold import alias
from whorl.progress import WORK, count_work
from whorl.randomness import substream
from whorl.transforms import InputTransform, Planned, plain

if TYPE_CHECKING:
    from whorl.attacks.gradient import GradientAttack

# On a CPU a larger batch of transformed copies is no faster, only larger.
_CPU_IMAGES_PER_PASS = 32


class UnderAttack(NamedTuple):
    """A batch and what belongs to each of its images."""

    x: Tensor
    """(B, C, H, W) clean images."""
    start: Tensor
    """(B, C, H, W): where the attack starts."""
    goal: Goal
    keys: Tensor
    """(B,) int64."""
    eps: Tensor
    """(B or 1, 1, 1, 1)."""
    alpha: Tensor | float
    """Likewise, or one number for all."""

    def rows(self, which: slice) -> UnderAttack:
        """Some of the images."""

        def each(value: Tensor) -> Tensor:
            return value[which] if len(value) == len(self.x) else value

        alpha = each(self.alpha) if isinstance(self.alpha, Tensor) else self.alpha
        goal, keys = self.goal.rows(which), self.keys[which]
        return UnderAttack(self.x[which], self.start[which], goal, keys, each(self.eps), alpha)


class Made(NamedTuple):
    """What came of a batch: (B, C, H, W) images; (B,) whether all gradients were finite; (B,) gradients spent."""

    images: Tensor
    finite: Tensor
    grad_evals: Tensor


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A step that was taken: what a listener gets."""

    index: int
    """From 0."""
    of: int
    """Steps of the attack."""
    adv: Tensor
    """(B, C, H, W) images after it."""
    logits: Tensor
    """(B, classes): the model's answer before it, on what it was shown."""


OnStep = Callable[[Taken], None]
"""Called after each step, in the attack's own thread; what it raises ends the attack."""


def run(attack: GradientAttack, model: Model, batch: UnderAttack, *, on_step: OnStep | None = None) -> Made:
    """Attack a batch step by step: the paper's Algorithm 1.

    Args:
        attack: its settings.
        model: in eval mode.
        batch: not empty.
        on_step: called after each step.
    """
    gradient, step = sampled_gradient(attack, model, batch), take_steps(attack, batch.x, batch.eps, batch.alpha)
    state, work = step.start(batch.start), WORK.get()
    for index in range(attack.steps):
        g, logits = gradient(state.adv, batch.keys, index)
        state = step(state._replace(finite=state.finite & logits.isfinite().all(1)), g, index)
        if work is not None:
            work.add(attack.samples, "gradients")
        if on_step is not None:
            on_step(Taken(index=index, of=attack.steps, adv=state.adv, logits=logits))
    return Made(state.adv, state.finite, torch.full_like(batch.goal.labels, attack.steps * attack.samples))


def step_by_step(attack: GradientAttack, model: Model, batch: UnderAttack) -> Made:
    """Attack a batch as :func:`run` does, or as :func:`run_until_reached` where images are to stop early."""
    return (run_until_reached if attack.early_stop else run)(attack, model, batch)


def share_by_share(attack: GradientAttack, source: nn.Module, batch: UnderAttack) -> Made:
    """Attack a batch as :func:`step_by_step` does, on a CPU, in shares side by side.

    Args:
        attack: its settings; its parts are functions of tensors alone, so that several threads may call them.
        source: nobody else's; each share has a copy over the same weights.
        batch: not empty.
    """
    parts = shares(len(batch.x))
    sources = [source, *(alias(source) for _ in parts[1:])]

    def made(place: int) -> Made:
        return step_by_step(attack, sources[place], batch.rows(parts[place]))

    return Made(*(torch.cat(each) for each in zip(*side_by_side(made, len(parts)), strict=True)))


def run_until_reached(attack: GradientAttack, model: Model, batch: UnderAttack) -> Made:
    """Attack a batch as :func:`run` does, but let an image rest once the model answers as wanted.

    It then leaves the batch, and the others go on without it. The arguments are those of :func:`run`.
    """
    gradient, step = sampled_gradient(attack, model, batch), take_steps(attack, batch.x, batch.eps, batch.alpha)
    state, keys = step.start(batch.start), batch.keys
    images = batch.start.clone()
    finite = torch.ones_like(batch.goal.labels, dtype=torch.bool)
    evals = torch.full_like(batch.goal.labels, attack.steps * attack.samples)
    places = torch.arange(len(images), device=images.device)  # of those still under attack
    for index in range(attack.steps):
        g, logits = gradient(state.adv, keys, index)
        left = ~gradient.goal.reached(logits)
        # Here too: who answers NaN reaches any goal, and an image that leaves takes no further step.
        state = state._replace(finite=state.finite & largest(g).isfinite() & logits.isfinite().all(1))
        if not bool(left.all()):
            images[places], finite[places] = state.adv, state.finite
            evals[places[~left]] = (index + 1) * attack.samples
            if not bool(left.any()):
                return Made(images, finite, evals)
            state = step.keep(state, left)
            places, keys, g, gradient.goal = places[left], keys[left], g[left], gradient.goal.rows(left)
        state = step(state, g, index)
        count_work(attack.samples, "gradients")
    images[places], finite[places] = state.adv, state.finite
    return Made(images, finite, evals)


def take_steps(attack: GradientAttack, x: Tensor, eps: Tensor, alpha: Tensor | float) -> Step:
    """The step of an attack on clean images, with a radius and a step size each."""
    return Step(
        x,
        eps,
        alpha,
        steps=attack.steps,
        estimator=attack.bound_estimator,
        momentum=attack.momentum,
        norm=attack.norm,
        optimizer=attack.optimizer,
        cooling=attack.cooling,
    )


def sampled_gradient(attack: GradientAttack, model: Model, batch: UnderAttack) -> SampledGradient:
    """The gradient that an attack follows on a batch."""
    transform = planned_input(attack, batch.keys)
    return SampledGradient(model, batch.goal, attack.loss, transform, attack.samples, attack.chunk)


def planned_input(attack: GradientAttack, keys: Tensor) -> InputTransform:
    """An attack's input transform, told of all the draws that are coming for images of these keys, (B,)."""
    if not isinstance(attack.input, Planned):
        return attack.input
    # The keys that the loop will hand over: of the image, then the step, then the draw.
    steps = torch.arange(attack.steps, device=keys.device)[:, None, None]
    draws = torch.arange(attack.samples, device=keys.device)[None, :, None]
    return attack.input.plan(substream(keys[None, None, :], steps, draws).flatten(0, 1))


class SampledGradient:
    """The gradient of the objective at a batch, averaged over draws of an input transform.

    Calling it with (B, C, H, W) images, (B,) keys and the number of the step gives the (B, C, H, W) mean gradient, and
    the (B, classes) logits of the first draw. Nothing in it waits for the device. With ``narrow``, the transform sees
    images of that dtype, and the gradient of a single draw has it too.
    """

    fits: int | None = None
    """Draws that fit into memory together, once that is known."""

    def __init__(
        self,
        model: Model,
        goal: Goal,
        loss: LossName | Loss,
        transform: InputTransform,
        samples: int,
        chunk: int | None,
        *,
        narrow: torch.dtype | None = None,
    ) -> None:
        self.model, self.goal, self.loss, self.transform, self.samples = model, goal, loss, transform, samples
        self.chunk, self.narrow = chunk, narrow

    def __call__(self, x: Tensor, keys: Tensor, *path: int | Tensor) -> tuple[Tensor, Tensor]:
        """Average over all draws, as many at a time as fit; ``path`` names the stream of ``keys``, such as the step."""
        if self.samples == 1:
            (gradient,), logits = self._draws(x, keys, path, 0, 1)
            return gradient, logits
        total = torch.zeros_like(x)
        answered: Tensor | None = None
        chunk = self.chunk or self._fitting(x)
        done = 0
        while done < self.samples:
            count = min(chunk, self.samples - done)
            try:
                gradients, logits = self._draws(x, keys, path, done, count)
            except torch.cuda.OutOfMemoryError:
                if self.chunk is not None or count == 1:
                    raise
                chunk = self.fits = max(1, count // 2)
                continue
            # One by one and in order: the sum is then the same whatever the chunk.
            for one in gradients:
                total += one
            answered = logits if answered is None else answered
            done += count
        assert answered is not None  # noqa: S101 - samples >= 1, so the loop ran
        return total / self.samples, answered

    def _fitting(self, x: Tensor) -> int:
        if self.fits is None:
            self.fits = self.samples if x.is_cuda else max(1, _CPU_IMAGES_PER_PASS // x.shape[0])
        return self.fits

    def _draws(
        self, x: Tensor, keys: Tensor, path: tuple[int | Tensor, ...], first: int, count: int
    ) -> tuple[Tensor, Tensor]:
        here = x.detach().to(self.narrow or x.dtype)
        leaf = (here if count == 1 else here.repeat(count, 1, 1, 1)).requires_grad_()
        draws = range(first, first + count)
        seen = leaf if self.transform is plain else self._shown(leaf, keys, path, draws)
        goal = self.goal if count == 1 else self.goal.repeat(count)
        objective = torch.zeros_like(goal.labels, dtype=x.dtype)
        logits: Tensor | None = None
        for weight, part in loss_terms(self.model, seen):
            goal.check_classes(part)
            objective = objective + weight * goal.objective(part.to(x.dtype), self.loss)
            logits = weight * part.detach() if logits is None else logits + weight * part.detach()
        assert logits is not None  # noqa: S101 - a model has at least one term
        # A sum over the batch, so that each image's gradient is its own, whatever it is batched with.
        gradient = input_gradient(objective, leaf)
        batch = x.shape[0]
        return gradient.reshape(count, *x.shape), logits[:batch]

    def _shown(self, x: Tensor, keys: Tensor, path: tuple[int | Tensor, ...], draws: range) -> Tensor:
        """What the input transform makes of images: anyone's code, so what comes of it is checked.

        Args:
            x: (draws · B, C, H, W).
            keys: (B,).
            path: as of calls.
            draws: their numbers.

        Raises:
            WhorlError: it failed, but for want of GPU memory, or returned something else than as many images.
        """
        place = torch.arange(draws.start, draws.stop, device=x.device)
        try:
            seen = self.transform(x, substream(keys[None, :], *path, place[:, None]).flatten())
        except (WhorlError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # an input transform is anyone's code
            raise WhorlError(
                f"the input transform failed on images of shape {tuple(x.shape)}: {first_line(error)}."
            ) from error
        images = isinstance(seen, Tensor) and seen.dim() == 4 and seen.is_floating_point()
        if not images or seen.shape[:2] != x.shape[:2]:
            came = f"{seen.dtype} of shape {tuple(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__
            expected = f"({x.shape[0]}, {x.shape[1]}, H, W)"
            raise WhorlError(f"an input transform must return floating images of shape {expected}; got {came}.")
        return seen
