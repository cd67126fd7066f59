"""Record what whorl computes, bit for bit, and compare it with an earlier record: a guard for redesigns.

Example:
    python benchmarks/golden.py --out before.json
    python benchmarks/golden.py --compare before.json --ignore '*/ai-dim/*'

Only the public contract is used (names of ``whorl`` and the command line), so the same script runs on any checkout; the
one that is imported is the one that ``PYTHONPATH`` names. Everything runs on a CPU with a fixed number of threads:
compare only records of one machine and one torch.

An entry of a record is a table of fields: sha256 of 8-bit pixels for each image, sha256 of the floats before rounding,
queries, successes, gradients, rows of results. What fails is recorded as an error, and the rest goes on. What rests on
a default (``AffineInvariant()``, ``ai-…``, RandMix's sigma) also stands here with its settings spelled out, so that a
default can change on purpose while everything else is held fixed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import whorl

THREADS = 2
SEEDS = (0, 1)
ERROR = "error"
FLOATS = "floats"

Fields = dict[str, Any]
Entry = tuple[str, Callable[[], Fields]]

# ---------------------------------------------------------------------------------------------------------------------
# Hashes


def sha256(*parts: object) -> str:
    """Hash bytes, and the text of anything else."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode())
    return digest.hexdigest()


def hash_tensor(x: Tensor) -> str:
    """Hash a tensor's dtype, shape and bytes."""
    values = x.detach().cpu().contiguous()
    return sha256(values.dtype, tuple(values.shape), values.numpy().tobytes())


def hash_pixels(x: Tensor) -> list[str]:
    """Hash each of (B, C, H, W) images in [0, 1] after rounding to 8 bits."""
    return [hash_tensor(one) for one in (x.detach() * 255).round().clamp(0, 255).to(torch.uint8)]


def hash_file(path: Path) -> str:
    """Hash an image file's pixels, whatever the file's own encoding."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return sha256(pixels.shape, pixels.tobytes())


def hash_adversarial(run: Path) -> Fields:
    """Hash every image of a run folder, by attack, source and id."""
    files = sorted((run / "adv").rglob("*.png"))
    if not files:
        raise FileNotFoundError("no adversarial images in the run folder")
    return {file.relative_to(run / "adv").with_suffix("").as_posix(): hash_file(file) for file in files}


# ---------------------------------------------------------------------------------------------------------------------
# Small networks

CLASSES = 6
MEAN, STD = (0.45, 0.5, 0.55), (0.25, 0.2, 0.3)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network with a batch to attack it by.

    Attributes:
        model: what is attacked.
        other: another network, for ensembles and surrogates.
        x: (B, C, H, W) images in [0, 1].
        y: (B,) labels to leave.
        target: (B,) labels to reach.
        ids: one per image.
    """

    model: nn.Module
    other: nn.Module
    x: Tensor
    y: Tensor
    target: Tensor
    ids: list[str]


def seeded(*shape: int, seed: int) -> Tensor:
    """Draw (shape) float32 numbers, normally distributed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def small_images() -> Tensor:
    """Four smooth images with some noise, 24 × 28 pixels, in [0, 1]."""
    smooth = nn.functional.interpolate(seeded(4, 3, 5, 6, seed=11), (24, 28), mode="bilinear", align_corners=False)
    return (0.5 + 0.2 * smooth + 0.03 * seeded(4, 3, 24, 28, seed=12)).clamp(0, 1)


def fill(net: nn.Sequential, seed: int) -> nn.Sequential:
    """Give a network weights and statistics that follow from a seed, in eval mode."""
    for place, (name, value) in enumerate(sorted(net.state_dict().items())):
        if value.is_floating_point():
            drawn = seeded(*value.shape, seed=1000 * seed + place)
            spread = max(1, value[0].numel()) ** -0.5 if value.dim() > 1 else 0.2
            centre = 1.0 if name.endswith("running_var") else 0.0
            value.copy_(drawn.abs() * 0.5 + centre if centre else 1.5 * spread * drawn)
    return net.eval()


def centred(net: nn.Sequential, seen: Tensor) -> nn.Sequential:
    """Shift a network's logits to a mean of zero over images as it sees them, so that classes differ and are near."""
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias.sub_(net(seen).mean(0))
    return net.requires_grad_(False)


def batchnorm_net(seed: int) -> nn.Module:
    """Convolutions, batch norms and rectifiers in a Classifier that resizes to 26 pixels."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, CLASSES)),
    )
    normalised = (small_images() - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    ready = centred(fill(net, seed), normalised)
    return whorl.Classifier.from_module(ready, size=(26, 26), mean=MEAN, std=STD, name=f"small{seed}")


def plain_net(seed: int) -> nn.Module:
    """A bare network of any input size."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(6, 12, 3), nn.Tanh()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(192, CLASSES)),
    )
    return centred(fill(net, seed), small_images())


NETWORKS: Mapping[str, Callable[[int], nn.Module]] = {"batchnorm": batchnorm_net, "plain": plain_net}


