"""The recipes by name: which adversarial images the student meets, and what it learns from them.

A recipe is a line: a composition of parts, not a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.attacks.gradient import GradientAttack
from whorl.attacks.presets import GRADIENT
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant, Estimator, identity
from whorl.records import Count, NotNegative, Positive, Record, Registry, Share
from whorl.transforms import DiverseInput, InputTransform, RandomAffine, plain

Makers = Literal["pool", "student", "both"]
Objective = Literal["mixed", "pairing", "trades"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Examples(Record):
    """One kind of adversarial image that a recipe shows to the student.

    Attributes:
        makers: whose gradient makes them: networks of the static ``"pool"``, the ``"student"`` itself, or ``"both"``
            in turn.
        weight: how often, relative to the recipe's other kinds; a whole number.
        eps: lowest and highest radius of the ball, drawn uniformly for each image, in units of the [0, 1] range.
        steps: gradient steps.
        reach: how far the steps lead if all point the same way, as a multiple of the radius.
        random_start: whether to start anywhere in the ball instead of at the image.
        momentum: decay of the accumulated gradient; 0 is none.
        input: random transform of what the maker sees.
        estimator: gradient to invariant gradient.
        loss: ``"ce"`` leaves the true label, ``"kl"`` leaves the student's own answer (TRADES).
    """

    makers: Makers = "both"
    weight: Count = 1
    eps: tuple[float, float] = (0.0, 16 / 255)
    steps: Count = 1
    reach: Positive = 1.0
    random_start: bool = False
    momentum: NotNegative = 0.0
    input: InputTransform = plain
    estimator: Estimator = identity
    loss: Literal["ce", "kl"] = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_radius(self.eps)


@dataclass(frozen=True, kw_only=True, repr=False)
class CraftedExamples(Record):
    """Adversarial images by a whole attack on networks of the static pool, crafted ahead and shown several times.

    An attack of ten gradients on each image of each step would take several times as long as learning from it. So a
    version of all training images, each a random crop, is crafted at once and kept, with eight bits a value.

    Attributes:
        attack: what crafts them; its ``eps`` is drawn anew for each image.
        weight: how often, relative to the recipe's other kinds; a whole number.
        eps: lowest and highest radius of the ball, drawn uniformly for each image, in units of the [0, 1] range.
        versions: how many versions are kept; each image of a batch is shown in one of them, drawn at random.
        lasts: epochs until a new version is crafted, in place of the oldest. Of several such kinds in a recipe, the
            largest numbers count.
    """

    attack: GradientAttack = GRADIENT["ai-best"]
    weight: Count = 1
    eps: tuple[float, float] = (4 / 255, 12 / 255)
    versions: Count = 6
    lasts: Count = 5
    makers: ClassVar[Makers] = "pool"
    _always_shown: ClassVar[tuple[str, ...]] = (
        "attack",
        "eps",
        "versions",
        "lasts",
    )  # in manifests, which outlive the defaults

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_radius(self.eps)
        if self.attack.norm != "linf":
            raise WhorlError(f"an attack that crafts examples must have norm='linf'; got {self.attack.norm!r}.")


def _check_radius(eps: tuple[float, float]) -> None:
    low, high = eps
    if not 0 <= low <= high <= 1:
        raise WhorlError(f"eps must be (lowest, highest) within [0, 1]; got {eps}.")


Kind = Examples | CraftedExamples


@dataclass(frozen=True, kw_only=True, repr=False)
class Recipe(Record):
    """What a student learns from.

    Attributes:
        name: what to call it; a hardened model is called ``MODEL.NAME``.
        examples: the kinds of adversarial images. Each image of a batch meets one of them, in turn.
        objective: ``"mixed"`` (cross entropy on clean and adversarial images), ``"pairing"`` (the same, and the two
            must get the same logits: ALP), ``"trades"`` (cross entropy on clean images, and the two must get the same
            answer).
        clean: share of the clean images in the cross entropy; the rest is the adversarial ones'. Not for TRADES.
        strength: weight of the pairing, or of TRADES' second term.
        pose: random transform of each adversarial image, after it is made and before the student sees it.
        posed: share of the adversarial images that are transformed.
        ramp: share of the training over which ``eps`` grows from nothing to its full size.
    """

    name: str
    examples: tuple[Kind, ...]
    objective: Objective = "mixed"
    clean: Share = 0.5
    strength: NotNegative = 0.0
    pose: InputTransform = plain
    posed: Share = 1.0
    ramp: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.examples:
            raise WhorlError(f"recipe {self.name!r} must have at least one kind of examples; got none.")

    @property
    def needs_pool(self) -> bool:
        """Whether static networks make some of the examples."""
        return any(kind.makers != "student" for kind in self.examples)


_steps_on_student = Examples(makers="student", eps=(8 / 255, 8 / 255), steps=3, reach=2.0, random_start=True)
_few_steps = Examples(makers="pool", eps=(4 / 255, 16 / 255), steps=3, reach=2.5, momentum=1.0)
DIVERSE = _few_steps.with_(input=DiverseInput())
"""What takes several steps on a network fools one that knows single steps alone, most of all with diverse inputs."""
# The wider kernel of the paper's authors: such examples fool hardened networks more often.
_affine_invariant = _few_steps.with_(estimator=AffineInvariant(sigma="reference"))

RECIPES: Registry[Recipe] = Registry("recipe")
for _recipe in (
    # Single-step examples from a pool of static networks and the student.
    Recipe(name="ens-at", examples=(Examples(),)),
    # Few-step examples on the student; clean and adversarial logits are paired.
    Recipe(
        name="alp",
        # Half come from the pool, so that what transfers is not forgotten for what the student's own gradient finds.
        # The student's radius is small: at 8/255 a small network that sees few images unlearns the clean ones.
        examples=(
            _steps_on_student.with_(eps=(2 / 255, 4 / 255), steps=2, weight=2),
            Examples(makers="pool"),
            DIVERSE,
        ),
        objective="pairing",
        strength=0.25,
        ramp=0.3,
    ),
    # Few-step examples on the student, and nothing else.
    Recipe(name="pgd-at", examples=(_steps_on_student,), clean=0.0, ramp=0.3),
    # Clean accuracy plus agreement on few-step examples.
    Recipe(
        name="trades",
        examples=(_steps_on_student.with_(loss="kl"),),
        objective="trades",
        strength=6.0,
        ramp=0.3,
    ),
    # Affine-invariant examples from the pool, seen rotated, scaled and translated.
    Recipe(
        name="ai-at",
        examples=(
            _affine_invariant.with_(input=DiverseInput()),
            _affine_invariant.with_(input=RandomAffine()),
            Examples(),
            DIVERSE,
        ),
        pose=RandomAffine(),
        posed=0.5,
    ),
    # Our strongest attack on the pool, crafted ahead, and steps with diverse inputs; mostly seen in other poses.
    Recipe(
        name="best-at",
        examples=(CraftedExamples(weight=3), DIVERSE),
        pose=RandomAffine(),
        posed=0.75,
    ),
):
    RECIPES.add(_recipe)


def recipe(name: str, /, **settings: Any) -> Recipe:
    """Get a recipe by name, with some settings changed.

    Args:
        name: one of :func:`recipe_names`, in any case.
        settings: fields of :class:`Recipe`.

    >>> recipe("PGD-AT", ramp=0.5).ramp
    0.5
    """
    plain = name.lower().replace("_", "-")
    return RECIPES.find(plain if plain in RECIPES else name).with_(**settings)


def recipe_names() -> tuple[str, ...]:
    """List the recipes' names.

    >>> recipe_names()
    ('ens-at', 'alp', 'pgd-at', 'trades', 'ai-at', 'best-at')
    """
    return tuple(RECIPES)


def soft_targets(answers: Tensor | None, labels: Tensor, *, trust: float) -> Tensor:
    """Mix a teacher's answers with the labels.

    Args:
        answers: (B, classes) probabilities of the teacher on the clean images; None if there is no teacher.
        labels: (B, classes) the labels as probabilities.
        trust: weight of the teacher, in [0, 1]; the labels get the rest.

    Returns:
        (B, classes) probabilities.

    >>> soft_targets(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 1.0]]), trust=0.8)
    tensor([[0.4000, 0.6000]])
    """
    return labels if answers is None else torch.lerp(labels.to(answers.dtype), answers, trust)


def objective(recipe: Recipe, clean: Tensor, adversarial: Tensor, targets: Tensor) -> Tensor:
    """The number to lower, averaged over a batch.

    Args:
        recipe: which objective, and its weights.
        clean: (B, classes) logits of the clean images.
        adversarial: (B, classes) logits of their adversarial versions.
        targets: (B, classes) probabilities that both should get.
    """
    targets = targets.to(clean.dtype)
    if recipe.objective == "trades":
        own = F.log_softmax(clean, dim=1)
        apart = F.kl_div(F.log_softmax(adversarial, dim=1), own, log_target=True, reduction="batchmean")
        return F.cross_entropy(clean, targets) + recipe.strength * apart
    loss = recipe.clean * F.cross_entropy(clean, targets) + (1 - recipe.clean) * F.cross_entropy(adversarial, targets)
    if recipe.objective == "pairing":
        # Kannan et al. (2018): the mean squared difference of the logits; both sides move.
        loss = loss + recipe.strength * (clean - adversarial).square().mean()
    return loss
