"""Craft adversarial pictures into a run folder, going on where an earlier run stopped."""

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
from whorl.data import BadImage, Images, load_image, save_image
from whorl.errors import WhorlError
from whorl.evaluation import SuccessRate
from whorl.jobs.folder import Json, RunFolder, as_json, environment, pixels_sha256
from whorl.jobs.pictures import Pictures
from whorl.jobs.progress import Report, silent
from whorl.jobs.setup import device_of, members
from whorl.models import Classifier, Ensemble
from whorl.models.weights import state_dict_sha256

# A small batch on a CPU costs little speed, and an interruption costs at most a batch.
_BATCH = {False: 4, True: 64}  # by whether it is a GPU
# The manifest is written at most this often, for it grows with the pictures.
_SECONDS_BETWEEN_WRITES = 2.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while crafting; the message says what was kept."""


@dataclass(kw_only=True)
class Crafted:
    """What came of crafting.

    Attributes:
        attack: the attack's name.
        settings: the attack itself.
        source: name of the network, or networks, that was attacked.
        folder: where the pictures lie.
        made: pictures crafted now.
        kept: pictures that an earlier run had made.
        counts: successes at the identity on the saved pictures, by name: the source and, if it is an ensemble, each of
            its members.
        reached: of all pictures, those that the source takes for the target; None if the attack is untargeted.
        left_out: pictures that could not be used.
        seconds: time spent on attacks, over all runs.
        grad_evals: input gradients spent, over all pictures and runs.
    """

    attack: str
    settings: Attack
    source: str
    folder: Path
    made: int = 0
    kept: int = 0
    counts: dict[str, SuccessRate] = field(default_factory=dict)
    reached: int | None = None
    left_out: list[BadImage] = field(default_factory=list)
    seconds: float = 0.0
    grad_evals: int = 0


def craft(
    name: str,
    model: Classifier | Ensemble,
    pictures: Pictures,
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    target: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    overwrite: bool = False,
    command: Sequence[str] = (),
    report: Report = silent,
) -> Crafted:
    """Attack pictures and save what comes out as 8-bit PNG files, with a manifest.

    A picture that the folder already holds, made with the same settings, weights and seed from the same pixels, is
    kept. What a picture becomes depends on these alone, not on the batch, so an interrupted run ends as one that never
    was.

    Args:
        name: one of ``whorl.attack_names()``.
        model: what to attack, in place on its device.
        pictures: what to start from.
        out: the run folder.
        settings: of the attack, such as ``{"eps": 8 / 255}``.
        target: class to reach; None to leave the true one.
        seed: of all randomness.
        batch_size: pictures at a time; None for 4 on a CPU and 64 on a GPU.
        overwrite: whether to replace pictures of the same attack and source that were made with other settings.
        command: what the user typed, for the manifest.
        report: told of each batch.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and source with other settings.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack, name = whorl.attack(name, **(settings or {})), name.lower()
    device = device_of(model)
    folder = RunFolder(out)
    identity = {
        "attack": name,
        "settings": as_json(attack),
        "source": model.name,
        "models": [_describe(member) for member in members(model)],
        "target": target,
        "seed": seed,
    }
    total = pictures.count()
    batches = pictures.batches(batch_size if batch_size is not None else _BATCH[device.type == "cuda"])
    entry = _Entry.open(folder, identity, overwrite=overwrite)
    entry.content |= {
        "repr": repr(attack),
        "data": {"folder": str(pictures.folder.resolve()) if pictures.folder else "samples", "size": pictures.size},
        "command": list(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(device),
    }
    done = Crafted(attack=name, settings=attack, source=model.name, folder=folder.pictures(name, model.name))
    done.reached = None if target is None else 0
    stage = f"{name} on {model.name}"
    report(stage, 0, total)
    try:
        entry.write()
        for batch in batches:
            _attack_batch(attack, model, batch, entry, done, target=target, seed=seed)
            entry.write(_SECONDS_BETWEEN_WRITES)
            report(stage, done.made + done.kept + len(done.left_out), total)
    except KeyboardInterrupt as error:
        kept = done.made + done.kept
        raise Interrupted(
            f"{kept} of {total} pictures are in {done.folder}. Run the same command again to go on."
        ) from error
    finally:
        entry.write()
    done.seconds, done.grad_evals = entry.content["seconds"], entry.content["grad_evals"]
    return done


def _attack_batch(
    attack: Attack,
    model: Classifier | Ensemble,
    batch: Images,
    entry: _Entry,
    done: Crafted,
    *,
    target: int | None,
    seed: int,
) -> None:
    x, y, ids = batch
    device = device_of(model)
    hashes = [pixels_sha256(picture) for picture in x]
    missing = [i for i, name in enumerate(ids) if not entry.has(name, hashes[i])]
    if missing:
        chosen, labels = x[missing].to(device), y[missing].to(device)
        wanted = None if target is None else torch.full_like(labels, target)
        start = time.perf_counter()
        adv, info = attack(
            model,
            chosen,
            labels if wanted is None else None,
            target=wanted,
            seed=seed,
            ids=[ids[i] for i in missing],
            return_info=True,
        )
        adv = adv.cpu()
        entry.content["seconds"] += time.perf_counter() - start
        entry.content["grad_evals"] += 0 if info.grad_evals is None else int(info.grad_evals.sum())
        for i, picture in zip(missing, adv, strict=True):
            save_image(entry.picture(ids[i]), picture)
            entry.add(ids[i], hashes[i], int(y[i]))
    done.made += len(missing)
    done.kept += len(ids) - len(missing)
    done.left_out += batch.bad
    saved = torch.stack([load_image(entry.picture(name)) for name in ids])
    _count(model, x.to(device), saved.to(device), y.to(device), done, target)


@torch.no_grad()
def _count(model: Classifier | Ensemble, x: Tensor, adv: Tensor, y: Tensor, done: Crafted, target: int | None) -> None:
    for asked in {part.name: part for part in (model, *members(model))}.values():
        answers = asked(adv).argmax(1)
        counts = SuccessRate.of(clean=asked(x).argmax(1), adversarial=answers, y=y)
        done.counts[asked.name] = done.counts.get(asked.name, SuccessRate()) + counts
        if asked is model and done.reached is not None:
            done.reached += int((answers == target).sum())


def _describe(member: Classifier) -> Json:
    return {"name": member.name, "weights_sha256": member.weights_sha256 or state_dict_sha256(member.net)}


class _Entry:
    """One attack on one source in a manifest, held in memory and written now and then."""

    def __init__(self, folder: RunFolder, content: Json) -> None:
        self.folder, self.content = folder, content
        self.key = f"{content['attack']}/{content['source']}"
        self._written = 0.0

    @classmethod
    def open(cls, folder: RunFolder, identity: Json, *, overwrite: bool) -> _Entry:
        """Take up the entry of an earlier run if it is the same work, or start a new one."""
        entry = cls(folder, {**identity, "seconds": 0.0, "grad_evals": 0, "images": {}})
        earlier = folder.read()["crafted"].get(entry.key)
        if earlier is None or not earlier["images"]:
            return entry
        other = [key for key, value in identity.items() if earlier.get(key) != value]
        if not other:
            return cls(folder, earlier)
        if not overwrite:
            raise WhorlError(
                f"{folder.path} already holds {entry.key} with other {' and '.join(other)}. "
                "Choose another folder with --out, or replace it with --overwrite."
            )
        # Before the first new picture is written, so that at no time both kinds lie there as one.
        entry.write()
        for path in folder.pictures(identity["attack"], identity["source"]).rglob("*.png"):
            path.unlink()
        return entry

    def picture(self, name: str) -> Path:
        return self.folder.picture(self.content["attack"], self.content["source"], name)

    def has(self, name: str, sha256: str) -> bool:
        known = self.content["images"].get(name)
        return known is not None and known["clean_sha256"] == sha256 and self.picture(name).is_file()

    def add(self, name: str, sha256: str, label: int) -> None:
        self.content["images"][name] = {"label": label, "clean_sha256": sha256}

    def write(self, every: float = 0.0) -> None:
        if time.monotonic() - self._written >= every:
            self.folder.write(lambda manifest: manifest["crafted"].update({self.key: self.content}))
            self._written = time.monotonic()