@cache
def small_case(name: str) -> Case:
    """One of the small networks, and the images that it is attacked by."""
    build, x = NETWORKS[name], small_images()
    model = build(1)
    with torch.no_grad():
        y = model(x).argmax(1)
    # What the image before is taken for, so that it can be a start; another class where both are taken for the same.
    target = torch.where(y.roll(1) == y, (y + 1) % CLASSES, y.roll(1))
    return Case(model=model, other=build(2), x=x, y=y, target=target, ids=[f"image{i}" for i in range(len(x))])


@cache
def network(name: str) -> nn.Module:
    """A network with published weights, loaded once."""
    return whorl.load_model(name)


@cache
def sample_case() -> Case:
    """resnet18 and two of the bundled photographs."""
    x, y, ids = whorl.load_samples(2)
    return Case(model=network("resnet18"), other=network("mobilenet_v2"), x=x, y=y, target=y + 1, ids=list(ids))


# ---------------------------------------------------------------------------------------------------------------------
# Attacks through the library

BLACK_BOX = ("nes", "spsa", "nattack", "prgf", "boundary", "evolutionary")
# Settings that are made when they are used: some need a network, and one that fails must leave the others.
MADE = ("estimator", "init", "surrogate")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An attack by name, and how it is called.

    Attributes:
        attack: its name.
        settings: of the attack; those of :data:`MADE` are functions of the case.
        model: what is attacked, of the case; its model by default.
        targeted: whether to reach the case's target.
        named: whether images have ids.
        dtype: of the images.
    """

    attack: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: Callable[[Case], nn.Module] = lambda case: case.model
    targeted: bool = False
    named: bool = True
    dtype: torch.dtype = torch.float32

    def run(self, case: Case, seed: int) -> Fields:
        """Attack, and give what came of it."""
        made: Any = whorl.attack(self.attack, **built(self.settings, case))
        labels = {"target": case.target} if self.targeted else {"y": case.y}
        ids = case.ids if self.named else None
        adv, info = made(self.model(case), case.x.to(self.dtype), **labels, seed=seed, ids=ids, return_info=True)
        return {"pixels": hash_pixels(adv), FLOATS: hash_tensor(adv)} | costs(info)


def built(settings: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Settings as an attack takes them."""
    return {key: value(case) if key in MADE else value for key, value in settings.items()}


def costs(info: Any) -> Fields:
    """What an attack says of each image: successes, queries, gradients, where they apply."""
    values = {name: getattr(info, name, None) for name in ("success", "queries", "grad_evals")}
    return {name: value.tolist() for name, value in values.items() if value is not None}


def few_steps(name: str) -> dict[str, Any]:
    """Settings that keep an attack short on a small network; most are as they come."""
    if name == "eot":
        return {"steps": 3, "samples": 3}
    if name == "cw":
        return {"steps": 20, "search_steps": 4, "initial_c": 1.0, "learning_rate": 0.03}
    if name in BLACK_BOX:
        return query_settings(name)
    return {}


def query_settings(name: str) -> dict[str, Any]:
    """A small budget, and what guides a black-box attack that needs a guide."""
    if name in ("boundary", "evolutionary"):
        return {"budget": 250}
    guide = {"surrogate": other_model} if name == "prgf" else {}
    return {"budget": 250, "samples": 20, **guide}


def fewest_steps(name: str) -> dict[str, Any]:
    """Settings that keep an attack short on resnet18. A single step stays one."""
    if name.endswith("fgsm"):
        return {}
    if name == "cw":
        return {"steps": 4, "search_steps": 2, "initial_c": 1.0}
    return {"steps": 2, "samples": 3} if name == "eot" else {"steps": 2}


def other_model(case: Case) -> nn.Module:
    """The case's second network."""
    return case.other


def ensemble(**settings: Any) -> Callable[[Case], nn.Module]:
    """Both networks of a case, as Classifiers, in one ensemble."""

    def build(case: Case) -> nn.Module:
        return whorl.Ensemble([as_classifier(case.model), as_classifier(case.other)], **settings)

    return build


def as_classifier(net: nn.Module) -> nn.Module:
    """A Classifier as it is; a bare network in one."""
    if isinstance(net, whorl.Classifier):
        return net
    return whorl.Classifier.from_module(net, size=(24, 28), mean=MEAN, std=STD, num_classes=CLASSES, name="bare")


def defended(name: str, **settings: Any) -> Callable[[Case], nn.Module]:
    """A case's network behind a defence."""
    return lambda case: whorl.load_defense(name, as_classifier(case.model), **settings)


def estimated(**settings: Any) -> Callable[[Case], nn.Module]:
    """A case's network, its input gradient made affine-invariant."""
    return lambda case: whorl.AffineInvariant(**settings).wrap(case.model)


