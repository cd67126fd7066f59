"""One step of a gradient attack: estimator → momentum → update → projection. Every loop takes it, training too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl.attacks.norms import NormName, find_norm, mean_size
from whorl.errors import WhorlError, first_line
from whorl.estimators import Estimator, at_step, identity

Optimizer = Literal["sign", "adam"]


class State(NamedTuple):
    """Where an attack stands; images and gradients are (B, C, H, W)."""

    adv: Tensor
    """The adversarial images so far."""
    velocity: Tensor
    """The accumulated gradient; zeros without momentum."""
    finite: Tensor
    """(B,) bool: whether all gradients were finite so far, as they came and as estimated."""


class Step:
    """From a gradient to the next adversarial images; everything is per image.

    Args:
        x: (B, C, H, W) clean images.
        eps: (B or 1, 1, 1, 1) radius of the ball.
        alpha: step size, likewise or one number.
        steps: of the whole attack, for estimators that change from step to step.
        estimator: gradient to invariant gradient.
        momentum: decay μ of m ← μ·m + g / mean|g|; 0 is none.
        norm: of the ball.
        optimizer: ``"sign"`` takes the norm's steepest step, ``"adam"`` Adam's.
        cooling: the last step's size as a share of the first's, ``alpha``.

    >>> x = torch.full((1, 1, 1, 2), 0.5)
    >>> step = Step(x, torch.full((1, 1, 1, 1), 0.25), 0.125, steps=2, momentum=1.0)
    >>> state = step(step.start(x), torch.tensor([[[[3.0, -1.0]]]]), 0)
    >>> state.adv.flatten().tolist(), state.velocity.flatten().tolist()
    ([0.625, 0.375], [1.5, -0.5])
    """

    def __init__(  # wide: a step is its parts
        self,
        x: Tensor,
        eps: Tensor,
        alpha: Tensor | float,
        *,
        steps: int,
        estimator: Estimator = identity,
        momentum: float = 0.0,
        norm: NormName = "linf",
        optimizer: Optimizer = "sign",
        cooling: float = 1.0,
    ) -> None:
        self.x, self.eps, self.alpha, self.steps = x, eps, alpha, steps
        sizes = [cooling ** (index / max(1, steps - 1)) for index in range(steps)]
        self.sizes = None if cooling == 1 else torch.tensor(sizes, dtype=x.dtype, device=x.device)
        self.estimator, self.momentum, self.norm = estimator, momentum, find_norm(norm)
        self.adam = Adam() if optimizer == "adam" else None
        self.update = self.adam or self.norm.steepest
        self.project = self.norm.ball(x, eps)

    def start(self, adv: Tensor) -> State:
        """The state before the first step, at ``adv``."""
        return State(adv, torch.zeros_like(self.x), torch.ones(len(adv), dtype=torch.bool, device=adv.device))

    def __call__(self, state: State, gradient: Tensor, index: int) -> State:
        """Take step ``index``, counted from 0, along a (B, C, H, W) gradient of the objective."""
        estimated = self.estimate(gradient, index)
        finite = state.finite & largest(gradient).isfinite()
        if estimated is not gradient:
            finite &= largest(estimated).isfinite()
        return self.move(state._replace(finite=finite), estimated, self.size(index))

    def estimate(self, gradient: Tensor, index: int) -> Tensor:
        """The first part: what the estimator makes of the gradient in step ``index``."""
        if self.estimator is identity:
            return gradient
        return estimated_by(at_step(self.estimator, index, self.steps), gradient)

    def size(self, index: int | Tensor) -> Tensor | float:
        """How large step ``index`` is, a number or (): one for all images, or (B, 1, 1, 1)."""
        if self.sizes is None:
            return self.alpha
        if isinstance(index, int):
            return self.alpha * self.sizes[index]
        # A recording's warm-ups go on beyond the last step.
        return self.alpha * self.sizes.index_select(0, index[None].clamp(max=self.steps - 1))

    def move(self, state: State, g: Tensor, alpha: Tensor | float) -> State:
        """The rest, along an estimated gradient, by a step of some size."""
        velocity = state.velocity
        if self.momentum:
            g = velocity = self.momentum * velocity + g / mean_size(g)
        return State(self.project(state.adv + alpha * self.update(g)), velocity, state.finite)

    def keep(self, state: State, which: Tensor) -> State:
        """Go on with some of the images, by a (B,) mask; gives their state."""

        def each(value: Tensor) -> Tensor:
            return value[which] if len(value) == len(which) else value

        self.x, self.eps = self.x[which], each(self.eps)
        self.alpha = each(self.alpha) if isinstance(self.alpha, Tensor) else self.alpha
        self.project = self.norm.ball(self.x, self.eps)
        if self.adam is not None:
            self.adam.keep(which)
        return State(state.adv[which], state.velocity[which], state.finite[which])


def largest(g: Tensor) -> Tensor:
    """Largest absolute value of each image's gradient, (B,); NaN or infinite as soon as one value is."""
    flat = g.flatten(1)
    # On a CPU torch finds both ends many times sooner than the infinity norm.
    return torch.maximum(flat.amax(1), -flat.amin(1))


class Adam:
    """Adam's direction (Kingma and Ba), element by element, so that images stay independent."""

    beta_1, beta_2, floor = 0.9, 0.999, 1e-8

    def __init__(self) -> None:
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


def estimated_by(estimator: Estimator, gradient: Tensor) -> Tensor:
    """What an estimator makes of a (B, C, H, W) gradient: anyone's code, so what comes of it is checked.

    Raises:
        WhorlError: it failed, or returned something else than such a gradient. Its values are looked at in the end.
    """
    try:
        estimated = estimator(gradient)
    except (WhorlError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # an estimator is anyone's code
        raise WhorlError(f"the estimator failed on a {tuple(gradient.shape)} gradient: {first_line(error)}.") from error
    if not isinstance(estimated, Tensor) or estimated.shape != gradient.shape:
        came = tuple(estimated.shape) if isinstance(estimated, Tensor) else type(estimated).__name__
        raise WhorlError(f"an estimator must return a gradient of shape {tuple(gradient.shape)}; got {came}.")
    if not estimated.is_floating_point() or estimated.device != gradient.device:
        raise WhorlError(
            f"an estimator must return a floating gradient on {gradient.device}; "
            f"got {estimated.dtype} on {estimated.device}."
        )
    if estimated.dtype != gradient.dtype:  # the step goes on in the images' precision, or better than bfloat16
        return estimated.to(torch.promote_types(gradient.dtype, torch.float32))
    return estimated


def input_gradient(objective: Tensor, x: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of a (B,) objective, summed, at the images that it was computed from.

    Args:
        objective: of each image.
        x: (B, C, H, W) leaf.
        keep: whether another gradient will be taken of the same answer.

    Raises:
        WhorlError: the model passes none on, because it detaches, rounds or ignores its input.
    """
    gradients: Sequence[Tensor | None] = (None,)
    if objective.requires_grad:
        try:
            gradients = torch.autograd.grad(objective.sum(), x, retain_graph=keep, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise WhorlError(f"the model's input gradient cannot be computed: {first_line(error)}.") from error
    if (gradient := gradients[0]) is None:
        raise WhorlError(
            "the model must pass a gradient on to its input; got none. It detaches or ignores its input, or was "
            "compiled for inference: attack the network that it was made from, or use a black-box attack."
        )
    return gradient
