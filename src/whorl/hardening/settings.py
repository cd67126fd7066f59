"""How to train: everything that is not the recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch

from whorl.errors import WhorlError
from whorl.models.classifier import Classifier
from whorl.records import Count, Limits, Part, Positive, Record, Share

NormLearning = Literal["frozen", "affine", "batch"]
_RATES = {"sgd": 0.03, "adam": 1.5e-4}


@dataclass(frozen=True, kw_only=True, repr=False)
class Training(Record):
    """Settings of a training run.

    Attributes:
        steps: optimiser steps; each sees ``batch`` clean images and their adversarial versions.
        batch: images a step, over all processes together.
        optimizer: ``"sgd"`` (momentum 0.9, Nesterov) or ``"adam"`` (AdamW).
        lr: highest learning rate; None is 0.03 for SGD, which wants ``clip``, and 1.5e-4 for Adam.
        warmup: share of the steps over which the learning rate rises; it then falls along a cosine to zero.
        weight_decay: of the optimiser; scales, shifts and biases are spared.
        clip: largest norm of the gradient, which is 20 to 40 at first: unclipped, SGD at 0.03 unlearns everything.
        ema: decay of the running average of the weights, which is what is kept; 0 keeps the last weights.
        trust: weight of the teacher's answers in the targets; the labels get the rest. 0 needs no teacher.
        area: lowest and highest share of an image that a random crop keeps.
        crop: side of the crops, in pixels; None is the network's own input. A smaller one is faster, and
            wise where images are smaller than that input: enlarged, they are smoother than what it will meet.
        mix: share of the images that are blended with another one, which shows through by up to a half. The teacher
            answers for the blend, so that few images become many.
        norm: what BatchNorm may learn: ``"frozen"``, nothing; ``"affine"``, scale and shift; ``"batch"``, these, and
            with the statistics of each batch instead of those that the network has.
        head: whether the last linear layer learns.
        held_out: images to watch the training with, never trained on; at most a fifth of them all.
        seed: all randomness follows from it.
        precision: ``"bf16"`` runs networks in bfloat16 where that is safe; ``"full"`` runs them as they are.
        channels_last: whether bfloat16 networks keep a pixel's channels next to each other.
        record: whether a GPU replays each step as one recorded graph, to save the launches. Not for several processes,
            a compiled student or ``norm="batch"``; what cannot be recorded runs operation by operation.
        compile: whether to compile the student's passes (a GPU; the first step takes up to a minute).
        reports: how many times to measure held-out accuracy on the way.
        checkpoints: how many times to write a checkpoint on the way.
    """

    steps: Count = 1000
    batch: Count = 256
    optimizer: Literal["adam", "sgd"] = "sgd"
    lr: Positive | None = None
    warmup: Share = 0.05
    weight_decay: Share = 5e-5
    clip: Positive = 1.0
    ema: Share = 0.99
    trust: Share = 0.8
    area: tuple[Part, Part] = (0.35, 1.0)
    crop: Count | None = None
    mix: Share = 0.0
    norm: NormLearning = "affine"
    head: bool = False
    held_out: Annotated[int, Limits(least=0)] = 256
    seed: int = 0
    precision: Literal["bf16", "full"] = "full"
    channels_last: bool = True
    record: bool = True
    compile: bool = False
    reports: Count = 10
    checkpoints: Count = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.area
        if low > high:
            raise WhorlError(f"area must be (lowest, highest) within (0, 1]; got {self.area}.")

    @property
    def rate(self) -> float:
        """The highest learning rate: ``lr``, or what suits the optimiser."""
        return _RATES.get(self.optimizer, 1.0) if self.lr is None else self.lr

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, numbered from 0.

        >>> training = Training(steps=100, lr=1.0, warmup=0.1)
        >>> [round(training.lr_at(step), 3) for step in (0, 9, 54, 99)]
        [0.1, 1.0, 0.5, 0.0]
        """
        rising = max(1, round(self.warmup * self.steps))
        if step < rising:
            return self.rate * (step + 1) / rising
        done = (step + 1 - rising) / max(1, self.steps - rising)
        return self.rate * 0.5 * (1 + math.cos(math.pi * done))

    def due(self, step: int, times: int) -> bool:
        """Whether something that happens so many times falls after this step, numbered from 0; always after the last.

        >>> [step for step in range(10) if Training(steps=10).due(step, 3)]
        [3, 6, 9]
        """
        return (step + 1) * times // self.steps > step * times // self.steps


@dataclass(frozen=True, kw_only=True, repr=False)
class Setup(Record):
    """What a training is surrounded by: other networks, time, place, and how images are kept.

    Attributes:
        out: folder for the checkpoint, the weights and the report; None keeps nothing.
        start: begin with these weights instead of the model's; of the same architecture.
        pool: static networks that make examples; by default three of the zoo, but for the model itself.
        teachers: networks whose mean answers the student should keep; by default the model as it is.
        seconds: train for about so long instead of ``Training.steps`` steps. A few steps are timed first, and the plan
            is changed on the way where they were no guide.
        side: pixels that images are kept at in memory; by default the network's own input.
        partial: whether some of the network's classes may have no image.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
    """

    out: str | Path | None = None
    start: Classifier | None = None
    pool: Sequence[str | Classifier] | None = None
    teachers: Sequence[str | Classifier] | None = None
    seconds: float | None = None
    side: int | None = None
    partial: bool = False
    device: str | torch.device = "auto"
