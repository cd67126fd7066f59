"""Networks by name: what is attacked and what is evaluated, behind defences or not, and exactly which ones they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from whorl.attacks.contract import Model
from whorl.defenses import Defended, defense_names, load_defense
from whorl.errors import WhorlError, unknown_name
from whorl.models import Classifier, Ensemble, load_model
from whorl.models.classifier import name_of
from whorl.models.labels import named
from whorl.models.weights import state_dict_sha256
from whorl.runs.folder import Json, as_json

UNDEFENDED = "none"


def device_of(model: Model) -> torch.device:
    """Where a model's parameters are; the CPU if it has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def is_address(name: str) -> bool:
    """Whether a network is named by an address, or with settings, and not by a plain name.

    >>> is_address("timm:resnet50"), is_address("resnet18?name=ours"), is_address("resnet18+jpeg")
    (True, True, False)
    """
    return ":" in name or "?" in name


def split_source(name: str) -> list[str]:
    """Split a source's name into those of the ensemble's members.

    >>> split_source("resnet18+mobilenet_v2"), split_source("file:a+b.pt")
    (['resnet18', 'mobilenet_v2'], ['file:a+b.pt'])
    """
    # An address, such as that of a file, may hold a "+" of its own.
    return [name] if is_address(name) else [part.strip() for part in name.split("+")]


def white_box_on(source: str, target: str) -> bool:
    """Whether an attack on a source sees the target: it is the source, or a member of its ensemble.

    >>> white_box_on("resnet18+mobilenet_v2", "resnet18"), white_box_on("file:a+b.pt", "b.pt")
    (True, False)
    """
    return target in (source, *split_source(source))


def split_target(name: str) -> tuple[str, tuple[str, ...]]:
    """Split a target's name into the network's and its defences, the one nearest to the network first.

    Raises:
        WhorlError: nothing is left for the network.

    >>> split_target("resnet18+jpeg+bitdepth")
    ('resnet18', ('jpeg', 'bitdepth'))
    """
    model, layers = split_defended(name)
    if "+" in model and not is_address(model):  # an address, such as that of a file, may hold anything
        last = model.rpartition("+")[2].strip()
        raise unknown_name("defense", last, defense_names(), hint="`whorl defenses` lists all.")
    return model, layers


def split_defended(name: str) -> tuple[str, tuple[str, ...]]:
    """Split the name of a network, or of an ensemble, and of its defences, the one nearest to the network first.

    Raises:
        WhorlError: nothing is left for the network.

    >>> split_defended("resnet18+mobilenet_v2+jpeg")
    ('resnet18+mobilenet_v2', ('jpeg',))
    """
    model, layers = name.strip(), list[str]()
    while "+" in model and (last := model.rpartition("+")[2].strip().lower()) in defense_names():
        model, layers = model.rpartition("+")[0].strip(), [last, *layers]
    if not model or model.lower() in defense_names():
        raise WhorlError(f"expected the name of a model, alone or as in resnet18+jpeg; got {name!r}.")
    return model, tuple(layers)


def split_defense(text: str) -> tuple[str, ...]:
    """Split what stands before a network into defences, the one nearest to it first; "none" stands for nothing.

    Raises:
        WhorlError: an unknown one.

    >>> split_defense("jpeg+bitdepth"), split_defense("none")
    (('jpeg', 'bitdepth'), ())
    """
    known, parts = (UNDEFENDED, *defense_names()), [part.strip().lower() for part in text.split("+")]
    for part in parts:
        if part not in known:
            raise unknown_name("defense", part, known, hint="`whorl defenses` lists all.")
    return tuple(part for part in parts if part != UNDEFENDED)


def behind(model: nn.Module, defenses: Sequence[str], *, seed: int = 0) -> nn.Module:
    """Put defences before a network, the first one nearest to it.

    Args:
        model: the network.
        defenses: names of ``whorl.defense_names()``; none for the network itself.
        seed: of the random ones.
    """
    for name in defenses:
        model = load_defense(name, model, seed=seed)
    return model


