"""The success rate as counts that add up, over batches and over workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.image_counts import FEWEST, Interval
from whorl.evaluation.statistics import wilson


@dataclass(frozen=True)
class SuccessRate:
    """Counts of one attack against one target, from which every rate follows; ``a + b`` pools two of them.

    The success rate (the paper's §5.1) counts only images whose *transformed clean* version is classified correctly:
    what share of those has a *transformed adversarial* version that is not.

    >>> y = torch.tensor([0, 1, 2, 3])
    >>> counts = SuccessRate.of(clean=torch.tensor([0, 1, 2, 0]), adversarial=torch.tensor([0, 2, 2, 1]), y=y)
    >>> counts.n, counts.n_clean_correct, counts.n_success, round(counts.rate, 3)
    (4, 3, 1, 0.333)
    """

    n: int = 0
    """Images seen."""
    n_clean_correct: int = 0
    """Of those, images whose transformed clean version is classified correctly."""
    n_success: int = 0
    """Of those in turn, images whose transformed adversarial version is classified wrongly."""
    n_adversarial_correct: int = 0
    """Of all ``n``, images whose transformed adversarial version is classified correctly."""

    @classmethod
    def of(cls, *, clean: Tensor, adversarial: Tensor, y: Tensor) -> SuccessRate:
        """Count one batch.

        Args:
            clean: (B,) predicted labels of the transformed clean images.
            adversarial: (B,) predicted labels of the transformed adversarial images.
            y: (B,) true labels.
        """
        if not clean.shape == adversarial.shape == y.shape or y.dim() != 1:
            raise WhorlError(
                "predictions and labels must be (B,) and of one length; got "
                f"{tuple(clean.shape)}, {tuple(adversarial.shape)} and {tuple(y.shape)}."
            )
        return cls.counted(clean == y, adversarial == y)

    @classmethod
    def counted(cls, clean: Tensor, adversarial: Tensor) -> SuccessRate:
        """Count outcomes.

        Args:
            clean: (B,) bool: the transformed clean image is recognised.
            adversarial: (B,) bool: the transformed adversarial image is.

        >>> SuccessRate.counted(torch.tensor([True, True, False]), torch.tensor([False, True, True]))
        SuccessRate(n=3, n_clean_correct=2, n_success=1, n_adversarial_correct=2)
        """
        if clean.shape != adversarial.shape or clean.dim() != 1:
            raise WhorlError(
                f"outcomes must be (B,) and of one length; got {tuple(clean.shape)} and {tuple(adversarial.shape)}."
            )
        counts = torch.stack((clean.sum(), (clean & ~adversarial).sum(), adversarial.sum())).tolist()
        return cls(len(clean), *counts)

    def __add__(self, other: SuccessRate) -> SuccessRate:
        return SuccessRate(
            self.n + other.n,
            self.n_clean_correct + other.n_clean_correct,
            self.n_success + other.n_success,
            self.n_adversarial_correct + other.n_adversarial_correct,
        )

    @property
    def rate(self) -> float:
        """Success rate in [0, 1]; NaN where no clean image was classified correctly."""
        return self.n_success / self.n_clean_correct if self.n_clean_correct else math.nan

    @property
    def error_rate(self) -> float:
        """Share of *all* images whose adversarial version is misclassified: the other denominator in use."""
        return 1 - self.accuracy

    @property
    def accuracy(self) -> float:
        """Share of all images whose adversarial version is classified correctly, in [0, 1]."""
        return self.n_adversarial_correct / self.n if self.n else math.nan

    @property
    def clean_accuracy(self) -> float:
        """Share of all images whose clean version is classified correctly, in [0, 1]."""
        return self.n_clean_correct / self.n if self.n else math.nan

    @property
    def few(self) -> bool:
        """Whether fewer than ``FEWEST`` (10) clean images were classified correctly, too few for a headline."""
        return self.n_clean_correct < FEWEST

    def interval(self) -> Interval:
        """Wilson's interval of the success rate, 95%: for counts in which each image counts once.

        Over several poses an image counts several times: see :meth:`whorl.evaluation.Outcomes.rate`.

        >>> [round(v, 3) for v in SuccessRate(100, 100, 100, 0).interval()]
        [0.963, 1.0]
        """
        return wilson(self.n_success, self.n_clean_correct)


def mean_rate(counts: Iterable[SuccessRate]) -> float:
    """Mean success rate of several poses, as the paper averages them: each pose counts the same.

    A pose in which the target recognised no clean image has no rate, and is left out; NaN if that is so in all.

    >>> mean_rate([SuccessRate(4, 4, 1), SuccessRate(4, 1, 1), SuccessRate(4, 0)])
    0.625
    """
    rates = [count.rate for count in counts if count.n_clean_correct]
    return sum(rates) / len(rates) if rates else math.nan
