"""Choosing among attacks without fooling oneself: held-out networks, held-out images, resampled images.

Two things make the best of many look better than it is: it was best on these networks, and on these images. So the
choice is made again and again without one family of networks and without one fold of images, and judged on those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.image_counts import Interval, percentile_interval, resampled, weighted_rates


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """Who was fooled by what.

    Attributes:
        names: C attacks.
        eligible: which of them may be chosen; the others are baselines.
        targets: T networks.
        clean: (T, P, N) bool: the clean image is recognised, in each of P poses.
        success: (C, T, P, N) bool: it is, and the adversarial one is not.
    """

    names: tuple[str, ...]
    eligible: tuple[bool, ...]
    targets: tuple[str, ...]
    clean: Tensor
    success: Tensor

    def __post_init__(self) -> None:
        expected = (len(self.names), *self.clean.shape)
        if self.success.shape != expected or len(self.targets) != self.clean.shape[0]:
            raise WhorlError(f"expected successes of shape {expected}; got {tuple(self.success.shape)}.")
        if len(self.eligible) != len(self.names) or not any(self.eligible):
            raise WhorlError("expected at least one attack to choose from, and a yes or no for each.")

    @property
    def images(self) -> int:
        """N."""
        return int(self.clean.shape[-1])


def family(network: str) -> str:
    """What a network is a kin of: the letters that its name begins with.

    >>> family("efficientnet_lite0"), family("mobilenet_v2.ens-at+jpeg"), family("timm:resnet50.a1_in1k")
    ('efficientnet', 'mobilenet', 'resnet')
    """
    found = re.match(r"[a-z]+", network.rpartition(":")[2].lower())
    return found[0] if found else network


def families_of(targets: Sequence[str]) -> list[str]:
    """The family of each target.

    Raises:
        WhorlError: they are all of one.
    """
    families = [family(target) for target in targets]
    if len(set(families)) < 2:
        raise WhorlError(
            f"expected targets of two families at least, to choose on one and judge on the other; got {list(targets)}."
        )
    return families


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How the choice does on one network whose whole family it was made without.

    Attributes:
        target: the network.
        chosen: what was chosen in each fold, each once, most frequent first.
        rate: percent, on images that the choice was made without.
        interval: 95%, over resampled images.
        over: by baseline, how far above it in points, and the 95% interval of the difference.
    """

    target: str
    chosen: tuple[str, ...]
    rate: float
    interval: Interval
    over: dict[str, tuple[float, Interval]]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One attack on all networks and images.

    Attributes:
        name: which.
        baseline: whether it could not be chosen.
        mean: percent, over the networks.
        interval: 95%, over resampled images.
        rates: percent, one for each network.
        over: by baseline, how far above it on each network, in points, and the 95% interval of the difference.
        wins: share of resamples in which it is the best that can be chosen.
        behind: how far behind the winner, in points, with its 95% interval.
    """

    name: str
    baseline: bool
    mean: float
    interval: Interval
    rates: tuple[float, ...]
    over: dict[str, tuple[tuple[float, Interval], ...]]
    wins: float
    behind: tuple[float, Interval]

    @property
    def level(self) -> bool:
        """Whether it is not significantly behind the winner."""
        return self.behind[1][0] <= 0

    def least_over(self, baseline: str) -> float:
        """How far above a baseline on the network where it gains least, in points; NaN where no network tells."""
        return min((gain for gain, _ in self.over[baseline] if not math.isnan(gain)), default=math.nan)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The outcome.

    Attributes:
        winner: its name.
        ranking: all, best first.
        judged: one for each network.
        optimism: how much better the winner looks, in points, where it was chosen than the choice does where it was
            not made.
    """

    winner: str
    ranking: tuple[Ranked, ...]
    judged: tuple[Judged, ...]
    optimism: float


def choose(answers: Answers, *, folds: int = 4, resamples: int = 1000, seed: int = 0) -> Chosen:
    """Choose the attack with the highest mean over networks, and judge the choice on what it was made without.

    Args:
        answers: of everything.
        folds: parts of the images, each held out once.
        resamples: for the intervals.
        seed: of folds and resamples.

    Raises:
        WhorlError: the networks are of one family, or there are fewer images than folds.
    """
    families = families_of(answers.targets)
    if not 2 <= folds <= answers.images:
        raise WhorlError(f"folds must lie between 2 and the number of images, {answers.images}; got {folds}.")
    generator = torch.Generator().manual_seed(seed)
    fold = torch.randperm(answers.images, generator=generator) % folds
    counts = torch.from_numpy(np.concatenate(list(resampled(answers.images, resamples, seed))))
    ranking, winner = _rank(answers, counts)
    judged = _judge(answers, families, fold, counts)
    seen = torch.stack([torch.tensor(one.rate) for one in judged]).mean()
    return Chosen(
        winner=winner.name, ranking=tuple(ranking), judged=tuple(judged), optimism=float(winner.mean - float(seen))
    )


