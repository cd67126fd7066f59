"""Harden a network: from a model and a folder of images to weights, a manifest and a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

import whorl
from whorl.data import ImageData
from whorl.errors import WhorlError
from whorl.files import hashed, held, json_text, sha256_of, write_file
from whorl.hardening.checkpoint import FILE, load_checkpoint
from whorl.hardening.examples import STUDENT
from whorl.hardening.images import TrainingImages, load_training_images
from whorl.hardening.processes import Team, leads, team
from whorl.hardening.recipes import Recipe
from whorl.hardening.recipes import recipe as find_recipe
from whorl.hardening.settings import Setup, Training
from whorl.hardening.student import make_student, put
from whorl.hardening.trainer import Trainer
from whorl.models.classifier import Classifier, by_name
from whorl.models.weights import StateDict, state_dict_sha256
from whorl.models.zoo import find_device, load_model
from whorl.progress import Progress, Tracker, duration, listening, piece_of_work, silent

Clock = Callable[[], float]
"""Seconds since any moment, such as ``time.perf_counter``."""

WEIGHTS, MANIFEST, REPORT = "weights.safetensors", "manifest.json", "report.html"
POOL = ("resnet18", "mobilenet_v2", "efficientnet_lite0")
"""Static networks that make examples, but for the one that is hardened."""
# How far a training may be from the time that it was given before its steps are planned anew.
_LATE_SECONDS, _LATE_SHARE = 4.0, 0.05
_LONG = 100
"""Steps from which on one is timed, and undone, to say how long they will take."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Hardened:
    """What came of a training.

    Attributes:
        classifier: the hardened network, frozen, on its device.
        learned: the tensors that training changed, by name, on the CPU.
        history: measurements on the way, oldest first: step, seconds, loss, lr, and shares of right answers on
            held-out images (clean, transfer, white_box) and their number (held_out).
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
    data: ImageData | TrainingImages,
    recipe: str | Recipe = "ens-at",
    *,
    setup: Setup | None = None,
    training: Training | None = None,
    progress: Progress = silent,
    track: Tracker | None = None,
    clock: Clock = time.perf_counter,
    **settings: Any,
) -> Hardened:
    """Train a defended version of a classifier.

    Several GPUs work together under ``torchrun``. A run that finds its own checkpoint in ``out`` ends as it would have.

    Args:
        model: the classifier, or its name; it stays as it is.
        data: anything that ``whorl.load_images`` takes, or images that are loaded already.
        recipe: name of a recipe (:func:`recipe_names`), or one of your own.
        setup: output folder, other networks, time limit and device as one record; by default those of :class:`Setup`.
        training: all settings of the training at once; by default those of :class:`Training`.
        progress: called while images are decoded and steps taken; of several processes, the first one's alone.
        track: called with each measurement, likewise: steps, seconds, loss, lr and held-out accuracies.
        clock: returns seconds since some moment; used to train for ``seconds`` and to note how long it took.
        settings: single fields of both, such as ``out``, ``pool``, ``steps``, ``batch``, ``lr`` and ``seed``.

    Returns:
        The hardened classifier, and what was measured on the way.

    Raises:
        WhorlError: bad images or settings, fewer than a batch, another run's checkpoint in ``out``, or a loss of NaN.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    of_setup = {field.name for field in fields(Setup)} & settings.keys()
    around = (setup or Setup()).with_(**{name: settings.pop(name) for name in of_setup})
    how = (training or Training()).with_(**settings)

    # In a function of its own, so that nothing of it outlives the processes' group.
    def train(group: Team, where: torch.device) -> Hardened:
        original = _classifier(model, where)
        images = data
        if not isinstance(images, TrainingImages):
            side = max(original.size) if around.side is None else around.side
            shown = progress if group.leads else silent
            images = load_training_images(images, side=side, labels=original.labels, progress=shown)
        images.check_classes(original.num_classes, partial=around.partial)
        begun = original if around.start is None else around.start.to(where)
        trainer, about = _trainer(original, begun, images, chosen, how, around, group)
        listener = track if track is not None and group.leads else Tracker()
        run = _TrainingRun(trainer, about, None if around.out is None else Path(around.out), progress, listener, clock)
        listener.begin(name := f"{original.name}.{chosen.name}", {**about, **vars(how), "seconds": around.seconds})
        run.train(around.seconds)
        done = run.finish(begun, name)
        written = {"weights": WEIGHTS, "manifest": MANIFEST, "report": REPORT} if done.folder is not None else {}
        listener.end({what: Path(done.folder or "", file) for what, file in written.items()})
        return done

    with _held(around.out, model), team(find_device(str(around.device))) as (group, where):
        return train(group, where)


def _held(out: str | Path | None, model: str | Classifier) -> AbstractContextManager[None]:
    """Hold the folder of a training; of several processes that train together, the first holds it for all."""
    if out is None or not leads():
        return nullcontext()
    return held(Path(out), f"whorl harden {model if isinstance(model, str) else model.name}")


