"""Several classifiers attacked, or evaluated, as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from whorl.errors import SettingsError, WhorlError, quoted
from whorl.models.labels import shared_labels
from whorl.records import Positive, checked

Fuse = Literal["logits", "probabilities", "losses"]


class Ensemble(nn.Module):
    """A weighted mean of classifiers. Each resizes and normalises for itself, so their input sizes may differ.

    Like its members it is frozen: in eval mode for good, without parameter gradients.

    Args:
        models: at least one classifier, all with the same classes.
        weights: one positive number per model; they are scaled to sum to 1. Equal by default.
        fuse: what is averaged: "logits" (default), "probabilities", or, during an attack, "losses". For a
            prediction, an ensemble that fuses losses averages logits.

    Attributes:
        models: the members.
        weights: one number per member, summing to 1.
        fuse: as given.
        num_classes: how many logits come out.
        labels: one name per class, those of the first member that has names.
        name: the members' names, joined by "+".

    >>> from whorl.models import Classifier
    >>> def member(side):
    ...     net = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, 10))
    ...     return Classifier.from_module(net, size=side, mean=(0.5,) * 3, std=(0.5,) * 3, name=f"net{side}")
    >>> both = Ensemble([member(8), member(12)], weights=[3, 1])
    >>> both(torch.rand(2, 3, 16, 16)).shape, both.weights, both.name
    (torch.Size([2, 10]), (0.75, 0.25), 'net8+net12')
    """

    def __init__(
        self, models: Sequence[nn.Module], *, weights: Sequence[float] | None = None, fuse: Fuse = "logits"
    ) -> None:
        super().__init__()
        if isinstance(models, nn.Module) or not all(isinstance(model, nn.Module) for model in models):
            raise WhorlError(
                "an ensemble must be made of a list of classifiers. Load them with whorl.load_model first."
            )
        if not models:
            raise WhorlError("an ensemble needs at least one model; got none.")
        if fuse not in get_args(Fuse):
            raise WhorlError(f"fuse must be one of {', '.join(get_args(Fuse))}; got {fuse!r}.")
        self.models = nn.ModuleList(models)
        self.weights = _normalised(weights, len(models))
        self.fuse: Fuse = fuse
        names = [str(getattr(model, "name", type(model).__name__)) for model in models]
        self.name = "+".join(names)
        self.num_classes = _common_count(models, names)
        shared = shared_labels({f"member {i} ({name})": models[i] for i, name in enumerate(names)})
        self.labels = tuple(map(str, range(self.num_classes))) if shared is None else shared
        for parameter in self.parameters():  # not self.requires_grad_(), which a ScriptModule inside has not
            parameter.requires_grad_(False)
        super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: (B, C, H, W), RGB in [0, 1].

        Returns:
            (B, num_classes): the mean logits, or the logarithm of the mean probabilities.
        """
        outputs = [model(x) for model in self.models]
        if self.fuse == "probabilities":
            # log Σ wᵢ pᵢ without leaving the logarithm, so that small probabilities keep a gradient
            terms = [o.log_softmax(1) + math.log(w) for w, o in zip(self.weights, outputs, strict=True)]
            return torch.stack(terms).logsumexp(0)
        return torch.stack([w * o for w, o in zip(self.weights, outputs, strict=True)]).sum(0)

    def loss_terms(self, x: Tensor) -> list[tuple[float, Tensor]]:
        """Return what an attack's loss is made of: the sum of weight · loss(logits) over the list.

        Args:
            x: (B, C, H, W), RGB in [0, 1].

        Returns:
            One (weight, logits) per member if losses are fused, otherwise one in all.
        """
        if self.fuse == "losses":
            return [(w, model(x)) for w, model in zip(self.weights, self.models, strict=True)]
        return [(1.0, self(x))]

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is torch's
        """Stay in eval mode, whatever is requested."""
        return super().train(False)

    def extra_repr(self) -> str:
        """Describe the ensemble in the first line of its repr."""
        weights = ", ".join(f"{w:.4g}" for w in self.weights)
        return f"{self.name!r}, fuse={self.fuse}, weights=({weights}), classes={self.num_classes}"


def _normalised(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    if weights is None:
        return (1 / count,) * count
    listed = weights.tolist() if isinstance(weights, Tensor) else weights
    values: tuple[float, ...] = ()
    with suppress(SettingsError):
        values = checked("weights", listed, tuple[Positive, ...])  # in order, which a set has not
    if len(values) != count:
        raise WhorlError(
            f"weights must be one positive number per model; expected {count}, got {quoted(listed)}. "
            "Leave a model out instead of giving it no weight."
        )
    total = math.fsum(values)
    return tuple(w / total for w in values)


def _common_count(models: Sequence[nn.Module], names: Sequence[str]) -> int:
    counts = [getattr(model, "num_classes", None) for model in models]
    if not all(isinstance(count, int) for count in counts):
        raise WhorlError("every model of an ensemble must be a classifier. Wrap it with whorl.Classifier.from_module.")
    if len(set(counts)) != 1:
        described = ", ".join(f"{name} has {count}" for name, count in zip(names, counts, strict=True))
        raise WhorlError(f"the models of an ensemble must have the same classes; {described}.")
    return int(getattr(models[0], "num_classes"))  # noqa: B009 - nn.Module would call the plain attribute a tensor
