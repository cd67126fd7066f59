"""Networks by name, each loaded once."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import nn

from whorl.defenses import load_defense
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble, load_model
from whorl.models.weights import state_dict_sha256
from whorl.runs.folder import Json, as_json
from whorl.runs.setup import members
from whorl.runs.targets import split_target


class Networks:
    """Sources and targets of an experiment, loaded when first asked for and kept.

    Args:
        device: where to put them.
        seed: of the random defences.
    """

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        self.device, self.seed = device, seed

    @cached_property
    def _models(self) -> dict[str, Classifier]:
        return {}

    def model(self, name: str) -> Classifier:
        """One network, as ``whorl.load_model`` takes its name."""
        if name not in self._models:
            self._models[name] = load_model(name, device=self.device)
        return self._models[name]

    def source(self, name: str) -> Classifier | Ensemble:
        """What to attack: one network, or several joined by "+" as an ensemble of equal weights."""
        # An address, such as that of a file, may hold a "+" of its own.
        names = [name] if ":" in name else [part.strip() for part in name.split("+")]
        if not all(names):
            raise WhorlError(f"expected the names of models joined by +, as in resnet18+mobilenet_v2; got {name!r}.")
        loaded = [self.model(part) for part in names]
        return loaded[0] if len(loaded) == 1 else Ensemble(loaded)

    def target(self, name: str) -> nn.Module:
        """What to ask: a network, behind defences if the name says so, as in ``resnet18+jpeg``."""
        model, layers = split_target(name)
        net: nn.Module = self.model(model)
        for layer in layers:
            net = load_defense(layer, net, seed=self.seed)
        return net

    def identify_source(self, name: str) -> list[Json]:
        """Say exactly which networks are attacked."""
        return [_identify(member) for member in members(self.source(name))]

    def identify_target(self, name: str) -> Json:
        """Say exactly which network is asked, and what stands before it."""
        model, layers = split_target(name)
        identity: Json = {"model": _identify(self.model(model)), "defenses": []}
        net = self.target(name)
        for _ in layers:
            identity["defenses"].append(as_json(net.defense))
            net = net.model  # type: ignore[assignment]  # a Defended holds what it stands before
        if layers:
            identity["seed"] = self.seed
        return identity


def _identify(model: Classifier) -> Json:
    return {
        "name": model.name,
        "weights_sha256": model.weights_sha256 or state_dict_sha256(model.net),
        "input": [list(model.size), list(model.mean), list(model.std), model.resize],
    }
