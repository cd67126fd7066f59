"""Rates over images, poses and seeds, with intervals; paired comparisons; corrections for many of them.

The unit is the image. Its poses, seeds, targets and photographs go together, for one image in twelve poses is not
twelve images: intervals resample images, and tests swap two attacks image by image.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from whorl.errors import WhorlError
from whorl.evaluation.image_counts import (
    ENDS,
    LEVEL,
    NORMAL,
    RESAMPLES,
    SEED,
    UNKNOWN,
    Array,
    ImageCounts,
    Interval,
    Over,
    bca_interval,
)

Name = TypeVar("Name", bound=Hashable)
_LATTICE = 1 << 15  # steps onto which differences that are not whole are rounded for a test
_HALVINGS = 512
MANY = 2000  # differing images from which on the normal distribution replaces the exact one


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A rate with its interval, and what it rests on.

    Attributes:
        value: in [0, 1]; NaN where no image counts.
        interval: 95%; NaN likewise.
        images: how many images count in some pose.
        n: how many count, summed over the poses: the denominator of a pooled rate.
        successes: how many of those succeed.
        poses: number of poses in which some image counts.
        over: how poses are put together, "pooled" or "mean".
        method: how the interval was computed: the bootstrap, or Wilson's formula.
        few: whether no pose has ``FEWEST`` (10) eligible images, too few for a headline.
        left_out: number of poses left out because they have fewer, while others have enough.
    """

    value: float
    interval: Interval
    images: int
    n: int
    successes: int
    poses: int
    over: Over = "pooled"
    method: Literal["BCa", "Wilson"] = "BCa"
    few: bool = False
    left_out: int = 0

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "no rate"
        return f"{self.value:.1%} ({self.interval[0]:.1%} to {self.interval[1]:.1%}, {self.images} images)"


def rate(counts: ImageCounts, over: Over = "pooled", *, resamples: int = RESAMPLES, seed: int = SEED) -> Rate:
    """Give a rate with its 95% interval.

    Where each image counts once at most, the interval is Wilson's. Elsewhere it is the bootstrap's over images,
    bias-corrected and accelerated (BCa); where all succeed or none, which resampling takes for certainty, it is
    Wilson's of the images.

    Args:
        counts: what is counted of each image.
        over: "pooled" (all successes by all eligible images) or "mean" (the mean of the poses' rates).
        resamples: how many bootstrap resamples of the images.
        seed: of the resamples.

    >>> once = ImageCounts(np.ones((1, 100)), np.arange(100)[None] < 90)
    >>> str(rate(once)), rate(once).method
    ('90.0% (82.6% to 94.5%, 100 images)', 'Wilson')
    """
    value, per_image = counts.value(over), counts.eligible.sum(0)
    successes, n = int(counts.success.sum()), int(counts.eligible.sum())
    method: Literal["BCa", "Wilson"] = "Wilson"
    if n and per_image.max() > 1 and successes not in (0, n):
        method, interval = "BCa", bca_interval(counts.drawn(over, resamples, seed), value, counts.without_each(over))
    else:
        interval = wilson(value * counts.images, counts.images)
    return Rate(
        value=value,
        interval=interval,
        images=counts.images,
        n=n,
        successes=successes,
        poses=int((counts.eligible.sum(1) > 0).sum()),
        over=over,
        method=method,
        few=not counts.enough.any(),
    )


def headline(counts: ImageCounts) -> Rate:
    """Give the rate that a headline states: pooled over the poses in which ``FEWEST`` images at least are eligible.

    Where there is no such pose, all are pooled, and the rate is marked as one of too few images.

    >>> eligible = np.array([[1] * 12, [1] * 3 + [0] * 9])
    >>> found = headline(ImageCounts(eligible, eligible))
    >>> found.n, found.left_out, found.few
    (12, 1, False)
    """
    (kept,) = for_headline(counts)
    return replace(rate(kept), left_out=len(counts.eligible) - len(kept.eligible))


