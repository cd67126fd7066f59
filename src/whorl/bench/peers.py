"""The attacks of other libraries that do the same work as ours, ready to be timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn

EPS = 16 / 255


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all attacks are given.

    Attributes:
        model: (B, C, H, W) images in [0, 1] to logits.
        x: (B, C, H, W).
        y: (B,).
        steps: of the iterative attacks.
        draws: of an expectation over transformations, a step.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    steps: int
    draws: int

    @property
    def alpha(self) -> float:
        """The step size."""
        return 5 * EPS / self.steps


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attack of one library.

    Attributes:
        attack: name of ours that it stands beside.
        library: where it comes from.
        name: what it is called there.
        run: attacks the batch.
        note: how its work differs.
    """

    attack: str
    library: str
    name: str
    run: Callable[[], object]
    note: str = ""


def _torchattacks(library: Any, work: Work) -> list[Entry]:
    steps: dict[str, Any] = {"eps": EPS, "alpha": work.alpha, "steps": work.steps}
    # At 0.9 the network sees images of the size it sees from us; at 1.1 it would see 1.2 times the pixels.
    diverse = {"decay": 1.0, "resize_rate": 0.9, "diversity_prob": 0.7}
    listed: list[tuple[str, str, dict[str, Any], str]] = [
        ("fgsm", "FGSM", {"eps": EPS}, ""),
        ("pgd", "PGD", steps, ""),
        ("mim", "MIFGSM", steps | {"decay": 1.0}, ""),
        ("ai-dim", "DIFGSM", steps | diverse, "no estimator at all; one draw for the whole batch"),
        ("ai-dim", "TIFGSM", steps | diverse, "translation-invariant only; one draw for the whole batch"),
    ]
    entries = []
    for attack, name, settings, note in listed:
        a = getattr(library, name)(work.model, **settings)

        def run(a: Any = a) -> object:
            return a(work.x, work.y)

        entries.append(Entry(attack=attack, library="torchattacks", name=name, run=run, note=note))
    return entries


def _torchattack(library: Any, work: Work) -> list[Entry]:
    steps: dict[str, Any] = {"eps": EPS, "alpha": work.alpha, "steps": work.steps}
    listed: list[tuple[str, str, dict[str, Any], str]] = [
        ("fgsm", "FGSM", {"eps": EPS}, ""),
        ("pgd", "PGD", steps, ""),
        ("mim", "MIFGSM", steps, ""),
        ("ai-dim", "DIFGSM", steps | {"resize_rate": 0.9, "diversity_prob": 0.7}, "no estimator at all"),
        ("ai-dim", "TIFGSM", steps, "translation-invariant only, no diverse inputs"),
    ]
    entries = []
    for attack, name, settings, note in listed:
        a = library.ATTACK_REGISTRY[name](work.model, None, work.x.device, **settings)

        def run(a: Any = a) -> object:
            return a(work.x, work.y)

        entries.append(Entry(attack=attack, library="torchattack", name=name, run=run, note=note))
    return entries


def _foolbox(library: Any, work: Work) -> list[Entry]:
    model = library.PyTorchModel(work.model, bounds=(0, 1), device=work.x.device)
    criterion = library.criteria.Misclassification(work.y)
    steps = {"steps": work.steps, "abs_stepsize": work.alpha}
    listed: list[tuple[str, str, dict[str, Any], str]] = [
        ("fgsm", "LinfFastGradientAttack", {}, ""),
        ("pgd", "LinfProjectedGradientDescentAttack", steps, ""),
        ("mim", "LinfMomentumIterativeFastGradientMethod", steps | {"momentum": 1.0}, "accumulates signs: less work"),
    ]
    entries = []
    for attack, name, settings, note in listed:
        a = getattr(library.attacks, name)(**settings)

        def run(a: Any = a) -> object:
            return a.run(model, work.x, criterion, epsilon=EPS)

        entries.append(Entry(attack=attack, library="foolbox", name=name, run=run, note=note))
    return entries


def _art(library: Any, work: Work) -> list[Entry]:  # noqa: ARG001 - its parts are imported one by one
    evasion = import_module("art.attacks.evasion")
    x, y = work.x.float().cpu().numpy(), work.y.cpu().numpy()
    batch = len(x)
    steps = {"eps": EPS, "eps_step": work.alpha, "max_iter": work.steps, "batch_size": batch, "verbose": False}
    plain = art_classifier(work)
    listed: list[tuple[str, str, Any]] = [
        ("fgsm", "FastGradientMethod", evasion.FastGradientMethod(plain, eps=EPS, batch_size=batch)),
        ("pgd", "ProjectedGradientDescent", evasion.ProjectedGradientDescent(plain, num_random_init=1, **steps)),
        ("mim", "MomentumIterativeMethod", evasion.MomentumIterativeMethod(plain, decay=1.0, **steps)),
    ]
    entries = []
    for attack, name, a in listed:

        def run(a: Any = a) -> object:
            return a.generate(x=x, y=y)

        entries.append(Entry(attack=attack, library="art", name=name, run=run, note="images go to the host and back"))
    return entries


def art_classifier(work: Work, *preprocessing: Any) -> Any:
    """The toolbox's classifier around a model."""
    wrap = import_module("art.estimators.classification").PyTorchClassifier
    with torch.no_grad():
        classes = work.model(work.x[:1]).shape[1]
    return wrap(
        model=work.model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(work.x.shape[1:]),
        nb_classes=classes,
        clip_values=(0.0, 1.0),
        preprocessing_defences=list(preprocessing) or None,
        device_type="gpu" if work.x.is_cuda else "cpu",
    )


def art_eot(work: Work) -> Entry:
    """The toolbox's expectation over transformations, which knows rotations, under its projected gradient descent."""
    evasion = import_module("art.attacks.evasion")
    rotation = import_module("art.preprocessing.expectation_over_transformation").EoTImageRotationPyTorch(
        nb_samples=work.draws, clip_values=(0.0, 1.0), angles=30.0
    )
    attack = evasion.ProjectedGradientDescentPyTorch(
        art_classifier(work, rotation),
        eps=EPS,
        eps_step=work.alpha,
        max_iter=work.steps,
        batch_size=len(work.x),
        verbose=False,
    )
    x, y = work.x.float().cpu().numpy(), work.y.cpu().numpy()
    return Entry(
        attack="eot",
        library="art",
        name="EoTImageRotationPyTorch",
        run=lambda: attack.generate(x=x, y=y),
        note="rotations only, nearest neighbour",
    )


_MAKERS: Mapping[str, tuple[str, Callable[[Any, Work], list[Entry]]]] = {
    "torchattacks": ("torchattacks", _torchattacks),
    "torchattack": ("torchattack", _torchattack),
    "foolbox": ("foolbox", _foolbox),
    "art": ("adversarial-robustness-toolbox", _art),
}


def peer_entries(work: Work) -> tuple[list[Entry], dict[str, str], dict[str, str]]:
    """List the peers' attacks.

    Returns:
        Entries; the version of each library that is here; why each of the others is not.
    """
    entries: list[Entry] = []
    versions, missing = {}, {}
    for name, (package, maker) in _MAKERS.items():
        try:
            entries += maker(import_module(name), work)
            versions[name] = _version(package)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a peer, it must not stop the rest
            missing[name] = reason(error)
    return entries, versions, missing


def reason(error: Exception) -> str:
    """Say in one line what went wrong; of a path only the last name, as its place means nothing elsewhere."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {re.sub(r'(?<![^ (])/[^ )]*/', '', line)}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
