"""Random poses that are spread evenly over the steps of one image, instead of drawn apart.

Ten independent draws leave gaps and repeat themselves. A spread design covers the same ranges with as many draws, and
each single draw is still uniform over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.geometry.pose import NUMBERS
from whorl.geometry.views import View
from whorl.randomness import substream, uniform
from whorl.records import Share
from whorl.transforms.inputs import TRANSFORMS, InputTransform, RandomAffine

Design = Literal["latin", "lattice", "antithetic"]

_PERMUTED, _WITHIN = 0, 1


@runtime_checkable
class Planned(Protocol):
    """An input transform that wants to know all the draws that are coming."""

    def plan(self, table: Tensor, /) -> InputTransform:
        """Plan the draws.

        Args:
            table: (draws, B) int64: the keys that each image will be transformed under, in order.

        Returns:
            A transform for these keys. A pure one has ``take(plan)``, which takes over another plan of as many draws
            for as many images without moving its own tensors, so that what was recorded of it stays right.
        """
        ...


def planned(part: InputTransform, table: Tensor) -> InputTransform:
    """A transform for the keys of ``table``, (draws, B): its own plan where it plans, else itself."""
    return part.plan(table) if isinstance(part, Planned) else part


def taken(plan: InputTransform, other: InputTransform) -> None:
    """Let a pure plan take over another of the same transform; what plans nothing is the same both times."""
    if other is not plan:
        take: Callable[[InputTransform], None] = getattr(plan, "take")  # noqa: B009 - of those that are pure
        take(other)


@TRANSFORMS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class SpreadAffine(RandomAffine):
    """A random pose whose draws, over the steps of an attack, fill their ranges evenly.

    Called by itself it is :class:`RandomAffine`; an attack plans its draws (:meth:`plan`).

    Attributes:
        angle: degrees, drawn from [-angle, angle].
        scale: (lowest, highest) factor.
        shift: pixels of a 299-pixel image, drawn from [-shift, shift] for each axis; scales with the image.
        shear: as of :class:`RandomAffine`.
        stretch: likewise.
        tilt: likewise.
        brightness: likewise.
        contrast: likewise.
        blur: likewise.
        design: ``"latin"`` divides each range into as many equal parts as there are draws and meets every part once
            (Latin hypercube). ``"lattice"`` steps through all ranges by irrational shares from a random start,
            so that every beginning of the sequence is even too. ``"antithetic"`` mirrors every second draw.
        near: share of an attack's draws that show the image as it is, spread evenly over the steps; the other draws
            follow the design.

    >>> SpreadAffine()
    SpreadAffine()
    >>> keys = torch.arange(20).reshape(10, 2)                    # ten draws for each of two images
    >>> SpreadAffine().plan(keys)(torch.rand(2, 3, 32, 32), keys[3]).shape
    torch.Size([2, 3, 32, 32])
    """

    design: Design = "latin"
    near: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for number in NUMBERS if self.near else ():
            low, high = self.ranges[number.name]
            if not low <= number.neutral <= high:
                raise WhorlError(
                    f"near shows the image as it is, so {number.name} must reach {number.neutral:g}; "
                    f"got a range from {low:g} to {high:g}."
                )

    def plan(self, table: Tensor) -> InputTransform:
        """Give every key of ``table``, (draws, B) int64, its point of the design: the transform that an attack uses."""
        far = _far_draws(len(table), self.near, table.device)
        points = _neutral(self, table.device).expand(*table.shape, self.dimensions)
        if len(far):
            points = points.index_copy(0, far, _DESIGNS[self.design](table.index_select(0, far), self.dimensions))
        # Tensors of its own, for it may take over others.
        return PlannedAffine(self, Lookup(table), points.flatten(0, 1).clone())


# Both are kept, for to send them to a GPU anew would make every batch wait for it.
@lru_cache(maxsize=32)
def _neutral(spread: SpreadAffine, device: torch.device) -> Tensor:
    """The point that leaves an image as it is, (dimensions,)."""
    own = [(number.neutral, *spread.ranges[number.name]) for number in NUMBERS if number.name in spread.drawn]
    point = [0.5 if low == high else (value - low) / (high - low) for value, low, high in own]
    with torch.inference_mode(False):
        return torch.tensor(point, device=device)


@lru_cache(maxsize=32)
def _far_draws(draws: int, share: float, device: torch.device) -> Tensor:
    """Places of those draws that do not show the image as it is."""
    far = [draw for draw, near in enumerate(near_draws(draws, share)) if not near]
    with torch.inference_mode(False):
        return torch.tensor(far, dtype=torch.int64, device=device)


def near_draws(draws: int, share: float) -> tuple[bool, ...]:
    """Which of an attack's draws show the image as it is: so many of them, as evenly spread as can be.

    >>> near_draws(5, 0.4)
    (False, False, True, False, True)
    """
    count = round(share * draws)
    return tuple((i + 1) * count // draws > i * count // draws for i in range(draws))


class PlannedAffine:
    """Poses by key: what :meth:`SpreadAffine.plan` gives."""

    pure = True

    def __init__(self, ranges: RandomAffine, lookup: Lookup, points: Tensor) -> None:
        self.ranges, self.lookup, self.points = ranges, lookup, points
        self.short = ranges.short

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Transform (B, C, H, W) images."""
        return self.ranges.pose(x, self._draws(keys))

    def view(self, x: Tensor, keys: Tensor) -> View | None:
        """What it shows: as of :meth:`RandomAffine.view`."""
        return self.ranges.view_of(x, self._draws(keys)) if self.short else None

    def take(self, other: PlannedAffine) -> None:
        """Take over another plan of as many draws for as many images."""
        for mine, its in (
            (self.points, other.points),
            (self.lookup.sorted, other.lookup.sorted),
            (self.lookup.order, other.lookup.order),
        ):
            mine.copy_(its)

    def _draws(self, keys: Tensor) -> Tensor:
        return self.points.index_select(0, self.lookup(keys))


