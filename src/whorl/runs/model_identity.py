"""What a model is called and made of, as a run folder's manifest says it."""

from __future__ import annotations

from torch import nn

from whorl.attacks.contract import Model
from whorl.defenses import Defended
from whorl.models import Classifier, Ensemble
from whorl.models.weights import state_dict_sha256
from whorl.runs.folder import Json, as_json


def target_name(target: Model) -> str:
    """What to call a target: its own name, or its function's."""
    name = getattr(target, "name", None) or getattr(target, "__name__", None)
    return name if isinstance(name, str) else type(target).__name__


def identify(model: Model) -> list[Json]:
    """Say what a model is made of, for a manifest: names, weight hashes and defences."""
    if isinstance(model, Defended):
        shown = {"defense": as_json(model.defense), "samples": model.samples, "seed": model.seed}
        return [*identify(model.model), shown]
    if isinstance(model, Ensemble):
        return [part for member in model.models for part in identify(member)]
    if isinstance(model, Classifier):
        return [{"name": model.name, "weights_sha256": model.weights_sha256 or state_dict_sha256(model.net)}]
    weights = state_dict_sha256(model) if isinstance(model, nn.Module) else None
    return [{"name": target_name(model), "weights_sha256": weights}]
