"""What one other library has to tell us: its attacks, their settings, their ball, and how to run one."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from whorl.attacks.norms import NormName
from whorl.errors import WhorlError, imported, missing_extra

REQUIRED = inspect.Parameter.empty

# What whorl hands over itself: the network, where it is, what to reach, and the randomness.
_OURS = {"self", "model", "estimator", "classifier", "normalize", "device", "targeted", "seed", "args", "kwargs"}


@dataclass(frozen=True, kw_only=True)
class PeerCall:
    """One call of a peer's attack.

    Attributes:
        name: the attack, as its library spells it.
        net: the network.
        x: (B, C, H, W) in [0, 1].
        labels: (B,) to leave, or to reach.
        classes: how many the network knows.
        eps: the bound; None if the attack has none.
        settings: in its library's words, without the bound.
        targeted: whether to reach the labels.
        seed: 32 bits, for attacks that want one.
    """

    name: str
    net: nn.Module
    x: Tensor
    labels: Tensor
    classes: int
    eps: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    targeted: bool = False
    seed: int = 0


class Library(ABC):
    """One library. Nothing of it is imported before :meth:`load`.

    Attributes:
        key: what names of its attacks start with, and what Python imports.
        package: what pip installs.
        synonyms: our word for a setting, and what it is called there; the first one that an attack takes is meant.
    """

    key: ClassVar[str]
    package: ClassVar[str]
    synonyms: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "eps": ("max_epsilon",),
        "steps": ("max_iter", "num_iter_set", "max_iterations", "n_iter"),
        "alpha": ("abs_stepsize", "eps_step"),
    }

    def load(self) -> ModuleType:
        """Import it.

        Raises:
            WhorlError: it is not installed.
        """
        from whorl.models._torchvision import torchvision

        torchvision()  # which some peers import, and which may need a hand
        library: ModuleType = imported(self.key, f"an attack of {self.key}", package=self.package, extra="interop")
        return library

    def version(self) -> str:
        """The installed version."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return str(getattr(self.load(), "__version__", "unknown"))

    @abstractmethod
    def attacks(self) -> Mapping[str, Any]:
        """Its attacks by name: whatever makes one."""

    def settings(self, name: str) -> dict[str, Any]:
        """What may be set, with defaults; :data:`REQUIRED` where there is none."""
        return parameters(self.attacks()[name])

    @abstractmethod
    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """The norm in which ``eps`` bounds the attack; None if it does not, or in a norm that we do not check."""

    @abstractmethod
    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make the attack. What is given back runs it, as often as it is called: (B, C, H, W), a tensor or an array."""

    def make(self, name: str, *args: Any, **settings: Any) -> Any:
        """Call an attack's constructor; a value that it refuses is the user's to put right."""
        try:
            return self.attacks()[name](*args, **settings)
        except ModuleNotFoundError as error:
            raise lacking(f"{self.key}:{name}", error) from error
        except (TypeError, ValueError, AssertionError, AttributeError) as error:
            given = ", ".join(f"{key}={value!r}" for key, value in settings.items()) or "no settings"
            raise WhorlError(f"{self.key}:{name} cannot be made with {given}: {error}") from error

    def alone(self, name: str) -> bool:  # noqa: ARG002 - of those that have some
        """Whether an attack takes one image at a time, whatever batch is there."""
        return False

    def bound_word(self, known: Iterable[str]) -> str | None:
        """What an attack calls its bound, of the settings that it takes; None if it has none."""
        words = ("eps", *self.synonyms["eps"])
        return next((word for word in words if word in known), None)

    def arguments(self, call: PeerCall, made_by: Callable[..., Any]) -> dict[str, Any]:
        """What to make an attack with: its settings, the bound under its own name, and the seed where it takes one."""
        given = dict(call.settings)
        word = self.bound_word(parameters(made_by))
        if call.eps is not None and word is not None:
            given[word] = call.eps
        if takes(made_by, "seed"):
            given["seed"] = call.seed
        return given

    def goal(self, call: PeerCall, made_by: Callable[..., Any]) -> dict[str, Any]:
        """What tells an attack that it is a targeted one, where its constructor has to know.

        Raises:
            WhorlError: it has no targeted form.
        """
        if call.targeted and not takes(made_by, "targeted"):
            raise self.untargeted_only(call.name)
        return {"targeted": True} if call.targeted else {}

    def untargeted_only(self, name: str) -> WhorlError:
        """Build the error for a target given to an attack that knows none."""
        return WhorlError(f"{self.key}:{name} has no targeted form. Give y, the true labels, instead of target.")

    def run(self, call: PeerCall) -> Tensor:
        """Make the attack and run it once: (B, C, H, W), where ``call.x`` is and of its dtype."""
        return torch.as_tensor(self.ready(call)()).detach().to(call.x)


def parameters(made_by: Callable[..., Any]) -> dict[str, Any]:
    """The settings that a constructor takes, with defaults.

    >>> parameters(lambda model, eps=0.1, steps=10: None)
    {'eps': 0.1, 'steps': 10}
    """
    listed = inspect.signature(made_by).parameters.values()
    plain = (p for p in listed if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: p.default for p in plain if p.name not in _OURS}


def takes(made_by: Callable[..., Any], word: str) -> bool:
    """Whether a constructor has a parameter of this name."""
    return word in inspect.signature(made_by).parameters


def find_ignoring_case(name: str, known: Mapping[str, object]) -> str | None:
    """The entry of ``known`` that is spelled like ``name`` but for upper and lower case.

    >>> find_ignoring_case("vmifgsm", {"VMIFGSM": 1})
    'VMIFGSM'
    """
    if name in known:
        return name
    return {entry.lower(): entry for entry in known}.get(name.lower())


def lacking(name: str, error: ModuleNotFoundError) -> WhorlError:
    """Build the error for an attack that needs a package which its library does not bring."""
    package = str(error.name).partition(".")[0]
    return missing_extra(name, package)
