"""What every attack takes and gives, and the checks they share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple, overload
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError, out_of_range
from whorl.models.classifier import forward, forward_cast, network_dtype
from whorl.models.prepared import copies
from whorl.randomness import Ids, check_ids, check_seed
from whorl.records import Record

Model = nn.Module | Callable[[Tensor], Tensor]


# 8-bit images that went through a resize or a colour conversion stray this far from [0, 1], and no further.
RANGE_TOLERANCE = 1e-4

# How many hold each module that was in training mode. Counted, not remembered by each: the first to finish must not put
# a module back into training mode under the others.
_HELD: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_LOCK = threading.Lock()


class AttackCost(NamedTuple):
    """What an attack spends on an image."""

    most: int
    unit: Literal["gradients", "queries"]

    def __str__(self) -> str:
        return f"{self.most:,} {self.unit} an image"


@dataclass(frozen=True)
class Trace:
    """The course of a black-box attack. Each field is (steps, B); an image that is done keeps its last values."""

    queries: Tensor
    """int64: queries spent by then."""
    loss: Tensor
    """What the attack raises, such as the margin, at the current image; NaN where the target gives labels alone."""
    distance: Tensor
    """Norm of the current perturbation, in the attack's norm and in units of the [0, 1] range."""


@dataclass(frozen=True)
class AttackInfo:
    """What an attack did to each image of a batch; a field is a (B,) tensor, or None where it does not apply."""

    success: Tensor
    """bool: the attacked model answers as the attack wants, on the images as returned."""
    grad_evals: Tensor | None = None
    """int64: input gradients spent."""
    queries: Tensor | None = None
    """int64: queries, which are images shown to the target."""
    trace: Trace | None = None
    """Queries, loss and distance after each step, where the attack keeps them (``trace=True``)."""


@dataclass(frozen=True)
class Crafted:
    """What ``Attack.craft`` returns: images, and what was spent on each."""

    images: Tensor
    """(B, C, H, W) adversarial images in [0, 1]."""
    grad_evals: Tensor | None = None
    """(B,) int64: input gradients spent."""
    queries: Tensor | None = None
    """(B,) int64: queries spent."""
    success: Tensor | None = None
    """(B,) bool; None lets the caller evaluate it. A black-box attack knows, and must not spend a query on it."""
    trace: Trace | None = None
    """Queries, loss and distance after each step, where the attack keeps them."""


