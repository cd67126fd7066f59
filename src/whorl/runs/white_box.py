"""Craft adversarial images into a run folder, going on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import torch

import whorl
from whorl.data import BadImage
from whorl.evaluation import Pose, SuccessRate
from whorl.models import Classifier, Ensemble
from whorl.runs.folder import as_json, attack_label
from whorl.runs.images import ImageSource
from whorl.runs.networks import members, name_of
from whorl.runs.single_attack import AttackedFolder, RunOptions, SingleAttack, run_single


@dataclass(kw_only=True)
class CraftResult:
    """What came of crafting.

    Attributes:
        attack: the attack's name.
        source: name of the network, or networks, that was attacked.
        folder: where the images lie.
        ids: all images, in order.
        kept: how many of them an earlier run had made.
        counts: successes on the saved images as they are, by name: the source and, if it is an ensemble, each of its
            members.
        reached: how many the source takes for the target; None if the attack is untargeted.
        left_out: images that could not be used.
        grad_evals: input gradients spent on the images, by whichever run made them.
        seconds: time spent likewise.
    """

    attack: str
    source: str
    folder: Path
    ids: list[str] = field(default_factory=list)
    kept: int = 0
    counts: dict[str, SuccessRate] = field(default_factory=dict)
    reached: int | None = None
    left_out: list[BadImage] = field(default_factory=list)
    grad_evals: int = 0
    seconds: float = 0.0

    @property
    def made(self) -> int:
        """How many images were crafted now."""
        return len(self.ids) - self.kept


def craft(
    name: str,
    model: Classifier | Ensemble,
    images: ImageSource,
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    target: int | None = None,
    **options: Unpack[RunOptions],
) -> CraftResult:
    """Attack images and save what comes out as 8-bit PNG files, with a manifest.

    An image that the folder already holds, made with the same settings, weights and seed from the same file in the
    same batch, is kept. So an interrupted run ends with the same files as one that never was.

    Args:
        name: one of ``whorl.attack_names()``.
        model: what to attack, on its device.
        images: what to start from.
        out: the run folder.
        settings: of the attack, such as ``{"eps": 8 / 255}``.
        target: class to reach; None to leave the true one.
        options: seed, batch_size, overwrite, device, command and progress; see :class:`RunOptions`.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and source with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack = whorl.attack(name, **(settings or {}))
    parts = {name_of(part): part for part in (*members(model), model)}
    one = SingleAttack(
        attack=attack,
        label=attack_label(name),
        model=model,
        settings=as_json(attack),
        target_class=target,
        evaluated=parts,
        options=options,
    )
    done = run_single(one, images, out)
    return CraftResult(
        attack=one.label,
        source=name_of(model),
        folder=done.images,
        ids=done.ids,
        kept=done.kept,
        counts={name: _counted(done, done.plan.target_keys[name]) for name in parts},
        reached=None if target is None else int(done.total(lambda chunk: chunk.reached.count("1"))),
        left_out=done.left_out,
        grad_evals=int(done.total(lambda chunk: sum(chunk.grad_evals))),
        seconds=done.total(lambda chunk: chunk.seconds),
    )


def _counted(done: AttackedFolder, key: str) -> SuccessRate:
    rows = [(clean.recognised(key, Pose()), chunk.recognised(key, Pose())) for clean, chunk in done.pairs if clean]
    before, after = ("".join(column) for column in zip(*rows, strict=True))
    return SuccessRate.counted(*(torch.tensor([digit == "1" for digit in row]) for row in (before, after)))
