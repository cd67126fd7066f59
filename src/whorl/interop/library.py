"""What one other library has to tell us: its attacks, their settings, their ball, and how to run one."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, ClassVar

from torch import Tensor

from whorl.attacks.norms import NormName
from whorl.errors import WhorlError, missing_extra
from whorl.interop.naming import SYNONYMS
from whorl.interop.seen import Seen

REQUIRED = inspect.Parameter.empty

# What whorl hands over itself: the network, where it is, what to reach, and the randomness.
_OURS = {"self", "model", "estimator", "classifier", "normalize", "device", "targeted", "seed", "args", "kwargs"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of a peer's attack.

    Attributes:
        name: the attack, as its library spells it.
        settings: in its library's words, without the bound.
        eps: the bound; None if the attack has none.
        net: the network.
        x: (B, C, H, W) in [0, 1].
        labels: (B,) to leave, or to reach.
        targeted: which of the two.
        classes: how many the network knows.
        seed: 32 bits, for attacks that want one.
    """

    name: str
    settings: Mapping[str, Any]
    eps: float | None
    net: Seen
    x: Tensor
    labels: Tensor
    targeted: bool
    classes: int
    seed: int


class Library(ABC):
    """One library. Nothing of it is imported before :meth:`load`."""

    key: ClassVar[str]
    """What names of its attacks start with."""
    package: ClassVar[str]
    """What pip installs."""
    module: ClassVar[str]
    """What Python imports."""

    def load(self) -> ModuleType:
        """Import it.

        Raises:
            WhorlError: it is not installed.
        """
        from whorl.models._torchvision import torchvision

        try:
            torchvision()  # which some peers import, and which may need a hand
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            cause = "" if error.name == self.module.partition(".")[0] else str(error)
            raise missing_extra(f"an attack of {self.key}", self.package, extra="interop", cause=cause) from error

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
    def run(self, job: Job) -> Tensor:
        """Run the attack: (B, C, H, W)."""


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


def bound_word(known: Iterable[str]) -> str | None:
    """What an attack calls its bound, of the settings that it takes; None if it has none.

    >>> bound_word(["max_epsilon", "steps"])
    'max_epsilon'
    """
    words = ("eps", *SYNONYMS["eps"])
    return next((word for word in words if word in known), None)


def arguments(job: Job, made_by: Callable[..., Any]) -> dict[str, Any]:
    """What to make an attack with: its settings, the bound under its own name, and the seed where it takes one."""
    given = dict(job.settings)
    word = bound_word(parameters(made_by))
    if job.eps is not None and word is not None:
        given[word] = job.eps
    if takes(made_by, "seed"):
        given["seed"] = job.seed
    return given


def make(name: str, made_by: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Call a constructor; a value that it refuses is the user's to put right."""
    try:
        return made_by(*args, **settings)
    except ModuleNotFoundError as error:
        raise lacking(name, error) from error
    except (TypeError, ValueError, AssertionError, AttributeError) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        raise WhorlError(f"{name} cannot be made with {given or 'no settings'}: {error}") from error


def lacking(name: str, error: ModuleNotFoundError) -> WhorlError:
    """Build the error for an attack that needs a package which its library does not bring."""
    package = str(error.name).partition(".")[0]
    return missing_extra(name, package)


def refuse_target(name: str) -> WhorlError:
    """Build the error for a target given to an attack that knows none."""
    return WhorlError(f"{name} has no targeted form. Give y, the true labels, instead of target.")
