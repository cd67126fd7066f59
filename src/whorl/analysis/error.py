"""How good the estimator's approximations are, measured: §4 of the paper for any network and any images.

The gradient that an attack on E[J(F(x))] wants is ``truth``. The estimator comes to its answer in steps, each of which
gives something up:

    truth       E[Fᵀ ∇J(F(x̂))]     the gradient of the mean loss: the adjoint Fᵀ of the warp, as the chain rule says
    g2          E[F⁻¹ ∇J(F(x̂))]    the inverse in place of the adjoint (the paper's g₂; its §3.2 takes the two for one)
    g1          E[F⁻¹ ∇J(x̂)]       the gradient at the image itself in place of that at the transformed one (g₁)
    linear      scaling replaced by a shift along the radius
    lattice     whole pixels, rows and columns, up to the kernel's end
    estimate    the polar warps' interpolation: the estimator itself

Beside these: ``adjoint`` (Fᵀ at the image itself), ``finer`` (the estimator on a polar grid with six times the angles
and twice the radii), ``log-polar`` (scaling exact), ``translation`` (no polar part) and ``plain`` (no estimator).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.analysis.expectations import Bounds, Gram, bounds, gram
from whorl.analysis.laws import Law, Transforms, pull_back, pull_back_along_radius, uniforms
from whorl.attacks.contract import check_finite, check_finite_logits, loss_terms
from whorl.attacks.objectives import Goal, LossName
from whorl.attacks.step import input_gradient
from whorl.errors import WhorlError
from whorl.estimators import Estimator
from whorl.estimators.polar_grids import on_grid
from whorl.geometry.affine import warp
from whorl.geometry.polar import steps_of
from whorl.progress import Progress, silent
from whorl.records import Record

STEPS = ("truth", "g2", "g1", "linear", "lattice", "estimate")
"""From the gradient that is wanted to the one that is had."""
OTHERS = ("adjoint", "finer", "log-polar", "translation", "plain")
SIGN = "sign of "
"""Before the name of an estimator: the sign of its estimate, which is the direction that an L∞ attack steps in."""
_DRAWN = ("truth", "g2", "g1", "adjoint", "linear", "lattice")
_CPU_PER_PASS, _GPU_PER_PASS = 32, 256
_FINER = (2, 6)


@dataclass(frozen=True, eq=False, kw_only=True)
class LawMeasurement:
    """What was measured under one law.

    Attributes:
        law: the transforms, and the kernel that stands for them.
        gram: inner products of everything in ``STEPS`` and ``OTHERS``.
        bounds: over all draws.
        halves: over either half of the draws.
    """

    law: Law
    gram: Gram
    bounds: Bounds
    halves: tuple[Bounds, Bounds]

    def held(self) -> dict[str, tuple[int, int]]:
        """For how many images each corollary holds, by where c₁ was taken from.

        ``same``: the same draws. ``halves``: the other half of the draws, for both halves to hold. ``others``: the
        largest c₁ of the other images.
        """
        first, second = self.halves
        crossed = [one & other for one, other in zip(first.holds(second.c1), second.holds(first.c1), strict=True)]
        found = {
            "same": self.bounds.holds(),
            "halves": crossed,
            "others": self.bounds.holds(self.bounds.c1_of_others()),
        }
        return {name: (int(one.sum()), int(two.sum())) for name, (one, two) in found.items()}


Model = Callable[[Tensor], Tensor]
Batches = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True, repr=False)
class Draws(Record):
    """How expectations over transforms are taken.

    Attributes:
        count: transforms for each image and law, the same for all images; even, half of them for either half.
        seed: of the draws.
        per_pass: images in a forward pass; 32 on a CPU and 256 on a GPU by default.
    """

    count: int = 256
    seed: int = 0
    per_pass: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 4 or self.count % 2:
            raise WhorlError(f"draws must be an even number from 4, half of them for either half; got {self.count}.")


def measure(
    model: Model,
    batches: Batches,
    laws: Sequence[Law],
    draws: Draws | None = None,
    *,
    loss: LossName = "ce",
    estimators: Mapping[str, Estimator] | None = None,
    source: Model | None = None,
    progress: Progress = silent,
) -> list[LawMeasurement]:
    """Measure the approximations for some images under some laws.

    Args:
        model: (B, C, H, W) in [0, 1] to logits; its precision is that of the images.
        batches: images and labels; all images of one size.
        laws: of transforms; see :mod:`whorl.analysis.laws`.
        draws: how many, and of which seed; by default those of :class:`Draws`.
        loss: a loss of the attacks, such as ``"ce"`` or ``"logit"``.
        estimators: name to further estimators, to hold against every law, whichever they stand for; their signs too.
        source: take the gradient for ``estimators`` from this network instead, as an attack does that is to transfer
            from it to ``model``.
        progress: called with each law and batch.

    Returns:
        One record for each law, images in order.
    """
    if not batches or not laws:
        raise WhorlError(f"expected images and laws; got {len(batches)} batches and {len(laws)} laws.")
    measurer = _Measurer(model, source, loss, estimators or {}, draws or Draws())
    done, total = 0, len(laws) * len(batches)
    found = []
    progress("measuring", done, total)
    for law in laws:
        parts = []
        for x, y in batches:
            # A GPU would round to ten bits where it convolves, which is more than the smallest transforms change.
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                parts.append(measurer.measure(x, y, law))
            done += 1
            progress("measuring", done, total)
        first, second = (Bounds.joined([part.halves[half] for part in parts]) for half in (0, 1))
        found.append(
            LawMeasurement(
                law=law,
                gram=Gram.joined([part.gram for part in parts]),
                bounds=Bounds.joined([part.bounds for part in parts]),
                halves=(first, second),
            )
        )
    return found


class _Measurer:
    """Measures one batch under one law."""

    def __init__(
        self, model: Model, source: Model | None, loss: LossName, estimators: Mapping[str, Estimator], draws: Draws
    ) -> None:
        self.model, self.source, self.loss, self.estimators = model, source, loss, estimators
        self.per_pass = draws.per_pass
        self.halves = [uniforms(draws.count // 2, 2 * draws.seed + half) for half in (0, 1)]

    def measure(self, x: Tensor, y: Tensor, law: Law) -> LawMeasurement:
        """Measure; the halves of the draws are the same for every batch and law."""
        gradient = _Gradient(self.model, x, y, self.loss)
        plain = gradient.at(x)
        given = plain if self.source is None else _Gradient(self.source, x, y, self.loss).at(x)
        further = {name: estimator(given) for name, estimator in self.estimators.items()}
        signs = {SIGN + name: estimate.sign() for name, estimate in further.items()}
        fixed = {**further, **signs, **_not_drawn(plain, law)}
        per_pass = self.per_pass or (_GPU_PER_PASS if x.is_cuda else _CPU_PER_PASS)
        at_once = max(1, per_pass // len(x))
        sides = [_one_half(gradient, x, plain, law, u, at_once) for u in self.halves]
        both = {name: torch.stack([side.means[name] for side in sides]).mean(0) for name in ("g1", "g2")}
        displaced, changed = (torch.cat([getattr(side, name) for side in sides]) for name in ("displaced", "changed"))
        separate = [bounds(side.means["g1"], side.means["g2"], side.displaced, side.changed) for side in sides]
        return LawMeasurement(
            law=law,
            gram=gram([{**side.means, **fixed} for side in sides]),
            bounds=bounds(both["g1"], both["g2"], displaced, changed),
            halves=(separate[0], separate[1]),
        )


@dataclass(frozen=True, eq=False)
class _Half:
    means: dict[str, Tensor]
    displaced: Tensor
    changed: Tensor


def _one_half(gradient_of: _Gradient, x: Tensor, plain: Tensor, law: Law, u: Tensor, at_once: int) -> _Half:
    """Everything that is drawn, over one half of the draws."""
    sums = {name: torch.zeros_like(x) for name in _DRAWN}
    displaced, changed = [], []
    height, width = x.shape[-2:]
    for part in u.split(at_once):
        count = len(part)
        drawn = Transforms(*(_spread(value, x) for value in law.transforms(part)))
        radius = (drawn.scale - 1) * steps_of(height, width).typical
        angles, radii, shifts = (_spread(value, x) for value in law.lattice(part, height, width))
        copies = plain.repeat(count, 1, 1, 1)
        seen, gradient, adjoint, adjoint_of_plain = gradient_of.through(drawn, copies, count)
        change = pull_back(gradient - copies, drawn)
        at_image = pull_back(copies, drawn)
        terms = {
            "truth": adjoint,
            "g2": at_image + change,
            "g1": at_image,
            "adjoint": adjoint_of_plain,
            "linear": pull_back_along_radius(copies, drawn.angle, radius, drawn.shift),
            "lattice": pull_back_along_radius(copies, angles, radii, shifts),
        }
        for name, term in terms.items():
            sums[name] += term.reshape(count, *x.shape).sum(0)
        displaced.append(_lengths(seen - x.repeat(count, 1, 1, 1), count))
        changed.append(_lengths(change, count))
    return _Half({name: total / len(u) for name, total in sums.items()}, torch.cat(displaced), torch.cat(changed))


def _not_drawn(plain: Tensor, law: Law) -> dict[str, Tensor]:
    estimator = law.estimator
    return {
        "estimate": estimator(plain),
        "finer": on_grid(estimator, finer=_FINER)(plain),
        "log-polar": on_grid(estimator, spacing="log", finer=_FINER)(plain),
        "translation": estimator.with_(rotation=False, scaling=False)(plain),
        "plain": plain,
    }


class _Gradient:
    """Gradients of the loss at transformed images, and the adjoint of the transform applied to them."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, loss: LossName) -> None:
        self.model, self.x, self.goal, self.loss = model, x, Goal.of(x, y, None), loss

    def at(self, x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_()
        return self._finite(input_gradient(self._objective(leaf, 1), leaf))

    def through(self, drawn: Transforms, copies: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give F(x̂), ∇J(F(x̂)), Fᵀ∇J(F(x̂)) and Fᵀ of the ``copies``; each (count·B, C, H, W)."""
        leaf = self.x.detach().repeat(count, 1, 1, 1).requires_grad_()
        seen = warp(leaf, *drawn)
        gradient = self._finite(input_gradient(self._objective(seen, count), seen, keep=True))
        (adjoint,) = torch.autograd.grad(seen, leaf, gradient, retain_graph=True)
        (of_copies,) = torch.autograd.grad(seen, leaf, copies)
        return seen.detach(), gradient, adjoint, of_copies

    def _finite(self, gradient: Tensor) -> Tensor:
        check_finite(gradient.flatten(1).isfinite().all(1), [place % len(self.x) for place in range(len(gradient))])
        return gradient

    def _objective(self, x: Tensor, count: int) -> Tensor:
        goal = self.goal.repeat(count)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for weight, logits in loss_terms(self.model, x):
            goal.check_classes(logits)
            check_finite_logits(logits)
            total = total + weight * goal.objective(logits.to(x.dtype), self.loss).sum()
        return total


def _spread(value: Tensor, x: Tensor) -> Tensor:
    """Give each of the B images every draw, draw by draw: (N, ...) to (N·B, ...)."""
    return value.to(x.device, x.dtype).repeat_interleave(len(x), dim=0)


def _lengths(x: Tensor, count: int) -> Tensor:
    """(count·B, C, H, W) to (count, B)."""
    length: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return length.reshape(count, -1)