class Networks:
    """Sources and targets of a run, loaded when first needed and kept.

    Args:
        device: where to put them.
        seed: of the random defences.
        given: networks that are in memory already, by name; a name that is not here is loaded.
        addresses: of networks, by the names that the run gives them; another name is its own address.
        labels: what the classes are called where a network has only numbers for them; None if nobody knows.
    """

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        given: Mapping[str, Model] | None = None,
        *,
        addresses: Mapping[str, str] | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.device, self.seed, self.given = device, seed, dict(given or {})
        self.addresses, self.labels = dict(addresses or {}), labels
        self._models: dict[str, Classifier] = {}

    def model(self, name: str) -> Classifier:
        """One network, by its name in the run, or as ``whorl.load_model`` takes it."""
        if name not in self._models:
            model = load_model(self.addresses.get(name, name), device=self.device)
            if self.labels is not None and not named(model.labels) and len(self.labels) == model.num_classes:
                model.labels = tuple(self.labels)
            self._models[name] = model
        return self._models[name]

    def ensemble(self, names: Sequence[str]) -> Classifier | Ensemble:
        """One network, or several as an ensemble of equal weights."""
        if not names or not all(names):
            raise WhorlError(
                "expected the name of a model, or several, as in resnet18+mobilenet_v2; "
                f"got {'+'.join(names)!r}. `whorl models` lists all."
            )
        loaded = [self.model(name) for name in names]
        return loaded[0] if len(loaded) == 1 else Ensemble(loaded)

    def source(self, name: str) -> Any:
        """What to attack: what is given under the name, one network, or several joined by "+" as an ensemble.

        Behind defences if the name says so: what is crafted then meets them on the way.
        """
        if name in self.given:
            return self.given[name]
        models, layers = split_defended(name)
        return behind(self.ensemble(split_source(models)), layers, seed=self.seed)

    def target(self, name: str) -> Any:
        """What to evaluate: a network, behind defences if the name says so, as in ``resnet18+jpeg``."""
        if name in self.given:
            return self.given[name]
        model, layers = split_target(name)
        return behind(self.model(model), layers, seed=self.seed)


def load_source(names: Sequence[str], device: torch.device) -> Classifier | Ensemble:
    """Load the network to attack: one by name, or several as an ensemble of equal weights.

    Args:
        names: as ``whorl.load_model`` takes them.
        device: where to put them.
    """
    return Networks(device).ensemble(names)


def members(model: Model) -> list[Any]:
    """What a model is made of: itself, or the members of the ensemble."""
    return list(model.models) if isinstance(model, Ensemble) else [model]


def identify(model: Model) -> list[Json]:
    """Say exactly which network it is, as JSON: each member, then each defence before it.

    A function that is no ``nn.Module`` has its name alone: nothing tells whether it is the same the next time.
    """
    if isinstance(model, Defended):
        shown = {"defense": as_json(model.defense), "samples": model.samples, "seed": model.seed}
        return [*identify(model.model), shown]
    if isinstance(model, Ensemble):
        parts = [part for member in model.models for part in identify(member)]
        plain = model.fuse == "logits" and len(set(model.weights)) == 1
        return parts if plain else [*parts, {"name": model.name, "fuse": model.fuse, "weights": list(model.weights)}]
    if isinstance(model, Classifier):
        return [model.identity()]
    weights = state_dict_sha256(model) if isinstance(model, nn.Module) else None
    return [{"name": name_of(model), "weights_sha256": weights}]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A network to evaluate, behind a defence or not.

    Attributes:
        model: the network's name.
        defense: what stands before it, or "none".
        net: both together.
    """

    model: str
    defense: str = UNDEFENDED
    net: nn.Module

    @property
    def name(self) -> str:
        """As in ``resnet18+jpeg``."""
        return self.model if self.defense == UNDEFENDED else f"{self.model}+{self.defense}"


def load_targets(
    models: Sequence[str], defenses: Sequence[str] = (UNDEFENDED,), *, device: torch.device, seed: int = 0
) -> list[Target]:
    """Load every model behind every defence.

    Args:
        models: as ``whorl.load_model`` takes them, alone or behind defences of their own, as in ``resnet18+jpeg``.
        defenses: names of ``whorl.defense_names()``, or "none". Several joined by "+" stand one before the other, the
            last one foremost, as in a defended classifier's name.
        device: where to put them.
        seed: of the random defences.

    Raises:
        WhorlError: nothing to load, an unknown name, or one target twice.
    """
    stacks = [split_defense(defense) for defense in defenses]  # checked before a network is loaded, or even downloaded
    if not models or not stacks:
        raise WhorlError(f"expected a model and a defence at least; got {list(models)} and {list(defenses)}.")
    targets: dict[str, Target] = {}
    for name, own in map(split_target, models):
        model = load_model(name, device=device)
        for layers in ((*own, *stack) for stack in stacks):
            net = behind(model, layers, seed=seed)
            target = Target(model=model.name, defense="+".join(layers) or UNDEFENDED, net=net)
            if target.name in targets:
                raise WhorlError(f"two targets are called {target.name!r}. Name each model and each defence once.")
            targets[target.name] = target
    return list(targets.values())
