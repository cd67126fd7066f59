"""One loop for every gradient attack: [input transform] → gradient → [estimator] → [momentum] → [step, project]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, Crafted, Model, check_finite, network_dtype
from whorl.attacks.norms import NormName, find_norm
from whorl.attacks.objectives import Goal, Loss, LossName, find_loss
from whorl.errors import WhorlError
from whorl.estimators import Estimator, as_estimator, at_step, identity
from whorl.randomness import Ids, image_keys, substream
from whorl.transforms import InputTransform, plain

# Streams of an image's randomness: one for the start, then one for each step.
_START = -1

# On a CPU a larger batch of transformed copies is no faster, only larger.
_CPU_IMAGES_PER_PASS = 32


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientAttack(Attack):
    """Any ε-bounded gradient attack, as a composition of parts.

    Attributes:
        eps: radius of the ball, in units of the [0, 1] range; one number, or one per image.
        steps: gradient steps.
        alpha: step size; None is pace·eps/steps, or eps for a single step.
        pace: how many times eps all steps together reach, where ``alpha`` is None.
        norm: ``"linf"`` or ``"l2"``.
        loss: ``"ce"`` (cross entropy), ``"margin"``, ``"logit"``, ``"relative"``, or a function of logits and labels.
        input: random transform of what the network sees, such as :class:`whorl.DiverseInput`.
        samples: draws of ``input`` whose gradients are averaged in each step.
        estimator: gradient to invariant gradient, such as :class:`whorl.AffineInvariant`; where it has
            ``at(step, steps)``, that is asked for the estimator of each step.
        momentum: decay μ of the accumulated gradient, each normalised by its mean absolute value; 0 is none.
        optimizer: ``"sign"`` takes the norm's steepest step (the sign; for L2 the unit gradient), ``"adam"`` Adam's.
        random_start: whether to start anywhere in the ball instead of at the image.
        early_stop: whether an image rests once the model, as seen in the loop, answers as wanted; it then leaves the
            batch, and the others go on without it.
        chunk: draws per forward pass, None for as many as fit; the result does not depend on it.
        fast: None attacks a frozen ``whorl.Classifier`` with its batch norms folded; on a GPU also an ensemble of them,
            in bfloat16, with the step replayed as one recorded graph. False computes step by step with the network as
            it is. True also lets cuDNN search for its fastest kernels, which the first batch waits for, and which may
            round differently in another process. Other models are attacked as they are.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x, y = torch.rand(2, 3, 5, 5), torch.tensor([0, 3])
    >>> adv = GradientAttack(eps=8 / 255, momentum=1.0)(net, x, y)
    >>> bool((adv - x).abs().max() <= 8 / 255 + 1e-6)
    True
    """

    eps: float | tuple[float, ...] | Tensor = 16 / 255
    steps: int = 10
    alpha: float | None = None
    pace: float = 5.0
    norm: NormName = "linf"
    loss: LossName | Loss = "ce"
    input: InputTransform = plain
    samples: int = 1
    estimator: Estimator = identity
    momentum: float = 0.0
    optimizer: Literal["sign", "adam"] = "sign"
    random_start: bool = False
    early_stop: bool = False
    chunk: int | None = None
    fast: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.eps, float):
            # A tensor in a frozen record could change under it, and has no single truth value to compare by.
            values = torch.as_tensor(self.eps, dtype=torch.float64).tolist()
            object.__setattr__(self, "eps", tuple(values) if isinstance(values, list) else values)
        for eps in self.eps if isinstance(self.eps, tuple) else (self.eps,):
            if not isinstance(eps, float) or not 0 <= eps < float("inf"):
                raise WhorlError(f"eps must be a number >= 0, or one per image; got {self.eps!r}.")
        for name in ("steps", "samples", "chunk"):
            value = getattr(self, name)
            if not (value is None and name == "chunk") and (not isinstance(value, int) or value < 1):
                raise WhorlError(f"{name} must be a whole number >= 1; got {value!r}.")
        if self.alpha is not None and not self.alpha > 0:
            raise WhorlError(f"alpha must be above 0; got {self.alpha}.")
        if not self.pace > 0:
            raise WhorlError(f"pace must be above 0; got {self.pace}.")
        if not self.momentum >= 0:
            raise WhorlError(f"momentum must be >= 0; got {self.momentum}.")
        if self.optimizer not in ("sign", "adam"):
            raise WhorlError(f"optimizer must be 'sign' or 'adam'; got {self.optimizer!r}.")
        if self.fast not in (None, False, True):
            raise WhorlError(f"fast must be True, False or None; got {self.fast!r}.")
        if not callable(self.input):
            raise WhorlError(f"input must be callable on (images, keys), such as DiverseInput(); got {self.input!r}.")
        find_norm(self.norm), find_loss(self.loss), as_estimator(self.estimator)

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Run the loop. Nothing in it waits for the device, unless images are to stop early."""
        random = self.random_start or self.input is not plain
        keys = image_keys(x, seed, ids) if random else torch.zeros_like(goal.labels)
        eps = self._eps_for(x)
        alpha = eps * (1 if self.steps == 1 else self.pace / self.steps) if self.alpha is None else self.alpha
        norm = find_norm(self.norm)
        start = norm.ball(x, eps)(x + norm.random(x, substream(keys, _START), eps)) if self.random_start else x
        batch = UnderAttack(x, start, goal, keys, eps, alpha)
        if self.fast is False:
            made = self.craft_plainly(model, batch)
        else:
            from whorl.attacks.execution import craft_fast, craft_folded  # which need this module

            made = (craft_fast if x.is_cuda else craft_folded)(self, model, batch)
        check_finite(made.finite, ids)
        return Crafted(made.images, grad_evals=made.grad_evals)

    def craft_plainly(self, model: Model, batch: UnderAttack) -> Made:
        """Step by step, with the network as it is."""
        x, adv, goal, keys, eps, alpha = batch
        norm, loss = find_norm(self.norm), find_loss(self.loss)
        adam = Adam() if self.optimizer == "adam" else None
        update = adam or norm.steepest
        gradient = SampledGradient(model, goal, loss, self.input, self.samples, self.chunk)
        project = norm.ball(x, eps)
        velocity = torch.zeros_like(x)
        finite = torch.ones_like(goal.labels, dtype=torch.bool)
        evals = torch.full_like(goal.labels, self.steps * self.samples)
        # Where images may stop early: all of them as they are by now, and the places of those still under attack.
        whole, places = adv, torch.arange(len(x), device=x.device)
        leaving = self.early_stop and by_key_alone(self.input)
        for step in range(self.steps):
            g, reached = gradient(adv, substream(keys, step))
            if leaving:
                finite[places] &= largest(g).isfinite()
                left = ~reached
                if not bool(left.all()):
                    whole, evals = whole.clone(), evals.clone()
                    whole[places] = adv
                    evals[places[reached]] = (step + 1) * self.samples
                    if not bool(left.any()):
                        return Made(whole, finite, evals)
                    batch = UnderAttack(x, adv, goal, keys, eps, alpha).rows(left)
                    x, adv, goal, keys, eps, alpha = batch
                    places, g, velocity = places[left], g[left], velocity[left]
                    gradient.goal, project = goal, norm.ball(x, eps)
                    if adam is not None:
                        adam.keep(left)
            else:
                finite &= largest(g).isfinite()
            g = at_step(self.estimator, step, self.steps)(g)
            if self.momentum:
                g = velocity = self.momentum * velocity + g / mean_size(g)
            moved = project(adv + alpha * update(g))
            resting = self.early_stop and not leaving
            adv = torch.where(reached[:, None, None, None], adv, moved) if resting else moved
        if len(places) < len(whole):
            whole[places] = adv
            adv = whole
        return Made(adv, finite, evals)

    def _eps_for(self, x: Tensor) -> Tensor:
        if isinstance(self.eps, tuple) and len(self.eps) != x.shape[0]:
            raise WhorlError(f"eps must be one number or one per image, {x.shape[0]}; got {len(self.eps)}.")
        eps = torch.tensor(self.eps, dtype=x.dtype, device=x.device)
        return eps.reshape(-1, 1, 1, 1)


