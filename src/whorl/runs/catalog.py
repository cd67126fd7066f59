"""What there is to choose from: attacks, models and defences, as plain records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from torch import nn

from whorl.artifacts import cache_home
from whorl.attacks import attack, attack_names, describe
from whorl.attacks.presets import Kind
from whorl.defenses import DEFENSES, defense_names, load_defense
from whorl.errors import WhorlError
from whorl.models import Classifier
from whorl.models._torchvision import timm
from whorl.models.defended import shipped
from whorl.models.networks import NETWORKS, Network
from whorl.models.zoo import PAPER


@dataclass(frozen=True, kw_only=True)
class AttackEntry:
    """One attack."""

    name: str
    kind: str
    """"gradient" if eps bounds it, "minimal" if it seeks the smallest perturbation."""
    description: str
    settings: str
    """What differs from the defaults of its kind, as in its repr."""


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One network."""

    name: str
    kind: str
    """"offline" if a package index has the weights, "defended" if it is a hardened one of these that comes with whorl,
    "paper" if it is of the paper and comes from a hub."""
    size: tuple[int, int]
    """(height, width) that it works at; images of another size are resized."""
    source: str
    """Where the weights come from."""
    cached: bool
    """Whether they are on this machine already."""


@dataclass(frozen=True, kw_only=True)
class DefenseEntry:
    """One defence."""

    name: str
    description: str
    settings: dict[str, Any]


def attack_catalog() -> list[AttackEntry]:
    """Every attack by name.

    >>> attack_catalog()[0].settings
    'steps=1'
    """
    return [
        AttackEntry(
            name=name,
            kind=kind,
            description=describe(name),
            settings=repr(attack(name)).partition("(")[2].removesuffix(")"),
        )
        for kind in get_args(Kind)
        for name in attack_names(kind)
    ]


def model_catalog() -> list[ModelEntry]:
    """Every network by name. Nothing is downloaded."""
    offline = [
        ModelEntry(
            name=name,
            kind="offline",
            size=network.input.size,
            source=f"{'npm:' if network.artifact.source == 'npm' else ''}{network.artifact.requirement}",
            cached=_has_weights(name, network),
        )
        for name, network in NETWORKS.items()
    ]
    return offline + _defended(offline) + [_from_hub(name, address) for name, address in PAPER.items()]


def defense_catalog() -> list[DefenseEntry]:
    """Every defence by name, with its default settings."""
    # Settings live in the record that stands before a classifier, and any classifier will do.
    stand_in = Classifier.from_module(nn.Flatten(), size=1, mean=(0.0,) * 3, std=(1.0,) * 3)
    entries = []
    for name in defense_names():
        defended = load_defense(name, stand_in)
        settings = vars(defended.defense).copy()
        with suppress(WhorlError):  # the random ones take this, the others refuse it
            settings["samples"] = load_defense(name, stand_in, samples=defended.samples).samples
        entries.append(DefenseEntry(name=name, description=DEFENSES[name].about, settings=settings))
    return entries


def _defended(originals: list[ModelEntry]) -> list[ModelEntry]:
    by_name = {entry.name: entry for entry in originals}
    return [
        ModelEntry(
            name=name,
            kind="defended",
            size=by_name[entry.base].size,
            source=f"included, from {entry.base}",
            cached=by_name[entry.base].cached,
        )
        for name, entry in shipped().items()
    ]


def _has_weights(name: str, network: Network) -> bool:
    [digest] = network.artifact.files.values()
    converted = (cache_home() / "weights").glob(f"{name}-{digest[:16]}-*/{name}.safetensors")
    return any(converted)


def _from_hub(name: str, address: str) -> ModelEntry:
    from huggingface_hub import try_to_load_from_cache

    config = timm().models.get_pretrained_cfg(address.removeprefix("timm:"))
    _, height, width = config.input_size
    held = (try_to_load_from_cache(config.hf_hub_id, file) for file in ("model.safetensors", "pytorch_model.bin"))
    return ModelEntry(
        name=name,
        kind="paper",
        size=(height, width),
        source=address,
        cached=any(isinstance(path, str) for path in held),
    )
