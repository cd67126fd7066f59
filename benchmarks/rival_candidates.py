"""Rivals from TransferAttack's zoo: as published, and with as many gradients as ours; and ours beside them.

Names are ``ATTACK/published`` or ``ATTACK/GRADIENTS``. ``+ai`` or ``+ri`` after the attack wraps the network in that
estimator, ``+5`` takes whorl's ratio of step size to radius instead of the published one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import whorl
from frontier_candidates import Make
from whorl import interop
from whorl.attacks import Attack

Settings = Mapping[str, Any]
PUBLISHED = "published"
# Layers that feature attacks look at, where the published one is not a layer of the source: {attack: setting}.
LAYERS: Mapping[str, Mapping[str, Settings]] = {
    "efficientnet_lite0": {"bfa": {"layer_name": "blocks.2.1"}, "p2fa": {"feature_layer": "1.blocks.2"}},
    "mobilenet_v2": {"bfa": {"layer_name": "features.6"}, "p2fa": {"feature_layer": "1.features.6"}},
}


@dataclass(frozen=True, kw_only=True)
class Rival:
    """How a rival is given fewer gradients, or more.

    Attributes:
        steps: published.
        alpha: published step size at a radius of 16/255; None where it follows from radius and steps.
        copies: most images that it makes of one in a pass, so that batches fit.
        budgets: gradients that a version is meant to spend to its settings.
    """

    steps: int
    alpha: float | None = 1.6 / 255
    copies: int = 1
    budgets: Mapping[int, Settings] = field(default_factory=dict)


def _copies(name: str, steps: int = 10) -> Mapping[int, Settings]:
    return {10: {"steps": steps, name: 1}, 50: {"steps": steps, name: 5}, 200: {"steps": steps, name: 20}}


RIVALS: Mapping[str, Rival] = {
    # 1 + neighbours × operators gradients a step
    "ops": Rival(
        steps=10,
        alpha=None,
        budgets={
            10: {"steps": 5, "num_sample_neighbor": 1, "num_sample_operator": 1},
            50: {"steps": 10, "num_sample_neighbor": 2, "num_sample_operator": 2},
            200: {"steps": 10, "num_sample_neighbor": 4, "num_sample_operator": 5},
        },
    ),
    "mef": Rival(
        steps=20,
        budgets={
            10: {"steps": 10, "num_neighbor": 1},
            50: {"steps": 10, "num_neighbor": 5},
            200: {"steps": 20, "num_neighbor": 10},
        },
    ),
    # Two operators, each of which makes 1 to 15 copies, 5.4 in the mean: no fewer than some 30 gradients a step.
    "l2t": Rival(steps=10, copies=128, budgets={50: {"steps": 2, "num_scale": 1}, 200: {"steps": 7, "num_scale": 1}}),
    "bsr": Rival(steps=10, copies=20, budgets=_copies("num_scale")),
    "sia": Rival(steps=10, copies=20, budgets=_copies("num_scale")),
    # two gradients a warp
    "decowa": Rival(
        steps=10,
        budgets={
            10: {"steps": 5, "num_warping": 1},
            50: {"steps": 5, "num_warping": 5},
            200: {"steps": 10, "num_warping": 10},
        },
    ),
    # two gradients for each of the ensemble, then one a step
    "bfa": Rival(
        steps=10,
        budgets={10: {"steps": 6, "num_ens": 2}, 50: {"steps": 10, "num_ens": 20}, 200: {"steps": 50, "num_ens": 75}},
    ),
    # a step is ten updates, and two gradients for each of the ensemble
    "p2fa": Rival(
        steps=10,
        budgets={10: {"steps": 1, "num_ens": 1}, 50: {"steps": 2, "num_ens": 7}, 200: {"steps": 5, "num_ens": 15}},
    ),
    "mumodig": Rival(
        steps=10,
        budgets={10: {"steps": 5, "N_trans": 1}, 50: {"steps": 10, "N_trans": 4}, 200: {"steps": 10, "N_trans": 19}},
    ),
    # a square of translations; it takes one image at a time
    "anda": Rival(
        steps=10,
        copies=25,
        budgets={10: {"steps": 3, "n_ens": 4}, 50: {"steps": 6, "n_ens": 9}, 200: {"steps": 8, "n_ens": 25}},
    ),
}
TARGETED: Mapping[str, Rival] = {
    "logit": Rival(steps=300, alpha=2 / 255),
    "cfm": Rival(steps=300, alpha=2 / 255),
    "ftm": Rival(steps=300, alpha=2 / 255),
    "everywhere": Rival(steps=300, copies=5),
}
OURS = (("dim", 10), ("ai-dim", 10), ("ai-best", 10), ("ai-best", 50), ("ai-best", 200))
OURS_TARGETED = (("ai-dim", 300), ("ai-best", 10), ("ai-best", 50), ("ai-best", 200), ("ai-best", 300))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An attack to measure: how it is made at a radius, and how many images it may take at a time."""

    make: Make
    copies: int = 1


