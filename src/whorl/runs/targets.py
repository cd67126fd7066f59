"""Networks to ask: every model behind every defence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from whorl.defenses import defense_names, load_defense
from whorl.errors import WhorlError, unknown_name
from whorl.models import load_model

UNDEFENDED = "none"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A network to ask, behind a defence or not.

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


def split_target(name: str) -> tuple[str, tuple[str, ...]]:
    """Split a target's name into the network's and its defences, the one nearest to the network first.

    Raises:
        WhorlError: nothing is left for the network.

    >>> split_target("resnet18+jpeg+bitdepth")
    ('resnet18', ('jpeg', 'bitdepth'))
    """
    model, layers = name.strip(), list[str]()
    while "+" in model:
        rest, _, last = model.rpartition("+")
        if last.strip().lower() not in defense_names():
            if ":" in model:  # an address, such as that of a file, may hold anything
                break
            raise unknown_name("defense", last.strip(), defense_names(), hint="`whorl defenses` lists all.")
        model, layers = rest.strip(), [last.strip().lower(), *layers]
    if not model or model.lower() in defense_names():
        raise WhorlError(f"expected the name of a model, alone or as in resnet18+jpeg; got {name!r}.")
    return model, tuple(layers)


def load_targets(
    models: Sequence[str], defenses: Sequence[str] = (UNDEFENDED,), *, device: torch.device, seed: int = 0
) -> list[Target]:
    """Load every model behind every defence.

    Args:
        models: as ``whorl.load_model`` takes them.
        defenses: names of ``whorl.defense_names()``, or "none". Several joined by "+" stand one before the other, the
            last one foremost, as in a defended classifier's name.
        device: where to put them.
        seed: of the random defences.

    Raises:
        WhorlError: nothing to load, an unknown name, or one target twice.
    """
    stacks = [[part.strip().lower() for part in defense.split("+")] for defense in defenses]
    if not models or not stacks:
        raise WhorlError(f"expected a model and a defence at least; got {list(models)} and {list(defenses)}.")
    known = (UNDEFENDED, *defense_names())
    for part in (part for stack in stacks for part in stack):
        if part not in known:  # said before a network is loaded, or even downloaded
            raise unknown_name("defense", part, known, hint="`whorl defenses` lists all.")
    targets: dict[str, Target] = {}
    for model in (load_model(name, device=device) for name in models):
        for stack in stacks:
            net: nn.Module = model
            layers = [part for part in stack if part != UNDEFENDED]
            for layer in layers:
                net = load_defense(layer, net, seed=seed)
            target = Target(model=model.name, defense="+".join(layers) or UNDEFENDED, net=net)
            if target.name in targets:
                raise WhorlError(f"two targets are called {target.name!r}. Name each model and each defence once.")
            targets[target.name] = target
    return list(targets.values())