def compositions() -> dict[str, dict[str, Any]]:
    """Estimators with every setting that matters spelled out, for an attack that has none."""

    def chain(_: Case) -> Any:
        return whorl.Chain(whorl.TranslationInvariant(kernel_size=5, sigma=1.0), whorl.AffineInvariant(sigma=0.5))

    def rotations(_: Case) -> Any:
        return whorl.RotationInvariant(degrees=(32.0, 1.6))

    def narrow(_: Case) -> Any:
        return whorl.AffineInvariant(sigma=0.5)

    return {
        "reference": {"estimator": lambda _: whorl.AffineInvariant(sigma="reference")},
        "printed": {"estimator": lambda _: whorl.AffineInvariant(sigma="printed")},
        "narrow": {"estimator": narrow},
        "narrow-eps8": {"estimator": narrow, "eps": 8 / 255},
        "rotations": {"estimator": rotations},
        "rotations-eps8": {"estimator": rotations, "eps": 8 / 255},
        "translations": {"estimator": lambda _: whorl.TranslationInvariant(kernel_size=15, sigma=7 / 3)},
        "chain": {"estimator": chain},
    }


def composed_variants() -> dict[str, Variant]:
    """Every plain attack with every estimator."""
    return {
        f"{name}+{title}": Variant(attack=name, settings=settings)
        for name in ("fgsm", "pgd", "mim", "dim", "ram")
        for title, settings in compositions().items()
    }


def setting_variants() -> dict[str, Variant]:
    """Gradient attacks with other norms, losses, optimisers and budgets."""
    tables: dict[str, tuple[str, dict[str, Any]]] = {
        "mim-l2": ("mim", {"norm": "l2", "eps": 1.0}),
        "pgd-l2": ("pgd", {"norm": "l2", "eps": 1.0}),
        "dim-l2": ("dim", {"norm": "l2", "eps": 0.5}),
        "mim-early-stop": ("mim", {"early_stop": True}),
        "dim-early-stop": ("dim", {"early_stop": True, "eps": 4 / 255}),
        "eot-early-stop": ("eot", {"early_stop": True, "steps": 4, "samples": 3}),
        "mim-adam": ("mim", {"optimizer": "adam"}),
        "eot-adam": ("eot", {"optimizer": "adam", "steps": 4, "samples": 3}),
        "mim-adam-early-stop": ("mim", {"optimizer": "adam", "early_stop": True}),
        "mim-random-start": ("mim", {"random_start": True}),
        "dim-random-start-l2": ("dim", {"random_start": True, "norm": "l2", "eps": 1.0}),
        "dim-samples": ("dim", {"samples": 3, "steps": 4}),
        "ram-samples": ("ram", {"samples": 5, "steps": 4}),
        "ram-samples-chunk": ("ram", {"samples": 5, "steps": 4, "chunk": 2}),
        "mim-eps-per-image": ("mim", {"eps": (4 / 255, 8 / 255, 12 / 255, 16 / 255)}),
        "pgd-eps-per-image": ("pgd", {"eps": (4 / 255, 8 / 255, 12 / 255, 16 / 255)}),
        "mim-eps-early-stop": ("mim", {"eps": (1 / 255, 2 / 255, 4 / 255, 8 / 255), "early_stop": True}),
        "mim-alpha": ("mim", {"alpha": 2 / 255, "steps": 5}),
        "mim-margin": ("mim", {"loss": "margin"}),
        "mim-logit": ("mim", {"loss": "logit"}),
        "dim-step-by-step": ("dim", {"fast": False}),
        "best-eps8": ("ai-best", {"eps": 8 / 255, "steps": 5}),
        "best-early-stop": ("ai-best", {"early_stop": True, "steps": 5}),
        "best-l2": ("ai-best", {"norm": "l2", "eps": 1.0, "steps": 5}),
    }
    return {title: Variant(attack=name, settings=settings) for title, (name, settings) in tables.items()}


def model_variants() -> dict[str, Variant]:
    """Gradient attacks on ensembles, defences and wrapped networks."""
    few = {"steps": 4}
    return {
        "dim-ensemble": Variant(attack="dim", model=ensemble()),
        "mim-ensemble-weights": Variant(attack="mim", model=ensemble(weights=[3, 1])),
        "mim-ensemble-probabilities": Variant(attack="mim", model=ensemble(fuse="probabilities")),
        "dim-ensemble-losses": Variant(attack="dim", model=ensemble(fuse="losses")),
        "best-ensemble": Variant(attack="ai-best", settings=few, model=ensemble()),
        "mim-wrapped": Variant(attack="mim", model=estimated(sigma="reference")),
        "mim-jpeg": Variant(attack="mim", settings=few, model=defended("jpeg")),
        "mim-bitdepth": Variant(attack="mim", settings=few, model=defended("bitdepth")),
        "mim-resize-pad": Variant(attack="mim", settings=few, model=defended("resize-pad", samples=2)),
        "mim-randmix": Variant(attack="mim", settings=few, model=defended("randmix", sigma=10.0, samples=2)),
    }


