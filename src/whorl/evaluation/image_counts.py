"""What is counted of each image, and resampling of images: what rates, intervals and tests are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whorl.errors import WhorlError

Array = NDArray[Any]
Interval = tuple[float, float]
"""Lower and upper end."""
Over = Literal["pooled", "mean"]
"""How poses are put together. ``"pooled"``: all successes by all images recognised clean. ``"mean"``: the unweighted
mean of the poses' rates, as in the paper's tables."""

FEWEST = 10
"""A pose in which a target recognises fewer clean images is marked, and has no part in a headline."""
RESAMPLES = 2000
SEED = 0
LEVEL = 0.95
ENDS = (0.025, 0.975)
"""Where a 95% interval ends, as shares."""
UNKNOWN: Interval = (math.nan, math.nan)
NORMAL = NormalDist()
_KEPT = 1 << 24  # counts of resamples that are made at a time


@dataclass(frozen=True, eq=False)
class ImageCounts:
    """What is counted of each image, pose by pose: all that rates, intervals and tests are made of.

    Attributes:
        eligible: (P, N), how often each of N images counts in each of P poses: whether its clean version is recognised.
        success: (P, N), how often of those the attack succeeds.

    Raises:
        WhorlError: the two differ in shape, or more succeed than are eligible.

    >>> counts = ImageCounts(np.array([[1, 1, 0], [1, 1, 1]]), np.array([[1, 0, 0], [1, 1, 1]]))
    >>> counts.value("pooled"), counts.value("mean")
    (0.8, 0.75)
    """

    eligible: Array
    success: Array

    def __post_init__(self) -> None:
        for name in ("eligible", "success"):
            given = np.asarray(getattr(self, name))
            object.__setattr__(self, name, given.astype(np.int8 if given.dtype == bool else np.float32, copy=False))
        if self.eligible.shape != self.success.shape or self.eligible.ndim != 2:
            raise WhorlError(
                f"counts must be (poses, images), twice the same; got {self.eligible.shape} and {self.success.shape}."
            )
        if bool((self.success > self.eligible).any()):
            raise WhorlError("an image cannot succeed more often than it counts; check which counts are which.")

    def __eq__(self, other: object) -> bool:
        """Equal counts, image by image."""
        if not isinstance(other, ImageCounts):
            return NotImplemented
        return np.array_equal(self.eligible, other.eligible) and np.array_equal(self.success, other.success)

    def __hash__(self) -> int:
        """As equal counts need it."""
        return hash((self.eligible.shape, float(self.eligible.sum()), float(self.success.sum())))

    @classmethod
    def of(cls, clean: Tensor, adversarial: Tensor) -> Self:
        """Count successes: of what is recognised clean, what is not recognised attacked; both (N,) or (P, N) bool."""
        clean, still = torch.atleast_2d(clean), torch.atleast_2d(adversarial)
        return cls(clean.numpy(), (clean & ~still).numpy())

    @classmethod
    def of_all(cls, recognised: Tensor) -> Self:
        """Count every image, in every pose, and which of them are recognised: (N,) or (P, N) bool."""
        found = torch.atleast_2d(recognised).numpy()
        return cls(np.ones(found.shape, bool), found)

    @classmethod
    def joined(cls, parts: Sequence[ImageCounts]) -> ImageCounts:
        """Put counts of the same images, in other poses or on other targets, one below the other.

        Raises:
            WhorlError: they are of other images, or of none at all.
        """
        if len({part.eligible.shape[1] for part in parts}) != 1:
            raise WhorlError(f"expected counts of the same images; got {[part.eligible.shape for part in parts]}.")
        first, *rest = parts
        if not rest:
            return first
        known: dict[tuple[int, ...], tuple[Sequence[ImageCounts], ImageCounts]] = first.__dict__.setdefault("_all", {})
        key = tuple(map(id, rest))
        if key not in known:  # kept with its parts, for every table and figure needs its resamples again
            whole = cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("eligible", "success")))
            known[key] = (rest, whole)
        return known[key][1]

    @property
    def enough(self) -> Array:
        """(P,) bool: the poses in which at least ``FEWEST`` (10) images are eligible."""
        found: Array = (self.eligible > 0).sum(1) >= FEWEST
        return found

    def at(self, poses: Array) -> Self:
        """Keep some of the poses, given as (P,) bool."""
        return self if poses.all() else type(self)(self.eligible[poses], self.success[poses])

    def any_pose(self) -> Self:
        """The worst case: an image counts if it does in some pose, and is fooled if some pose fools it."""
        eligible, success = (np.any(part > 0, axis=0)[None] for part in (self.eligible, self.success))
        return type(self)(eligible, success)

    def shared_with(self, other: ImageCounts) -> Self:
        """Keep, pose by pose, the images that other counts count too, and of each no more often than they do.

        >>> own, other = ImageCounts(np.array([[2, 1]]), np.array([[1, 1]])), ImageCounts(np.eye(1, 2), np.eye(1, 2))
        >>> own.shared_with(other).eligible.tolist(), own.shared_with(other).success.tolist()
        ([[1.0, 0.0]], [[0.5, 0.0]])
        """
        shared = np.minimum(self.eligible, other.eligible).astype(np.float32)
        part = np.divide(shared, self.eligible, out=np.zeros_like(shared), where=self.eligible > 0)
        return type(self)(shared, self.success * part)

    @property
    def images(self) -> int:
        """Images that count in some pose."""
        return int((self.eligible > 0).any(0).sum())

    def value(self, over: Over = "pooled") -> float:
        """The rate in [0, 1]; NaN where no image counts."""
        return float(weighted_rates(*self._over(over), np.ones((1, self.eligible.shape[1]), np.float32))[0])

    def drawn(self, over: Over, resamples: int = RESAMPLES, seed: int = SEED) -> Array:
        """The rate in each resample of the images, (resamples,); the same resamples for the same number of images."""

        def draw() -> Array:
            rows = self._over(over)
            every = resampled(self.eligible.shape[1], resamples, seed)
            return np.concatenate([weighted_rates(*rows, weights) for weights in every])

        return self._kept(("drawn", over, resamples, seed), draw)

    def without_each(self, over: Over) -> Array:
        """The rate without each of the images, (N,): the jackknife."""

        def leave_out() -> Array:
            e, s = (part.astype(np.float64) for part in self._over(over))
            return _mean_of_ratios((s.sum(1, keepdims=True) - s).T, (e.sum(1, keepdims=True) - e).T)

        return self._kept(("without", over), leave_out)

    def _kept(self, key: tuple[str | int, ...], make: Callable[[], Array]) -> Array:
        """Make something once: every comparison with these counts needs it again."""
        known: dict[tuple[str | int, ...], Array] = self.__dict__.setdefault("_known", {})
        if key not in known:
            known[key] = make()
        return known[key]

    def _over(self, over: Over) -> tuple[Array, Array]:
        """(P, N) twice; pooled, one pose that stands for all."""
        if over == "mean":
            return self.eligible, self.success
        return self.eligible.sum(0, keepdims=True), self.success.sum(0, keepdims=True)


def weighted_rates(eligible: Array, success: Array, weights: Array) -> Array:
    """Mean of the poses' rates, in [0, 1], with a weight for each image: how often it is in a bootstrap resample.

    Args:
        eligible: (..., P, N), how often each image counts in each pose; broadcast to ``success``.
        success: (..., P, N), how often of those it succeeds.
        weights: (B, N) resamples: how often each image is drawn.

    Returns:
        (B, ...). NaN where nothing counts in any pose.

    >>> eligible = np.array([[1, 1, 0], [1, 1, 1]])
    >>> weighted_rates(eligible, np.array([[1, 0, 0], [1, 1, 1]]), np.array([[1, 1, 1], [0, 1, 0]])).tolist()
    [0.75, 0.5]
    """
    lacking, n = success.ndim - eligible.ndim, weights.shape[-1]
    rows = np.concatenate((eligible.reshape(-1, n), success.reshape(-1, n))).astype(np.float32, copy=False)
    sums: Array = weights.astype(np.float32, copy=False) @ rows.T  # one pass over the weights, which are the most
    below, above = np.split(sums, [eligible[..., 0].size], axis=1)
    below = below.reshape(len(weights), *(1,) * lacking, *eligible.shape[:-1])
    return _mean_of_ratios(above.reshape(len(weights), *success.shape[:-1]), below)


def _mean_of_ratios(above: Array, below: Array) -> Array:
    """(..., P) to (...): a pose in which nothing counts is left out; NaN where that is so in all."""
    counted = np.broadcast_to(below > 0, above.shape)
    ratios = np.divide(above, below, out=np.zeros(above.shape), where=counted, dtype=np.float64)
    poses = counted.sum(-1)
    means: Array = np.divide(ratios.sum(-1), poses, out=np.full(poses.shape, math.nan), where=poses > 0)
    return means


def resampled(count: int, resamples: int, seed: int) -> Iterator[Array]:
    """Draw images with replacement: how often each of them comes in each resample, (B, count), some at a time.

    An image's poses go together, so that poses are not taken for images.
    """
    size = max(1, _KEPT // max(1, count))
    if resamples <= size:
        yield _drawn_counts(count, resamples, seed, 0)
        return
    for part, start in enumerate(range(0, resamples, size)):
        yield _drawn_counts.__wrapped__(count, min(size, resamples - start), seed, part)


@lru_cache(maxsize=2)
def _drawn_counts(count: int, resamples: int, seed: int, part: int) -> Array:
    generator = np.random.default_rng((seed, part))
    chosen = generator.integers(count, size=(resamples, count)) if count else np.zeros((resamples, 0), np.int64)
    places = chosen + count * np.arange(resamples)[:, None]
    counts = np.bincount(places.ravel(), minlength=resamples * count).reshape(resamples, count)
    return counts.astype(np.float32)


def percentile_interval(values: Sequence[float] | Array | Tensor) -> Interval:
    """The middle 95% of (resamples,) values; those that are NaN are left out.

    >>> percentile_interval(np.arange(101.0))
    (2.5, 97.5)
    """
    found = np.asarray(values, np.float64)
    found = found[~np.isnan(found)]
    if not len(found):
        return UNKNOWN
    low, high = np.quantile(found, ENDS)
    return float(low), float(high)


def bca_interval(drawn: Array, value: float, without: Array) -> Interval:
    """Efron's bias-corrected and accelerated interval of a value, from resamples and the jackknife."""
    found, left = drawn[~np.isnan(drawn)].astype(np.float64), without[~np.isnan(without)]
    if not len(found) or math.isnan(value):
        return UNKNOWN
    # A float32 rounding of the same value is the same value.
    level = np.isclose(found, value, rtol=0, atol=1e-6)
    below = float((found[~level] < value).sum() + level.sum() / 2) / len(found)
    bias = NORMAL.inv_cdf(min(max(below, 1 / len(found)), 1 - 1 / len(found)))
    away = left - left.mean() if len(left) else left
    spread = float((away**2).sum()) ** 1.5
    # Below a float's rounding the jackknife knows nothing of skewness.
    acceleration = -float((away**3).sum()) / (6 * spread) if spread > 1e-24 else 0.0
    ends = []
    for share in ENDS:
        z = bias + NORMAL.inv_cdf(share)
        ends.append(NORMAL.cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(found, ends)
    return float(low), float(high)