def for_headline(*several: ImageCounts) -> tuple[ImageCounts, ...]:
    """Keep the poses in which each of some counts has ``FEWEST`` eligible images; all poses, if there is none."""
    poses = np.logical_and.reduce([counts.enough for counts in several])
    return tuple(counts.at(poses) for counts in several) if poses.any() else several


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's 95% interval of a share; NaN without trials.

    >>> tuple(round(end, 3) for end in wilson(100, 100))
    (0.963, 1.0)
    """
    if not trials:
        return UNKNOWN
    share, z = successes / trials, NORMAL.inv_cdf(ENDS[1])
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A paired comparison: two attacks on the same images, or two networks under the same attack.

    Attributes:
        n: images compared: they count in at least one pose.
        b: images of those on which the first did better: it succeeded where the second did not, or in more poses.
        c: images of those on which the second did better.
        difference: the first's rate less the second's, in [-1, 1]; NaN where there are counts b and c alone.
        interval: of the difference, 95%, BCa over resampled images; it holds 0 where ``p`` is not below 5%.
        p: p-value of the test; None takes the exact sign test of ``b`` against ``c``, which for one pose is McNemar's.
        adjusted: the same, corrected for the other comparisons of its table; None if it stands alone. See ``holm``.

    >>> clear = Comparison(n=100, b=9, c=1)
    >>> round(clear.p_value, 4), clear.differs()
    (0.0215, True)
    """

    n: int
    b: int
    c: int
    difference: float = math.nan
    interval: Interval = UNKNOWN
    p: float | None = None
    adjusted: float | None = None

    @property
    def p_value(self) -> float:
        """Two-sided p-value: ``adjusted`` where there is one."""
        if self.adjusted is not None:
            return self.adjusted
        return sign_test(self.b, self.c) if self.p is None else self.p

    def differs(self, alpha: float = 0.05) -> bool:
        """Whether the difference is significant: ``p_value`` is below ``alpha``, in (0, 1)."""
        return self.p_value < alpha

    @property
    def ahead(self) -> int:
        """1 if the first is ahead, -1 if the second is, 0 if the difference is not significant."""
        return (1 if self.leads else -1) if self.differs() else 0

    @property
    def leads(self) -> bool:
        """Whether the first has the higher rate, significantly or not; where ``difference`` is NaN, whether b > c."""
        return self.b > self.c if math.isnan(self.difference) else self.difference > 0

    def swapped(self) -> Comparison:
        """The same comparison with first and second exchanged."""
        low, high = self.interval
        # Not -x, which makes of 0 a -0.0 that is printed with its sign.
        return replace(self, b=self.c, c=self.b, difference=0.0 - self.difference, interval=(0.0 - high, 0.0 - low))


def compare(
    first: ImageCounts, second: ImageCounts, over: Over = "pooled", *, resamples: int = RESAMPLES, seed: int = SEED
) -> Comparison:
    """Compare two rates on the same images.

    The test is the paired randomisation test: if neither is better, swapping the two on any of the images changes
    nothing, so the difference is held against those of all swaps. It is exact up to 2,000 images that differ, beyond
    which the normal distribution stands for it. With one pose it is McNemar's exact test. Where the images that count
    differ, as of two networks, the same test is made on those that both count, and the larger p is given; it is 1 if
    the difference there has the other sign. The interval is the paired bootstrap's over images (BCa), and holds 0 where
    the test does not exclude it.

    Args:
        first: counts of the one attack, or network.
        second: counts of the other; poses and images in the same order.
        over: "pooled" (all successes by all eligible images) or "mean" (the mean of the poses' rates).
        resamples: how many bootstrap resamples of the images, for the interval.
        seed: of the resamples.

    Raises:
        WhorlError: the shapes differ.

    >>> clean = np.ones((1, 10))
    >>> found = compare(ImageCounts(clean, clean), ImageCounts(clean, np.arange(10)[None] < 4))
    >>> found.b, found.c, round(found.difference, 3), found.p_value
    (6, 0, 0.6, 0.03125)
    """
    if first.eligible.shape != second.eligible.shape:
        raise WhorlError(
            "two rates can be compared only on the same images and poses; got (poses, images) "
            f"{first.eligible.shape} and {second.eligible.shape}."
        )
    lead = first.success.sum(0) - second.success.sum(0)
    n, difference = (
        int(((first.eligible > 0) | (second.eligible > 0)).any(0).sum()),
        first.value(over) - second.value(over),
    )
    if math.isnan(difference):
        return Comparison(n=n, b=int((lead > 0).sum()), c=int((lead < 0).sum()), p=1.0)
    if len(first.eligible) == 1 and (first.eligible == second.eligible).all() and first.eligible.max() <= 1:
        interval = mean_interval(lead[first.eligible[0] > 0], resamples=resamples, seed=seed)
    else:
        apart = first.drawn(over, resamples, seed) - second.drawn(over, resamples, seed)
        interval = bca_interval(apart, difference, first.without_each(over) - second.without_each(over))
    if interval[0] == interval[1]:  # resampling takes it for certainty: as wide as that of images without a case
        beyond = wilson(0, n)[1]
        interval = max(-1.0, difference - beyond), min(1.0, difference + beyond)
    p = _p_value(first, second, over)
    if p >= 1 - LEVEL:  # resamples of a handful of images that differ would exclude what the exact test does not
        interval = min(interval[0], 0.0), max(interval[1], 0.0)
    return Comparison(
        n=n,
        b=int((lead > 0).sum()),
        c=int((lead < 0).sum()),
        difference=difference,
        interval=interval,
        p=p,
    )


def mean_interval(values: Array, *, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """95% interval of the mean of (N,) numbers, one of each image: BCa over resampled images; NaN without any.

    Images with the same number are drawn together, so a few different numbers take no time, however many images.

    >>> tuple(round(end, 1) for end in mean_interval(np.array([0.0, 1.0] * 50)))
    (0.4, 0.6)
    """
    if not len(values):
        return UNKNOWN
    different, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(values), counts / len(values), size=resamples)
    total = float(different @ counts)
    without = np.repeat((total - different) / max(1, len(values) - 1), counts)
    return bca_interval(drawn @ different / len(values), total / len(values), without)


