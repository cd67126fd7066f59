"""The training loop: one step is crop, perturb, pose, learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from whorl.attacks.contract import Model
from whorl.errors import WhorlError
from whorl.hardening.checkpoint import Checkpoint
from whorl.hardening.examples import STUDENT, assign, make
from whorl.hardening.held_out import HeldOut
from whorl.hardening.images import Order, TrainingImages, random_crops
from whorl.hardening.processes import Team
from whorl.hardening.recipes import CraftedExamples, Examples, Recipe, objective, soft_targets
from whorl.hardening.settings import Training
from whorl.hardening.stock import Stock
from whorl.hardening.student import (
    Average,
    Learner,
    LowPrecision,
    at_size,
    learned,
    make_optimizer,
    put,
    trainable,
)
from whorl.models.classifier import Classifier
from whorl.models.prepared.fold import fold
from whorl.models.prepared.graph import Recorded
from whorl.randomness import substream, uniform

# Streams of an image's randomness in one epoch.
_CROP, _EXAMPLE, _POSE, _POSED, _WATCH, _MIX = 0, 1, 2, 3, 4, 5
# How often the loss is looked at, which makes the device wait.
_CHECK_EVERY = 20


class Inputs(NamedTuple):
    """What differs from step to step, in tensors that stay where they are: a recorded step reads them there."""

    chosen: Tensor
    """(b,) images, as places in the data."""
    keys: Tensor
    """(b,) random keys, of the image and epoch."""
    other: Tensor
    """(b,) the image that each may be blended with."""
    other_keys: Tensor
    """(b,) its keys."""
    growth: Tensor
    """() factor on every radius."""
    crops: Tensor
    """(b,) keys from which the crops follow: those of the epoch, or of the version that was crafted ahead."""
    slots: Tensor
    """(b,) where the version lies in the stock."""

    @classmethod
    def empty(cls, count: int, device: torch.device) -> Inputs:
        """Zeros, to be filled."""
        chosen, keys, other, other_keys, crops, slots = torch.zeros(6, count, dtype=torch.int64, device=device)
        return cls(chosen, keys, other, other_keys, torch.ones((), device=device), crops, slots)


class TrainingBatch(NamedTuple):
    """What a step learns from."""

    x: Tensor
    """(b, 3, H, W) crops in [0, 1]."""
    y: Tensor
    """(b,) labels to leave."""
    labels: Tensor
    """(b, classes) the same as probabilities, blended where the image is."""
    keys: Tensor
    """(b,) random keys, of the image and epoch."""


class Static:
    """A network that does not learn. NaN among its answers is noted where no device waits for it, and said later."""

    def __init__(self, name: str, net: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self.name, self.net = name, net
        self.finite = torch.ones((), dtype=torch.bool, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        """Give the logits."""
        logits = self.net(x)
        self.finite.logical_and_(logits.detach().isfinite().all())
        return logits


class Trainer:
    """A student on its way.

    Args:
        student: from :func:`whorl.hardening.student.make_student`, on its device; it is changed in place.
        pool: static networks that make examples, by name.
        teachers: networks whose mean probabilities are the soft targets; none for labels alone.
        images: what to learn from; put on the student's device.
        recipe: what to learn.
        training: how.
        group: this process among those that train together.
    """

    def __init__(
        self,
        student: Classifier,
        pool: Mapping[str, Model],
        teachers: Sequence[Model],
        images: TrainingImages,
        recipe: Recipe,
        training: Training,
        group: Team | None = None,
    ) -> None:
        self.student, self.recipe, self.training = student, recipe, training
        self.group = group or Team()
        self.device = next(student.net.parameters()).device
        self.dtype = student._mean.dtype
        self.pixels, self.labels = images.pixels.to(self.device), images.labels.to(self.device)
        keys = images.keys(training.seed)
        self.keys = keys.to(self.device)
        learning, held = images.split(min(training.held_out, len(images) // 5), training.seed)
        self.order = Order(learning, keys[learning], training.batch)

        self.crop = student.size if training.crop is None else (training.crop, training.crop)
        if training.norm != "batch":
            fold(student.net, self.crop, len(student.mean), learns=True)
        makers = {name: self._still(name, at_size(net, self.crop)) for name, net in pool.items()}
        self.makers: dict[str, Model] = dict(makers)
        self.makers[STUDENT] = self._run(Learner(student, compiled=False))
        taught = teachers if training.trust else ()
        self.teachers = [self._still(getattr(net, "name", "a teacher"), at_size(net, self.crop)) for net in taught]
        self.static = [*makers.values(), *self.teachers]
        first, count = self.group.part(training.batch)
        self.part = slice(first, first + count)
        self.groups = assign(recipe, list(pool), first=first, count=count, device=self.device)
        self.learning = learning.tolist()
        self.stock: Stock | None = None
        crafted = [group.places for group in self.groups if isinstance(group.kind, CraftedExamples)]
        if crafted:
            self.crafted = torch.cat(crafted)
            self.stock = Stock(recipe, pool, self._crops, self.labels, self.keys, self.crop)
        self.forward = self._run(self._learner())
        self.parameters = list(trainable(student).values())
        self.inputs = Inputs.empty(count, self.device)
        self.loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self.recorded: Recorded | None = None
        self.epoch: tuple[int, Tensor, Tensor] | None = None
        self.optimizer = make_optimizer(student, training)
        self.average = Average(student, training.ema)
        self.total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.step = self.counted = 0
        self.history: list[dict[str, float]] = []
        self.watch = self._watch(held, next((self._still(name, net) for name, net in pool.items()), None))

    def _run(self, net: Callable[[Tensor], Tensor]) -> LowPrecision:
        on = self.training.precision == "bf16"
        return LowPrecision(net, self.device, on=on, channels_last=self.training.channels_last)

    def _still(self, name: str, net: Model) -> Static:
        return Static(name, self._run(net), self.device)

    def _learner(self) -> Callable[[Tensor], Tensor]:
        learner: nn.Module = Learner(self.student, compiled=self.training.compile)
        if self.group.size > 1:
            learner = DistributedDataParallel(learner, device_ids=None if self.device.type == "cpu" else [self.device])
        return learner

    def _watch(self, held: Tensor, maker: Static | None) -> HeldOut | None:
        if not self.group.leads:
            return None
        size = self.student.size
        x = self._float(self.pixels[held.to(self.device)])
        if x.shape[-2:] != size:
            x = F.interpolate(x, size, mode="bilinear", align_corners=False, antialias=True).clamp(0, 1)
        keys = substream(self.keys[held.to(self.device)], _WATCH)
        made = HeldOut.of(x, self.labels[held.to(self.device)], keys, maker, self.training.batch)
        if maker is not None and not maker.finite:
            raise WhorlError(_told_of([maker.name]))
        return made

    def _float(self, pixels: Tensor) -> Tensor:
        return pixels.to(self.dtype).div_(255)

    def fill(self, step: int) -> None:
        """Lay out what a step needs to know. Orders and keys are drawn once an epoch, and stay on the device."""
        number, whole = self.order.at(step)
        if self.epoch is None or self.epoch[0] != number:
            order = self.order.of(number).to(self.device)
            self.epoch = number, order, substream(self.keys[order], number)
            if self.stock is not None:
                self.stock.prepare(number, self.learning)
        _, order, keys = self.epoch
        self.inputs.chosen.copy_(order[whole][self.part])
        self.inputs.keys.copy_(keys[whole][self.part])
        self.inputs.crops.copy_(self.inputs.keys)
        if self.stock is not None:
            shown = self.stock.shown(self.inputs.chosen, number)
            self.inputs.crops[self.crafted] = shown.keys[self.crafted]
            self.inputs.slots.copy_(shown.slots)
        if self.training.mix:
            # The image before it in the whole batch, whichever process has that.
            self.inputs.other.copy_(order[whole].roll(1)[self.part])
            self.inputs.other_keys.copy_(substream(keys[whole].roll(1)[self.part], _MIX))
        ramp = self.recipe.ramp * self.training.steps
        self.inputs.growth.fill_(min(1.0, (step + 1) / ramp) if ramp else 1.0)

    def batch(self) -> TrainingBatch:
        """This process's part of the step that was laid out."""
        chosen, keys, other, other_keys, _, crops, _ = self.inputs
        x, y = self._crops(chosen, crops), self.labels[chosen]
        labels = self._one_hot(y)
        if not self.training.mix:
            return TrainingBatch(x, y, labels, keys)
        draws = uniform(substream(keys, _MIX), (2,)).to(self.dtype)
        through = torch.where(draws[:, 0] < self.training.mix, 0.5 * draws[:, 1], torch.zeros_like(draws[:, 1]))
        behind = self._crops(other, other_keys)
        mixed = torch.lerp(x, behind, through[:, None, None, None])
        return TrainingBatch(mixed, y, torch.lerp(labels, self._one_hot(self.labels[other]), through[:, None]), keys)

    def _one_hot(self, y: Tensor) -> Tensor:
        # torch's own may look at the labels, which makes a device wait.
        blank = torch.zeros(len(y), self.student.num_classes, dtype=self.dtype, device=self.device)
        return blank.scatter_(1, y[:, None], 1)

    def _crops(self, chosen: Tensor, keys: Tensor) -> Tensor:
        images = self._float(self.pixels[chosen])
        return random_crops(images, substream(keys, _CROP), self.crop, area=self.training.area)

    def examples(self, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        """What the student sees besides the clean crops: perturbed, and posed where the recipe says so."""
        like = None
        if any(isinstance(kind, Examples) and kind.loss == "kl" for kind in self.recipe.examples):
            with torch.no_grad():
                like = F.log_softmax(self.makers[STUDENT](x), dim=1)
        keys_of = substream(keys, _EXAMPLE)
        adv = make(self.groups, self.makers, x, y, keys_of, growth=self.inputs.growth, like=like)
        if self.stock is not None:
            part = self.crafted
            images, slots = self.inputs.chosen[part], self.inputs.slots[part]
            adv[part] = self.stock.perturbed(x[part], images, slots, self.inputs.growth)
        posed = self.recipe.pose(adv, substream(keys, _POSE))
        if self.recipe.posed == 1:
            return posed
        chosen = uniform(substream(keys, _POSED)) < self.recipe.posed
        return torch.where(chosen[:, None, None, None], posed, adv)

    def targets(self, x: Tensor, labels: Tensor) -> Tensor:
        """What the student should answer, (b, classes) probabilities; ``labels`` likewise."""
        answers = None
        if self.teachers:
            with torch.no_grad():
                answers = torch.stack([F.softmax(teacher(x), dim=1) for teacher in self.teachers]).mean(0)
        return soft_targets(answers, labels, trust=self.training.trust)

    def learn(self) -> None:
        """Turn the inputs into a loss and gradients. Everything that it reads and writes stays where it is."""
        x, y, labels, keys = self.batch()
        adv = self.examples(x, y, keys)
        targets = self.targets(x, labels)
        logits = self.forward(torch.cat((x, adv)))
        clean, adversarial = logits.chunk(2)
        loss = objective(self.recipe, clean, adversarial, targets)
        self.loss.copy_(loss.detach())
        if self.group.size > 1:
            loss.backward()  # during which the processes exchange their gradients
            return
        # Zeros for a parameter that plays no part, such as of a head that is for training alone.
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        torch._foreach_copy_([p.grad for p in self.parameters if p.grad is not None], gradients)

    def _record(self) -> Recorded:
        """On a GPU, launching a step's thousands of small operations takes longer than they do: record them once."""
        alone, fixed = self.group.size == 1, self.training.norm != "batch"  # which changes statistics as it goes
        wanted = self.training.record and alone and fixed and not self.training.compile
        plain = torch.device("cpu")  # where nothing is recorded
        try:
            recorded = Recorded(self.learn, self.device if wanted else plain)
        except torch.cuda.OutOfMemoryError:
            recorded = None
        if recorded is None:  # by now the error has let go of the tensors that it held
            # The rehearsals' memory lies beside the graph's own, so that what fits once may not fit twice.
            torch.cuda.empty_cache()
            warnings.warn("a recorded step does not fit the GPU's memory: steps run one by one.", stacklevel=2)
            return Recorded(self.learn, plain)
        if recorded.graph is not None:
            torch.cuda.empty_cache()  # of what the rehearsals took: the graph has its own
        return recorded

    def advance(self) -> None:
        """Take one step. Nothing in it waits for the device."""
        step, training = self.step, self.training
        self.fill(step)
        if self.group.size == 1 and self.parameters[0].grad is None:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        if self.recorded is not None and not self.recorded.held():
            self.recorded = None  # crafting has replaced constants that the graph reads
        if self.recorded is None:
            self.recorded = self._record()
        self.recorded()
        for group in self.optimizer.param_groups:
            group["lr"] = training.lr_at(step)
        nn.utils.clip_grad_norm_(self.parameters, training.clip)
        self.optimizer.step()
        if self.group.size > 1:
            self.optimizer.zero_grad(set_to_none=True)
        self.average.update(step)
        self.total += self.loss
        self.step += 1
        self.counted += 1

    def check(self) -> float:
        """The mean loss since the last check, over all processes.

        Raises:
            WhorlError: it is NaN or infinite, or a weight is, or an answer that was learned from.
        """
        mean = float(self.group.mean(self.total)) / max(1, self.counted)
        failed = [net.name for net in self.static if float(self.group.mean(net.finite.double())) < 1]
        self.total.zero_()
        self.counted = 0
        # A finite loss may have left a gradient that is not.
        sound = bool(torch.stack([tensor.isfinite().all() for tensor in self.parameters]).all())
        if not math.isfinite(mean) or not sound:
            what = f"the loss is {mean}" if not math.isfinite(mean) else "a weight is NaN or infinite"
            what += f" after step {self.step}"
            remedy = "Lower the learning rate (lr), or the radius of the examples."
        elif failed:
            what = "the training learns from what is no number"
        else:
            return mean
        raise WhorlError(f"{what}. {_told_of(failed) if failed else remedy}")

    def check_due(self) -> bool:
        """Whether the loss should be looked at now."""
        return self.step % _CHECK_EVERY == 0

    def measure(self) -> dict[str, float]:
        """Held-out accuracy of the averaged weights; empty on processes that do not lead."""
        if self.watch is None:
            return {}
        with self.average.swapped_in():
            return self.watch.measure(self.makers[STUDENT])

    def state(self, about: dict[str, str], seconds: float) -> Checkpoint:
        """Everything needed to go on from here."""
        return Checkpoint(
            about=about,
            step=self.step,
            steps=self.training.steps,
            student={name: tensor.cpu().clone() for name, tensor in learned(self.student).items()},
            average={name: tensor.cpu().clone() for name, tensor in self.average.state.items()},
            optimizer=self.optimizer.state_dict(),
            history=[dict(entry) for entry in self.history],
            seconds=seconds,
        )

    def resume(self, found: Checkpoint) -> None:
        """Go on from a checkpoint."""
        put(self.student, found.student)
        for name, tensor in found.average.items():
            self.average.state[name].copy_(tensor)
        self.optimizer.load_state_dict(found.optimizer)
        self.history = [dict(entry) for entry in found.history]
        self.step = found.step

    def seconds_a_step(self, clock: Callable[[], float], *, warmup: int = 2, timed: int = 6) -> float:
        """Time some steps, then undo them: the student, its average and the optimiser are as before."""
        before = self.state({}, 0.0)
        for _ in range(warmup):
            self.advance()
        self._wait()
        start = clock()
        for _ in range(timed):
            self.advance()
        self._wait()
        seconds = (clock() - start) / timed
        self.resume(before)
        self.total.zero_()
        self.counted = 0
        return seconds

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _told_of(names: Sequence[str]) -> str:
    return (
        f"{', '.join(names)} answered NaN or infinity to training images. Check its weights, or leave it out of pool "
        "and teachers."
    )
