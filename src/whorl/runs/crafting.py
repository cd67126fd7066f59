"""Craft adversarial images into a run folder, going on where an earlier run stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whorl
from whorl.attacks import Attack
from whorl.data import BadImage, Images, save_image
from whorl.evaluation import SuccessRate
from whorl.models import Classifier, Ensemble
from whorl.models.weights import state_dict_sha256
from whorl.progress import Progress, silent
from whorl.runs.entry import Entry
from whorl.runs.folder import RunFolder, as_json, attack_label, environment, pixels_sha256
from whorl.runs.pictures import Source
from whorl.runs.setup import device_of, members

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 4, 64
# The manifest grows with the images, so it is not written after every batch.
_SECONDS_BETWEEN_WRITES = 2.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while crafting; the message says what was kept."""


@dataclass(kw_only=True)
class Crafted:
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
    pictures: Source,
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    target: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Crafted:
    """Attack images and save what comes out as 8-bit PNG files, with a manifest.

    An image that the folder already holds, made with the same settings, weights and seed from the same pixels, is
    kept. Run again with the same batch size, an interrupted run ends with the same files as one that never was.

    Args:
        name: one of ``whorl.attack_names()``.
        model: what to attack, on its device.
        pictures: what to start from.
        out: the run folder.
        settings: of the attack, such as ``{"eps": 8 / 255}``.
        target: class to reach; None to leave the true one.
        seed: of all randomness.
        batch_size: images at a time; None for 4 on a CPU and 64 on a GPU.
        overwrite: whether to replace images of the same attack and source that were made with other settings.
        command: what the user typed, for the manifest.
        progress: called with each batch.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and source with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack, name, device = whorl.attack(name, **(settings or {})), attack_label(name), device_of(model)
    if batch_size is None:
        batch_size = _GPU_BATCH if device.type == "cuda" else _CPU_BATCH
    identity = {
        "attack": name,
        "settings": as_json(attack),
        "source": model.name,
        "models": [_identify(member) for member in members(model)],
        "target": target,
        "seed": seed,
        # Another version may make another image of the same settings, and the two must not be mixed.
        "whorl_version": whorl.__version__,
    }
    details = {
        "repr": repr(attack),
        "data": pictures.describe(),
        "command": list(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "batch_size": batch_size,
        **environment(device),
    }
    total, batches = pictures.count(), pictures.batches(batch_size)
    entry = Entry.open(RunFolder(out), identity, details, overwrite=overwrite)
    done = Crafted(attack=name, source=model.name, folder=entry.folder.pictures(name, model.name))
    stage = f"{name} on {model.name}"
    progress(stage, 0, total)
    try:
        for batch in batches:
            _craft_missing(attack, model, batch, entry, done, target=target, seed=seed)
            _count(model, batch, entry, done, target=target)
            entry.write(_SECONDS_BETWEEN_WRITES)
            progress(stage, len(done.ids) + len(done.left_out), total)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"{len(entry.content['images'])} images are in {done.folder}. Run the same command again to go on."
        ) from error
    finally:
        entry.write()
    done.grad_evals, done.seconds = int(entry.total("grad_evals", done.ids)), entry.total("seconds", done.ids)
    return done


def _craft_missing(
    attack: Attack,
    model: Classifier | Ensemble,
    batch: Images,
    entry: Entry,
    done: Crafted,
    *,
    target: int | None,
    seed: int,
) -> None:
    """Attack a batch unless all of it is done, and save what is missing."""
    x, y, ids = batch
    hashes = [pixels_sha256(picture) for picture in x]
    missing = [i for i, name in enumerate(ids) if not entry.has(name, hashes[i])]
    if missing:
        goal: dict[str, Tensor] = {"y": y} if target is None else {"target": torch.full_like(y, target)}
        start = time.perf_counter()
        # The whole batch, even if a part is done: convolutions round differently in batches of different size, and an
        # attack that takes signs makes another image of it. So an interrupted run ends exactly like any other.
        adv, info = attack(model, x.to(device_of(model)), **goal, seed=seed, ids=ids, return_info=True)
        adv = adv.cpu()  # waits for the device, so that the time is the attack's
        seconds = round((time.perf_counter() - start) / len(ids), 4)
        spent = [0] * len(ids) if info.grad_evals is None else info.grad_evals.tolist()
        for i in missing:
            save_image(entry.picture(ids[i]), adv[i])
            entry.add(ids[i], label=int(y[i]), clean_sha256=hashes[i], grad_evals=spent[i], seconds=seconds)
    done.ids += ids
    done.kept += len(ids) - len(missing)
    done.left_out += batch.bad


@torch.no_grad()
def _count(model: Classifier | Ensemble, batch: Images, entry: Entry, done: Crafted, *, target: int | None) -> None:
    """Ask the source, and each member of an ensemble, about the images as they were saved."""
    device = device_of(model)
    saved = entry.folder.load(done.attack, done.source, batch.ids).to(device)
    x, y = batch.x.to(device), batch.y.to(device)
    for asked in {part.name: part for part in (*members(model), model)}.values():
        answers: Tensor = asked(saved).argmax(1)
        counts = SuccessRate.of(clean=asked(x).argmax(1), adversarial=answers, y=y)
        done.counts[asked.name] = done.counts.get(asked.name, SuccessRate()) + counts
        if asked is model and target is not None:
            done.reached = (done.reached or 0) + int((answers == target).sum())


def _identify(member: Classifier) -> dict[str, str]:
    return {"name": member.name, "weights_sha256": member.weights_sha256 or state_dict_sha256(member.net)}
