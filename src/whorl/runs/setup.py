"""From names on a command line to what a job works with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble, load_model


def load_source(names: Sequence[str], device: torch.device) -> Classifier | Ensemble:
    """Load the network to attack: one by name, or several as an ensemble of equal weights.

    Args:
        names: as ``whorl.load_model`` takes them.
        device: where to put them.
    """
    if not names:
        raise WhorlError("expected the name of a model, got none. `whorl models` lists all.")
    loaded = [load_model(name, device=device) for name in names]
    return loaded[0] if len(loaded) == 1 else Ensemble(loaded)


def members(model: Classifier | Ensemble) -> list[Classifier]:
    """The classifiers that a model is made of: itself, or those of the ensemble."""
    parts = model.models if isinstance(model, Ensemble) else [model]
    return [part for part in parts if isinstance(part, Classifier)]


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are; the CPU if it has none."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
