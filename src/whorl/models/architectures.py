"""Networks without weights, what they expect as input, and the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from whorl.errors import WhorlError, unknown_name
from whorl.models import _torchvision
from whorl.models.classifier import Resize
from whorl.models.inception import InceptionV3


@dataclass(frozen=True, kw_only=True)
class Input:
    """What a network expects: see :class:`whorl.models.Classifier` for the fields."""

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: Resize = "bilinear"


INCEPTION_INPUT = Input(size=(299, 299), mean=(0.5,) * 3, std=(0.5,) * 3)  # 2x - 1


def build(architecture: str, num_classes: int | None = None) -> tuple[nn.Module, Input]:
    """Build a network with random weights, leaving torch's random state as it was.

    Args:
        architecture: ``timm:NAME``, ``torchvision:NAME`` or ``whorl:inception_v3``; a name without a prefix is timm's.
        num_classes: how many logits; the architecture's default if None.

    Returns:
        The network, and the input that its published weights expect.
    """
    library, _, name = architecture.rpartition(":")
    extra = {} if num_classes is None else {"num_classes": num_classes}
    with torch.random.fork_rng(devices=[]):
        if library == "torchvision":
            models = _torchvision.torchvision().models
            check_torchvision_name(name)
            weights = models.get_model_weights(name).DEFAULT
            return models.get_model(name, weights=None, **extra), torchvision_input(weights)
        if architecture == "whorl:inception_v3":
            return InceptionV3(**extra), INCEPTION_INPUT
        if library not in ("", "timm"):
            raise WhorlError(f"an architecture is timm:NAME or torchvision:NAME; got {architecture!r}.")
        timm = _torchvision.timm()
        if not timm.is_model(name):
            raise unknown_name("architecture", name, timm.list_models(), hint="`timm.list_models()` lists all.")
        net = timm.create_model(name, pretrained=False, **extra)
        return net, timm_input(net)


def timm_input(net: nn.Module) -> Input:
    """Read what a timm network expects out of its configuration."""
    config: Mapping[str, Any] = _torchvision.timm().data.resolve_model_data_config(net)
    _, height, width = config["input_size"]
    resize: Resize = "bicubic" if config["interpolation"] == "bicubic" else "bilinear"
    return Input(size=(height, width), mean=tuple(config["mean"]), std=tuple(config["std"]), resize=resize)


def torchvision_input(weights: Any) -> Input:
    """Read what a torchvision network expects out of the preset that comes with its weights."""
    preset = weights.transforms()
    side = preset.crop_size[0]
    resize: Resize = "bicubic" if preset.interpolation.value == "bicubic" else "bilinear"
    return Input(size=(side, side), mean=tuple(preset.mean), std=tuple(preset.std), resize=resize)


def check_torchvision_name(name: str) -> None:
    """Refuse what is not one of torchvision's classifiers (it also has detectors and the like)."""
    models = _torchvision.torchvision().models
    known = models.list_models(module=models)
    if name not in known:
        hint = "`torchvision.models.list_models(module=torchvision.models)` lists all."
        raise unknown_name("torchvision model", name, known, hint=hint)


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