def _trainer(
    original: Classifier,
    begun: Classifier,
    images: TrainingImages,
    recipe: Recipe,
    training: Training,
    setup: Setup,
    group: Team,
) -> tuple[Trainer, dict[str, str]]:
    """Bring the networks of a training together, and say what it is: a run goes on only where all of that agrees."""
    where = original._mean.device
    makers = _pool(setup.pool, original, where) if recipe.needs_pool else {}
    teachers = [original] if setup.teachers is None else [_classifier(one, where) for one in setup.teachers]
    for net in (*makers.values(), *teachers):
        if net.num_classes != original.num_classes:
            raise WhorlError(
                f"networks of the pool and teachers must know the {original.num_classes} classes of {original.name}; "
                f"{net.name} knows {net.num_classes}. Name others with pool= and teachers=."
            )
    student = make_student(begun, norm=training.norm, head=training.head)
    about = {
        "recipe": repr(recipe),
        "model": _identity(original),
        "start": _identity(begun),
        "pool": ", ".join(map(_identity, makers.values())),
        "teachers": ", ".join(map(_identity, teachers)),
        "images": f"{len(images)} {images.sha256}",
    }
    return Trainer(student, makers, teachers, images, recipe, training, group), about


class _TrainingRun:
    """The loop around a trainer: time, checkpoints, measurements."""

    def __init__(
        self,
        trainer: Trainer,
        about: dict[str, str],
        folder: Path | None,
        progress: Progress,
        track: Tracker,
        clock: Clock,
    ) -> None:
        self.trainer, self.group, self.about, self.folder = trainer, trainer.group, about, folder
        self.progress, self.track, self.clock = progress, track, clock
        self.before = 0.0
        self.start = clock()
        self.first = self.saved = 0
        self.allowed: float | None = None
        self.stage = "training"

    @property
    def seconds(self) -> float:
        return self.before + self.clock() - self.start

    def train(self, seconds: float | None) -> None:
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
            planned = max(1, round(seconds / self._each()))
            trainer.training = trainer.training.with_(steps=self.group.agree(planned))
        elif trainer.training.steps >= _LONG and self.progress is not silent:
            rehearsed = int(trainer.device.type == "cuda")  # there the first step is recorded
            each = self._each(warmup=rehearsed, timed=1)
            self.stage = f"training ({trainer.training.steps:,} steps, {duration(each * trainer.training.steps)})"
        self.start = self.clock()
        self._tell()
        try:
            with self._listening():
                while trainer.step < trainer.training.steps:
                    with piece_of_work("training, examples of this step", len(trainer.inputs.keys), "examples"):
                        trainer.advance()
                    self._after_step()
                    self._tell()
        except WhorlError as error:
            kept = "Nothing was saved before that."
            if self.folder is not None and self.saved:
                kept = f"The last good checkpoint, after step {self.saved}, is {self.folder / FILE}."
            raise WhorlError(f"training stopped: {error} {kept}") from error

    def _each(self, **how: int) -> float:
        """Seconds a step, of some that are timed and undone; the examples that are crafted ahead come before."""
        with self._listening():
            return self.trainer.seconds_a_step(self.clock, **how)

    def _listening(self) -> AbstractContextManager[None]:
        return listening(self.progress if self.group.leads else silent)

    def _tell(self) -> None:
        if self.group.leads:
            self.progress(self.stage, self.trainer.step, self.trainer.training.steps)

    def _after_step(self) -> None:
        trainer, training = self.trainer, self.trainer.training
        done = trainer.step - 1
        reporting, saving = training.due(done, training.reports), training.due(done, training.checkpoints)
        if not (reporting or saving or trainer.check_due()):
            return
        loss = trainer.check()
        self._keep_to_time()
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
            self.track.log(trainer.step, {name: value for name, value in entry.items() if name != "step"})
        if saving and self.folder is not None:
            if self.group.leads:
                trainer.state(self.about, self.seconds).save(self.folder / FILE)
            self.saved = trainer.step

    def _keep_to_time(self) -> None:
        """Plan anew where the first steps were timed too fast or too slow, as on a device that others use too."""
        trainer = self.trainer
        if self.allowed is None or trainer.step >= trainer.training.steps:
            return
        each = (self.clock() - self.start) / (trainer.step - self.first)
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

    from whorl.hardening.report import write_training_report  # needs packages that a training does not

    weights = folder / WEIGHTS
    state = {name: tensor.cpu().contiguous() for name, tensor in done.classifier.net.state_dict().items()}
    write_file(weights, save(state))
    manifest = {
        "name": done.classifier.name,
        "weights": {"file": WEIGHTS, "sha256": sha256_of(weights)},
        "about": done.about,
        "steps": done.training.steps,
        "seconds": round(done.seconds, 1),
        "versions": {"whorl": whorl.__version__, "torch": str(torch.__version__)},
        "history": done.history,
    }
    write_file(folder / MANIFEST, json_text(manifest))
    write_training_report(
        folder / REPORT, name=done.classifier.name, history=done.history, about=done.about, seconds=done.seconds
    )


def _classifier(model: str | Classifier, device: torch.device) -> Classifier:
    return load_model(model, device=device) if isinstance(model, str) else model.to(device)


def _identity(net: Classifier) -> str:
    """Weights, input and code of a network, and what it is called."""
    return f"{net.name} {state_dict_sha256(net.net)} {hashed({**net.identity(), 'weights_sha256': None})[:12]}"


def _pool(pool: Sequence[str | Classifier] | None, original: Classifier, device: torch.device) -> dict[str, Classifier]:
    wanted = [name for name in POOL if name != original.name] if pool is None else pool
    nets = [_classifier(net, device) for net in wanted]
    if not nets:
        raise WhorlError("this recipe needs static networks that make examples; got an empty pool.")
    if any(net.name == STUDENT for net in nets):
        raise WhorlError(f"a network of the pool cannot be called {STUDENT!r}, as the one that learns is. Rename it.")
    return by_name(nets)