def call_variants() -> dict[str, Variant]:
    """Attacks towards a target, without ids, in double precision."""
    targeted = ("mim", "dim", "ti-dim", "ram", "ai-best", "deepfool", "cw", "nes", "nattack", "prgf")
    walk = {**query_settings("boundary"), "init": lambda case: case.x.roll(1, 0)}
    return {
        **{f"{name}-targeted": Variant(attack=name, settings=few_steps(name), targeted=True) for name in targeted},
        "boundary-targeted": Variant(attack="boundary", settings=walk, targeted=True),
        "evolutionary-targeted": Variant(attack="evolutionary", settings=walk, targeted=True),
        "mim-targeted-l2": Variant(attack="mim", settings={"norm": "l2", "eps": 1.0}, targeted=True),
        "mim-targeted-early-stop": Variant(attack="mim", settings={"early_stop": True}, targeted=True),
        "dim-without-ids": Variant(attack="dim", named=False),
        "nes-without-ids": Variant(attack="nes", settings=query_settings("nes"), named=False),
        "dim-float64": Variant(attack="dim", dtype=torch.float64),
    }


def query_variants() -> dict[str, Variant]:
    """Black-box attacks from other starts, in other balls, against a defence."""
    few, walk = query_settings("nes"), query_settings("boundary")

    def start(name: str, **settings: Any) -> dict[str, Any]:
        return {"init": lambda case: whorl.attack(name, **built(settings, case)), "surrogate": other_model}

    rotations = {"steps": 3, **compositions()["rotations"]}
    tables: dict[str, tuple[str, dict[str, Any]]] = {
        "nes-ai-dim": ("nes", {**few, **start("ai-dim", steps=3)}),
        "nes-dim-rotations": ("nes", {**few, **start("dim", **rotations)}),
        "spsa-dim": ("spsa", {**few, **start("dim", steps=3)}),
        "nattack-dim": ("nattack", {**few, **start("dim", steps=3)}),
        "prgf-dim": ("prgf", {**few, **start("dim", steps=3)}),
        "boundary-dim": ("boundary", {**walk, **start("dim", steps=3)}),
        "evolutionary-dim": ("evolutionary", {**walk, **start("dim", steps=3)}),
        "nes-random": ("nes", {**few, "init": lambda _: "random"}),
        "nes-given": ("nes", {**few, "init": lambda case: (case.x + 4 / 255).clamp(0, 1)}),
        "nes-l2": ("nes", {**few, "norm": "l2", "eps": 1.0}),
        "nes-rounded": ("nes", {**few, "rounded": True}),
        "nes-chunk": ("nes", {**few, "chunk": 7}),
        "nes-small-eps": ("nes", {**few, "eps": 2 / 255}),
        "boundary-eps": ("boundary", {**walk, "eps": 1.0}),
        "evolutionary-rounded": ("evolutionary", {**walk, "rounded": True}),
    }
    variants = {title: Variant(attack=name, settings=settings) for title, (name, settings) in tables.items()}
    return {**variants, "nes-jpeg": Variant(attack="nes", settings=few, model=defended("jpeg"))}


def preset_entries() -> Iterator[Entry]:
    """Every attack by name on the small networks: ``preset/NETWORK/ATTACK/SEED``."""
    presets = {name: Variant(attack=name, settings=few_steps(name)) for name in whorl.attack_names()}
    yield from small_entries("preset", presets)


def variant_entries() -> Iterator[Entry]:
    """Every variant on the small networks: ``variant/NETWORK/VARIANT/SEED``."""
    groups = (composed_variants, setting_variants, model_variants, call_variants, query_variants)
    for group in groups:
        yield from small_entries("variant", group())


def small_entries(section: str, variants: Mapping[str, Variant]) -> Iterator[Entry]:
    """Attacks on each small network, with each seed."""
    for net in NETWORKS:
        for title, variant in variants.items():
            for seed in SEEDS:
                yield f"{section}/{net}/{title}/seed{seed}", partial(attack_small, net, variant, seed)


def attack_small(net: str, variant: Variant, seed: int) -> Fields:
    """Attack one of the small networks."""
    return variant.run(small_case(net), seed)


def resnet_entries() -> Iterator[Entry]:
    """Gradient attacks on resnet18 and two photographs: ``resnet18/ATTACK/SEED``."""
    names = [name for name in whorl.attack_names() if name not in BLACK_BOX]
    variants = {name: Variant(attack=name, settings=fewest_steps(name)) for name in names}
    for title, settings in compositions().items():
        variants[f"dim+{title}"] = Variant(attack="dim", settings={"steps": 2, **settings})
    variants["dim-targeted"] = Variant(attack="dim", settings={"steps": 2}, targeted=True)
    variants["dim-ensemble"] = Variant(attack="dim", settings={"steps": 2}, model=ensemble())
    for title, variant in variants.items():
        for seed in SEEDS:
            yield f"resnet18/{title}/seed{seed}", partial(attack_samples, variant, seed)


def attack_samples(variant: Variant, seed: int) -> Fields:
    """Attack resnet18."""
    return variant.run(sample_case(), seed)


# ---------------------------------------------------------------------------------------------------------------------
# Estimators, geometry, defences, networks


