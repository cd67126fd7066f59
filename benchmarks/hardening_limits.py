"""Whether a hardened network holds what it should, a little before and beyond its trained weights too."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whorl
from hardening_counts import figures
from hardening_images import PLAIN, POOL_SOURCE, craft, evaluation_images
from hardening_networks import blends, load_start, partly
from judge import Data
from measure import save
from whorl.evaluation import PAPER_POSES, Pose
from whorl.files import sha256_of
from whorl.hardening.student import blended
from whorl.models.defended import overlay, pack, unpack
from whorl.models.weights import StateDict

FLOORS = {"ens-at": 80.0, "alp": 65.0}
"""Lowest clean accuracy, in percent; ``ai-at`` may lose three points on ``ens-at``."""
SHARES = {"fgsm": 0.6, "pgd": 0.5, "mim": 0.5, "dim": 0.5}
"""Highest success rate, as a share of the original's."""
INVARIANT_GAIN = 10.0
"""How many points less often the invariant attacks must fool ``ai-at`` than ``ens-at``, over the twelve poses."""


@dataclass(frozen=True)
class Verdict:
    """One network's figures in percent, each beside its limit, and by how much the worst of them holds."""

    name: str
    told: str
    margin: float

    @classmethod
    def of(cls, name: str, floor: float, clean: float, rates: dict[str, float], limits: dict[str, float]) -> Verdict:
        """Compare.

        >>> Verdict.of("a", 80, 82, {"dim": 40}, {"dim": 45})
        Verdict(name='a', told='clean 82.0 (>= 80.0)  dim 40.0 (<= 45.0)', margin=2)
        """
        margins = [clean - floor, *(limits[k] - rates[k] for k in limits)]
        parts = [f"clean {clean:.1f} (>= {floor:.1f})", *(f"{k} {rates[k]:.1f} (<= {limits[k]:.1f})" for k in limits)]
        return cls(name, "  ".join(parts), min(margins))

    def __str__(self) -> str:
        """Give one line."""
        return f"{'PASS' if self.margin >= 0 else 'FAIL'} {self.margin:+5.1f}  {self.name}: {self.told}"


def check(options: argparse.Namespace) -> None:
    """Print one line a network: clean accuracy, success rates from resnet18 at identity, their limits, PASS or FAIL."""
    data = evaluation_images(options)
    crafted = {name: craft(name, POOL_SOURCE, data, options) for name in PLAIN}
    for name in options.check or sorted(path.stem for path in options.out.glob("*.safetensors")):
        model, _, recipe = name.partition(".")
        original = whorl.load_model(model, device=options.device)
        _, before = figures(original, data, crafted, [Pose()], options)
        limits = {attack: share * before[attack] for attack, share in SHARES.items()}
        record = json.loads((options.out / f"{name}.json").read_text(encoding="utf-8"))
        if options.line_from and record.get("blend_from"):
            sys.exit(f"{name} in {options.out} is a mean of two trainings already: begin with what one of them made.")
        start = load_start(model, record["job"]["start"], options)
        if options.line_from and options.line_share is None:
            overlay(start.net, unpack(options.line_from), options.line_from.name)
        state = unpack(options.out / f"{name}.safetensors")
        if options.line_share is not None:
            state = _between(unpack(options.line_from), state, options.line_share)
        seen: dict[float, Verdict] = {}
        for amount in (1.0, *blends(options)):
            net = partly(model, blended(start, state, amount), 1.0, options)
            clean, rates = figures(net, data, crafted, [Pose()], options)
            if recipe == "ai-at":
                seen[amount] = against_ens_at(f"{name} {amount:g}", net, clean, data, options)
            else:
                seen[amount] = Verdict.of(f"{name} {amount:g}", FLOORS.get(recipe, 0.0), clean, rates, limits)
            print(seen[amount], flush=True)
        best = max(seen, key=lambda amount: seen[amount].margin)
        if options.keep and (options.line_share is not None or (best != 1 and seen[1.0].margin < 0)):
            pack(options.out / f"{name}.safetensors", blended(start, state, best), about={"name": name})
            if options.line_from:
                share = best if options.line_share is None else options.line_share
                other = {"share": round(1 - share, 6), **told_of(options.line_from)}
                record |= {"blend": share, "blend_from": other}
            went = scaled(record, 1.0 if options.line_from and options.line_share is None else best)
            save(record | went | {"blend_chosen_on": Path(options.nips).name}, options.out / f"{name}.json")
            print(f"kept {best:g} of the way of {name}", flush=True)


def _between(first: StateDict, state: StateDict, share: float) -> StateDict:
    """So much of ``state``, and the rest of ``first``, in float32."""
    # A weighted sum, which rounds otherwise than a step along the line (`blended`): so the shipped weights were made,
    # and so they come out again bit for bit.
    return {
        name: (1 - share) * first[name].float() + share * tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }


def scaled(record: Mapping[str, Any], amount: float) -> dict[str, Any]:
    """The shares of a record's trainings, so much of the way from the original; what is missing to 1 is its own share.

    >>> scaled({"blend": 0.55, "blend_from": {"share": 0.45, "steps": 7}}, 1.04)
    {'blend': 0.572, 'blend_from': {'share': 0.468, 'steps': 7}}
    """
    other = record.get("blend_from")
    return {
        "blend": round(amount * record.get("blend", 1.0), 6),
        "blend_from": other and {**other, "share": round(amount * other["share"], 6)},
    }


def told_of(path: Path) -> dict[str, Any]:
    """What the manifest says of the other training on a line: its file's hash, and its record where there is one."""
    beside = path.with_suffix(".json")
    record = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}
    told = {name: record[name] for name in ("about", "seed", "steps", "seconds") if name in record}
    ran = {name: record["metadata"][name] for name in ("command", "commit", "hardware") if "metadata" in record}
    return {"sha256": sha256_of(path), **told, **ran}


def against_ens_at(name: str, net: whorl.Classifier, clean: float, data: Data, options: argparse.Namespace) -> Verdict:
    """Evaluate ``ai-at`` and ``ens-at`` on rotated, scaled and translated images."""
    model = name.partition(".")[0]
    crafted = {attack: craft(attack, POOL_SOURCE, data, options) for attack in ("ai-dim", "ai-ram")}
    beside = partly(model, unpack(options.out / f"{model}.ens-at.safetensors"), 1.0, options)
    beside_clean, _ = figures(beside, data, {"ai-dim": data.x}, [Pose()], options)
    _, before = figures(beside, data, crafted, PAPER_POSES, options)
    _, rates = figures(net, data, crafted, PAPER_POSES, options)
    return Verdict.of(name, beside_clean - 3, clean, rates, {k: v - INVARIANT_GAIN for k, v in before.items()})