class Lookup:
    """Finds the place of a key in a table, without waiting for a device."""

    def __init__(self, table: Tensor) -> None:
        self.sorted, self.order = table.flatten().sort()

    def __call__(self, keys: Tensor) -> Tensor:
        """Places of (B,) keys in the flattened table; some place for a key that is not in it."""
        # So many of the others are not larger: never more than there are, whatever the key.
        return self.order.index_select(0, torch.searchsorted(self.sorted[1:], keys, right=True))


def latin(table: Tensor, dimensions: int = 4) -> Tensor:
    """Latin hypercube: (draws, B, dimensions) points; each image meets each of ``draws`` equal parts of a range once.

    >>> points = latin(torch.arange(10)[:, None])
    >>> [sorted((points[:, 0, i] * 10).floor().long().tolist()) == list(range(10)) for i in range(4)]
    [True, True, True, True]
    """
    draws, _ = table.shape
    # An image's design is one whole, so it comes from one key, that of its first draw.
    order = uniform(substream(table[0], _PERMUTED), (dimensions, draws)).argsort(dim=-1).permute(2, 0, 1)
    within = uniform(substream(table[0], _WITHIN), (dimensions, draws)).permute(2, 0, 1)
    return (order + within) / draws


def lattice(table: Tensor, dimensions: int = 4) -> Tensor:
    """Additive recurrence: (draws, B, dimensions) points that step by powers of that dimension's golden ratio."""
    golden = golden_ratio(dimensions)
    share = torch.tensor([golden**-i for i in range(1, dimensions + 1)], dtype=torch.float64, device=table.device)
    start = uniform(substream(table[0], _WITHIN), (dimensions,)).to(torch.float64)
    steps = torch.arange(len(table), device=table.device, dtype=torch.float64)
    points: Tensor = (start + steps[:, None, None] * share) % 1
    # Rounding to float32 must not reach 1.
    return points.to(torch.float32).clamp(max=1 - 2**-24)


def golden_ratio(dimensions: int) -> float:
    """The one root above 1 of g to the power of dimensions + 1 = g + 1 (Roberts, 2018).

    >>> round(golden_ratio(1), 6), golden_ratio(4)
    (1.618034, 1.1673039782614187)
    """
    root = 2.0
    for _ in range(100):  # converges to the last bit in far fewer
        root = (1 + root) ** (1 / (dimensions + 1))
    return root


def antithetic(table: Tensor, dimensions: int = 4) -> Tensor:
    """Pairs that mirror each other: (draws, B, dimensions) points, every second one is 1 minus the one before."""
    draws, batch = table.shape
    points = uniform(table.flatten(), (dimensions,)).reshape(draws, batch, dimensions)
    points[1::2] = 1 - 2**-24 - points[: draws - draws % 2 : 2]
    return points


_DESIGNS = {"latin": latin, "lattice": lattice, "antithetic": antithetic}