def holm(comparisons: Mapping[Name, Comparison]) -> dict[Name, Comparison]:
    """Correct the p-values of all comparisons of a table, after Holm: the chance of any false "ahead" is at most 5%.

    >>> found = holm({"x": Comparison(n=20, b=9, c=0), "y": Comparison(n=20, b=9, c=1)})
    >>> [round(one.p_value, 4) for one in found.values()]
    [0.0078, 0.0215]
    """
    order = sorted(comparisons, key=lambda name: _single(comparisons[name]))
    adjusted: dict[Name, float] = {}
    least = 0.0
    for place, name in enumerate(order):
        least = max(least, min(1.0, (len(order) - place) * _single(comparisons[name])))
        adjusted[name] = least
    return {name: replace(one, adjusted=adjusted[name]) for name, one in comparisons.items()}


def sign_test(b: int, c: int) -> float:
    """How likely so uneven a split is if both sides are as likely: exact, two-sided."""
    trials, fewer = b + c, min(b, c)
    tail = term = 1
    for k in range(fewer):
        term = term * (trials - k) // (k + 1)  # the next binomial coefficient
        tail += term
    # Whole numbers up to here, so the division is the only rounding, however many images there are.
    return min(1.0, 2 * tail / (1 << trials))


def swap_test(leads: Array) -> float:
    """How likely so large a sum is if each number may as well have the other sign: exact, two-sided.

    Args:
        leads: (N,), each image's part in the difference. Numbers that are not whole are rounded onto 2^15 steps.

    >>> swap_test(np.array([1.0, 1, 1, 1, 1, 1]))
    0.03125
    """
    found = np.asarray(leads, np.float64)
    found = found[found != 0]
    if not len(found):
        return 1.0
    size, total = np.abs(found), abs(float(found.sum()))
    if (size == size[0]).all():
        return sign_test(int((found > 0).sum()), int((found < 0).sum()))
    if len(found) > MANY:
        return math.erfc(total / math.sqrt(2 * float(size @ size)))
    step = 1.0 if (size == np.rint(size)).all() else float(size.sum()) / _LATTICE
    whole = np.rint(found / step).astype(np.int64)
    observed, steps = abs(int(whole.sum())), np.sort(np.abs(whole))
    steps = steps[steps > 0]
    ways, length = np.zeros(int(steps.sum()) + 1), 1  # in which those that keep their sign add up to 0, 1, 2, ...
    ways[0] = 1.0
    for place, k in enumerate(steps.tolist(), start=1):
        ways[k : length + k] += ways[:length]
        length += k
        if place % _HALVINGS == 0 or place == len(steps):  # before a float overflows; shares in the end
            ways *= 0.5 ** (place % _HALVINGS or _HALVINGS)
    sums = np.abs(2 * np.arange(length) - (length - 1))
    return min(1.0, float(ways[sums >= observed].sum()))


def _p_value(first: ImageCounts, second: ImageCounts, over: Over) -> float:
    """Of the swaps; where the images that count differ, of those that both count if that is larger.

    To swap an image that only one of two networks recognises is to assume that either could have been the one. With 50
    images and rates near 1 that would call up to 17% of the comparisons significant in which nothing differs.
    """
    p = swap_test(_leads(first, second, over))
    if np.array_equal(first.eligible, second.eligible):
        return p
    one, other = first.shared_with(second), second.shared_with(first)
    same_way = (first.value(over) - second.value(over)) * (one.value(over) - other.value(over)) > 0
    return max(p, swap_test(_leads(one, other, over))) if same_way else 1.0


def _leads(first: ImageCounts, second: ImageCounts, over: Over) -> Array:
    """Each image's part in the difference of two rates, (N,): swapping the two on it changes its sign and no more.

    Where both have the same eligible images, the sum is the difference in successes. Where not, successes are held
    against what the rate of both together, which no swap changes, would give.
    """
    e1, e2, s1, s2 = (
        part.astype(np.float64) for part in (first.eligible, second.eligible, first.success, second.success)
    )
    if over == "pooled":
        e1, e2, s1, s2 = (part.sum(0, keepdims=True) for part in (e1, e2, s1, s2))
    both = (e1 + e2).sum(1, keepdims=True)
    expected = np.divide((s1 + s2).sum(1, keepdims=True), both, out=np.zeros_like(both), where=both > 0)
    parts = (s1 - s2) - expected * (e1 - e2)
    weights = 1.0 if over == "pooled" else np.divide(1.0, both, out=np.zeros_like(both), where=both > 0)
    leads: Array = (weights * parts).sum(0)
    return leads


def _single(comparison: Comparison) -> float:
    return replace(comparison, adjusted=None).p_value
