"""The attacks of other libraries that do the same work as ours, ready to be timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.interop.libraries import TOOLBOX, find_library
from whorl.interop.library import PeerCall

EPS = 16 / 255


@dataclass(frozen=True, kw_only=True)
class Workload:
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

    @torch.no_grad()
    def classes(self) -> int:
        """How many the network knows."""
        return int(self.model(self.x[:1]).shape[1])


@dataclass(frozen=True, kw_only=True)
class TimedCall:
    """One attack of one library, or another call to time.

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


Rivals = Mapping[str, Sequence[tuple[str, str, dict[str, Any], str]]]
"""Of each library: the attack of ours, what stands beside it, its settings but for the bound, how its work differs."""


def rivals(work: Workload) -> Rivals:
    """The attacks of peers that do what ours do."""
    steps: dict[str, Any] = {"alpha": work.alpha, "steps": work.steps}
    mim = steps | {"decay": 1.0}
    # At 0.9 the network sees images of the size it sees from us; at 1.1 it would see 1.2 times the pixels.
    diverse = {"resize_rate": 0.9, "diversity_prob": 0.7}
    fool = {"abs_stepsize": work.alpha, "steps": work.steps}
    whole = {"batch_size": len(work.x)}
    tool = {"eps_step": work.alpha, "max_iter": work.steps, **whole}
    host = "images go to the host and back"
    return {
        "torchattacks": [
            ("fgsm", "FGSM", {}, ""),
            ("pgd", "PGD", steps, ""),
            ("mim", "MIFGSM", mim, ""),
            ("ai-dim", "DIFGSM", mim | diverse, "no estimator at all; one draw for the whole batch"),
            ("ai-dim", "TIFGSM", mim | diverse, "translation-invariant only; one draw for the whole batch"),
        ],
        "torchattack": [
            ("fgsm", "FGSM", {}, ""),
            ("pgd", "PGD", steps, ""),
            ("mim", "MIFGSM", steps, ""),
            ("ai-dim", "DIFGSM", steps | diverse, "no estimator at all"),
            ("ai-dim", "TIFGSM", steps, "translation-invariant only, no diverse inputs"),
        ],
        "foolbox": [
            ("fgsm", "LinfFastGradientAttack", {}, ""),
            ("pgd", "LinfProjectedGradientDescentAttack", fool, ""),
            (
                "mim",
                "LinfMomentumIterativeFastGradientMethod",
                fool | {"momentum": 1.0},
                "accumulates signs: less work",
            ),
        ],
        "art": [
            ("fgsm", "FastGradientMethod", whole, host),
            ("pgd", "ProjectedGradientDescent", tool | {"num_random_init": 1}, host),
            ("mim", "MomentumIterativeMethod", tool | {"decay": 1.0}, host),
        ],
    }


def peer_calls(work: Workload) -> tuple[list[TimedCall], dict[str, str], dict[str, str]]:
    """Make the peers' attacks.

    Returns:
        Calls; the version of each library that is here; why each of the others is not.
    """
    calls: list[TimedCall] = []
    versions, missing = {}, {}
    task = PeerCall(name="", net=work.model, x=work.x, labels=work.y, classes=work.classes(), eps=EPS)
    for key, listed in rivals(work).items():
        try:
            library = find_library(key)
            for attack, name, settings, note in listed:
                run = library.ready(replace(task, name=name, settings=settings))
                calls.append(TimedCall(attack=attack, library=key, name=name, run=run, note=note))
            versions[key] = library.version()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a peer, it must not stop the rest
            missing[key] = reason(error)
    return calls, versions, missing


def toolbox_eot(work: Workload) -> TimedCall:
    """The toolbox's expectation over transformations, which knows rotations, under its projected gradient descent."""
    TOOLBOX.load()
    rotation = import_module("art.preprocessing.expectation_over_transformation").EoTImageRotationPyTorch(
        nb_samples=work.draws, clip_values=(0.0, 1.0), angles=30.0
    )
    attack = import_module("art.attacks.evasion").ProjectedGradientDescentPyTorch(
        TOOLBOX.classifier(work.model, work.x, work.classes(), rotation),
        eps=EPS,
        eps_step=work.alpha,
        max_iter=work.steps,
        batch_size=len(work.x),
        verbose=False,
    )
    x, y = work.x.float().cpu().numpy(), work.y.cpu().numpy()
    return TimedCall(
        attack="eot",
        library=TOOLBOX.key,
        name="EoTImageRotationPyTorch",
        run=lambda: attack.generate(x=x, y=y),
        note="rotations only, nearest neighbour",
    )


def reason(error: Exception) -> str:
    """Say in one line what went wrong; of a path only the last name, as its place means nothing elsewhere."""
    line = re.sub(r"(?<![^ (])/[^ )]*/", "", " ".join(str(error).split()))
    return line if isinstance(error, WhorlError) else f"{type(error).__name__}: {line}"
