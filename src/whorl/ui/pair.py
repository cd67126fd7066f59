"""Two attacks on one image, and what networks say of them in a pose or in a grid: the attacked one, and another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

import whorl
from whorl.attacks import Followed, GradientAttack, Taken
from whorl.errors import WhorlError, unknown_name
from whorl.evaluation import Pose, SuccessRate, poses, predictions, to_8_bits
from whorl.models import Classifier
from whorl.models.architectures import imagenet_labels
from whorl.report import series
from whorl.report.gallery import CLEAN
from whorl.runs.networks import device_of
from whorl.ui.image import ChosenImage

MAP_ANGLES = (-45.0, -30.0, -15.0, 0.0, 15.0, 30.0, 45.0)
MAP_SCALES = (1.5, 1.3, 1.0, 0.7, 0.5)


def pairs() -> dict[str, tuple[str, str]]:
    """What is crafted side by side: attacks and their affine-invariant versions, and then ours beside others.

    >>> list(pairs())
    ['fgsm', 'pgd', 'mim', 'dim', 'ram', 'ai-best', 'eot']
    >>> pairs()["ai-best"]
    ('dim', 'ai-best')
    """
    invariant = {pair[0]: pair for pair in series.pairs(whorl.attack_names("gradient"))}
    return invariant | {"ai-best": ("dim", "ai-best"), "eot": ("ai-best", "eot")}


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    """What to craft.

    >>> [attack.steps for attack in PairSettings(attack="fgsm", steps=20).attacks().values()]
    [1, 1]
    """

    attack: str = "pgd"
    """One of ``pairs()``."""
    eps: float = 16 / 255
    """Largest change of any channel of any pixel, in units of the [0, 1] range."""
    steps: int = 10
    """Gradient steps; an attack of a single step keeps its one."""
    seed: int = 0

    def attacks(self) -> dict[str, GradientAttack]:
        """The two attacks by name."""
        if self.attack not in pairs():
            raise unknown_name("attack", self.attack, pairs(), hint=f"Attacks on the page: {', '.join(pairs())}.")
        made = {}
        for name in pairs()[self.attack]:
            preset = whorl.attack(name, eps=self.eps)
            assert isinstance(preset, GradientAttack)  # noqa: S101 - all of that kind are
            made[name] = preset.with_(steps=1 if preset.steps == 1 else self.steps)
        return made

    @property
    def magnified(self) -> float:
        """How many times perturbations are, so that the bound fills the range."""
        # Half a level, for a bound of 0 leaves nothing to magnify.
        return 0.5 / max(self.eps, 0.5 / 255)

    def gradients(self) -> dict[str, int]:
        """What each of them costs: input gradients.

        >>> PairSettings(attack="eot", steps=10).gradients()
        {'ai-best': 10, 'eot': 500}
        """
        return {name: attack.cost.most for name, attack in self.attacks().items()}


@dataclass(frozen=True, kw_only=True)
class StepTaken:
    """One step that was taken."""

    attack: str
    done: int
    """Steps taken, from 1."""
    steps: int
    """All steps of this attack."""
    probability: float
    """What the network gave the label before this step, on the image as the attack showed it, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class CraftedPair:
    """An image with its two adversarial versions."""

    model: Classifier = field(repr=False)
    image: ChosenImage
    settings: PairSettings
    label: int
    """What counts as right."""
    known: bool
    """Whether that is the true label, and not what the network said of the clean image."""
    versions: dict[str, Tensor] = field(repr=False)
    """"clean" and the two attacks by name, each (1, 3, H, W), in 8 bits, on the network's device."""
    other: Classifier | None = field(default=None, repr=False)
    """A network that was not attacked, with the same classes."""

    @property
    def attacks(self) -> tuple[str, str]:
        """Names of the two."""
        _, first, second = self.versions
        return first, second

    @property
    def label_name(self) -> str:
        """The label in words."""
        return str(self.model.labels[self.label])


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the network said of one version."""

    label: int
    name: str
    """The label in words."""
    probability: float
    """In [0, 1]."""
    right: bool


Answers = dict[str, Answer]
"""By version."""


@dataclass(frozen=True, kw_only=True)
class PosedPair:
    """All versions in one pose."""

    pose: Pose
    images: dict[str, Tensor] = field(repr=False)
    """By version, (3, H, W) in [0, 1], as the network saw them."""
    answers: Answers
    """Of the network that was attacked."""
    other: Answers = field(default_factory=dict)
    """Of the one that was not; empty without one."""


@dataclass(frozen=True, kw_only=True)
class SuccessMap:
    """Answers by pose and version, as far as they are known; ``total`` is how many poses there will be.

    ``other`` are those of the network that was not attacked; empty without one.
    """

    answers: dict[Pose, Answers]
    total: int
    other: dict[Pose, Answers] = field(default_factory=dict)

    @classmethod
    def of(cls, posed: Iterable[PosedPair]) -> SuccessMap:
        """Gather poses that were seen one by one, such as those along a path; each counts once."""
        seen = {one.pose: one for one in posed}
        other = {pose: one.other for pose, one in seen.items() if one.other}
        return cls(answers={pose: one.answers for pose, one in seen.items()}, total=len(seen), other=other)

    @property
    def complete(self) -> bool:
        """Whether all poses are evaluated."""
        return len(self.answers) == self.total

    def counts(self, attack: str, pose: Pose, *, other: bool = False) -> SuccessRate:
        """Count the one image: a success, a failure, or not counted because the clean version is wrong."""
        said = (self.other if other else self.answers)[pose]
        clean, attacked = (torch.tensor([said[version].right]) for version in (CLEAN, attack))
        return SuccessRate.counted(clean, attacked)

    def pooled(self, attack: str, *, other: bool = False) -> SuccessRate:
        """All poses together."""
        return sum((self.counts(attack, pose, other=other) for pose in self.answers), SuccessRate())


def craft(
    model: Classifier,
    image: ChosenImage,
    settings: PairSettings,
    *,
    other: Classifier | None = None,
    on_step: Callable[[StepTaken], None] | None = None,
) -> CraftedPair:
    """Attack an image twice.

    The result is exactly that of ``whorl.attack(name, ..., fast=False)(model, x, y, seed=...)``: a listener changes
    nothing.

    Args:
        model: attacked, and evaluated later.
        image: shown at the network's own size.
        settings: what to craft.
        other: evaluated later too, and not attacked.
        on_step: called after each step of the first attack, then of the second; what it raises ends them.

    Raises:
        WhorlError: the image cannot be read, the attack refuses its settings, or the other network has other classes.
    """
    attacks = settings.attacks()
    if other is not None and other.labels != model.labels:
        raise WhorlError(f"expected a second network with the classes of {model.name}; those of {other.name} differ.")
    x = image.pixels(model.size).to(device_of(model))
    label, known = _label(model, image, x)
    y = torch.tensor([label], device=x.device)
    versions = {CLEAN: x}

    for name, attack in attacks.items():

        def tell(taken: Taken, name: str = name) -> None:
            if on_step is None:
                return
            probability = float(taken.logits.softmax(1)[0, label])
            on_step(StepTaken(attack=name, done=taken.index + 1, steps=taken.of, probability=probability))

        versions[name] = to_8_bits(Followed(attack, tell)(model, x, y, seed=settings.seed, ids=[image.id]))
    return CraftedPair(
        model=model, image=image, settings=settings, label=label, known=known, versions=versions, other=other
    )


def _label(model: Classifier, image: ChosenImage, x: Tensor) -> tuple[int, bool]:
    # A sample's label is a class of ImageNet, which means nothing to a network of other classes.
    if image.label is not None and model.labels == imagenet_labels():
        return image.label, True
    return int(predictions({model.name: model}, x).labels), False


def predict(pair: CraftedPair, pose: Pose) -> PosedPair:
    """Put all versions into a pose and evaluate the networks on them."""
    images = {name: pose.apply(x)[0].cpu() for name, x in pair.versions.items()}
    answers, other = _answers(pair, (pose,))
    return PosedPair(pose=pose, images=images, answers=answers[pose], other=other.get(pose, {}))


def success_map(pair: CraftedPair) -> Iterator[SuccessMap]:
    """Evaluate every pose of a small grid of angles and scales, a row of the map at a time.

    Returns:
        An iterator over the map as it fills; the last is complete.
    """
    found: dict[Pose, Answers] = {}
    unseen: dict[Pose, Answers] = {}
    for scale in MAP_SCALES:
        answers, other = _answers(pair, poses(angles=MAP_ANGLES, scales=(scale,)))
        found, unseen = found | answers, unseen | other
        yield SuccessMap(answers=found, total=len(MAP_ANGLES) * len(MAP_SCALES), other=unseen)


def _answers(pair: CraftedPair, where: tuple[Pose, ...]) -> tuple[dict[Pose, Answers], dict[Pose, Answers]]:
    """What the attacked network says by pose and version, and what the other does: nothing without one."""
    versions = torch.cat(tuple(pair.versions.values()))
    y = torch.full((len(versions),), pair.label)
    networks = {"attacked": pair.model} | ({} if pair.other is None else {"not attacked": pair.other})
    found = predictions(networks, versions, where, y=y, ids=list(pair.versions))
    said = [_by_pose(pair, where, *(part[i].tolist() for part in found)) for i in range(len(networks))]
    return said[0], said[1] if len(said) > 1 else {}


def _by_pose(
    pair: CraftedPair, where: tuple[Pose, ...], labels: list[list[int]], probabilities: list[list[float]]
) -> dict[Pose, Answers]:
    return {
        pose: {
            name: Answer(
                label=label,
                name=str(pair.model.labels[label]),
                probability=probability,
                right=label == pair.label,
            )
            for name, label, probability in zip(pair.versions, own, sure, strict=True)
        }
        for pose, own, sure in zip(where, labels, probabilities, strict=True)
    }


def whorls(pair: CraftedPair) -> dict[str, Tensor]:
    """The two perturbations, magnified until the bound fills the range: gray is no change.

    Returns:
        By attack, (3, H, W) in [0, 1].
    """
    clean = pair.versions[CLEAN][0]
    times = pair.settings.magnified
    return {name: ((pair.versions[name][0] - clean) * times + 0.5).clamp(0, 1).cpu() for name in pair.attacks}
