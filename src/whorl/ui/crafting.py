"""An attack and its affine-invariant version on one image, step by step, so that a page can show how far they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch
from torch import Tensor, nn

import whorl
from whorl.attacks import GradientAttack
from whorl.errors import WhorlError, unknown_name
from whorl.estimators import at_step
from whorl.evaluation import predictions, to_8_bits
from whorl.models import Classifier
from whorl.models.labels import imagenet_labels
from whorl.runs.networks import device_of
from whorl.ui.picture import Picture


def pairs() -> list[str]:
    """List the attacks that have an affine-invariant version.

    >>> pairs()
    ['fgsm', 'pgd', 'mim', 'dim', 'ram']
    """
    names = whorl.attack_names("gradient")
    return [name for name in names if f"ai-{name}" in names]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to craft.

    >>> [attack.steps for attack in Settings(attack="fgsm", steps=20).attacks().values()]
    [1, 1]
    """

    attack: str = "pgd"
    """One of ``pairs()``; its ``ai-`` version is crafted too."""
    eps: float = 8 / 255
    """Largest change of any channel of any pixel, in units of the [0, 1] range."""
    steps: int = 10
    """Gradient steps; an attack of a single step keeps its one."""
    seed: int = 0

    def attacks(self) -> dict[str, GradientAttack]:
        """The two attacks by name, plain first."""
        if self.attack not in pairs():
            hint = f"Attacks with an affine-invariant version: {', '.join(pairs())}."
            raise unknown_name("attack", self.attack, pairs(), hint=hint)
        made = {}
        for name in (self.attack, f"ai-{self.attack}"):
            preset = whorl.attack(name, eps=self.eps)
            assert isinstance(preset, GradientAttack)  # noqa: S101 - all of that kind are
            made[name] = preset.with_(steps=1 if preset.steps == 1 else self.steps)
        return made


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step that was taken."""

    attack: str
    done: int
    """Steps taken, from 1."""
    steps: int
    """All steps of this attack."""
    probability: float
    """What the network gave the label before this step, on the image as the attack showed it, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Crafted:
    """An image with its two adversarial versions."""

    model: Classifier = field(repr=False)
    picture: Picture
    settings: Settings
    label: int
    """What counts as right."""
    known: bool
    """Whether that is the true label, and not what the network said of the clean image."""
    versions: dict[str, Tensor] = field(repr=False)
    """"clean" and the two attacks by name, each (1, 3, H, W), in 8 bits, on the network's device."""

    @property
    def attacks(self) -> tuple[str, str]:
        """The plain attack's name and the affine-invariant one's."""
        _, plain, invariant = self.versions
        return plain, invariant

    @property
    def label_name(self) -> str:
        """The label in words."""
        return str(self.model.labels[self.label])


class _StoppedError(Exception):
    """Nobody waits for the attack any longer."""


def craft(model: Classifier, picture: Picture, settings: Settings) -> Generator[Step | Crafted]:
    """Attack an image twice, without and with the affine-invariant gradient.

    The result is exactly that of ``whorl.attack(name, ..., fast=False)(model, x, y, seed=...)``: watching changes
    nothing.

    Args:
        model: attacked, and asked later.
        picture: shown at the network's own size.
        settings: what to craft.

    Returns:
        A generator of the steps of the plain attack, then those of the other, and last what was made. Closing it
        stops the attack within a step.

    Raises:
        WhorlError: the image cannot be read, or the attack refuses its settings.
    """
    attacks = settings.attacks()
    x = picture.pixels(model.size).to(device_of(model))
    label, known = _label(model, picture, x)
    y = torch.tensor([label], device=x.device)
    ids = None if picture.id is None else [picture.id]
    versions = {"clean": x}
    for name, attack in attacks.items():
        for event in _stepwise(name, attack, model, x, y, settings.seed, ids):
            if isinstance(event, Step):
                yield event
            else:
                versions[name] = to_8_bits(event)
    yield Crafted(model=model, picture=picture, settings=settings, label=label, known=known, versions=versions)


def _label(model: Classifier, picture: Picture, x: Tensor) -> tuple[int, bool]:
    # A sample's label is a class of ImageNet, which means nothing to a network of other classes.
    if picture.label is not None and model.labels == imagenet_labels():
        return picture.label, True
    return int(predictions({model.name: model}, x).labels), False


def _stepwise(
    name: str,
    attack: GradientAttack,
    model: Classifier,
    x: Tensor,
    y: Tensor,
    seed: int,
    ids: list[str] | None,
) -> Iterator[Step | Tensor]:
    """Run an attack in a thread of its own, and hand over each step, then the (1, 3, H, W) image."""
    events: SimpleQueue[Step | Tensor | BaseException] = SimpleQueue()
    stop = threading.Event()

    def tell(step: Step) -> None:
        if stop.is_set():
            raise _StoppedError
        events.put(step)

    def run() -> None:
        try:
            seen = _Seen(model, int(y))
            watched = attack.with_(estimator=_watched(name, attack, seen, tell))
            events.put(watched(seen, x, y, seed=seed, ids=ids))
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            events.put(error)

    worker = threading.Thread(target=run, name=f"whorl-{name}", daemon=True)
    worker.start()
    try:
        while True:
            event = events.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, Tensor):
                return
    finally:
        stop.set()
        worker.join()


class _Seen(nn.Module):
    """A network that remembers what it last gave the label, and changes nothing."""

    def __init__(self, model: Classifier, label: int) -> None:
        super().__init__()
        self.model, self.label = model, label
        self.probability: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        self.probability = logits.detach().softmax(1)[0, self.label]
        return logits


def _watched(
    name: str, attack: GradientAttack, seen: _Seen, tell: Callable[[Step], None]
) -> Callable[[Tensor], Tensor]:
    """The attack's own estimator, which an attack calls once a step; each call is told of."""
    done = 0

    def estimate(gradient: Tensor) -> Tensor:
        nonlocal done
        estimated = at_step(attack.estimator, done, attack.steps)(gradient)
        done += 1
        if seen.probability is None:
            raise WhorlError(f"expected {name} to ask the network before each step; it did not.")
        tell(Step(attack=name, done=done, steps=attack.steps, probability=float(seen.probability)))
        return estimated

    return estimate
