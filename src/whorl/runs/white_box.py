"""Craft adversarial images into a run folder, going on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import whorl
from whorl.models import Classifier, Ensemble
from whorl.models.classifier import by_name
from whorl.runs.folder import as_json, attack_label
from whorl.runs.images import GivenImages, images_of
from whorl.runs.networks import members
from whorl.runs.single_attack import AttackResult, RunOptions, SingleAttack, run_single


def craft(
    name: str,
    model: Classifier | Ensemble,
    images: GivenImages,
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    target: int | None = None,
    **options: Unpack[RunOptions],
) -> AttackResult:
    """Attack images and save what comes out as 8-bit PNG files, with a manifest.

    An image that the folder already holds, made with the same settings, weights and seed from the same file in the
    same batch, is kept. So an interrupted run ends with the same files as one that never was.

    Args:
        name: one of ``whorl.attack_names()``.
        model: what to attack, on its device.
        images: what to start from: a source, a folder or address, a torch data set or loader, or (x, y) or (x, y, ids).
        out: the run folder.
        settings: of the attack, such as ``{"eps": 8 / 255}``.
        target: class to reach; None to leave the true one.
        options: any of ``seed`` (of all randomness, 0), ``batch_size`` (images at a time; None for 4 on a CPU and 64 on
            a GPU), ``overwrite`` (whether to replace images of the same attack and network made with other settings),
            ``device`` (None for the network's own), ``command`` (what the user typed, for the manifest) and
            ``progress`` (called with each batch).

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and source with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack = whorl.attack(name, **(settings or {}))
    parts = by_name((*members(model), model))
    one = SingleAttack(
        attack=attack,
        label=attack_label(name),
        model=model,
        settings=as_json(attack),
        target_class=target,
        evaluated=parts,
        options=options,
    )
    return run_single(one, images_of(images), out)
