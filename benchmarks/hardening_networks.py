"""Networks as weight files make them: wholly, part of the way from the original, or beyond."""

from __future__ import annotations

import argparse
import sys

import whorl
from whorl.hardening.student import blended
from whorl.models.defended import overlay, unpack
from whorl.models.weights import StateDict, state_dict_sha256


def networks(options: argparse.Namespace) -> tuple[dict[str, whorl.Classifier], dict[str, whorl.Classifier]]:
    """Originals and hardened networks by name, and those that go only part of the way."""
    whole: dict[str, whorl.Classifier] = {}
    partway: dict[str, whorl.Classifier] = {}
    for path in sorted(options.out.glob("*.safetensors")):
        model = path.stem.partition(".")[0]
        whole.setdefault(model, whorl.load_model(model, device=options.device))
        for amount in (1.0, *blends(options)):
            net = partly(model, unpack(path), amount, options)
            net.name = path.stem if amount == 1 else f"{path.stem} {amount:g}"
            (whole if amount == 1 else partway)[net.name] = net
    if not whole:
        sys.exit(f"there are no weight files in {options.out}: train first.")
    return whole, partway


def partly(model: str, state: StateDict, amount: float, options: argparse.Namespace) -> whorl.Classifier:
    """A network that goes so much of the way from its original to ``state``."""
    net = whorl.load_model(model, device=options.device)
    # What is evaluated is what a file would hold.
    state = {k: t.half().float() if t.is_floating_point() else t for k, t in blended(net, state, amount).items()}
    overlay(net.net, state, model)
    net.weights_sha256 = state_dict_sha256(net.net)
    return net


def load_start(model: str, recipe: str, options: argparse.Namespace) -> whorl.Classifier:
    """A network as an earlier recipe left it; without a recipe, as it was."""
    net = whorl.load_model(model, device=options.device)
    if recipe:
        overlay(net.net, unpack(options.out / f"{model}.{recipe}.safetensors"), recipe)
        net.name = f"{model}.{recipe}"
    return net


def blends(options: argparse.Namespace) -> list[float]:
    """The shares of the way that are looked at besides the whole of it."""
    return [float(part) for part in options.blends.split(",") if part]
