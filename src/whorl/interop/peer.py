"""An attack of another library as an attack of ours: same call, same checks, stored and scored in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from whorl.attacks.contract import RANGE_TOLERANCE, Attack, Crafted, Model, answers
from whorl.attacks.norms import NormName, find_norm
from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError, unknown_name
from whorl.estimators import AffineInvariant, Estimator, RotationInvariant, TranslationInvariant, as_estimator, identity
from whorl.evaluation.prediction import slices
from whorl.interop.harness import Passes, PeerNetwork, own_randomness, seed_of
from whorl.interop.libraries import find_library
from whorl.interop.library import REQUIRED, Library, PeerCall, find_ignoring_case, lacking
from whorl.interop.transferattack import TransferAttackClone
from whorl.models.branches import frozen
from whorl.randomness import Ids, image_keys
from whorl.records import NO_IDENTITY, NotNegative, checked

# The bound of our own attacks, so that what is compared by default has the same.
EPS = 16 / 255
# Of the bound: what float32 and a peer's own projection may be off by.
_SLACK = 1e-3

_ESTIMATORS: Mapping[str, Callable[..., Estimator]] = {
    "none": lambda: identity,
    "ti": TranslationInvariant,
    "ai": AffineInvariant,
    "ri": partial(RotationInvariant, at_eps=16 / 255),  # as the presets have it
}

_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{0,9})?|\.[0-9]{1,9}")

Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Peer(Attack):
    """An attack of another library. Make one with :func:`peer`.

    Attributes:
        name: library and attack, as in ``"torchattacks:VMIFGSM"``.
        eps: radius of the ball, in units of the [0, 1] range; None if the attack has none.
        estimator: what makes an invariant gradient of every input gradient that the library computes.
        settings: pairs of name and value, as the library names them, sorted; others are the library's defaults.
        batched: whether a batch is attacked in one call. That is faster on a GPU, but most libraries then make an image
            depend on the batch that it is in: by one draw for all, or by generators that run on. An attack that can
            only take one image at a time gets one in any case.
        version: of the library, which the images depend on.
        path: folder of a library that is not installed; where it lies changes nothing.
    """

    name: str
    eps: float | None = None
    estimator: Estimator = identity
    settings: Settings = ()
    batched: bool = False
    version: str = ""
    path: str = field(default="", compare=False, metadata=NO_IDENTITY)

    @property
    def library(self) -> Library:
        """The library that it comes from."""
        return find_library(self.name.partition(":")[0], self.path)

    @property
    def attack_name(self) -> str:
        """What the library calls the attack."""
        return self.name.partition(":")[2]

    @property
    def norm(self) -> NormName | None:
        """The norm of the ball; None where there is no ball, or in a norm that is not checked."""
        known = self.library.norm(self.attack_name, dict(self.settings))
        return None if self.eps is None else known

    def with_(self, **settings: Any) -> Self:
        """Copy with some settings changed; those of the library count too."""
        kept: dict[str, Any] = {"estimator": self.estimator, "batched": self.batched, **dict(self.settings)}
        if self.eps is not None:
            kept["eps"] = self.eps
        if self.path:
            kept["path"] = self.path
        # Ours and the library's word for one setting must not meet.
        renamed = _in_their_words(self.library, self.attack_name, settings)
        made = peer(self.name, **{**kept, **renamed})
        assert isinstance(made, type(self))  # noqa: S101 - tells mypy what peer makes
        return made

    def craft(self, model: Model, x: Tensor, goal: Goal, *, seed: int, ids: Ids) -> Crafted:
        """Hand the network and each image, or the whole batch, to the library."""
        classes = answers(model, x, goal).shape[1]
        keys = image_keys(x, seed, ids).tolist()
        size = len(x) if self.batched and not self.library.alone(self.attack_name) else 1
        parts: list[Tensor] = []
        spent: list[int] | None = []
        estimated = False
        with frozen(model):  # some peers call ``backward``, which would pile gradients up
            for chosen in slices(len(x), size):
                adv, passes = self._one_call(
                    model, x[chosen], goal.labels[chosen], goal.targeted, classes, seed_of(keys[chosen])
                )
                parts.append(self._checked(adv, x[chosen]))
                each = passes.each(len(adv))
                spent = None if spent is None or each is None else spent + [each] * len(adv)
                estimated |= passes.reached_input
        images = torch.cat(parts)
        if self.estimator is not identity and not estimated and not torch.equal(images, x):
            raise WhorlError(
                f"{self.name} takes no input gradient, so the estimator {self.estimator!r} has nothing to act on. "
                "Leave it out."
            )
        return Crafted(images, grad_evals=None if spent is None else torch.tensor(spent, device=x.device))

    def _one_call(
        self, model: Model, x: Tensor, labels: Tensor, targeted: bool, classes: int, seed: int
    ) -> tuple[Tensor, Passes]:
        """Run the library's attack; give its images, and the backward passes that they took."""
        net = PeerNetwork(model, self.estimator, x)
        call = PeerCall(
            name=self.attack_name,
            settings=dict(self.settings),
            eps=self.eps,
            net=net,
            x=x.clone(),  # some peers work in place
            labels=labels.clone(),
            targeted=targeted,
            classes=classes,
            seed=seed,
        )
        with own_randomness(seed):
            try:
                adv = self.library.run(call)
            except WhorlError:
                raise
            except ModuleNotFoundError as error:
                raise lacking(self.name, error) from error
            except Exception as error:
                error.add_note(f"raised inside {self.name}")
                raise
        if adv.shape != x.shape:
            raise WhorlError(f"{self.name} must return images of shape {tuple(x.shape)}; got {tuple(adv.shape)}.")
        return adv.to(x.dtype), net.passes

    def _checked(self, adv: Tensor, x: Tensor) -> Tensor:
        """Images in [0, 1] and in the ball, to the last bit; what is further out than rounding is an error."""
        if not bool(adv.isfinite().all()):
            raise WhorlError(f"{self.name} must return finite images; got NaN or infinity.")
        low, high = (float(value) for value in adv.aminmax())
        if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
            raise WhorlError(f"{self.name} must return images in [0, 1]; got values in [{low:.4g}, {high:.4g}].")
        adv = adv.clamp(0, 1)
        if self.norm is None or self.eps is None:
            return adv
        norm = find_norm(self.norm)
        far = float(norm.size(adv - x).max())
        if far > self.eps * (1 + _SLACK) + RANGE_TOLERANCE:
            raise WhorlError(
                f"{self.name} must stay within eps = {self.eps:.4g} ({self.norm}); got a change of {far:.4g}. "
                "Its settings may let it leave the ball."
            )
        return norm.ball(x, x.new_tensor(self.eps))(adv)


