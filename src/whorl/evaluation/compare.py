"""Whether two attacks differ, asked of the same images: McNemar's test, exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.errors import WhorlError


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What became of each image under one attack, on one target, in one pose or several.

    Attributes:
        clean_correct: (N,) or (poses, N) bool, transformed clean version classified correctly.
        adversarial_correct: the same of the adversarial version.
    """

    clean_correct: Tensor
    adversarial_correct: Tensor

    def __post_init__(self) -> None:
        shapes = self.clean_correct.shape, self.adversarial_correct.shape
        if shapes[0] != shapes[1] or self.clean_correct.dim() not in (1, 2):
            raise WhorlError(
                f"outcomes must be (N,) or (poses, N) and of one shape; got {tuple(shapes[0])} and {tuple(shapes[1])}."
            )

    @property
    def success(self) -> Tensor:
        """Clean version right, adversarial version wrong; shaped like the others."""
        return self.clean_correct & ~self.adversarial_correct


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two attacks: only images that tell them apart count.

    >>> clear = Comparison(n=100, b=9, c=1)
    >>> round(clear.p_value, 4), clear.differs()
    (0.0215, True)
    """

    n: int
    """Images compared: clean version right, in at least one pose."""
    b: int
    """Of those, the first attack did better: it succeeded where the second did not, or in more poses."""
    c: int
    """Of those, the second attack did better."""

    @property
    def p_value(self) -> float:
        """How likely so uneven a split is if neither attack is better: exact, two-sided, binomial with p = 1/2."""
        trials, fewer = self.b + self.c, min(self.b, self.c)
        tail = term = 1
        for k in range(fewer):
            term = term * (trials - k) // (k + 1)  # the next binomial coefficient
            tail += term
        # Whole numbers up to here, so the division is the only rounding, however many images there are.
        return min(1.0, 2 * tail / (1 << trials))

    def differs(self, alpha: float = 0.05) -> bool:
        """Whether the difference is real, at a level of significance."""
        return self.p_value < alpha


def compare(first: Outcomes, second: Outcomes) -> Comparison:
    """Compare two attacks on the same images, target and poses.

    With one pose this is McNemar's exact test. One image in several poses is not several images, so with more than one
    each image has a single vote, for the attack that succeeded on it in more poses: the exact sign test, of which
    McNemar's is the case of one pose.

    Args:
        first: outcomes of one attack.
        second: outcomes of the other, images and poses in the same order.

    Raises:
        WhorlError: the clean sides differ, so they are not the same images, target and poses.

    >>> clean = torch.tensor([True, True, True, False])
    >>> strong = Outcomes(clean, torch.tensor([False, False, True, False]))
    >>> weak = Outcomes(clean, torch.tensor([True, False, True, False]))
    >>> compare(strong, weak)
    Comparison(n=3, b=1, c=0)
    """
    if not torch.equal(first.clean_correct, second.clean_correct):
        raise WhorlError(
            "two attacks can be compared only on the same images, target and poses, in one order; "
            f"got different clean outcomes, {tuple(first.clean_correct.shape)} and {tuple(second.clean_correct.shape)}."
        )
    lead = torch.atleast_2d(first.success).sum(0) - torch.atleast_2d(second.success).sum(0)
    counted = torch.atleast_2d(first.clean_correct).any(0)
    return Comparison(n=int(counted.sum()), b=int((lead > 0).sum()), c=int((lead < 0).sum()))
