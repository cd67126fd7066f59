"""Names of the ImageNet-1k classes."""

from __future__ import annotations

from functools import cache

from whorl.models import _torchvision


@cache
def imagenet_labels() -> tuple[str, ...]:
    """Return the 1,000 English class names in the order of the logits, as torchvision publishes them.

    >>> imagenet_labels()[0]
    'tench'
    """
    weights = _torchvision.torchvision().models.ResNet18_Weights.DEFAULT
    return tuple(weights.meta["categories"])


def labels_for(num_classes: int) -> tuple[str, ...] | None:
    """Return the names for a network trained on ImageNet-1k, or None for any other number of classes."""
    return imagenet_labels() if num_classes == 1000 else None
