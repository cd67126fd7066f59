"""Settings of the attacks that ``strength_search.py`` tries, and what each settings stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import measure
import whorl
from frontier_transforms import BlockShuffle, SelfMix, SmoothWarp, Sometimes, SpectrumNoise
from strength_parts import Cornered, Interleaved, NarrowedAffine, Neighbour, Rules, calibrated
from whorl.attacks import Attack
from whorl.estimators import CompressedGradient, SharedChannels
from whorl.transforms import DiverseInput, Gain, InputChain, InputTransform, Mirror, RandomAffine, SpreadAffine, plain
from whorl.transforms.spread import near_draws

Settings = Mapping[str, Any]

# ai-best as it was, with everything that is tried at the value that changes nothing.
BEST: Settings = {
    "steps": 10,
    "samples": 1,
    "pace": 20.0,
    "cooling": 1.0,
    "momentum": 1.0,
    "loss": "ce",
    "temperature": 1.0,
    "sigma": 0.5,
    "power": 0.5,
    "channels": 0.5,
    "mirror": 0.5,
    "gain": 0.6,
    "angle": 30.0,
    "scale": (0.5, 1.2),
    "shift": 20.0,
    "narrow": 1.0,  # what is left of the ranges in the last draw
    "near": 0.0,  # share of the draws near the image as it is
    "kind": "dim",  # what a near draw is: dim, box, plain
    "place": "spread",  # where they are: spread, last, first
    "reach": 0.2,  # of a box, as a share of the ranges
    "calm": True,  # whether near draws are neither mirrored nor darkened
    "ball": 0.0,  # radius of random neighbours, times eps
    "ops": (),  # (name, probability) of further operators
    "skip": 0.65,
    "early": 0.0,
    "rectifier": 2.0,
    "late": 0.5,
    "relative": False,
    "join": 1.0,
    "flat": False,
    "pool": 0.0,
    "corner": 1.0,  # from which share of the radius on pixels go on to the ball's surface
    "plain_eot": False,  # EOT as the reference
}

EOT: Settings = {"plain_eot": True, "steps": 50, "samples": 50, "pace": 5.0}
RELATIVE: Settings = {"relative": True, "rectifier": 0.7}

_OPS: Mapping[str, InputTransform] = {
    "blocks": BlockShuffle(),
    "blocks3": BlockShuffle(blocks=3),
    "warp": SmoothWarp(),
    "spectrum": SpectrumNoise(noise=4 / 255, spread=0.3),
    "mix": SelfMix(),
    "dim": DiverseInput(probability=1.0),
}
_LOSSES = {"calibrated": calibrated}


def build(settings: Settings, eps: float) -> Attack:
    """The attack that settings describe; what they leave out is as in ``BEST``."""
    s = {**BEST, **settings}
    if s["plain_eot"]:
        return whorl.attack("eot", eps=eps, steps=s["steps"], samples=s["samples"], pace=s["pace"])
    estimators: list[Any] = []
    if s["power"] < 1:
        estimators.append(CompressedGradient(power=s["power"]))
    if s["channels"]:
        estimators.append(SharedChannels(share=s["channels"]))
    if s["sigma"]:
        estimators.append(whorl.AffineInvariant(sigma=s["sigma"]))
    return Cornered(
        eps=eps,
        input=_input(s, eps),
        estimator=whorl.Chain(*estimators) if estimators else whorl.identity,
        backward=Rules(
            late=s["late"] if s["rectifier"] else 0.0,
            **{name: s[name] for name in ("skip", "rectifier", "early", "relative", "join", "flat", "pool")},
        ),
        loss=_LOSSES.get(s["loss"], s["loss"]),
        **{name: s[name] for name in ("steps", "samples", "momentum", "pace", "temperature", "cooling", "corner")},
    )


def _input(s: Settings, eps: float) -> InputTransform:
    ranges = {name: s[name] for name in ("angle", "scale", "shift")}
    # What ships; the others take turns.
    posed = s["kind"] == "plain" and s["place"] == "spread" and not s["calm"] and s["narrow"] == 1
    pose: RandomAffine = (
        SpreadAffine(**ranges, design="lattice", near=s["near"] if posed else 0.0)
        if s["narrow"] == 1
        else NarrowedAffine(**ranges, design="lattice", last=s["narrow"])
    )
    extra = [Sometimes(part=_OPS[name], probability=share) for name, share in s["ops"]]
    mirror = [Mirror(probability=s["mirror"])] if s["mirror"] else []
    gain = [Gain(lowest=s["gain"])] if s["gain"] < 1 else []
    shown: InputTransform = InputChain(*mirror, *extra, pose, *gain)
    if s["near"] and not posed:
        close = _near(s)
        if not s["calm"]:
            close = InputChain(*mirror, close, *gain)
        shown = Interleaved(far=shown, near=close, pattern=pattern(s["steps"] * s["samples"], s["near"], s["place"]))
    return InputChain(Neighbour(radius=s["ball"] * eps), shown) if s["ball"] else shown


def _near(s: Settings) -> InputTransform:
    if s["kind"] == "plain":
        return plain
    if s["kind"] == "dim":
        return DiverseInput(probability=1.0)
    reach, (low, high) = s["reach"], s["scale"]
    scale = (1 - reach * (1 - low), 1 + reach * (high - 1))
    return SpreadAffine(angle=reach * s["angle"], scale=scale, shift=reach * s["shift"], design="lattice")


def pattern(draws: int, share: float, place: str) -> tuple[bool, ...]:
    """Which of the draws are near ones.

    >>> pattern(5, 0.4, "last"), pattern(5, 0.4, "spread")
    ((False, False, False, True, True), (False, False, True, False, True))
    """
    count = round(share * draws)
    if place == "last":
        return tuple(i >= draws - count for i in range(draws))
    if place == "first":
        return tuple(i < count for i in range(draws))
    return near_draws(draws, share)


def name_of(settings: Settings) -> str:
    """Settings in short, without what is as in ``BEST``.

    >>> name_of({"skip": 0.5, "pace": 20.0, "near": 0.3})
    'near=0.3 skip=0.5'
    """
    return measure.in_short(settings, BEST) or "ai-best"


# By promise, so that a search that is cut off loses the least. -----------------------------------------------------

INPUT: Sequence[Settings] = (
    {"near": 0.3},
    {"scale": (0.5, 1.5)},
    {"near": 0.3, "kind": "box"},
    {"pace": 10.0},
    {"near": 0.5},
    {"cooling": 0.2},
    {"narrow": 0.3},
    {"near": 0.2, "place": "last"},
    {"near": 0.2, "kind": "plain"},
    {"near": 0.3, "calm": False},
    RELATIVE,
    {"gain": 1.0},
    {"scale": (0.6, 1.35)},
    {"near": 0.5, "kind": "box", "reach": 0.4},
    {"near": 0.2},
    {"power": 1.0},
    {"skip": 0.8},
    {"near": 0.3, "place": "first"},
    {"narrow": 0.6},
    {"near": 0.1, "kind": "plain", "place": "last"},
    {"scale": (0.7, 1.3)},
    {"angle": 20.0},
    {"pool": 0.5},
    {"sigma": 0.35},
    {"mirror": 0.25},
    {"late": 0.25},
    {"pace": 14.0},
    {"temperature": 2.0},
    {"near": 0.5, "calm": False},
    {"near": 0.5, "kind": "box"},
    {"scale": (0.5, 1.35)},
    {"momentum": 0.9},
    {"channels": 0.75},
    {"near": 0.4, "place": "last"},
    {"pace": 40.0, "cooling": 0.1},
    {"shift": 10.0},
    {"relative": True, "rectifier": 0.5},
    {"relative": True, "rectifier": 1.0},
    {"ops": (("warp", 0.5),)},
    {"ops": (("blocks", 0.3),)},
    {"gain": 0.8},
    {"sigma": 0.7},
    {"momentum": 1.1},
    {"soft": 1.0},
    {"pace": 40.0},
    {"mirror": 0.0},
    {"channels": 0.0},
    {"skip": 0.5},
    {"narrow": 0.0},
)

INVERTED: Sequence[Settings] = (
    {"rectifier": 1.0},
    {"rectifier": 0.5},
    {"skip": 0.5},
    {"rectifier": 1.5},
    {"late": 0.25},
    {"late": 0.0},
    {"near": 0.3},
    {"power": 1.0},
    {"late": 0.75},
    {"skip": 0.8},
    {"temperature": 3.0},
    {"scale": (0.5, 1.5)},
    {"near": 0.5},
    {"rectifier": 0.35},
    {"channels": 0.75},
    {"sigma": 0.7},
    {"skip": 0.35},
    {"early": 0.5},
    {"sigma": 0.35},
    {"pace": 10.0},
    {"gain": 1.0},
    {"channels": 0.0},
    {"skip": 1.0},
    {"near": 0.3, "kind": "box"},
)

CONCATENATED: Sequence[Settings] = (
    {"join": 0.8},
    {"join": 0.6},
    {"pool": 0.5},
    {"rectifier": 1.0},
    {"rectifier": 0.5},
    {"join": 0.5, "flat": True},
    {"late": 0.25},
    {"late": 0.0},
    {"near": 0.3},
    {"pool": 1.0},
    {"join": 0.4},
    {"late": 0.75},
    {"power": 1.0},
    {"rectifier": 1.5},
    {"join": 0.7, "flat": True},
    {"join": 1.25},
    {"scale": (0.5, 1.5)},
    {"near": 0.5},
    {"temperature": 3.0},
    {"sigma": 0.7},
    {"rectifier": 0.35},
    {"join": 0.3, "flat": True},
    {"channels": 0.75},
    {"sigma": 0.35},
    {"pace": 10.0},
    {"gain": 1.0},
    {"channels": 0.0},
    {"near": 0.3, "kind": "box"},
)

# Added to what the searches above found, all with 50 gradients.
FIFTY: Sequence[Settings] = (
    {},
    {"pace": 10.0},
    {"steps": 25, "samples": 2},
    {"near": 0.5},
    {"cooling": 0.2},
    {"steps": 10, "samples": 5},
    {"ball": 0.5},
    {"pace": 40.0},
    {"ops": (("blocks", 0.2), ("warp", 0.3))},
    {"scale": (0.5, 1.5)},
)

# With 200 gradients: first how they are shared among steps, then what is added to the best of these.
SHARED: Sequence[Settings] = (
    {"steps": 50, "samples": 4},
    {"steps": 200, "samples": 1},
    {"steps": 20, "samples": 10},
    {"steps": 100, "samples": 2},
)
MAXIMAL: Sequence[Settings] = (
    {"ball": 0.5},
    {"pace": 10.0},
    {"ops": (("blocks", 0.2), ("warp", 0.3), ("spectrum", 0.3))},
    {"cooling": 0.1},
    {"near": 0.5},
    {"ball": 1.0},
    {"ops": (("warp", 0.5),)},
    {"scale": (0.4, 1.5)},
    {"ops": (("mix", 0.5),)},
    {"pace": 5.0},
    {"ops": (("spectrum", 0.5),)},
    {"ops": (("blocks", 0.4),)},
    {"power": 1.0},
    {"temperature": 3.0},
    {"angle": 40.0},
    {"soft": 0.5},
)

# What ships since the searches above, of each source, and what is tried on top of it with 10 gradients.
_COMMON: Settings = {"near": 0.2, "calm": False, "kind": "plain", "cooling": 0.2}
SHIPPED: Mapping[str, Settings] = {
    "resnet18": {**_COMMON, **RELATIVE},
    "efficientnet_lite0": {**_COMMON, **RELATIVE, "late": 0.0, "skip": 0.5},
    "inception_v3": {**_COMMON, **RELATIVE, "join": 0.8, "pool": 0.5},
}
_INPUTS: Sequence[Settings] = (
    {"corner": 0.25},
    {"ops": (("warp", 0.5),)},
    {"gain": 0.8},
    {"scale": (0.5, 1.5)},
    {"temperature": 2.0},
    {"power": 0.65},
    {"sigma": 0.7},
    {"near": 0.3, "kind": "box"},
    {"cooling": 0.1},
    {"channels": 0.75},
    {"ops": (("blocks", 0.3),)},
    {"pace": 30.0, "cooling": 0.1},
    {"momentum": 1.1},
    {"near": 0.3},
    {"mirror": 0.25},
    {"scale": (0.6, 1.35)},
    {"pace": 15.0},
    {"angle": 24.0},
    {"ops": (("spectrum", 0.5),)},
    {"shift": 10.0},
    {"sigma": 0.35},
    {"channels": 0.25},
    {"cooling": 0.4},
    {"momentum": 0.9},
    {"loss": "calibrated"},
    {"power": 1.0},
    {"gain": 1.0},
    {"ops": (("dim", 0.5),)},
    {"narrow": 0.5},
    {"corner": 0.6},
)
AGAIN: Mapping[str, Sequence[Settings]] = {
    "resnet18": (
        {"pool": 0.5},
        {"late": 0.0},
        {"late": 0.25},
        {"skip": 0.5},
        {"rectifier": 1.0},
        {"rectifier": 0.5},
        {"pool": 1.0},
        {"skip": 0.8},
        {"late": 0.7},
        {"early": 0.3},
        *_INPUTS,
    ),
    "efficientnet_lite0": (
        {"skip": 0.4},
        {"skip": 0.65},
        {"rectifier": 0.85},
        {"rectifier": 0.6},
        {"early": 0.25},
        *_INPUTS[:8],
    ),
    "inception_v3": (
        {"late": 0.25},
        {"late": 0.0},
        {"join": 0.7},
        {"pool": 1.0},
        {"late": 0.7},
        {"join": 0.65, "flat": True},
        {"rectifier": 0.5},
        {"rectifier": 1.0},
        {"join": 0.9},
        *_INPUTS[:10],
    ),
}

# With 300 gradients towards a target.
TARGETED: Sequence[Settings] = (
    {"steps": 300},
    {"steps": 300, "loss": "logit"},
    {"steps": 300, "temperature": 5.0},
    {"steps": 300, "loss": "calibrated"},
    {"steps": 75, "samples": 4, "loss": "logit"},
    {"steps": 300, "loss": "margin"},
    {"steps": 300, "temperature": 10.0},
    {"steps": 75, "samples": 4, "temperature": 5.0},
)
TARGETED_MORE: Sequence[Settings] = (
    {"pace": 40.0},
    {"near": 0.3},
    {"power": 1.0},
    {"skip": 0.8},
    {"sigma": 0.8},
    {"channels": 0.0},
    {"ops": (("warp", 0.5),)},
    {"near": 0.6},
    {"mirror": 0.0},
    {"narrow": 0.3},
    {"rectifier": 1.0, "relative": True},
)