class UnderAttack(NamedTuple):
    """A batch and what belongs to each of its images."""

    x: Tensor
    """(B, C, H, W) clean images."""
    start: Tensor
    """(B, C, H, W): where the attack starts, or stands."""
    goal: Goal
    keys: Tensor
    """(B,) int64."""
    eps: Tensor
    """(B or 1, 1, 1, 1)."""
    alpha: Tensor | float
    """Likewise, or one number for all."""

    def rows(self, which: Tensor | slice) -> UnderAttack:
        """Some of the images, by a (B,) mask, indices, or a slice."""

        def each(value: Tensor) -> Tensor:
            return value[which] if len(value) == len(self.x) else value

        goal = Goal(self.goal.labels[which], self.goal.targeted, self.goal.highest)
        alpha = each(self.alpha) if isinstance(self.alpha, Tensor) else self.alpha
        return UnderAttack(self.x[which], self.start[which], goal, self.keys[which], each(self.eps), alpha)


class Made(NamedTuple):
    """What came of a batch: (B, C, H, W) images; (B,) whether all gradients were finite; (B,) gradients spent."""

    images: Tensor
    finite: Tensor
    grad_evals: Tensor


class SampledGradient:
    """The gradient of the objective at a batch, averaged over draws of an input transform.

    Calling it with (B, C, H, W) images and (B,) keys gives the (B, C, H, W) mean gradient, and a (B,) bool: whether the
    first draw's answer is already the wanted one. Nothing in it waits for the device. With ``narrow``, the transform
    sees images of that dtype, and the gradient of a single draw has it too.
    """

    def __init__(
        self,
        model: Model,
        goal: Goal,
        loss: Loss,
        transform: InputTransform,
        samples: int,
        chunk: int | None,
        *,
        narrow: torch.dtype | None = None,
    ) -> None:
        self.model, self.goal, self.loss, self.transform, self.samples = model, goal, loss, transform, samples
        self.chunk, self.narrow = chunk, narrow

    def __call__(self, x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Average over all draws, as many at a time as fit."""
        if self.samples == 1:
            (gradient,), answered = self._draws(x, keys, 0, 1)
            return gradient, answered
        total = torch.zeros_like(x)
        reached: Tensor | None = None
        chunk = self.chunk or self._fitting(x)
        done = 0
        while done < self.samples:
            count = min(chunk, self.samples - done)
            try:
                gradients, now = self._draws(x, keys, done, count)
            except torch.cuda.OutOfMemoryError:
                if self.chunk is not None or count == 1:
                    raise
                chunk = self.fits = max(1, count // 2)
                continue
            # One by one and in order: the sum is then the same whatever the chunk.
            for one in gradients:
                total += one
            reached = now if reached is None else reached
            done += count
        assert reached is not None  # noqa: S101 - samples >= 1, so the loop ran
        return total / self.samples, reached

    fits: int | None = None

    def _fitting(self, x: Tensor) -> int:
        if self.fits is None:
            self.fits = self.samples if x.is_cuda else max(1, _CPU_IMAGES_PER_PASS // x.shape[0])
        return self.fits

    def _draws(self, x: Tensor, keys: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
        here = x.detach().to(self.narrow or x.dtype)
        leaf = (here if count == 1 else here.repeat(count, 1, 1, 1)).requires_grad_()
        draw = torch.arange(first, first + count, device=x.device)
        plainly = self.transform is plain
        seen = leaf if plainly else self.transform(leaf, substream(keys[None, :], draw[:, None]).flatten())
        goal = self.goal.repeat(count)
        objective = torch.zeros_like(goal.labels, dtype=x.dtype)
        logits: Tensor | None = None
        for weight, part in loss_terms(self.model, seen.to(network_dtype(self.model, x))):
            goal.check_classes(part)
            objective = objective + weight * goal.objective(part.to(x.dtype), self.loss)
            logits = weight * part.detach() if logits is None else logits + weight * part.detach()
        assert logits is not None  # noqa: S101 - a model has at least one term
        # A sum over the batch, so that each image's gradient is its own, whatever it is batched with.
        (gradient,) = torch.autograd.grad(objective.sum(), leaf)
        batch = x.shape[0]
        return gradient.reshape(count, *x.shape), self.goal.reached(logits[:batch])


def by_key_alone(transform: InputTransform) -> bool:
    """Whether a transform treats an image the same whatever it is batched with, as the contract has it.

    One that was made for a certain batch, and must see all of it, says so: it has a true ``holds_batch``.
    """
    return not getattr(transform, "holds_batch", False)


def loss_terms(model: Model, x: Tensor) -> list[tuple[float, Tensor]]:
    """Weighted logits whose losses add up to a model's loss: one for a network, several for an ensemble of losses."""
    terms: Callable[[Tensor], list[tuple[float, Tensor]]] | None = getattr(model, "loss_terms", None)
    return [(1.0, model(x))] if terms is None else terms(x)


def mean_size(g: Tensor) -> Tensor:
    """Mean absolute value of each image's gradient, (B, 1, 1, 1), never zero."""
    total: Tensor = torch.linalg.vector_norm(g, ord=1, dim=(1, 2, 3), keepdim=True)
    return (total / g[0].numel()).clamp_min(torch.finfo(g.dtype).tiny)


def largest(g: Tensor) -> Tensor:
    """Largest absolute value of each image's gradient, (B,); NaN or infinite as soon as one value is."""
    flat = g.flatten(1)
    # On a CPU torch finds both ends many times sooner than the infinity norm.
    return torch.maximum(flat.amax(1), -flat.amin(1))


class Adam:
    """Adam's direction (Kingma and Ba), element by element, so that images stay independent."""

    def __init__(self, beta_1: float = 0.9, beta_2: float = 0.999, floor: float = 1e-8) -> None:
        self.beta_1, self.beta_2, self.floor = beta_1, beta_2, floor
        self.steps = 0
        self.mean: Tensor | float = 0.0
        self.square: Tensor | float = 0.0

    def keep(self, which: Tensor) -> None:
        """Go on with some of the images, by a (B,) mask."""
        self.mean, self.square = (v[which] if isinstance(v, Tensor) else v for v in (self.mean, self.square))

    def __call__(self, g: Tensor) -> Tensor:
        """Take in a gradient, give the step of size about 1."""
        self.steps += 1
        self.mean = self.beta_1 * self.mean + (1 - self.beta_1) * g
        self.square = self.beta_2 * self.square + (1 - self.beta_2) * g * g
        mean = self.mean / (1 - self.beta_1**self.steps)
        square = self.square / (1 - self.beta_2**self.steps)
        return mean / (square.sqrt() + self.floor)