def estimators() -> dict[str, Callable[[], Callable[[Tensor], Tensor]]]:
    """Estimators by title; each is made when it is used, so that one that fails leaves the others."""
    affine: dict[str, dict[str, Any]] = {
        "default": {},
        "calibrated": {"sigma": "calibrated"},
        "reference": {"sigma": "reference"},
        "printed": {"sigma": "printed"},
        "number": {"sigma": 0.7},
        "pair": {"sigma": (1.0, 2.0), "kernel_size": (9, 11)},
        "uniform": {"sigma": "reference", "kind": "uniform", "kernel_size": 7},
        "size-7": {"sigma": "reference", "kernel_size": 7},
        "no-translation": {"sigma": "reference", "translation": False},
        "no-rotation": {"sigma": "reference", "rotation": False},
        "no-scaling": {"sigma": "reference", "scaling": False},
        "translation-alone": {"sigma": "reference", "rotation": False, "scaling": False},
        "polar": {"sigma": 0.5, "polar_kernel_size": 9, "polar_sigma": 1.5},
        "weights": {"weights": seeded(5, 5, seed=3).abs(), "polar_weights": seeded(3, 7, seed=4).abs()},
    }
    translation: dict[str, dict[str, Any]] = {
        "default": {},
        "reference": {"sigma": "reference"},
        "uniform": {"kind": "uniform", "kernel_size": 5},
        "weights": {"weights": seeded(5, 3, seed=5).abs()},
    }
    rotation: dict[str, dict[str, Any]] = {
        "default": {},
        "pair": {"degrees": (32.0, 1.6)},
        "narrow": {"degrees": 2.7},
        "wide": {"degrees": 90.0},
    }
    families: dict[str, tuple[Callable[..., Any], dict[str, dict[str, Any]]]] = {
        "affine": (whorl.AffineInvariant, affine),
        "translation": (whorl.TranslationInvariant, translation),
        "rotation": (whorl.RotationInvariant, rotation),
    }
    return {
        f"{family}/{title}": partial(kind, **settings)
        for family, (kind, tables) in families.items()
        for title, settings in tables.items()
    }


def estimator_entries() -> Iterator[Entry]:
    """Estimators of a fixed random gradient: ``estimator/FAMILY/SETTINGS``, a field a shape."""
    shapes = ((4, 3, 24, 28), (1, 3, 65, 33), (2, 3, 224, 224))

    def estimate(make: Callable[[], Callable[[Tensor], Tensor]]) -> Fields:
        estimator = make()
        drawn = {shape: seeded(*shape, seed=7) for shape in shapes}
        return {"x".join(map(str, shape)): hash_tensor(estimator(gradient)) for shape, gradient in drawn.items()}

    for title, make in estimators().items():
        yield f"estimator/{title}", partial(estimate, make)


def geometry_entries() -> Iterator[Entry]:
    """Poses and polar coordinates: ``geometry/WHAT``."""
    x = small_images()
    several = {"angle": torch.tensor([0.0, 15.0, -30.0, 90.0]), "scale": torch.tensor([1.0, 0.7, 1.3, 0.5])}
    calls: dict[str, Callable[[], Tensor]] = {
        "affine": lambda: whorl.affine(x, angle=30, scale=0.7, shift=(2, -3)),
        "affine-each": lambda: whorl.affine(x, **several),
        "to-polar": lambda: whorl.to_polar(x),
        "from-polar": lambda: whorl.from_polar(whorl.to_polar(x), (24, 28)),
    }

    def image(call: Callable[[], Tensor]) -> Fields:
        return {FLOATS: hash_tensor(call())}

    for title, call in calls.items():
        yield f"geometry/{title}", partial(image, call)


@torch.no_grad()
def logits(model: nn.Module, x: Tensor) -> Fields:
    """A network's answers, with the classes in plain sight."""
    answers = model(x)
    return {"classes": answers.argmax(1).tolist(), FLOATS: hash_tensor(answers)}


def defense_entries() -> Iterator[Entry]:
    """Logits behind every defence: ``defense/NAME/SETTINGS/SEED``."""
    tables: dict[str, dict[str, dict[str, Any]]] = {name: {"default": {}} for name in whorl.defense_names()}
    for name, title, changed in (
        ("jpeg", "quality-40", {"quality": 40}),
        ("bitdepth", "levels-8", {"levels": 8}),
        ("resize-pad", "samples-3", {"samples": 3, "min_scale": 0.7}),
        ("randmix", "sigma-10", {"sigma": 10.0}),
        ("randmix", "sigma-0", {"sigma": 0.0}),
    ):
        tables.setdefault(name, {})[title] = changed

    def answer(name: str, seed: int, settings: Mapping[str, Any]) -> Fields:
        case = small_case("batchnorm")
        return logits(whorl.load_defense(name, case.model, seed=seed, **settings), case.x)

    for name, settings in tables.items():
        for title, table in settings.items():
            for seed in SEEDS:
                yield f"defense/{name}/{title}/seed{seed}", partial(answer, name, seed, table)


