"""Harden a network: from a model and a folder of images to weights, a manifest and a report."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whorl
from whorl.errors import WhorlError
from whorl.files import atomic_write, sha256_of
from whorl.hardening.checkpoint import FILE, load_checkpoint
from whorl.hardening.held_out import Say
from whorl.hardening.images import TrainingImages, load_training_images
from whorl.hardening.processes import Team, team
from whorl.hardening.recipes import Recipe
from whorl.hardening.recipes import recipe as find_recipe
from whorl.hardening.report import write_report
from whorl.hardening.settings import Training
from whorl.hardening.student import make_student, put
from whorl.hardening.trainer import NotFiniteError, Trainer
from whorl.models.classifier import Classifier
from whorl.models.weights import StateDict, state_dict_sha256
from whorl.models.zoo import load_model
from whorl.progress import Progress, silent

WEIGHTS, MANIFEST, REPORT = "weights.safetensors", "manifest.json", "report.html"
POOL = ("resnet18", "mobilenet_v2", "efficientnet_lite0")
"""Static networks that make examples, but for the one that is hardened."""
# How far a training may be from the time that it was given before its steps are planned anew.
_LATE_SECONDS, _LATE_SHARE = 4.0, 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Hardened:
    """What came of a training.

    Attributes:
        classifier: the hardened network, frozen, on its device.
        learned: the tensors that training changed, by name, on the CPU.
        history: measurements on the way, oldest first: step, seconds, loss, lr, and shares of right answers on
            held-out images (clean, transfer, white_box).
        about: what was trained how, each as text.
        training: the settings, with the number of steps that were taken.
        seconds: spent on training, over all sittings.
        folder: where the files are, or None.
    """

    classifier: Classifier
    learned: StateDict
    history: list[dict[str, float]]
    about: dict[str, str]
    training: Training
    seconds: float
    folder: Path | None


def harden(
    model: str | Classifier,
    data: str | Path | TrainingImages,
    recipe: str | Recipe = "ens-at",
    *,
    out: str | Path | None = None,
    start: Classifier | None = None,
    pool: Sequence[str | Classifier] | None = None,
    teachers: Sequence[str | Classifier] | None = None,
    training: Training | None = None,
    seconds: float | None = None,
    side: int | None = None,
    partial: bool = False,
    device: str | torch.device = "auto",
    progress: Progress = silent,
    say: Say | None = None,
    **settings: Any,
) -> Hardened:
    """Train a defended version of a classifier.

    Several GPUs work together under ``torchrun``. A run that finds its own checkpoint in ``out`` goes on from there,
    and ends with the weights that it would have ended with.

    Args:
        model: the classifier, or its name; it stays as it is.
        data: folder in any layout of ``whorl.load_images``, or images that are loaded already.
        recipe: name of a recipe (:func:`recipe_names`), or one of your own.
        out: folder for the checkpoint, the weights and the report; None keeps nothing.
        start: begin with these weights instead of the model's; of the same architecture.
        pool: static networks that make examples; by default three of the zoo, but for the model itself.
        teachers: networks whose mean answers the student should keep; by default the model as it is.
        training: all settings at once; by default those of :class:`Training`.
        seconds: train for about so long instead of ``training.steps`` steps. A few steps are timed first, and the plan
            is changed on the way where they told too little.
        side: pixels that images are kept at in memory; by default the network's own input.
        partial: whether some of the network's classes may have no image.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        progress: told about decoding and steps; of several processes, the first one's alone.
        say: told each measurement, likewise.
        settings: single fields of :class:`Training`, such as ``steps``, ``batch``, ``lr`` and ``seed``.

    Raises:
        WhorlError: bad images or settings, fewer images than a batch, a checkpoint of another run in ``out``, or a
            loss that became NaN; the last checkpoint is then from before that.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    how = (training or Training()).with_(**settings)

    # In a function of its own, so that nothing of it outlives the processes' group.
    def train(group: Team, where: torch.device) -> Hardened:
        original = _classifier(model, where)
        images = (
            data
            if isinstance(data, TrainingImages)
            else _load(data, original, side, progress if group.leads else silent)
        )
        images.check_classes(original.num_classes, partial=partial)
        makers = _pool(pool, original, where) if chosen.needs_pool else {}
        taught = [original] if teachers is None else [_classifier(teacher, where) for teacher in teachers]
        _check_classes([*makers.values(), *taught], original)
        begun = original if start is None else start.to(where)
        student = make_student(begun, norm=how.norm, head=how.head)
        trainer = Trainer(student, makers, taught, images, chosen, how, group)
        about = {
            "recipe": repr(chosen),
            "model": _identity(original),
            "start": _identity(begun),
            "pool": ", ".join(map(_identity, makers.values())),
            "teachers": ", ".join(map(_identity, taught)),
            "images": f"{len(images)} {images.sha256}",
        }
        folder = None if out is None else Path(out)
        job = _TrainingRun(trainer, about, folder, group, progress, say)
        job.run(seconds)
        return job.finish(begun, f"{original.name}.{chosen.name}")

    with team(_device(device)) as (group, where):
        return train(group, where)