def peer(
    name: str, /, *, estimator: str | Callable[[Tensor], Tensor] = identity, batched: bool = False, **settings: Any
) -> Peer:
    """Get an attack of another library by name.

    Args:
        name: library and attack, such as ``"torchattacks:VMIFGSM"``, in any case; :func:`peer_names` lists them.
        estimator: such as :class:`whorl.AffineInvariant`, or ``"ai"`` or ``"ti"`` for one with default settings.
        batched: whether to attack a batch in one call; see :class:`Peer`.
        settings: as the library calls them. ``eps``, ``steps``, ``alpha`` and ``norm`` ("linf" or "l2") are understood
            for every attack that has such a thing. An L∞ ball has the radius 16/255 unless ``eps`` says otherwise;
            whatever else is not given is the library's default. ``path`` is the folder of TransferAttack's clone.

    Returns:
        A frozen attack, called like any of ours. Randomness follows from the seed and each image's id.

    Raises:
        WhorlError: no such library, attack or setting, or the library is not installed.

    >>> peer("torchattacks:pgd", eps=8 / 255, steps=3, estimator="ai").settings
    (('steps', 3),)
    """
    key, colon, attack = name.partition(":")
    library = find_library(key if colon else name)
    path = str(settings.pop("path", "")) if isinstance(library, TransferAttackClone) else ""
    library = find_library(library.key, path)
    listed = library.attacks()
    found = find_ignoring_case(attack, listed)
    if found is None:
        hint = f"whorl.interop.peer_names({library.key!r}) lists all."
        raise unknown_name(f"attack of {library.key}", attack, map(str.lower, listed), hint=hint)  # any case will do
    given = _in_their_words(library, found, settings)
    eps = _bound(library, found, given)
    return Peer(
        name=f"{library.key}:{found}",
        eps=eps,
        estimator=find_estimator(estimator),
        settings=tuple(sorted((key, _plain(value)) for key, value in given.items())),
        batched=batched,
        version=library.version(),
        path=path,
    )