def model_entries() -> Iterator[Entry]:
    """Logits of the small networks, of ensembles, and of networks with published weights: ``model/NAME``."""

    def small(build: Callable[[Case], nn.Module], net: str) -> Fields:
        return logits(build(small_case(net)), small_images())

    def published(name: str) -> Fields:
        return logits(network(name), sample_case().x)

    for net in NETWORKS:
        yield f"model/{net}", partial(small, lambda case: case.model, net)
    for fuse in ("logits", "probabilities", "losses"):
        yield f"model/ensemble-{fuse}", partial(small, ensemble(fuse=fuse), "batchnorm")
    yield "model/samples", lambda: {"pixels": hash_pixels(sample_case().x), FLOATS: hash_tensor(sample_case().x)}
    for name in ("resnet18", "mobilenet_v2", "efficientnet_lite0", "mobilenet_v2.ens-at"):
        yield f"model/{name}", partial(published, name)


# ---------------------------------------------------------------------------------------------------------------------
# Commands

# The columns of results.csv that the contract names, without seconds.
COLUMNS = (
    *("attack", "source", "target", "defense", "angle", "scale", "shift_x", "shift_y", "eps"),
    *("n", "n_clean_correct", "n_success", "asr", "accuracy", "grad_evals"),
)
# What a command prints as JSON and may differ from run to run.
VOLATILE = ("seconds", "report", "results", "folder", "path", "out", "command", "started")

EXPERIMENT = """
name = "golden"
sources = ["resnet18"]
targets = ["resnet18", "mobilenet_v2+jpeg"]
attacks = ["fgsm", {name = "ai-dim", settings = {steps = 2}}]
poses = [{angles = [0.0, 30.0], scales = [1.0, 0.7], shifts = [0.0, 20.0]}]
batch_size = 3

[data]
folder = "samples"
limit = 3
"""

COMPOSED = """
name = "composed"
seed = 1
sources = ["resnet18", "resnet18+mobilenet_v2"]
targets = ["mobilenet_v2", "resnet18+resize-pad"]
poses = [{angles = [0.0, 15.0]}]
batch_size = 2

[data]
folder = "samples"
limit = 3

[[attacks]]
name = "dim"
label = "reference"
settings = {steps = 2, eps = "4/255", estimator = {type = "AffineInvariant", sigma = "reference"}}

[[attacks]]
name = "dim"
label = "rotations"
sources = ["resnet18"]
settings = {steps = 2, estimator = {type = "RotationInvariant", degrees = [32.0, 1.6]}}

[[attacks]]
name = "ram"
sources = ["resnet18"]
settings = {steps = 2, input = {type = "RandomAffine"}}
"""


