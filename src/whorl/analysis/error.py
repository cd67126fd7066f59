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
from typing import Any

import torch
from torch import Tensor

from whorl.analysis import bounds as corollaries
from whorl.analysis import gram as products
from whorl.analysis.bounds import Bounds
from whorl.analysis.gram import Gram
from whorl.analysis.laws import Law, Transforms, pull_back, pull_back_along_radius, steps_of, uniforms
from whorl.analysis.polar_grids import PolarGridInvariant
from whorl.attacks.gradient import loss_terms
from whorl.attacks.objectives import Goal, LossName, find_loss
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant, Estimator
from whorl.geometry.affine import warp
from whorl.progress import Progress, silent

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


def measure(
    model: Model,
    batches: Batches,
    laws: Sequence[Law],
    *,
    draws: int = 256,
    loss: LossName = "ce",
    seed: int = 0,
    estimators: Mapping[str, Estimator] | None = None,
    source: Model | None = None,
    per_pass: int | None = None,
    progress: Progress = silent,
) -> list[LawMeasurement]:
    """Measure the approximations for some images under some laws.

    Args:
        model: (B, C, H, W) in [0, 1] to logits; its precision is that of the images.
        batches: images and labels; all images of one size.
        laws: of transforms; see :mod:`whorl.analysis.laws`.
        draws: transforms for each image and law, the same for all images; even, half of them for either half.
        loss: a loss of the attacks, such as ``"ce"`` or ``"logit"``.
        seed: of the draws.
        estimators: name to further estimators, to hold against every law, whichever they stand for; their signs too.
        source: take the gradient for ``estimators`` from this network instead, as an attack does that is to transfer
            from it to ``model``.
        per_pass: images in a forward pass; 32 on a CPU and 256 on a GPU by default.
        progress: called with each law and batch.

    Returns:
        One record for each law, images in order.
    """
    if draws < 4 or draws % 2:
        raise WhorlError(f"draws must be an even number from 4, half of them for either half; got {draws}.")
    if not batches or not laws:
        raise WhorlError(f"expected images and laws; got {len(batches)} batches and {len(laws)} laws.")
    halves = [uniforms(draws // 2, 2 * seed + half) for half in (0, 1)]
    done, total = 0, len(laws) * len(batches)
    found = []
    progress("measuring", done, total)
    for law in laws:
        parts = []
        for x, y in batches:
            # A GPU would round to ten bits where it convolves, which is more than the smallest transforms change.
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                parts.append(_one_batch(model, x, y, law, halves, loss, estimators or {}, source, per_pass))
            done += 1
            progress("measuring", done, total)
        found.append(
            LawMeasurement(
                law=law,
                gram=products.join([part.gram for part in parts]),
                bounds=corollaries.join([part.bounds for part in parts]),
                halves=(
                    corollaries.join([part.halves[0] for part in parts]),
                    corollaries.join([part.halves[1] for part in parts]),
                ),
            )
        )
    return found


def _one_batch(
    model: Model,
    x: Tensor,
    y: Tensor,
    law: Law,
    halves: list[Tensor],
    loss: LossName,
    estimators: Mapping[str, Estimator],
    source: Model | None,
    per_pass: int | None,
) -> LawMeasurement:
    ask = _Gradient(model, x, y, loss)
    plain = ask.at(x)
    given = plain if source is None else _Gradient(source, x, y, loss).at(x)
    further = {name: estimator(given) for name, estimator in estimators.items()}
    signs = {SIGN + name: estimate.sign() for name, estimate in further.items()}
    fixed = {**further, **signs, **_not_drawn(plain, law)}
    per_pass = per_pass or (_GPU_PER_PASS if x.is_cuda else _CPU_PER_PASS)
    at_once = max(1, per_pass // len(x))
    sides = [_one_half(ask, x, plain, law, u, at_once) for u in halves]
    both = {name: torch.stack([side.means[name] for side in sides]).mean(0) for name in ("g1", "g2")}
    moved, changed = (torch.cat([getattr(side, name) for side in sides]) for name in ("moved", "changed"))
    separate = [corollaries.bounds(side.means["g1"], side.means["g2"], side.moved, side.changed) for side in sides]
    return LawMeasurement(
        law=law,
        gram=products.gram([{**side.means, **fixed} for side in sides]),
        bounds=corollaries.bounds(both["g1"], both["g2"], moved, changed),
        halves=(separate[0], separate[1]),
    )


@dataclass(frozen=True, eq=False)
class _Half:
    means: dict[str, Tensor]
    moved: Tensor
    changed: Tensor


def _one_half(ask: _Gradient, x: Tensor, plain: Tensor, law: Law, u: Tensor, at_once: int) -> _Half:
    """Everything that is drawn, over one half of the draws."""
    sums = {name: torch.zeros_like(x) for name in _DRAWN}
    moved, changed = [], []
    height, width = x.shape[-2:]
    for part in u.split(at_once):
        count = len(part)
        drawn = _for_each(law.transforms(part), x)
        radius = (drawn.scale - 1) * steps_of(height, width).typical
        angles, radii, shifts = (_spread(value, x) for value in law.lattice(part, height, width))
        copies = plain.repeat(count, 1, 1, 1)
        seen, gradient, adjoint, adjoint_of_plain = ask.through(drawn, copies, count)
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
        moved.append(_lengths(seen - x.repeat(count, 1, 1, 1), count))
        changed.append(_lengths(change, count))
    return _Half({name: total / len(u) for name, total in sums.items()}, torch.cat(moved), torch.cat(changed))


def _not_drawn(plain: Tensor, law: Law) -> dict[str, Tensor]:
    estimator = law.estimator
    return {
        "estimate": estimator(plain),
        "finer": on_grid(estimator, finer=_FINER)(plain),
        "log-polar": on_grid(estimator, spacing="log", finer=_FINER)(plain),
        "translation": estimator.with_(rotation=False, scaling=False)(plain),
        "plain": plain,
    }


def on_grid(estimator: AffineInvariant, **grid: Any) -> PolarGridInvariant:
    """The same kernels on another polar grid.

    >>> on_grid(AffineInvariant(sigma=0.7), spacing="log")
    PolarGridInvariant(sigma=0.7, spacing='log')
    """
    names = ("kernel_size", "sigma", "kind", "polar_kernel_size", "polar_sigma", "translation", "rotation", "scaling")
    return PolarGridInvariant(**{name: getattr(estimator, name) for name in names}, **grid)


class _Gradient:
    """Gradients of the loss at transformed images, and the adjoint of the transform applied to them."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, loss: LossName) -> None:
        self.model, self.x, self.goal, self.loss = model, x, Goal.of(x, y, None), find_loss(loss)

    def at(self, x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self._objective(leaf, 1), leaf)
        return gradient

    def through(self, drawn: Transforms, copies: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give F(x̂), ∇J(F(x̂)), Fᵀ∇J(F(x̂)) and Fᵀ of the ``copies``; each (count·B, C, H, W)."""
        leaf = self.x.detach().repeat(count, 1, 1, 1).requires_grad_()
        seen = warp(leaf, *drawn)
        (gradient,) = torch.autograd.grad(self._objective(seen, count), seen, retain_graph=True)
        (adjoint,) = torch.autograd.grad(seen, leaf, gradient, retain_graph=True)
        (of_copies,) = torch.autograd.grad(seen, leaf, copies)
        return seen.detach(), gradient, adjoint, of_copies

    def _objective(self, x: Tensor, count: int) -> Tensor:
        goal = self.goal.repeat(count)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for weight, logits in loss_terms(self.model, x):
            goal.check_classes(logits)
            total = total + weight * goal.objective(logits.to(x.dtype), self.loss).sum()
        return total


def _for_each(drawn: Transforms, x: Tensor) -> Transforms:
    return Transforms(*(_spread(part, x) for part in drawn))


def _spread(value: Tensor, x: Tensor) -> Tensor:
    """Give each of the B images every draw, draw by draw: (N, ...) to (N·B, ...)."""
    return value.to(x.device, x.dtype).repeat_interleave(len(x), dim=0)


def _lengths(x: Tensor, count: int) -> Tensor:
    """(count·B, C, H, W) to (count, B)."""
    length: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return length.reshape(count, -1)
