"""What became of each image, in each pose, on each target; and every rate and comparison that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.data_frame import frame_of_cells, frame_of_images
from whorl.evaluation.distance import Distance
from whorl.evaluation.image_counts import ImageCounts, Over
from whorl.evaluation.rate_table import RateRow, rate_table
from whorl.evaluation.statistics import Comparison, Rate, compare, for_headline, headline, rate
from whorl.evaluation.success import SuccessRate
from whorl.geometry.pose import Pose
from whorl.records import Plotted

if TYPE_CHECKING:
    from pandas import DataFrame

Measure = Literal["success", "targeted", "hit"]
"""What is counted of an image: that it is misclassified, or taken for the class to reach."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes(Plotted):
    """What became of each image under each attack, on each target, in each pose; ``a + b`` adds other images.

    Attributes:
        ids: N images, each once.
        attacks: A names.
        targets: T names.
        poses: P poses, each once.
        clean: (T, P, N) bool: the transformed clean image is recognised.
        adversarial: (A, T, P, N) bool: the transformed adversarial image is.
        distances: of the 8-bit adversarial images to the clean ones as they are, by attack; empty where unknown.
        reached: (A, T, P, N) bool: the transformed adversarial image is taken for the class that the attack was to
            reach; None of untargeted attacks.

    >>> clean = torch.tensor([[[True, True, False, True]]])
    >>> adversarial = torch.tensor([[[[False, True, False, True]]], [[[False, False, True, True]]]])
    >>> done = Outcomes(
    ...     ids=("a", "b", "c", "d"), attacks=("weak", "strong"), targets=("net",), poses=(Pose(),),
    ...     clean=clean, adversarial=adversarial,
    ... )
    >>> done.counts["strong", "net", Pose()]
    SuccessRate(n=4, n_clean_correct=3, n_success=2, n_adversarial_correct=2)
    >>> str(done.rate("weak", "net")), done.compare("strong", "weak", "net").p_value
    ('33.3% (6.1% to 79.2%, 3 images)', 1.0)
    """

    ids: tuple[str, ...]
    attacks: tuple[str, ...]
    targets: tuple[str, ...]
    poses: tuple[Pose, ...]
    clean: Tensor
    adversarial: Tensor
    distances: Mapping[str, Distance] = field(default_factory=dict)
    reached: Tensor | None = None

    def __post_init__(self) -> None:
        expected = (len(self.targets), len(self.poses), len(self.ids))
        shapes = tuple(self.clean.shape), tuple(self.adversarial.shape)
        if shapes != (expected, (len(self.attacks), *expected)):
            raise WhorlError(
                f"outcomes must be (targets, poses, images), {expected}, and the same for each of "
                f"{len(self.attacks)} attacks; got {shapes[0]} and {shapes[1]}."
            )
        if self.reached is not None and self.reached.shape != self.adversarial.shape:
            raise WhorlError(f"reached must be {shapes[1]}, as the outcomes; got {tuple(self.reached.shape)}.")
        for what in ("ids", "attacks", "targets", "poses"):
            names = getattr(self, what)
            if len(set(names)) != len(names):
                twice = next(name for i, name in enumerate(names) if name in names[:i])
                raise WhorlError(f"{what} must differ, for each counts once; got {twice!r} more than once.")

    @property
    def success(self) -> Tensor:
        """(A, T, P, N) bool: clean version right, adversarial version wrong."""
        return self.clean & ~self.adversarial

    @cached_property
    def counts(self) -> dict[tuple[str, str, Pose], SuccessRate]:
        """Counts of images, by (attack, target, pose)."""
        columns = (self.clean.expand_as(self.adversarial), self.success, self.adversarial)
        rows = torch.stack([column.sum(-1) for column in columns], dim=-1).flatten(0, 2).tolist()
        cells = [(a, t, p) for a in self.attacks for t in self.targets for p in self.poses]
        return {cell: SuccessRate(len(self.ids), *row) for cell, row in zip(cells, rows, strict=True)}

    def counted(
        self, attack: str, target: str, poses: Sequence[Pose] | None = None, of: Measure = "success"
    ) -> ImageCounts:
        """What is counted of each image in some of the poses, all by default: what rates and tests are made of.

        Args:
            attack: its name.
            target: its name.
            poses: which, in this order.
            of: ``"success"``: of the images recognised clean, those whose adversarial version is not. ``"targeted"``:
                of the same, those taken for the class to reach. ``"hit"``: the latter of all images.

        Raises:
            WhorlError: no such attack, target or pose, or what to reach is not known.
        """
        known: dict[tuple[object, ...], ImageCounts] = self.__dict__.setdefault("_counted", {})
        key = (attack, target, None if poses is None else tuple(poses), of)
        if key not in known:
            known[key] = self._count(attack, target, self.poses if poses is None else poses, of)
        return known[key]

    def _count(self, attack: str, target: str, poses: Sequence[Pose], of: Measure) -> ImageCounts:
        a, t = self._place(attack, target)
        rows = [self._row(pose) for pose in poses]
        clean = self.clean[t, rows]
        if of == "success":
            return ImageCounts.of(clean, self.adversarial[a, t, rows])
        if self.reached is None:
            raise WhorlError(f"the attack {attack!r} was not evaluated as a targeted one; give the classes to reach.")
        eligible = clean if of == "targeted" else torch.ones_like(clean)
        return ImageCounts(eligible.numpy(), (eligible & self.reached[a, t, rows]).numpy())

    def rate(self, attack: str, target: str, poses: Over = "pooled", *, of: Measure = "success") -> Rate:
        """Give a rate over all poses with its interval over images; see ``whorl.evaluation.rate``.

        Args:
            attack: its name.
            target: its name.
            poses: ``"pooled"``: all successes by all images recognised clean. ``"mean"``: the unweighted mean of the
                poses' rates, as in the paper's tables; a pose in which no clean image is recognised is left out.
            of: what is counted; see ``counted``.

        Raises:
            WhorlError: no such attack or target, or the target recognises no clean image in any pose.
        """
        return rate(self._defined(attack, target, of), poses)

    def headline(self, attack: str, target: str, *, of: Measure = "success") -> Rate:
        """Give the rate that a headline states: pooled over the poses in which 10 clean images or more are recognised.

        Raises:
            WhorlError: as of ``rate``.
        """
        return headline(self._defined(attack, target, of))

    def _defined(self, attack: str, target: str, of: Measure) -> ImageCounts:
        counts = self.counted(attack, target, of=of)
        check_recognised(target, counts.images)
        return counts

    def worst_case(self, attack: str, target: str) -> SuccessRate:
        """Count images over all poses: one is fooled if any pose fools it, and robust if none does.

        Returns:
            Of all images, ``n_clean_correct`` are recognised clean in some pose, ``n_success`` of those are fooled in
            some pose, and ``n_adversarial_correct`` stay recognised in every pose.
        """
        a, t = self._place(attack, target)
        clean, still = self.clean[t], self.adversarial[a, t]
        some, fooled, robust = clean.any(0), (clean & ~still).any(0), still.all(0)
        return SuccessRate(len(self.ids), int(some.sum()), int(fooled.sum()), int(robust.sum()))

    def _repr_html_(self) -> str:
        """The rates of each attack on each target as a table, for notebooks."""
        rows = []
        for attack, target in product(self.attacks, self.targets):
            counts = self.counted(attack, target)  # without a check: a target that recognises nothing is shown as such
            rows.append(
                RateRow(attack, target, headline(counts), rate(counts, "mean"), self.worst_case(attack, target))
            )
        return rate_table(f"Success rates: {len(self.ids)} images, {len(self.poses)} poses", rows)

    def compare(
        self, first: str, second: str, target: str, pose: Pose | None = None, *, poses: Over | None = None
    ) -> Comparison:
        """Compare two attacks on one target, image by image, in one pose or over all; see ``whorl.evaluation.compare``.

        Args:
            first: an attack's name.
            second: another's.
            target: its name.
            pose: None for all.
            poses: how they are put together, as of ``rate``; None compares what ``headline`` gives.

        Raises:
            WhorlError: no such attack, target or pose.
        """
        one, other = (self.counted(name, target, None if pose is None else [pose]) for name in (first, second))
        if poses is None:
            one, other = for_headline(one, other)
        return compare(one, other, poses or "pooled")

    def beside(self, other: Outcomes) -> Outcomes:
        """Put other attacks beside these, on the images that both have, paired by id, so that they can be compared.

        Raises:
            WhorlError: an attack is in both, no image is, targets or poses differ, or clean images were recognised in
                one and not in the other.
        """
        shared = [name for name in self.ids if name in set(other.ids)]
        both = set(self.attacks) & set(other.attacks)
        same = (self.targets, self.poses) == (other.targets, other.poses)
        if both or not shared or not same:
            raise WhorlError(
                "expected other attacks on some of the same images, on the same targets and in the same poses; got "
                f"{len(shared)} shared images, attacks {list(other.attacks)} beside {list(self.attacks)}, targets "
                f"{list(other.targets)} and {len(other.poses)} poses beside {list(self.targets)} and {len(self.poses)}."
            )
        mine, theirs = ([one.ids.index(name) for name in shared] for one in (self, other))
        if not torch.equal(self.clean[..., mine], other.clean[..., theirs]):
            raise WhorlError(
                "clean images were recognised in one and not in the other: not the same images or networks."
            )
        return Outcomes(
            ids=tuple(shared),
            attacks=(*self.attacks, *other.attacks),
            targets=self.targets,
            poses=self.poses,
            clean=self.clean[..., mine],
            adversarial=torch.cat((self.adversarial[..., mine], other.adversarial[..., theirs])),
        )

    def to_pandas(self, by: Literal["cell", "image"] = "cell") -> DataFrame:
        """Give a data frame: a row for each attack, target and pose (``by="cell"``), or for each image of those too.

        Raises:
            WhorlError: pandas is not installed (extra ``pandas``).
        """
        return frame_of_images(self) if by == "image" else frame_of_cells(self)

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes.joined((self, other))

    @staticmethod
    def joined(parts: Sequence[Outcomes]) -> Outcomes:
        """Put the outcomes of several chunks of images into one.

        Raises:
            WhorlError: no parts, parts of other attacks, targets or poses, or an image that is in two of them.
        """
        if not parts:
            raise WhorlError("expected at least one batch of images, got none.")
        first = parts[0]
        for part in parts[1:]:
            for what in ("attacks", "targets", "poses"):
                mine, theirs = list(getattr(first, what)), list(getattr(part, what))
                if mine != theirs:
                    raise WhorlError(f"all batches must have the same {what}, {mine}; got {theirs}.")
        measured = all(part.distances for part in parts)
        return Outcomes(
            ids=tuple(name for part in parts for name in part.ids),
            attacks=first.attacks,
            targets=first.targets,
            poses=first.poses,
            clean=torch.cat([part.clean for part in parts], dim=-1),
            adversarial=torch.cat([part.adversarial for part in parts], dim=-1),
            distances={name: sum((part.distances[name] for part in parts), Distance()) for name in first.attacks}
            if measured
            else {},
            reached=torch.cat([part.reached for part in parts if part.reached is not None], dim=-1)
            if all(part.reached is not None for part in parts)
            else None,
        )

    def to_bits(self) -> bytes:
        """Pack clean and adversarial outcomes, a bit each; ``from_bits`` needs the names beside them.

        What targeted attacks reached follows, where it is known.
        """
        both = torch.cat((self.clean[None], self.adversarial, *(() if self.reached is None else (self.reached,))))
        return np.packbits(both.flatten().numpy()).tobytes()

    @classmethod
    def from_bits(
        cls,
        bits: bytes,
        *,
        ids: Sequence[str],
        attacks: Sequence[str],
        targets: Sequence[str],
        poses: Sequence[Pose],
        distances: Mapping[str, Distance] | None = None,
        targeted: bool = False,
    ) -> Outcomes:
        """Unpack what ``to_bits`` packed; ``targeted`` says whether what was reached is among it.

        Raises:
            WhorlError: there are more or fewer bits than the names call for.
        """
        count_of = len(attacks)
        shape = (1 + count_of * (2 if targeted else 1), len(targets), len(poses), len(ids))
        count = math.prod(shape)
        if len(bits) != (count + 7) // 8:
            raise WhorlError(f"expected {(count + 7) // 8} bytes for outcomes of shape {shape}; got {len(bits)}.")
        unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), count=count).astype(bool)
        both = torch.from_numpy(unpacked).reshape(shape)
        return cls(
            ids=tuple(ids),
            attacks=tuple(attacks),
            targets=tuple(targets),
            poses=tuple(poses),
            clean=both[0],
            adversarial=both[1 : 1 + count_of],
            distances=distances or {},
            reached=both[1 + count_of :] if targeted else None,
        )

    def _place(self, attack: str, target: str) -> tuple[int, int]:
        if attack not in self.attacks or target not in self.targets:
            known = [(a, t) for a in self.attacks for t in self.targets]
            raise WhorlError(f"there is no attack {attack!r} on a target {target!r}; got {known}.")
        return self.attacks.index(attack), self.targets.index(target)

    def _row(self, pose: Pose) -> int:
        if pose not in self.poses:
            raise WhorlError(f"{pose!r} was not evaluated; expected one of {list(self.poses)}.")
        return self.poses.index(pose)


def check_recognised(network: str, images: int) -> None:
    """Refuse a network that recognises none of the clean images, in whatever poses they were shown.

    Args:
        network: its name.
        images: how many it recognises.

    Raises:
        WhorlError: none, so that there is no success rate to judge.
    """
    if not images:
        raise WhorlError(
            f"{network} recognises none of the clean images, so there is no success rate to judge. Check that the "
            "images' labels are its classes, in its order (class folders are matched by name where its address has "
            "labels=FILE), that it gets the mean and std it was trained with, and that it is the right network."
        )