@dataclass(frozen=True)
class Commands:
    """The command line, each command run once, in a folder of its own.

    Attributes:
        folder: where everything goes.
    """

    folder: Path

    def call(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """Run ``python -m whorl``, and give what it printed.

        Raises:
            RuntimeError: it ended with another exit code than expected.
        """
        paths = os.pathsep.join(filter(None, (str(source_folder()), os.environ.get("PYTHONPATH", ""))))
        fixed = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, "-m", "whorl", *arguments],
            cwd=self.folder,
            env={**os.environ, **fixed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode not in codes:
            said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            raise RuntimeError(f"whorl {arguments[0]} ended with {done.returncode}: {said}")
        return done.stdout

    def experiment(self, name: str, text: str) -> Path:
        """Run an experiment, and give its folder."""
        (self.folder / f"{name}.toml").write_text(text, encoding="utf-8")
        self.call("run", f"{name}.toml", "--out", name, "--device", "cpu", "--no-report")
        return self.folder / name

    @cached_property
    def run(self) -> Path:
        """The experiment of the contract."""
        return self.experiment("run", EXPERIMENT)

    @cached_property
    def composed(self) -> Path:
        """An experiment whose attacks have their parts spelled out."""
        return self.experiment("composed", COMPOSED)

    def craft(self, name: str, *arguments: str) -> Path:
        """Run ``whorl attack``, and give the run folder."""
        self.call("attack", *arguments, "--device", "cpu", "--batch-size", "4", "--out", name)
        return self.folder / name

    @cached_property
    def crafted(self) -> Path:
        """ai-dim as it comes."""
        return self.craft("ai-dim", "ai-dim", "--model", "resnet18", "--steps", "2", "--limit", "3")

    @cached_property
    def reference(self) -> Path:
        """ai-dim with the paper's kernel, whatever its default."""
        fixed = ("--estimator", "ai:reference", "--eps", "4/255", "--steps", "2", "--limit", "3", "--seed", "1")
        return self.craft("reference", "ai-dim", "--model", "resnet18", *fixed)

    @cached_property
    def queried(self) -> Path:
        """NES from the image itself."""
        return self.craft("nes", "nes", "--target", "resnet18", "--budget", "260", "--samples", "20", "--limit", "2")

    @cached_property
    def queried_from_start(self) -> Path:
        """NES against a defence, from where another attack got to."""
        start = ("--init", "mim", "--surrogate", "mobilenet_v2", "--defense", "jpeg", "--eps", "2/255")
        fixed = ("--budget", "100", "--samples", "20", "--limit", "2")
        return self.craft("start", "nes", "--target", "resnet18", *start, *fixed)

    @cached_property
    def evaluated(self) -> Path:
        """Rates of the images with the paper's kernel, as CSV."""
        adversarial = self.reference / "adv" / "ai-dim" / "resnet18"
        chosen = ("--model", "mobilenet_v2,resnet18", "--defense", "none,bitdepth", "--angles", "0,30", "--limit", "3")
        out = self.folder / "evaluated.csv"
        self.call("evaluate", "samples", str(adversarial), *chosen, "--device", "cpu", "--out", str(out))
        return out

    @cached_property
    def photographed(self) -> Path:
        """Simulated photographs of a printed sheet."""
        self.call("physical", "print", str(self.reference), "--page", "A4", "--out", "sheet.pdf")
        self.call("physical", "simulate", str(self.reference), "--camera", "perfect,setting2", "--out", "photos")
        return self.folder / "photos"

    @cached_property
    def scored(self) -> Fields:
        """What the photographs score, as JSON."""
        asked = ("--run", str(self.reference), "--model", "resnet18", "--device", "cpu", "--out", "scored", "--json")
        printed = self.call("physical", "score", str(self.photographed), *asked, codes=(0, 1))
        content: Fields = json.loads(printed)
        return content


def source_folder() -> Path:
    """Where the imported package lies, so that commands import the same."""
    return Path(whorl.__file__).resolve().parents[1]


def read_rows(path: Path) -> Fields:
    """The rows of a results.csv without seconds, by attack, source, target and defence."""
    rows: Fields = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            title = "/".join(row.get(name, "") for name in COLUMNS[:4])
            rows.setdefault(title, []).append([row.get(name, "") for name in COLUMNS[4:]])
    return rows


def read_queries(run: Path) -> Fields:
    """Queries of each image, wherever a JSON file of the run folder has them."""
    ids = {file.stem for file in (run / "adv").rglob("*.png")}
    found: Fields = {}
    for file in sorted(run.rglob("*.json")):
        for name, table in tables_by_name(json.loads(file.read_text(encoding="utf-8"))):
            if name in ids and isinstance(table.get("queries"), int):
                found[name] = {key: table[key] for key in ("queries", "success", "grad_evals") if key in table}
    if found.keys() != ids:
        raise LookupError(f"queries of {len(found)} of {len(ids)} images found in the run folder's JSON files")
    return found


def tables_by_name(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table in a JSON value with the name that it stands under, or with the id that it holds."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                yield item["id"], item
            yield from tables_by_name(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, dict):
                yield name, item
            yield from tables_by_name(item)


def settled(value: Any) -> Any:
    """A JSON value without what differs from run to run."""
    if isinstance(value, dict):
        return {k: settled(v) for k, v in value.items() if k not in VOLATILE}
    return [settled(item) for item in value] if isinstance(value, list) else value


def score_summary(content: Fields) -> Fields:
    """A field for each view, version and target of ``physical score``."""
    fields: Fields = {}
    for line in settled(content)["summary"]:
        # Whatever the columns are called: a line's text says what it is of, the rest is numbers.
        title = "/".join(value for value in line.values() if isinstance(value, str))
        fields[title] = {key: value for key, value in line.items() if not isinstance(value, str)}
    return fields


def command_entries(commands: Commands) -> Iterator[Entry]:
    """What commands leave behind: ``command/COMMAND/WHAT``."""
    yield "command/run/results", lambda: read_rows(commands.run / "results.csv")
    yield "command/run/pixels", lambda: hash_adversarial(commands.run)
    yield "command/run-composed/results", lambda: read_rows(commands.composed / "results.csv")
    yield "command/run-composed/pixels", lambda: hash_adversarial(commands.composed)
    yield "command/attack-ai-dim/pixels", lambda: hash_adversarial(commands.crafted)
    yield "command/attack-reference/pixels", lambda: hash_adversarial(commands.reference)
    yield "command/attack-nes/pixels", lambda: hash_adversarial(commands.queried)
    yield "command/attack-nes/queries", lambda: read_queries(commands.queried)
    yield "command/attack-nes-mim/pixels", lambda: hash_adversarial(commands.queried_from_start)
    yield "command/attack-nes-mim/queries", lambda: read_queries(commands.queried_from_start)
    yield "command/evaluate/results", lambda: read_rows(commands.evaluated)
    yield "command/physical/photographs", lambda: hash_photographs(commands.photographed)
    yield "command/physical/score", lambda: {k: v for k, v in settled(commands.scored).items() if k != "summary"}
    yield "command/physical/summary", lambda: score_summary(commands.scored)


def hash_photographs(folder: Path) -> Fields:
    """Hash every photograph, by what its name ends with: the page and the camera."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (".jpg", ".png"))
    return {file.stem.partition("-")[2]: hash_file(file) for file in files}


# ---------------------------------------------------------------------------------------------------------------------
# Recording and comparing


def sections(commands: Commands) -> dict[str, Callable[[], Iterator[Entry]]]:
    """Every section by what its keys start with."""
    return {
        "estimator": estimator_entries,
        "geometry": geometry_entries,
        "defense": defense_entries,
        "model": model_entries,
        "preset": preset_entries,
        "variant": variant_entries,
        "resnet18": resnet_entries,
        "command": lambda: command_entries(commands),
    }


def guarded(call: Callable[[], Any], folder: Path) -> Any:
    """What a call gives, or its error in a line that names no folder of this machine."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever fails is recorded, and the rest goes on
        said = " ".join(str(error).split()).replace(str(folder), "FOLDER").replace(str(source_folder()), "SOURCE")
        return {ERROR: f"{type(error).__name__}: {said}"}


def record(only: str, folder: Path) -> dict[str, Fields]:
    """Compute every entry whose key starts with a prefix.

    Args:
        only: the prefix; empty for everything.
        folder: for what the commands write.
    """
    found: dict[str, Fields] = {}
    for section, list_entries in sections(Commands(folder)).items():
        if section.startswith(only) or only.startswith(section):
            started = time.perf_counter()
            added = record_section(section, list_entries, only, folder)
            found |= added
            print(f"{section}: {len(added)} entries, {time.perf_counter() - started:.1f} s", flush=True)
    return found


def record_section(
    section: str, list_entries: Callable[[], Iterator[Entry]], only: str, folder: Path
) -> dict[str, Fields]:
    """Compute the entries of one section; one that cannot even be listed is a single entry, its error."""
    found: dict[str, Fields] = {}
    entries = guarded(lambda: list(list_entries()), folder)
    if isinstance(entries, dict):
        found[section], entries = entries, []
    for key, call in entries:
        if key.startswith(only):
            found[key] = guarded(call, folder)
    for key, fields in found.items():
        if ERROR in fields:
            print(f"  {key}: {fields[ERROR]}", flush=True)
    return found


def conditions() -> dict[str, Any]:
    """What bits depend on besides whorl."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def differences(old: Fields, new: Fields, *, floats: bool) -> list[str]:
    """Name the fields of two entries that differ.

    >>> differences({"pixels": 1, "floats": 2, "queries": 3}, {"pixels": 1, "floats": 5}, floats=False)
    ['queries']
    """
    names = [name for name in {**old, **new} if floats or name != FLOATS]
    return [name for name in names if old.get(name) != new.get(name)]


def compare(old: Mapping[str, Fields], new: Mapping[str, Fields], options: argparse.Namespace) -> int:
    """Print which entries differ, and count them. New entries are named, and count for nothing."""
    kept = [
        key
        for key in {**old, **new}
        if key.startswith(options.only) and not any(fnmatchcase(key, pattern) for pattern in options.ignore)
    ]
    bad = 0
    for key in kept:
        if key not in old:
            print(f"new: {key}")
            continue
        fields = differences(old[key], new[key], floats=not options.pixels_only) if key in new else []
        if key not in new:
            print(f"missing: {key}")
        elif ERROR in new[key] and fields:
            print(f"differs: {key}: {new[key][ERROR]}")
        elif fields:
            print(f"differs: {key}: {', '.join(fields)}")
        bad += key not in new or bool(fields)
    print(f"{bad} of {sum(key in old for key in kept)} entries differ")
    return bad


def read_record(path: Path) -> tuple[dict[str, Any], dict[str, Fields]]:
    """The conditions and entries of a record."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["conditions"], content["entries"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="JSON file to write the record to")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier record; exit 1 if an entry differs")
    parser.add_argument("--only", default="", metavar="PREFIX", help="take only entries whose keys start so")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="PATTERN", help="entries that may differ, such as '*/ai-dim/*'"
    )
    parser.add_argument("--pixels-only", action="store_true", help="floats before rounding to 8 bits may differ")
    options = parser.parse_args(arguments)
    if options.out is None and options.compare is None:
        parser.error("give --out, --compare or both")
    return options


def main() -> int:
    """Record, save and compare."""
    options = parse()
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    print(f"whorl from {source_folder()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        entries = record(options.only, Path(folder).resolve())
    errors = sum(ERROR in entry for entry in entries.values())
    print(f"{len(entries)} entries, {errors} of them errors, {time.perf_counter() - started:.0f} s", flush=True)
    if options.out is not None:
        text = json.dumps({"conditions": conditions(), "entries": entries}, indent=1)
        options.out.write_text(text + "\n", encoding="utf-8")
    if options.compare is None:
        return 0
    before, old = read_record(options.compare)
    for name in differences(before, conditions(), floats=True):
        print(f"warning: {name} was {before.get(name)} and is {conditions().get(name)}; bits may differ for that alone")
    # What was read from JSON has no tuples.
    return int(compare(old, json.loads(json.dumps(entries)), options) > 0)


if __name__ == "__main__":
    sys.exit(main())
