"""What a grid evaluation adds up, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.compare import Comparison, Outcomes, compare
from whorl.evaluation.distance import Distance
from whorl.evaluation.success import SuccessRate
from whorl.geometry.pose import Pose


class Batch(NamedTuple):
    """Some images with all their adversarial versions; a plain tuple will do."""

    x: Tensor
    """(B, C, H, W) clean images in [0, 1]."""
    adversarial: Mapping[str, Tensor]
    """Attack's name to (B, C, H, W); rounded to 8 bits before anything is asked."""
    y: Tensor
    """(B,) true labels."""
    ids: Sequence[str]
    """B names."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What came of asking.

    Attributes:
        counts: by (attack, target, pose).
        distances: of the 8-bit adversarial images to the clean ones as they are, by attack.
        ids: the images, in order.
        outcomes: (poses, N) by (attack, target); empty unless they were to be kept.
        poses: in the order of ``outcomes``.
    """

    counts: dict[tuple[str, str, Pose], SuccessRate]
    distances: dict[str, Distance]
    ids: list[str]
    outcomes: dict[tuple[str, str], Outcomes]
    poses: tuple[Pose, ...]

    def compare(self, first: str, second: str, target: str, pose: Pose | None = None) -> Comparison:
        """Compare two attacks on one target, in one pose or over all of them; see ``compare``.

        Raises:
            WhorlError: the outcomes of single images were not kept, or there is no such attack, target or pose.
        """
        if not self.outcomes:
            raise WhorlError("single outcomes were not kept. Evaluate with keep_outcomes=True.")
        for attack in (first, second):
            if (attack, target) not in self.outcomes:
                raise WhorlError(f"there is no attack {attack!r} on a target {target!r}; got {list(self.outcomes)}.")
        pair = self.outcomes[first, target], self.outcomes[second, target]
        if pose is None:
            return compare(*pair)
        if pose not in self.poses:
            raise WhorlError(f"{pose!r} was not evaluated; expected one of {list(self.poses)}.")
        i = self.poses.index(pose)
        a, b = (Outcomes(o.clean_correct[i], o.adversarial_correct[i]) for o in pair)
        return compare(a, b)


class Tally:
    """Counts so far, as whole tensors: (targets, poses) for clean images, (attacks, targets, poses) for the others.

    Args:
        attacks: their names, in order.
        targets: likewise.
        poses: likewise.
        keep: whether to keep single outcomes.
    """

    def __init__(self, attacks: tuple[str, ...], targets: tuple[str, ...], poses: tuple[Pose, ...], keep: bool) -> None:
        self.attacks, self.targets, self.poses, self.keep = attacks, targets, poses, keep
        cells = (len(targets), len(poses))
        self.clean_correct = torch.zeros(cells, dtype=torch.int64)
        self.success = torch.zeros(len(attacks), *cells, dtype=torch.int64)
        self.adversarial_correct = torch.zeros_like(self.success)
        self.distances = {attack: Distance() for attack in attacks}
        self.ids: list[str] = []
        self.kept: list[tuple[Tensor, Tensor]] = []

    def add(self, batch: Batch, rounded: Mapping[str, Tensor], clean: Tensor, attacked: Tensor) -> None:
        """Count one batch.

        Args:
            batch: the images.
            rounded: the adversarial ones, in 8 bits.
            clean: (targets, poses, B) bool, on the CPU: which answers about clean images are right.
            attacked: (attacks, targets, poses, B), likewise.
        """
        self.clean_correct += clean.sum(-1)
        self.success += (clean & ~attacked).sum(-1)
        self.adversarial_correct += attacked.sum(-1)
        for attack, images in rounded.items():
            self.distances[attack] += Distance.of(batch.x, images)
        self.ids += batch.ids
        if self.keep:
            self.kept.append((clean, attacked))

    def result(self) -> Evaluation:
        """Give the counts by name."""
        n, counts, outcomes = len(self.ids), {}, {}
        for a, attack in enumerate(self.attacks):
            for t, target in enumerate(self.targets):
                columns = self.clean_correct[t], self.success[a, t], self.adversarial_correct[a, t]
                for pose, row in zip(self.poses, torch.stack(columns, dim=1).tolist(), strict=True):
                    counts[attack, target, pose] = SuccessRate(n, *row)
        if self.keep:
            clean = torch.cat([part for part, _ in self.kept], dim=-1)
            attacked = torch.cat([part for _, part in self.kept], dim=-1)
            for a, attack in enumerate(self.attacks):
                for t, target in enumerate(self.targets):
                    outcomes[attack, target] = Outcomes(clean[t], attacked[a, t])
        return Evaluation(counts=counts, distances=self.distances, ids=self.ids, outcomes=outcomes, poses=self.poses)
