"""Gradient estimators: functions from an input gradient to one that holds under transformations of the image.

An estimator is callable on a (B, C, H, W) gradient and returns one of the same shape and dtype. Each is a frozen record
of its settings. ``estimator.wrap(module)`` puts it inside a network, so that any attack of any library uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.estimators.fast import average_rotations, average_rotations_by_step, estimate, rotates_by_step
from whorl.estimators.steps import Estimator
from whorl.geometry.kernels import (
    Kernel,
    Kind,
    Sigma,
    Size,
    blur,
    factor,
    gaussian_factors,
    ring,
    turn,
    uniform_factors,
)
from whorl.geometry.polar import from_polar, to_polar
from whorl.records import Limits, Positive, Record, Registry

# Translation-invariant attacks (Dong et al., 2019) sample the bell curve on 15 points from -3σ to 3σ.
TI_SIGMA = 7 / 3

# Rotations have a polar grid of their own: with so many times the angles as the image's longer side has pixels, and
# then the next multiple of what matrix units take at once.
_FINER, _ANGLES_AT_ONCE = 2, 16
_LEAST_WIDTH = 1e-2  # of a cell
_LEAST_DEGREES = 1e-6  # less than that of any image

Degrees = Annotated[float, Limits(above=0, most=180)]


class _Wraps:
    """Adds ``wrap`` to an estimator."""

    pure: ClassVar[bool] = True
    """Whether calling it is a function of tensors alone, so that a recorded graph of it stands for the call."""
    short: ClassVar[bool] = True
    """Whether it takes a gradient in bfloat16 as it comes: it adds up in float32, and rounds once or a few times."""

    def wrap(self: Any, module: nn.Module) -> Estimated:
        """Put this estimator behind a network's input; every estimator of ``whorl.estimators`` has this method.

        The forward pass and the gradients of the network's own parameters stay as they are; only the gradient that
        reaches the input is the estimated one. Any third-party attack on the result is thereby made invariant.

        >>> net = AffineInvariant().wrap(nn.Flatten())
        >>> x = torch.zeros(1, 1, 9, 9, requires_grad=True)
        >>> net(x)[0, 40].backward()                    # the plain gradient is 1 at the central pixel, 0 elsewhere
        >>> bool(x.grad[0, 0, 4, 4] < 0.2)
        True
        """
        return Estimated(module, self)


@dataclass(frozen=True, repr=False)
class Identity(_Wraps, Record):
    """Leaves the gradient as it is."""

    def __call__(self, gradient: Tensor) -> Tensor:
        """Return ``gradient``."""
        return gradient


identity = Identity()
"""The estimator that leaves the gradient as it is, ``Identity()``."""

ESTIMATORS: Registry[Callable[..., Estimator]] = Registry("estimator")
"""Every estimator by the name of its class."""


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class TranslationInvariant(_Wraps, Record):
    """Average the gradient over small translations: one blur (TI; Dong et al., 2019; the paper's Λ_t).

    Attributes:
        kernel_size: odd number of pixels, or (rows, columns).
        sigma: standard deviation in pixels, ``"reference"`` or ``"printed"``; see
            :func:`whorl.geometry.gaussian_kernel`.
        kind: ``"gaussian"`` or ``"uniform"``.
        weights: your own (rows, columns) kernel in place of the three above.

    >>> TranslationInvariant()(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """

    kernel_size: Size = 15
    sigma: Sigma = TI_SIGMA
    kind: Kind = "gaussian"
    weights: Tensor | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.kernel

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel, built once."""
        return _kernel(self.kernel_size, self.sigma, self.kind, self.weights)

    def __call__(self, gradient: Tensor) -> Tensor:
        """Blur ``gradient``, (B, C, H, W)."""
        fast = estimate(_checked(gradient), self.kernel, None)
        return blur(_computable(gradient), self.kernel).to(gradient.dtype) if fast is None else fast


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class AffineInvariant(_Wraps, Record):
    """Average the gradient over small translations, rotations and scalings: ``P⁻¹(Λ_q * P(Λ_t * g))``.

    g is the gradient, Λ_t the kernel of translations, P the resampling to a polar grid and Λ_q the kernel on it, of
    rotations and scalings. The default is the paper's estimator with the kernel widths of the authors' code
    (Wenzhao-Xiang/Affine-Invariant-Attacks), ``"reference"``; ``"printed"`` are those of the paper's text. Narrow
    kernels do better against plain networks, wide ones against hardened networks. A polar setting that is None is that
    of the translation kernel.

    Attributes:
        kernel_size: odd number of pixels, or (rows, columns), of the translation kernel.
        sigma: standard deviation in pixels, or (along rows, along columns); ``"reference"`` (the authors' code, l/6) or
            ``"printed"`` (the paper's text, l/√3), where 2l+1 is the kernel's size.
        kind: ``"gaussian"`` or ``"uniform"``, of both kernels.
        polar_kernel_size: as ``kernel_size``, in cells of the polar grid: (radii, angles).
        polar_sigma: as ``sigma``, in cells of the polar grid.
        weights: your own (rows, columns) translation kernel.
        polar_weights: your own (radii, angles) polar kernel.
        translation: whether to average over translations.
        rotation: whether to average over rotations. Switched off, the polar kernel is summed over its angles.
        scaling: whether to average over scalings. Switched off, the polar kernel is summed over its radii.

    >>> AffineInvariant(kernel_size=7, scaling=False)(torch.rand(2, 3, 32, 48)).shape
    torch.Size([2, 3, 32, 48])
    """

    _always_shown: ClassVar[tuple[str, ...]] = ("sigma",)
    kernel_size: Size = 15
    sigma: Sigma = "reference"
    kind: Kind = "gaussian"
    polar_kernel_size: Size | None = None
    polar_sigma: Sigma | None = None
    weights: Tensor | None = field(default=None, compare=False)
    polar_weights: Tensor | None = field(default=None, compare=False)
    translation: bool = True
    rotation: bool = True
    scaling: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.kernel, self.polar_kernel

    @cached_property
    def kernel(self) -> Kernel | None:
        """The translation kernel Λ_t; None where translation is off."""
        return _kernel(self.kernel_size, self.sigma, self.kind, self.weights) if self.translation else None

    @cached_property
    def polar_kernel(self) -> Kernel | None:
        """The polar kernel Λ_q; None where rotation and scaling are both off."""
        if not (self.rotation or self.scaling):
            return None
        size = self.kernel_size if self.polar_kernel_size is None else self.polar_kernel_size
        sigma = self.sigma if self.polar_sigma is None else self.polar_sigma
        described = self.polar_kernel_size is not None or self.polar_sigma is not None
        inherited = None if described else self.weights
        weights = inherited if self.polar_weights is None else self.polar_weights
        kernel = _kernel(size, sigma, self.kind, weights)
        if not self.rotation:
            return kernel.sum_over_columns()
        return kernel if self.scaling else kernel.sum_over_rows()

    def __call__(self, gradient: Tensor) -> Tensor:
        """Estimate from ``gradient``, (B, C, H, W)."""
        if not _checked(gradient).numel():
            return gradient
        fast = estimate(gradient, self.kernel, self.polar_kernel)
        if fast is not None:
            return fast
        g = _computable(gradient)
        if self.kernel is not None:
            g = blur(g, self.kernel)
        if self.polar_kernel is not None:
            # Step by step, so that each buffer is free before the next but one is made.
            g = to_polar(g)
            g = blur(g, self.polar_kernel, circular=True)
            g = from_polar(g, (gradient.shape[-2], gradient.shape[-1]))
        return g.to(gradient.dtype)


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class RotationInvariant(_Wraps, Record):
    """Average the gradient over rotations alone, whose width may fall from step to step of an attack; not of the paper.

    Wide averages in the first steps find what all poses have in common, narrow ones in the last fit the image. The
    polar grid has at least twice the angles of :class:`AffineInvariant`'s, so that less is lost at the rim.

    Attributes:
        degrees: standard deviation of the rotations in degrees, above 0 and at most 180; or a pair, of the first step
            and of the last, between which it changes by a constant factor from step to step. Where there are no steps,
            as with :meth:`wrap`, it is the geometric mean of the pair.
        at_eps: the ε in L∞ that ``degrees`` are for. With a smaller ε they are smaller in proportion; with a larger
            one, in L2, or with an ε for each image they are as given. None: as given, whatever the ε.

    >>> RotationInvariant(degrees=2.7)(torch.rand(2, 3, 32, 48)).shape
    torch.Size([2, 3, 32, 48])
    >>> [RotationInvariant(degrees=(16.0, 1.0)).at(step, 5).degrees for step in range(5)]
    [16.0, 8.0, 4.0, 2.0, 1.0]
    >>> RotationInvariant(at_eps=16 / 255).for_eps(8 / 255)
    RotationInvariant(degrees=(16.0, 0.8))
    """

    _always_shown: ClassVar[tuple[str, ...]] = ("degrees",)
    degrees: Degrees | tuple[Degrees, Degrees] = (32.0, 1.6)
    at_eps: Positive | None = None

    def for_eps(self, eps: float) -> RotationInvariant:
        """The estimator of an attack with an ε in L∞; the same object each time, so a CUDA graph is recorded once."""
        return self if self.at_eps is None else _for_eps(self, eps)

    def at(self, step: int, steps: int) -> RotationInvariant:
        """The estimator in a step, counted from 0, of an attack of ``steps`` steps; itself, where it never changes."""
        if isinstance(self.degrees, float):
            return self
        return RotationInvariant(degrees=self._width(step / (steps - 1) if steps > 1 else 0.5))

    def following(self, step: Tensor, steps: int, like: Tensor) -> Estimator | None:
        """The estimator in the step whose number a tensor holds; see :func:`whorl.estimators.following`."""
        # On a CPU the step can be looked at; elsewhere a kernel has to.
        found, angles = _RotationByStep(self, step, steps), _angles(like)
        fits = like.device.type == "cpu" or rotates_by_step(like, found.sigmas(angles), angles)
        return found if fits else None

    def _width(self, share: float) -> float:
        """Degrees after a share of the way from the first step to the last."""
        if isinstance(self.degrees, float):
            return self.degrees
        first, last = self.degrees
        return float(first ** (1 - share) * last**share)

    def __call__(self, gradient: Tensor) -> Tensor:
        """Estimate from ``gradient``, (B, C, H, W)."""
        if not _checked(gradient).numel():
            return gradient
        angles = _angles(gradient)
        sigma = self.sigma(angles)
        fast = average_rotations(gradient, sigma, angles)
        if fast is not None:
            return fast
        polar = turn(to_polar(_computable(gradient), angles=angles), ring(sigma, angles, gradient.device))
        return from_polar(polar, (gradient.shape[-2], gradient.shape[-1])).to(gradient.dtype)

    def sigma(self, angles: int) -> float:
        """σ of the rotations in cells of a polar grid with so many ``angles``."""
        # Below that nothing moves: the nearest cell has no weight that a float could hold.
        return max(self._width(0.5) / 360 * angles, _LEAST_WIDTH)


class _RotationByStep:
    """A :class:`RotationInvariant` in the step that a tensor holds."""

    short = True

    def __init__(self, estimator: RotationInvariant, step: Tensor, steps: int) -> None:
        self.estimator, self.step, self.steps = estimator, step, steps

    def __call__(self, gradient: Tensor) -> Tensor:
        """Estimate from ``gradient``, (B, C, H, W)."""
        if gradient.device.type == "cpu":
            return self.estimator.at(min(int(self.step), self.steps - 1), self.steps)(gradient)
        angles = _angles(gradient)
        return average_rotations_by_step(gradient, self.sigmas(angles), self.step, angles)

    def sigmas(self, angles: int) -> tuple[float, ...]:
        """σ of every step, in cells around a circle of so many."""
        return tuple(self.estimator.at(step, self.steps).sigma(angles) for step in range(self.steps))


def _angles(gradient: Tensor) -> int:
    """Cells around the circle for gradients of that size."""
    return -(-_FINER * max(gradient.shape[-2:]) // _ANGLES_AT_ONCE) * _ANGLES_AT_ONCE


class Estimated(nn.Module):
    """A network whose input gradient goes through an estimator; see ``wrap``."""

    def __init__(self, module: nn.Module, estimator: Estimator) -> None:
        super().__init__()
        self.module = module
        self.estimator = estimator
        # A frozen ScriptModule has its mode compiled into it, and no attribute that says which.
        self.train(getattr(module, "training", False))

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped network on ``x``."""
        return self.module(_estimate(x, self.estimator), *args, **kwargs)

    def loss_terms(self, x: Tensor) -> list[tuple[float, Tensor]]:
        """Weighted logits for the attack loop, as :meth:`whorl.models.Ensemble.loss_terms` gives them."""
        terms = getattr(self.module, "loss_terms", None)
        if terms is None:
            return [(1.0, self(x))]
        parts: list[tuple[float, Tensor]] = terms(_estimate(x, self.estimator))
        return parts


class _EstimateGradient(torch.autograd.Function):
    """Identity forward, estimator backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, estimator: Estimator) -> Tensor:  # noqa: ARG004 - the backward pass takes it from the inputs
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Estimator], output: Tensor) -> None:  # noqa: ARG004 - torch's signature
        ctx.estimator = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.estimator(gradients[0]), None