class _TrainingRun:
    """The loop around a trainer: time, checkpoints, measurements."""

    def __init__(
        self,
        trainer: Trainer,
        about: dict[str, str],
        folder: Path | None,
        group: Team,
        progress: Progress,
        say: Say | None,
    ) -> None:
        self.trainer, self.about, self.folder, self.group = trainer, about, folder, group
        self.progress, self.say = progress, say
        self.before = 0.0
        self.start = time.perf_counter()
        self.first = self.saved = 0
        self.allowed: float | None = None

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start

    def run(self, seconds: float | None) -> None:
        trainer = self.trainer
        self.allowed = seconds
        self.about["settings"] = repr(trainer.training) + ("" if seconds is None else f", {seconds:g} seconds")
        found = None if self.folder is None else load_checkpoint(self.folder / FILE, self.about)
        if found is not None:
            # A run that goes on keeps the schedule that it was begun with.
            trainer.training = trainer.training.with_(steps=found.steps)
            trainer.resume(found)
            self.before, self.first, self.saved = found.seconds, found.step, found.step
        elif seconds is not None:
            planned = max(1, round(seconds / trainer.seconds_a_step()))
            trainer.training = trainer.training.with_(steps=self.group.agree(planned))
        self.start = time.perf_counter()
        try:
            while trainer.step < trainer.training.steps:
                trainer.advance()
                self._after_step()
        except NotFiniteError as error:
            kept = "Nothing was saved before that."
            if self.folder is not None and self.saved:
                kept = f"The last good checkpoint, after step {self.saved}, is {self.folder / FILE}."
            raise WhorlError(f"training stopped: {error} {kept}") from error

    def _after_step(self) -> None:
        trainer, training = self.trainer, self.trainer.training
        done = trainer.step - 1
        reporting, saving = training.due(done, training.reports), training.due(done, training.checkpoints)
        if not (reporting or saving or trainer.check_due()):
            return
        loss = trainer.check()
        self._keep_to_time()
        if self.group.leads:
            self.progress("training", trainer.step, training.steps)
        if reporting:
            entry = {
                "step": trainer.step,
                "steps": training.steps,
                "seconds": round(self.seconds, 2),
                "loss": loss,
                "lr": training.lr_at(done),
                **trainer.measure(),
            }
            trainer.history.append(entry)
            if self.say is not None and self.group.leads:
                self.say(entry)
        if saving and self.folder is not None:
            if self.group.leads:
                trainer.state(self.about, self.seconds).save(self.folder / FILE)
            self.saved = trainer.step

    def _keep_to_time(self) -> None:
        """Plan anew where the first steps were timed too fast or too slow, as on a device that others use too."""
        trainer = self.trainer
        if self.allowed is None or trainer.step >= trainer.training.steps:
            return
        each = (time.perf_counter() - self.start) / (trainer.step - self.first)
        late = self.seconds + each * (trainer.training.steps - trainer.step) - self.allowed
        steps = trainer.training.steps
        # Never because of a few seconds: the learning rate follows the plan, and should not waver.
        if abs(late) > max(_LATE_SECONDS, _LATE_SHARE * self.allowed):
            steps = trainer.step + max(1, int((self.allowed - self.seconds) / each))
        steps = self.group.agree(steps)
        if steps != trainer.training.steps:
            trainer.training = trainer.training.with_(steps=steps)

    def finish(self, begun: Classifier, name: str) -> Hardened:
        """Put the averaged weights into a frozen classifier, and write what the folder should hold."""
        trainer, seconds = self.trainer, self.seconds
        trainer.recorded = None  # a graph holds memory of the device, and the trainer, which holds it
        state = {name: tensor.cpu().clone() for name, tensor in trainer.average.state.items()}
        classifier = deepcopy(begun)
        classifier.name = name
        put(classifier, state)
        classifier.weights_sha256 = state_dict_sha256(classifier.net)
        done = Hardened(
            classifier=classifier,
            learned=state,
            history=trainer.history,
            about=self.about,
            training=trainer.training,
            seconds=seconds,
            folder=self.folder,
        )
        if self.folder is not None and self.group.leads:
            write_results(done, self.folder)
        return done


def write_results(done: Hardened, folder: Path) -> None:
    """Write ``weights.safetensors``, a whole state dict, ``manifest.json`` and ``report.html`` into a folder."""
    from safetensors.torch import save

    weights = folder / WEIGHTS
    state = {name: tensor.cpu().contiguous() for name, tensor in done.classifier.net.state_dict().items()}
    with atomic_write(weights) as file:
        file.write(save(state))
    manifest = {
        "name": done.classifier.name,
        "weights": {"file": WEIGHTS, "sha256": sha256_of(weights)},
        "about": done.about,
        "steps": done.training.steps,
        "seconds": round(done.seconds, 1),
        "versions": {"whorl": whorl.__version__, "torch": str(torch.__version__)},
        "history": done.history,
    }
    with atomic_write(folder / MANIFEST) as file:
        file.write((json.dumps(manifest, indent=2) + "\n").encode())
    write_report(
        folder / REPORT, name=done.classifier.name, history=done.history, about=done.about, seconds=done.seconds
    )


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise WhorlError(f"device must be auto, cpu, cuda or cuda:N; got {device!r}.") from error


def _classifier(model: str | Classifier, device: torch.device) -> Classifier:
    return load_model(model, device=device) if isinstance(model, str) else model.to(device)


def _identity(net: Classifier) -> str:
    return f"{net.name} {state_dict_sha256(net.net)}"


def _load(data: str | Path, original: Classifier, side: int | None, progress: Progress) -> TrainingImages:
    return load_training_images(data, side=max(original.size) if side is None else side, progress=progress)


def _pool(pool: Sequence[str | Classifier] | None, original: Classifier, device: torch.device) -> dict[str, Classifier]:
    wanted = [name for name in POOL if name != original.name] if pool is None else pool
    nets = [_classifier(net, device) for net in wanted]
    if not nets:
        raise WhorlError("this recipe needs static networks that make examples; got an empty pool.")
    return {net.name: net for net in nets}


def _check_classes(others: Sequence[Classifier], original: Classifier) -> None:
    for net in others:
        if net.num_classes != original.num_classes:
            raise WhorlError(
                f"networks of the pool and teachers must know the {original.num_classes} classes of {original.name}; "
                f"{net.name} knows {net.num_classes}. Name others with pool= and teachers=."
            )