def candidates(source: str, path: str, *, targeted: bool) -> dict[str, Candidate]:
    """Every candidate by name, in the order in which they run: those that cost least first."""
    made = {f"{name}/{steps}": Candidate(make=_ours(name, steps)) for name, steps in _own(targeted)}
    rivals = TARGETED if targeted else RIVALS
    budgets = sorted({gradients for rival in rivals.values() for gradients in rival.budgets})
    for gradients in budgets:
        for name, rival in rivals.items():
            if gradients in rival.budgets:
                made[f"{name}/{gradients}"] = _rival(name, rival, rival.budgets[gradients], source, path)
    for name, rival in sorted(rivals.items(), key=lambda one: one[0] == "ops"):  # by far the dearest
        made[f"{name}/{PUBLISHED}"] = _rival(name, rival, {}, source, path)
    if not targeted:
        made["eot/2500"] = Candidate(make=lambda eps: whorl.attack("eot", eps=eps, fast=None))
    return made


def chosen(only: str | None, source: str, path: str, *, targeted: bool) -> dict[str, Candidate]:
    """The candidates that ``--only`` names, in its order, ``NAME/*`` for all of one; all without it."""
    known = candidates(source, path, targeted=targeted)
    found: dict[str, Candidate] = {}
    for word in only.split(",") if only else known:
        base, _, budget = word.rpartition("/")
        name, *parts = base.split("+")
        names = [one for one in known if one.rpartition("/")[0] == name and budget in ("*", one.rpartition("/")[2])]
        if not names:
            raise SystemExit(f"no candidate {word!r}; there are {', '.join(known)}")
        for one in names:
            changed = "+".join([name, *parts]) + "/" + one.rpartition("/")[2]
            found[changed] = _changed(known[one], parts)
    return found


def _own(targeted: bool) -> list[tuple[str, int]]:
    more = [("ai-max", 200)] if "ai-max" in whorl.attack_names() else []
    return [*(OURS_TARGETED if targeted else OURS), *more]


def _ours(name: str, steps: int) -> Make:
    if name == "ai-max":
        return lambda eps: whorl.attack(name, eps=eps)
    return lambda eps: whorl.attack(name, eps=eps, steps=steps)


def _rival(name: str, rival: Rival, settings: Settings, source: str, path: str) -> Candidate:
    def make(eps: float) -> Attack:
        given = {**LAYERS.get(source, {}).get(name, {}), **settings}
        if rival.alpha is not None:  # the published share of the radius in each step, whatever the radius and the steps
            given["alpha"] = rival.alpha * (eps * 255 / 16) * rival.steps / given.get("steps", rival.steps)
        return interop.peer(f"transferattack:{name}", path=path, eps=eps, batched=True, **given)

    return Candidate(make=make, copies=rival.copies)


def _changed(candidate: Candidate, parts: list[str]) -> Candidate:
    """With an estimator, or another ratio of step size to radius."""

    def make(eps: float) -> Attack:
        attack = candidate.make(eps)
        for part in parts:
            assert isinstance(attack, interop.Peer), "only rivals take parts"
            if re.fullmatch(r"[0-9.]+", part):
                attack = attack.with_(alpha=float(part) * eps / dict(attack.settings)["epoch"])
            else:
                attack = attack.with_(estimator=interop.find_estimator(part))
        return attack

    return Candidate(make=make, copies=candidate.copies) if parts else candidate