def _estimate(x: Tensor, estimator: Estimator) -> Tensor:
    out: Tensor = _EstimateGradient.apply(x, estimator)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return out


@lru_cache(maxsize=64)
def _for_eps(estimator: RotationInvariant, eps: float) -> RotationInvariant:
    assert estimator.at_eps is not None  # noqa: S101 - the caller has looked
    share = min(1.0, eps / estimator.at_eps) or 1.0  # a ball without extent has no width to suit
    widths = estimator.degrees if isinstance(estimator.degrees, tuple) else (estimator.degrees,)
    scaled = tuple(max(width * share, _LEAST_DEGREES) for width in widths)
    return RotationInvariant(degrees=scaled if len(scaled) == 2 else scaled[0])


def _kernel(size: Size, sigma: Sigma, kind: Kind, weights: Tensor | None) -> Kernel:
    if weights is not None:
        return factor(weights)
    if kind == "gaussian":
        return gaussian_factors(size, sigma)
    if kind == "uniform":
        return uniform_factors(size)
    raise WhorlError(f"kind must be 'gaussian' or 'uniform'; got {kind!r}. For other weights pass your own kernel.")


def _checked(gradient: Tensor) -> Tensor:
    if not isinstance(gradient, Tensor):
        raise WhorlError(f"a gradient must be a floating (B, C, H, W) tensor; got {type(gradient).__name__}.")
    if gradient.dim() != 4 or not gradient.is_floating_point() or gradient.is_sparse:
        came = f"{gradient.dtype} of shape {tuple(gradient.shape)}" + ", sparse" * gradient.is_sparse
        raise WhorlError(f"a gradient must be a floating (B, C, H, W) tensor; got {came}.")
    return gradient


def _computable(gradient: Tensor) -> Tensor:
    """Half precision would lose the blur's small weights: compute in float32 at least."""
    return gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()