def find_estimator(value: str | Callable[[Tensor], Tensor]) -> Estimator:
    """Take an estimator, or one of the short names ``"none"``, ``"ti"``, ``"ai"`` and ``"ri"`` for that of a preset.

    After a colon may stand its ``sigma``, a number of pixels or the name of a width; or for ``"ri"`` degrees, or two of
    them, of the first step and of the last.

    >>> find_estimator("ai:printed"), find_estimator("ti:0.7"), find_estimator("ri:32-1.6")
    (AffineInvariant(sigma='printed'), TranslationInvariant(sigma=0.7), RotationInvariant(degrees=(32.0, 1.6)))
    """
    if not isinstance(value, str):
        return as_estimator(value)
    name, _, width = value.lower().partition(":")
    made = _ESTIMATORS.get(name)
    if made is None:
        raise unknown_name("estimator", value, _ESTIMATORS, hint=f"Expected one of {', '.join(_ESTIMATORS)}.")
    if not width:
        return made()
    if name == "none":
        raise WhorlError(f"no estimator has no sigma; got {value!r}. Expected none, or a name as in ai:reference.")
    if name == "ri":
        degrees = width.split("-")
        if len(degrees) > 2 or not all(_NUMBER.fullmatch(one) for one in degrees):
            raise WhorlError(f"rotations are degrees, or first and last, as in ri:5 or ri:32-1.6; got {value!r}.")
        return RotationInvariant(degrees=float(width) if len(degrees) == 1 else (float(degrees[0]), float(degrees[1])))
    return made(sigma=float(width) if _NUMBER.fullmatch(width) else width)


def _in_their_words(library: Library, attack: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Rename settings that the attack knows by another name; the bound is always ``eps``."""
    known = library.settings(attack)
    renamed = {}
    for name, value in settings.items():
        if name in ("estimator", "batched", "path"):  # ours, which with_ may hold
            renamed[name] = value
            continue
        if name == "eps" and library.bound_word(known) is not None:
            renamed[name] = value
            continue
        if name == "norm" and name not in known and value == library.norm(attack, _known(settings, known)):
            continue  # the only norm that it has
        words = (name, *library.synonyms.get(name, ()))
        word = next((word for word in words if word in known), None)
        if word is None:
            hint = f"{library.key}:{attack} has: {', '.join(known) or 'none'}."
            raise unknown_name("setting", name, known, hint=hint)
        renamed["eps" if word == library.bound_word(known) else word] = value
    return renamed


def _known(settings: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in known}


def _bound(library: Library, attack: str, given: dict[str, Any]) -> float | None:
    """Take the bound out of the settings, or find what it is by default."""
    known = library.settings(attack)
    word = library.bound_word(known)
    if word is None:
        return None
    eps = given.pop("eps", REQUIRED)
    norm = library.norm(attack, given)
    if eps is REQUIRED:
        default = known[word]
        eps = EPS if norm == "linf" and default is not None else default
    if eps is None:
        return None
    if eps is REQUIRED:
        raise WhorlError(f"{library.key}:{attack} needs eps, the radius of its {norm or ''} ball; got none.")
    return float(checked("eps", eps, NotNegative))


def _plain(value: Any) -> Any:
    """Lists, as declarations have them, would not be frozen."""
    return tuple(value) if isinstance(value, list) else value
