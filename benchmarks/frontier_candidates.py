"""What is compared: whorl's attacks, RAM with one part at a time, EOT, other libraries' attacks plain and wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import whorl
from frontier_kernels import kernel_by_name
from frontier_transforms import SmoothWarp
from whorl.attacks import Attack
from whorl.attacks.transfer import TransferAttack
from whorl.estimators import CompressedGradient, SharedChannels
from whorl.models.backward import Backward
from whorl.transforms.mixed import Gain, InputChain, Mirror
from whorl.transforms.spread import SpreadAffine

Make = Callable[[float], Attack]
"""Radius of the ball to the attack."""

PEERS: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]] = {
    # (gradients that this is meant to spend, settings)
    "BSR": ((10, {"steps": 10, "num_scale": 1}), (50, {"steps": 10, "num_scale": 5})),
    "SSA": ((10, {"steps": 10, "num_spectrum": 1}), (50, {"steps": 10, "num_spectrum": 5})),
    "Admix": ((10, {"steps": 2, "size": 1}), (50, {"steps": 10, "size": 1})),
    "DeCoWA": ((10, {"steps": 5, "num_warping": 1}), (50, {"steps": 5, "num_warping": 5})),
    "L2T": ((10, {"steps": 1, "num_scale": 1}), (50, {"steps": 5, "num_scale": 1})),
    "VMIFGSM": ((10, {"steps": 5, "n": 1}), (50, {"steps": 10, "n": 4})),
}
NARROW = whorl.AffineInvariant(sigma=0.5)


def candidates() -> dict[str, Make]:
    """Every candidate by name, in the order in which they run."""
    made: dict[str, Make] = {}
    for steps in (10, 50):
        suffix = f"/{steps}"
        for name in ("mim", "dim", "ti-dim", "ai-dim", "ram", "ai-ram"):
            made[name + suffix] = _named(name, steps=steps)
        made["dim+ai0.5" + suffix] = _named("dim", steps=steps, estimator=NARROW)
        for name, parts in RAM_PARTS.items():
            made[name + suffix] = _ram(steps=steps, **parts)
        if "ai-best" in whorl.attack_names():
            made["ai-best" + suffix] = _named("ai-best", steps=steps)
    for name, versions in PEERS.items():
        for gradients, settings in versions:
            for wrapped in (False, True):
                made[f"{name}{'+ai0.5' if wrapped else ''}/{gradients}"] = _peer(name, settings, wrapped)
    # In bfloat16 on a GPU, by far the dearest: docs/frontier.md says which rows.
    made["eot/1000"] = _named("eot", samples=20, fast=None)
    made["eot/2500"] = _named("eot", fast=None)
    return made


# Added to RAM one at a time: what each part gives. Those of ai-best come first.
RAM_PARTS: Mapping[str, Mapping[str, Any]] = {
    "ram+ai0.5": {"estimator": NARROW},
    "ram+skip0.65": {"backward": Backward(skip=0.65)},
    "ram+rectifier2": {"backward": Backward(rectifier=2.0, late=0.5)},
    "ram+lattice": {"input": SpreadAffine(design="lattice")},
    "ram+scale0.5-1.2": {"input": whorl.RandomAffine(scale=(0.5, 1.2))},
    "ram+mirror": {"input": InputChain(Mirror(), whorl.RandomAffine())},
    "ram+gain0.6": {"input": InputChain(whorl.RandomAffine(), Gain(lowest=0.6))},
    "ram+channels0.5": {"estimator": SharedChannels(share=0.5)},
    "ram+power0.5": {"estimator": CompressedGradient(power=0.5)},
    "ram+pace20": {"pace": 20.0},
    "ram+temperature3": {"temperature": 3.0},
    "ram+latin": {"input": SpreadAffine()},
    "ram+antithetic": {"input": SpreadAffine(design="antithetic")},
    "ram+warp": {"input": InputChain(SmoothWarp(), whorl.RandomAffine())},
    "ram+overshoot1.5": {"overshoot": 1.5},
    "ram+relative": {"loss": "relative"},
    "ram+skip0.5+ai0.5": {"estimator": NARROW, "backward": Backward(skip=0.5)},
}


def _named(name: str, **settings: Any) -> Make:
    return lambda eps: whorl.attack(name, eps=eps, **settings)


def _ram(**settings: Any) -> Make:
    return lambda eps: TransferAttack(eps=eps, **{"momentum": 1.0, "input": whorl.RandomAffine(), **settings})


def _peer(name: str, settings: Mapping[str, Any], wrapped: bool) -> Make:
    estimator = NARROW if wrapped else whorl.identity

    def make(eps: float) -> Attack:
        alpha = eps * (5 / settings["steps"] if settings["steps"] > 1 else 1)
        return whorl.attack(
            f"torchattack:{name}", eps=eps, alpha=alpha, estimator=estimator, batched=True, **dict(settings)
        )

    return make


def chosen(only: str | None) -> dict[str, Make]:
    """The candidates that ``--only`` names, in its order; all in their own without it.

    >>> list(chosen("ti-dim/10,dim+t0.8p0/10,fgsm+t0s0r3@21/1"))
    ['ti-dim/10', 'dim+t0.8p0/10', 'fgsm+t0s0r3@21/1']
    """
    all_of_them = candidates()
    if not only:
        return all_of_them
    found: dict[str, Make] = {}
    for word in only.split(","):
        described = _WITH_KERNEL.fullmatch(word)
        kernel = kernel_by_name(described[2]) if described else None
        if described and kernel:
            found[word] = _named(described[1], steps=int(described[3]), estimator=kernel)
        found |= {name: make for name, make in all_of_them.items() if _names(word, name)}
    return found


# An attack, the kernel that it gets, its steps.
_WITH_KERNEL = re.compile(r"(fgsm|pgd|mim|dim|ram)\+(.+)/([0-9]+)")


def _names(word: str, name: str) -> bool:
    """Whether a word of ``--only`` is a candidate's name, or its beginning where it ends in "*"."""
    return name.startswith(word[:-1]) if word.endswith("*") else word in (name, name.rpartition("/")[0])
