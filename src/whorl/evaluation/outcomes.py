"""Images × poses × targets: what became of each image, and every rate and comparison that follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.distance import Distance
from whorl.evaluation.prediction import Precision, Predictor, Targets
from whorl.evaluation.statistics import Comparison, compare
from whorl.evaluation.success import SuccessRate, mean_rate
from whorl.geometry.pose import PAPER_POSES, Pose


class AttackedImages(NamedTuple):
    """Some images with all their adversarial versions; a plain tuple will do."""

    x: Tensor
    """(B, C, H, W) clean images in [0, 1]."""
    adversarial: Mapping[str, Tensor]
    """Attack's name to (B, C, H, W); rounded to 8 bits before anything is predicted."""
    y: Tensor
    """(B,) true labels."""
    ids: Sequence[str]
    """B names."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes:
    """What became of each image under each attack, on each target, in each pose; ``a + b`` adds other images.

    Attributes:
        ids: N images, each once.
        attacks: A names.
        targets: T names.
        poses: P poses, each once.
        clean: (T, P, N) bool: the transformed clean image is recognised.
        adversarial: (A, T, P, N) bool: the transformed adversarial image is.
        distances: of the 8-bit adversarial images to the clean ones as they are, by attack; empty where unknown.

    >>> clean = torch.tensor([[[True, True, False, True]]])
    >>> adversarial = torch.tensor([[[[False, True, False, True]]], [[[False, False, True, True]]]])
    >>> done = Outcomes(
    ...     ids=("a", "b", "c", "d"), attacks=("weak", "strong"), targets=("net",), poses=(Pose(),),
    ...     clean=clean, adversarial=adversarial,
    ... )
    >>> done.counts["strong", "net", Pose()]
    SuccessRate(n=4, n_clean_correct=3, n_success=2, n_adversarial_correct=2)
    >>> round(done.rate("weak", "net"), 3), done.compare("strong", "weak", "net")
    (0.333, Comparison(n=3, b=1, c=0))
    """

    ids: tuple[str, ...]
    attacks: tuple[str, ...]
    targets: tuple[str, ...]
    poses: tuple[Pose, ...]
    clean: Tensor
    adversarial: Tensor
    distances: Mapping[str, Distance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expected = (len(self.targets), len(self.poses), len(self.ids))
        shapes = tuple(self.clean.shape), tuple(self.adversarial.shape)
        if shapes != (expected, (len(self.attacks), *expected)):
            raise WhorlError(
                f"outcomes must be (targets, poses, images), {expected}, and the same for each of "
                f"{len(self.attacks)} attacks; got {shapes[0]} and {shapes[1]}."
            )
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
        """By (attack, target, pose)."""
        columns = (self.clean.expand_as(self.adversarial), self.success, self.adversarial)
        rows = torch.stack([column.sum(-1) for column in columns], dim=-1).flatten(0, 2).tolist()
        cells = [(a, t, p) for a in self.attacks for t in self.targets for p in self.poses]
        return {cell: SuccessRate(len(self.ids), *row) for cell, row in zip(cells, rows, strict=True)}

    def pooled(self, attack: str, target: str) -> SuccessRate:
        """Counts of all poses together."""
        self._place(attack, target)
        return sum((self.counts[attack, target, pose] for pose in self.poses), SuccessRate())

    def rate(self, attack: str, target: str, poses: Literal["pooled", "mean"] = "pooled") -> float:
        """Give the success rate over all poses, in [0, 1].

        Args:
            attack: its name.
            target: its name.
            poses: ``"pooled"``: all successes by all images recognised clean. ``"mean"``: the unweighted mean of the
                poses' rates, as in the paper's tables; a pose in which no clean image is recognised is left out.

        Raises:
            WhorlError: no such attack or target, or the target recognises no clean image in any pose.
        """
        pooled = self.pooled(attack, target)
        check_recognised(target, pooled)
        if poses == "pooled":
            return pooled.rate
        return mean_rate(self.counts[attack, target, pose] for pose in self.poses)

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

    def compare(self, first: str, second: str, target: str, pose: Pose | None = None) -> Comparison:
        """Compare two attacks on one target, image by image, in one pose or over all of them; see ``compare``.

        Raises:
            WhorlError: no such attack, target or pose.
        """
        (a, t), (b, _) = self._place(first, target), self._place(second, target)
        if pose is not None and pose not in self.poses:
            raise WhorlError(f"{pose!r} was not evaluated; expected one of {list(self.poses)}.")
        rows = slice(None) if pose is None else [self.poses.index(pose)]
        return compare(self.clean[t, rows], self.adversarial[a, t, rows], self.adversarial[b, t, rows])

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
        )

    def to_bits(self) -> bytes:
        """Pack clean and adversarial outcomes, a bit each; ``from_bits`` needs the names beside them."""
        both = torch.cat((self.clean[None], self.adversarial))
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
    ) -> Outcomes:
        """Unpack what ``to_bits`` packed.

        Raises:
            WhorlError: there are more or fewer bits than the names call for.
        """
        shape = (1 + len(attacks), len(targets), len(poses), len(ids))
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
            adversarial=both[1:],
            distances=distances or {},
        )

    def _place(self, attack: str, target: str) -> tuple[int, int]:
        if attack not in self.attacks or target not in self.targets:
            known = [(a, t) for a in self.attacks for t in self.targets]
            raise WhorlError(f"there is no attack {attack!r} on a target {target!r}; got {known}.")
        return self.attacks.index(attack), self.targets.index(target)


def check_recognised(network: str, counts: SuccessRate) -> None:
    """Refuse a network that recognises none of the clean images, in whatever poses were counted.

    Raises:
        WhorlError: then there is no success rate to judge.
    """
    if not counts.n_clean_correct:
        raise WhorlError(
            f"{network} recognises none of the clean images, so there is no success rate to judge. Check that the "
            "images' labels are its classes, in its order (class folders are matched by name where its address has "
            "labels=FILE), that it gets the mean and std it was trained with, and that it is the right network."
        )


def to_8_bits(x: Tensor) -> Tensor:
    """Round images in [0, 1] to what an 8-bit file holds.

    >>> (to_8_bits(torch.tensor([0.0, 0.501, 1.0])) * 255).tolist()
    [0.0, 128.0, 255.0]
    """
    return (x.clamp(0, 1) * 255).round() / 255


def outcomes(  # long: half of it says what it takes and gives
    batches: Iterable[tuple[Tensor, Mapping[str, Tensor], Tensor, Sequence[str]]],
    targets: Targets,
    poses: Sequence[Pose] = PAPER_POSES,
    *,
    precision: Precision = "full",
) -> Outcomes:
    """Evaluate several attacks on several targets over several poses, batch by batch.

    One pass over the images: each is warped once a pose for all targets, the clean side is shared by all attacks, and
    no batch is held once it is evaluated. So a data set of any size needs the memory of one batch, and a byte for each
    image, attack, target and pose.

    Args:
        batches: ``(x, {attack: adversarial}, y, ids)``, see :class:`AttackedImages`, on the targets' device. All
            batches have the same attacks, and no image comes twice.
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        poses: transforms to apply, each counted once.
        precision: see :class:`whorl.evaluation.Predictor`.

    Raises:
        WhorlError: an unknown precision, there are no batches, the parts of one do not fit together, or a target
            answers with NaN, infinity, the wrong shape or the wrong number of classes, or a label is none of them.

    >>> x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> halves = [(x[i : i + 2], {"none": x[i : i + 2]}, y[i : i + 2], [f"{i}a", f"{i}b"]) for i in (0, 2)]
    >>> outcomes(halves, {"mine": net}, [Pose()]).counts["none", "mine", Pose()].n
    4
    """
    poses = tuple(dict.fromkeys(poses))  # a pose given twice would count its images twice
    predictor, everywhere = Predictor(targets, precision=precision), dict.fromkeys(targets, poses)
    shape = (len(targets), len(poses))

    def recognised(images: Tensor, batch: AttackedImages) -> Tensor:
        cells = predictor.recognised(images, batch.y, everywhere, ids=batch.ids)
        rows = [cells[name, pose] for name in targets for pose in poses]
        return torch.stack(rows).unflatten(0, shape) if rows else torch.empty(*shape, len(images), dtype=torch.bool)

    def evaluated() -> Iterator[Outcomes]:
        attacks: tuple[str, ...] | None = None
        for x, adversarial, y, ids in batches:
            batch = AttackedImages(x, adversarial, y, ids)
            attacks = tuple(adversarial) if attacks is None else attacks
            _check(batch, attacks)
            clean, attacked, distances = recognised(x, batch), [], {}
            for name, images in adversarial.items():
                rounded = to_8_bits(images)
                attacked.append(recognised(rounded, batch))
                distances[name] = Distance.of(x, rounded)
            yield Outcomes(
                ids=tuple(ids),
                attacks=attacks,
                targets=tuple(targets),
                poses=poses,
                clean=clean,
                adversarial=torch.stack(attacked) if attacked else clean.new_empty(0, *clean.shape),
                distances=distances,
            )

    return Outcomes.joined(list(evaluated()))


def success_rates(
    targets: Targets,
    x: Tensor,
    adversarial: Mapping[str, Tensor],
    y: Tensor,
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    batch_size: int = 64,
    precision: Precision = "full",
) -> dict[tuple[str, str, Pose], SuccessRate]:
    """Count successes on images that are in memory; see ``outcomes``.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        x: (N, C, H, W) clean images.
        adversarial: attack's name to (N, C, H, W) images; rounded to 8 bits first.
        y: (N,) true labels.
        poses: transforms to apply.
        batch_size: images per forward pass.
        precision: see ``outcomes``.

    Returns:
        Counts by (attack, target, pose).
    """
    whole = AttackedImages(x, adversarial, y, [str(i) for i in range(len(x))])
    _check(whole, tuple(adversarial))
    return outcomes(split(whole, batch_size), targets, poses, precision=precision).counts


def split(whole: AttackedImages, size: int) -> Iterator[AttackedImages]:
    """Cut images that are in memory into batches for ``outcomes``."""
    if size < 1:
        raise WhorlError(f"batch_size must be a whole number from 1; got {size}.")
    for start in range(0, len(whole.x), size):
        part = slice(start, start + size)
        adversarial = {name: images[part] for name, images in whole.adversarial.items()}
        yield AttackedImages(whole.x[part], adversarial, whole.y[part], whole.ids[part])


def _check(batch: AttackedImages, attacks: tuple[str, ...]) -> None:
    x, adversarial, y, ids = batch
    if tuple(adversarial) != attacks:
        raise WhorlError(f"all batches must have the same attacks, {list(attacks)}; got {list(adversarial)}.")
    for name, images in adversarial.items():
        if images.shape != x.shape:
            raise WhorlError(
                f"adversarial images of {name!r} must match x, {tuple(x.shape)}; got {tuple(images.shape)}."
            )
    if y.shape != x.shape[:1] or len(ids) != len(x):
        raise WhorlError(
            f"expected a label and an id for each of {len(x)} images; got {tuple(y.shape)} and {len(ids)}."
        )