class Attack(Record, ABC):
    """A frozen record of settings, callable on a model and a batch of images. Subclasses implement ``craft``."""

    black_box: ClassVar[bool] = False
    """Whether the attack only queries its model, without gradients, and counts the queries."""

    @property
    def cost(self) -> AttackCost | None:
        """Gradients or queries spent on an image at most, such as a black-box attack's budget; None where unknown."""
        budget = getattr(self, "budget", None)
        return AttackCost(budget, "queries") if self.black_box and budget is not None else None

    def taste(self) -> Attack | None:
        """The same attack cut down to a few gradients, to be timed; None for black-box attacks and others without."""
        return None

    @abstractmethod
    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Attack a checked, non-empty batch.

        Args:
            model: in eval mode, on the device of ``x``.
            x: (B, C, H, W), float32 or float64, within [0, 1].
            goal: the true labels, which the attack is to leave, or the target labels, which it is to reach.
            seed: of all randomness.
            ids: one per image, or None.

        Returns:
            Adversarial images and what was spent on each.
        """

    @overload
    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor | None = None,
        *,
        target: Tensor | None = None,
        seed: int = 0,
        ids: Ids = None,
        return_info: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor | None = None,
        *,
        target: Tensor | None = None,
        seed: int = 0,
        ids: Ids = None,
        return_info: Literal[True],
    ) -> tuple[Tensor, AttackInfo]: ...

    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor | None = None,
        *,
        target: Tensor | None = None,
        seed: int = 0,
        ids: Ids = None,
        return_info: bool = False,
    ) -> Tensor | tuple[Tensor, AttackInfo]:
        """Attack a batch.

        Args:
            model: network from (B, C, H, W) images in [0, 1] to (B, classes) logits, or an ensemble of them. It is held
                in eval mode meanwhile. A black-box attack takes anything that answers so, with or without gradients.
            x: (B, C, H, W) in [0, 1].
            y: (B,) true labels, to be left (untargeted).
            target: (B,) labels to be reached instead (targeted).
            seed: all randomness follows from it and from each image's id.
            ids: one string or integer per image; None takes the image itself as its id.
            return_info: whether to return an :class:`AttackInfo` too.

        Returns:
            (B, C, H, W) adversarial images in [0, 1], dtype of ``x``; with ``return_info`` a pair of them and an
            :class:`AttackInfo`.
        """
        with held_in_eval(model), torch.inference_mode(False), torch.enable_grad():
            checked = check_images(x)
            check_device(model, checked)
            goal = Goal.of(checked, y, target)
            check_ids(ids, len(checked))
            check_seed(seed)
            if not checked.numel():
                none = goal.labels
                made = Crafted(checked, grad_evals=none, queries=none if self.black_box else None, success=none.bool())
            else:
                made = self.craft(model, checked, goal, seed=seed, ids=ids)
            adv = made.images.to(x.dtype)
            if not return_info:
                return adv
            success = made.success
            if success is None:
                success = goal.reached(answers(model, made.images, goal))
        return adv, AttackInfo(success=success, grad_evals=made.grad_evals, queries=made.queries, trace=made.trace)


def check_images(x: Tensor) -> Tensor:
    """Check a batch once, before the loop, and return it in the dtype attacks compute in, within [0, 1].

    Args:
        x: (B, C, H, W) in [0, 1], floating.

    Returns:
        float64 where ``x`` is, else float32.
    """
    if not isinstance(x, Tensor) or x.dim() != 4:
        came = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise WhorlError(f"images must be a (B, C, H, W) tensor; got {came}.")
    if x.is_sparse:
        raise WhorlError("images must be a dense (B, C, H, W) tensor; got a sparse one. Make it dense with to_dense().")
    if not x.is_floating_point() or x.is_meta:
        raise WhorlError(f"images must be floating point in [0, 1]; got {x.dtype} on {x.device}. Divide by 255.")
    if 0 in x.shape[1:]:
        raise WhorlError(f"images must have channels, height and width of at least 1; got shape {tuple(x.shape)}.")
    x = x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if x.numel():
        low, high = torch.stack(x.aminmax()).tolist()  # together: each answer would be waited for
        if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
            raise out_of_range(low, high)
    # A new tensor, made outside inference mode, so that autograd takes it wherever the caller's came from.
    return x.clamp(0, 1)


def check_device(model: Model, x: Tensor) -> None:
    """Refuse a model that lives elsewhere than the images."""
    if isinstance(model, nn.Module):
        places = {p.device for p in model.parameters()}
        if places and x.device not in places:
            there = ", ".join(sorted(map(str, places)))
            raise WhorlError(f"images are on {x.device} but the model is on {there}. Move one with .to(...).")


def check_finite(finite: Tensor, ids: Ids) -> None:
    """Raise if any image's gradient was not finite in some step; called once, after the loop."""
    if bool(finite.all()):
        return
    names: Sequence[object] = range(len(finite)) if ids is None else list(ids)
    bad = [str(names[i]) for i in (~finite).nonzero()[:, 0].tolist()]
    more = f" and {len(bad) - 8} more" if len(bad) > 8 else ""
    raise WhorlError(
        f"the gradient must be finite; got NaN or infinity for image {', '.join(bad[:8])}{more}. "
        "Check the model in eval mode and full precision."
    )


def loss_terms(model: Model, x: Tensor) -> list[tuple[float, Tensor]]:
    """Weighted logits whose losses add up to a model's loss: one for a network, several for an ensemble of losses.

    It sees a copy of (B, C, H, W) images in the dtype of its parameters.
    """
    terms: Callable[[Tensor], list[tuple[float, Tensor]]] | None = getattr(model, "loss_terms", None)
    if terms is None:
        return [(1.0, forward_cast(model, x))]
    return list(forward(terms, x.to(network_dtype(model, x), copy=True)))


def answers(model: Model, x: Tensor, goal: Goal) -> Tensor:
    """The model's logits on ``x`` in float32 or float64, without gradient."""
    with torch.no_grad():
        shown = x.to(network_dtype(model, x), copy=True)  # it may work in place
        logits: Tensor = forward(partial(copies.answer, model), shown)
    goal.check_classes(logits)
    check_finite_logits(logits)
    return logits.to(x.dtype)


def check_finite_logits(logits: Tensor) -> None:
    """Refuse an answer that holds NaN or infinity; looking at it makes a device wait."""
    if not bool(logits.isfinite().all()):
        raise WhorlError("the model must return finite logits; got NaN or infinity. Check its weights.")


@contextmanager
def held_in_eval(model: object) -> Iterator[None]:
    """Hold a model in eval mode, and put every part back as it was once nobody holds it any more.

    Args:
        model: a module, or anything else, which is left alone.

    >>> net = nn.Sequential(nn.Dropout()).train()
    >>> with held_in_eval(net), held_in_eval(net):
    ...     net[0].training
    False
    >>> net[0].training
    True
    """
    if not isinstance(model, nn.Module):
        yield
        return
    with _LOCK:
        # A frozen ScriptModule has its mode compiled into it, and no attribute that says which.
        held = [module for module in model.modules() if getattr(module, "training", False) or module in _HELD]
        for module in held:
            _HELD[module] = _HELD.get(module, 0) + 1
            module.training = False
    try:
        yield
    finally:
        with _LOCK:
            for module in held:
                _HELD[module] -= 1
                if not _HELD[module]:
                    del _HELD[module]
                    module.training = True