def best(answers: Answers, weights: Tensor, targets: Sequence[int]) -> int:
    """The place of the best attack that may be chosen, for some images and networks; the earlier of two equals."""
    mean = _rates(answers.clean[list(targets)], answers.success[:, list(targets)], weights[None])[0].nanmean(-1)
    return int(mean.masked_fill(~torch.tensor(answers.eligible), -1.0).nan_to_num(-1.0).argmax())


def _rank(answers: Answers, counts: Tensor) -> tuple[list[Ranked], Ranked]:
    everyone = torch.ones(1, answers.images)
    per_target = 100 * _rates(answers.clean, answers.success, everyone)[0]
    mean = per_target.nanmean(-1)
    drawn_each = torch.cat([100 * _rates(answers.clean, answers.success, part) for part in counts.split(50)])
    drawn = drawn_each.nanmean(-1)
    allowed = torch.tensor(answers.eligible)
    first = int(mean.masked_fill(~allowed, -1.0).argmax())
    winners = drawn.masked_fill(~allowed, -1.0).argmax(-1)

    def over(c: int, baseline: int) -> tuple[tuple[float, Interval], ...]:
        gains, resampled = per_target[c] - per_target[baseline], drawn_each[:, c] - drawn_each[:, baseline]
        return tuple((float(gains[t]), percentile_interval(resampled[:, t])) for t in range(len(answers.targets)))

    found = [
        Ranked(
            name=name,
            baseline=not answers.eligible[c],
            mean=float(mean[c]),
            interval=percentile_interval(drawn[:, c]),
            rates=tuple(per_target[c].tolist()),
            over={answers.names[b]: over(c, b) for b, may in enumerate(answers.eligible) if not may},
            wins=float((winners == c).float().mean()) if answers.eligible[c] else 0.0,
            behind=(float(mean[first] - mean[c]), percentile_interval(drawn[:, first] - drawn[:, c])),
        )
        for c, name in enumerate(answers.names)
    ]
    return sorted(found, key=lambda one: -one.mean), found[first]


def _judge(answers: Answers, families: list[str], fold: Tensor, counts: Tensor) -> list[Judged]:
    judged = []
    baselines = [c for c, allowed in enumerate(answers.eligible) if not allowed]
    for t, target in enumerate(answers.targets):
        others = [o for o, kin in enumerate(families) if kin != families[t]]
        picked = [best(answers, (fold != f).float(), others) for f in range(int(fold.max()) + 1)]
        # Each image is answered by the attack that was chosen without it, and without the network's kin.
        held = torch.empty_like(answers.success[0, t : t + 1])
        for f, c in enumerate(picked):
            held[..., fold == f] = answers.success[c, t : t + 1][..., fold == f]
        clean = answers.clean[t : t + 1]
        stacked = torch.stack([held, *(answers.success[c, t : t + 1] for c in baselines)])
        whole = 100 * _rates(clean, stacked, torch.ones(1, answers.images))[0, :, 0]
        drawn = torch.cat([100 * _rates(clean, stacked, part)[..., 0] for part in counts.split(50)])
        judged.append(
            Judged(
                target=target,
                chosen=tuple(answers.names[c] for c in sorted(set(picked), key=lambda c: -picked.count(c))),
                rate=float(whole[0]),
                interval=percentile_interval(drawn[:, 0]),
                over={
                    answers.names[c]: (float(whole[0] - whole[i]), percentile_interval(drawn[:, 0] - drawn[:, i]))
                    for i, c in enumerate(baselines, start=1)
                },
            )
        )
    return judged


def _rates(clean: Tensor, success: Tensor, weights: Tensor) -> Tensor:
    """Rates as the paper averages them, each pose counting the same: (B, ..., T)."""
    return torch.from_numpy(weighted_rates(clean.numpy(), success.numpy(), weights.numpy()))
