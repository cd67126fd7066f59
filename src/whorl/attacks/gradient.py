"""Any ε-bounded gradient attack as one frozen record; :mod:`whorl.attacks.loop` runs it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Attack, AttackCost, Crafted, Model, check_finite
from whorl.attacks.loop import Made, OnStep, UnderAttack, run, share_by_share, step_by_step
from whorl.attacks.norms import InBall, NormName, find_norm
from whorl.attacks.objectives import Goal, Loss, LossName
from whorl.attacks.step import Optimizer
from whorl.errors import WhorlError
from whorl.estimators import Estimator, for_eps, identity
from whorl.models.backward import Backward, BackwardRule
from whorl.models.prepared.fold import fold_copy, folded
from whorl.models.prepared.versions import simple
from whorl.randomness import Ids, image_keys, substream
from whorl.records import Count, Limits, NotNegative, Part, Positive
from whorl.transforms import InputTransform, plain

# Ten steps of more overflow float32; the field tries up to 2.
MOST_MOMENTUM = 100
# Streams of an image's randomness: one for the start, then one for each step.
_START = -1
_UNCHANGED = Backward()


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientAttack(InBall, Attack):
    """Any ε-bounded gradient attack, as a composition of parts.

    Attributes:
        eps: radius of the ball, in units of the [0, 1] range; one number, or one per image.
        steps: gradient steps.
        alpha: size of the first step, in units of the [0, 1] range; None is pace·eps/steps, or eps for a single step.
        pace: where ``alpha`` is None, the length of all steps together, as a multiple of eps (without ``cooling``);
            None is 10 + 100/steps, so that few steps are larger.
        cooling: size of the last step as a share of the first; from step to step the size falls by a constant factor. 1
            keeps it.
        norm: ``"linf"`` or ``"l2"``.
        loss: ``"ce"`` (cross entropy), ``"margin"`` (the highest other logit less the label's), ``"logit"`` (the
            label's, negated), ``"relative"`` (the mean logit less the label's), or a function of logits, (B, classes),
            and labels, (B,), to (B,).
        input: random transform of the images before each gradient, such as :class:`whorl.DiverseInput`. One that plans
            its draws, such as :class:`whorl.transforms.SpreadAffine`, gets all draws of the attack at once.
        samples: draws of ``input`` whose gradients are averaged in each step.
        estimator: what makes an invariant gradient of each input gradient, such as :class:`whorl.AffineInvariant`. One
            that has a method ``at(step, steps)``, which returns the estimator of a step, changes from step to step.
        momentum: decay μ of the accumulated gradient; each step's gradient is divided by its mean absolute value before
            it is added. 0: no momentum.
        optimizer: ``"sign"`` takes the steepest step of the norm (the sign of the gradient, or in L2 the gradient
            scaled to length 1), ``"adam"`` that of Adam.
        random_start: whether to start anywhere in the ball instead of at the image.
        early_stop: whether an image leaves the batch as soon as the model, in the attack's own forward pass (so behind
            ``input``), answers as wanted; the others go on without it.
        chunk: draws per forward pass, None for as many as fit; the result does not depend on it.
        fast: None attacks a frozen ``whorl.Classifier`` with its batch norms folded into the convolutions; on a GPU
            also an ensemble of them, in bfloat16, with the step replayed as one CUDA graph. False computes step by step
            with the network as it is. True also lets cuDNN search for its fastest kernels, which the first batch waits
            for, and which may round differently in another process. Other models are attacked as they are.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> x, y = torch.rand(2, 3, 5, 5), torch.tensor([0, 3])
    >>> adv = GradientAttack(eps=8 / 255, momentum=1.0)(net, x, y)
    >>> bool((adv - x).abs().max() <= 8 / 255 + 1e-6)
    True
    """

    eps: Annotated[NotNegative | tuple[NotNegative, ...] | Tensor, "a number >= 0, or one for each image"] = 16 / 255
    steps: Count = 10
    alpha: Positive | None = None
    pace: Positive | None = 5.0
    cooling: Part = 1.0
    norm: NormName = "linf"
    loss: LossName | Loss = "ce"
    input: InputTransform = plain
    samples: Count = 1
    estimator: Estimator = identity
    momentum: Annotated[float, Limits(least=0, most=MOST_MOMENTUM)] = 0.0
    optimizer: Optimizer = "sign"
    random_start: bool = False
    early_stop: bool = False
    chunk: Count | None = None
    fast: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.eps, Tensor):
            # A tensor in a frozen record could change under it, and has no single truth value to compare by.
            object.__setattr__(self, "eps", self.eps.tolist())
        super().__post_init__()

    def craft(
        self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids, on_step: OnStep | None = None
    ) -> Crafted:
        """Run all steps on a checked batch. The CPU never waits for a GPU between them, except with ``early_stop``."""
        random = self.random_start or self.input is not plain
        keys = image_keys(x, seed, ids) if random else torch.zeros_like(goal.labels)
        eps = self.radius(x)
        alpha = eps * self._stride if self.alpha is None else self.alpha
        start = x
        if self.random_start:
            norm = find_norm(self.norm)
            start = norm.ball(x, eps)(x + norm.random(x, substream(keys, _START), eps))
        made = self._run(model, UnderAttack(x, start, goal, keys, eps, alpha), on_step)
        check_finite(made.finite, ids)
        return Crafted(made.images, grad_evals=made.grad_evals)

    @property
    def cost(self) -> AttackCost:
        """Gradients spent on an image: ``steps`` times ``samples``."""
        return AttackCost(self.steps * self.samples, "gradients")

    def taste(self) -> Attack:
        """The attack cut down to two gradients, or to one step of at most eight draws, to be timed."""
        # Two, since a single gradient would be taken without folding the network.
        return self.with_(steps=2 if self.samples == 1 else 1, samples=min(self.samples, 8))

    @property
    def bound_estimator(self) -> Estimator:
        """The estimator, adapted to this attack's ε where that is one number in L∞; see ``for_eps`` of an estimator."""
        if self.estimator is not identity and isinstance(self.eps, float) and self.norm == "linf":
            return for_eps(self.estimator, self.eps)
        return self.estimator

    @property
    def pure(self) -> bool:
        """Whether estimator and input transform depend on tensors alone, so that threads may call them at once."""
        return all(getattr(part, "pure", False) for part in (self.estimator, self.input))

    @property
    def _stride(self) -> float:
        """Size of the first step as a share of eps."""
        if self.steps == 1:
            return 1.0
        pace = 10 + 100 / self.steps if self.pace is None else self.pace
        return pace / self.steps

    @property
    def source_backward(self) -> BackwardRule:
        """How the backward pass of the attacked network is changed: here not at all; subclasses may."""
        return _UNCHANGED

    def changed(self, model: Model, x: Tensor) -> AbstractContextManager[Model]:  # noqa: ARG002 - others need the images
        """The network with that change, as a context; the model itself where there is none."""
        return nullcontext(model)

    def radius(self, x: Tensor) -> Tensor:
        """``eps`` as a (B or 1, 1, 1, 1) tensor of the dtype and device of ``x``."""
        if isinstance(self.eps, tuple) and len(self.eps) != x.shape[0]:
            raise WhorlError(f"eps must be one number or one per image, {x.shape[0]}; got {len(self.eps)}.")
        eps = torch.tensor(self.eps, dtype=x.dtype, device=x.device)
        return eps.reshape(-1, 1, 1, 1)

    def _run(self, model: Model, batch: UnderAttack, on_step: OnStep | None) -> Made:
        if on_step is None and self.fast is not False and batch.x.is_cuda:
            from whorl.attacks.recorded import run_fast  # CUDA graphs, which a CPU does without

            return run_fast(self, model, batch)
        with self.changed(model, batch.x) as source:
            if on_step is not None:
                return run(self, source, batch, on_step=on_step)
            if self.fast is not False and isinstance(source, nn.Module) and simple(model):
                # Folding takes about what a gradient takes, so a single one is sooner had without.
                norms = self.steps * self.samples > 1
                if source is model:
                    source = folded(source, norms=norms)
                else:  # a copy already
                    fold_copy(source, norms=norms)
                if source is not model and self.pure and torch.get_num_threads() > 1:
                    return share_by_share(self, source, batch)
            return step_by_step(self, source, batch)


@dataclass(frozen=True, repr=False)
class Followed(Attack):
    """A gradient attack with a listener; the images are those of ``fast=False``, which computes step by step.

    Attributes:
        attack: without ``early_stop``, whose batch shrinks.
        on_step: called after each step.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    >>> seen = []
    >>> adv = Followed(GradientAttack(steps=3), lambda taken: seen.append(taken.index))(
    ...     net, torch.rand(2, 3, 5, 5), torch.tensor([0, 3])
    ... )
    >>> seen
    [0, 1, 2]
    """

    attack: GradientAttack
    on_step: OnStep

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack.early_stop:
            raise WhorlError("on_step cannot follow an attack with early_stop=True, whose batch shrinks.")

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Run the attack's own loop."""
        return self.attack.craft(model, x, goal, seed=seed, ids=ids, on_step=self.on_step)
