"""What an attack wants: away from the true label or towards a target, and the loss that measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.errors import WhorlError, first_line, unknown_name

LossName = Literal["ce", "margin", "logit", "relative"]
Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each image: (B, K) logits and (B,) labels to (B,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """How far the best other class is above the label: (B, K) and (B,) to (B,); positive means misclassified.

    >>> margin(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1])).tolist()
    [-1.0]
    """
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.amax(dim=1) - own[:, 0]


def logit(logits: Tensor, labels: Tensor) -> Tensor:
    """The label's own logit, negated: (B, K) and (B,) to (B,)."""
    return -logits.gather(1, labels[:, None])[:, 0]


def relative(logits: Tensor, labels: Tensor) -> Tensor:
    """How far the mean logit is above the label's own: (B, K) and (B,) to (B,) (relative cross entropy, Zhang, 2022).

    It is what cross entropy becomes, up to a factor, at a high temperature.

    >>> relative(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1])).tolist()
    [-1.0]
    """
    return logits.mean(dim=1) - logits.gather(1, labels[:, None])[:, 0]


LOSSES: dict[str, Loss] = {"ce": cross_entropy, "margin": margin, "logit": logit, "relative": relative}


def find_loss(loss: str | Loss) -> Loss:
    """Look a loss up by name; a function is its own."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES, hint="A loss is 'ce', 'margin', 'logit' or 'relative'.")
    return LOSSES[loss]


@lru_cache(maxsize=64)
def tempered(loss: Loss, temperature: float) -> Loss:
    """Divide the logits by a temperature first: above 1, a loss sees more classes than the likeliest one.

    The same arguments give the same function, so that a recorded loop knows it again.

    >>> tempered(logit, 2.0)(torch.tensor([[1.0, 3.0]]), torch.tensor([1])).tolist()
    [-1.5]
    """
    return lambda logits, labels: loss(logits / temperature, labels)


def whole_numbers(labels: Tensor) -> bool:
    """Whether a tensor holds whole numbers that can be read.

    >>> whole_numbers(torch.tensor([1])), whole_numbers(torch.tensor([True])), whole_numbers(torch.tensor([1.0]))
    (True, False, False)
    """
    counted = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return counted and not labels.is_meta


@dataclass(frozen=True)
class Goal:
    """The labels to leave (untargeted) or to reach (targeted)."""

    labels: Tensor
    targeted: bool
    highest: int
    """Largest label, on the host, so that the range check costs no device synchronisation."""

    @classmethod
    def of(cls, x: Tensor, y: Tensor | None, target: Tensor | None) -> Goal:
        """Check the two label arguments of an attack and keep the one that was given."""
        if (y is None) == (target is None):
            came = "both" if y is not None else "neither"
            raise WhorlError(f"give either y (untargeted) or target (targeted); got {came}.")
        labels = y if y is not None else target
        assert labels is not None  # noqa: S101 - tells mypy what the test above established
        name = "y" if target is None else "target"
        if not isinstance(labels, Tensor) or not whole_numbers(labels):
            kind = f"{labels.dtype} on {labels.device}" if isinstance(labels, Tensor) else type(labels).__name__
            raise WhorlError(f"{name} must be an integer tensor of class indices; got {kind}.")
        if labels.shape != x.shape[:1]:
            raise WhorlError(f"{name} must hold one label per image, ({x.shape[0]},); got {tuple(labels.shape)}.")
        labels = labels.to(torch.int64)  # of the unsigned kinds torch finds no ends
        low, high = (int(v) for v in labels.aminmax()) if labels.numel() else (0, 0)
        if low < 0:
            raise WhorlError(f"{name} must hold class indices from 0; got {low}.")
        # A copy, for labels made in inference mode cannot take part in a gradient.
        return cls(labels.to(x.device, copy=True), target is not None, high)

    def check_classes(self, logits: Tensor) -> None:
        """Refuse what is no (B, classes) tensor, and labels that the network has no class for."""
        if not isinstance(logits, Tensor):
            raise WhorlError(
                f"the model must return a tensor of logits; got {type(logits).__name__}. Wrap it so that it does."
            )
        if logits.dim() != 2 or logits.shape[0] != self.labels.shape[0] or logits.is_complex():
            came = f"{tuple(logits.shape)}" + f", {logits.dtype}" * logits.is_complex()
            raise WhorlError(f"the model must return ({self.labels.shape[0]}, classes) logits; got {came}.")
        if self.highest >= logits.shape[1]:
            raise WhorlError(f"labels must lie in [0, {logits.shape[1] - 1}], the model's classes; got {self.highest}.")

    def objective(self, logits: Tensor, loss: LossName | Loss) -> Tensor:
        """What the attack raises, per image: the loss of the labels to leave, or minus that of the target."""
        value = self._measured(find_loss(loss), logits)
        return -value if self.targeted else value

    def _measured(self, loss: Loss, logits: Tensor) -> Tensor:
        try:
            value = loss(logits, self.labels)
        except (WhorlError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a loss may be anyone's code
            raise WhorlError(
                f"the loss failed on logits of shape {tuple(logits.shape)}: {first_line(error)}."
            ) from error
        # One number for all would let the size of the batch into every image's gradient.
        if not isinstance(value, Tensor) or value.shape != self.labels.shape:
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise WhorlError(
                f"a loss must return one number for each image, ({len(self.labels)},); got {came}. "
                'Leave out its mean, as with reduction="none".'
            )
        return value

    def reached(self, logits: Tensor) -> Tensor:
        """(B,) bool: the label is left, or the target is hit."""
        return (logits.argmax(dim=1) == self.labels) == self.targeted

    def rows(self, which: Tensor | slice) -> Goal:
        """The goal for some of the images, by a mask, indices or a slice."""
        return Goal(self.labels[which], self.targeted, self.highest)

    def repeat(self, times: int) -> Goal:
        """The goal for ``times`` copies of the batch, one after the other."""
        return Goal(self.labels.repeat(times), self.targeted, self.highest)
