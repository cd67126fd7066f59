"""TransferAttack, a repository and not a package: its attacks from a git clone, on a network of ours.

Nothing of the clone is imported before one of its attacks is requested, and each attack's module only then. It is
imported under a name of its own, so that ``sys.path`` and what else is called ``transferattack`` stay as they are.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whorl.attacks.norms import NormName
from whorl.errors import Fault, SettingsError, WhorlError, first_line, quoted
from whorl.interop.library import REQUIRED, Library, PeerCall, lacking

VARIABLE = "WHORL_TRANSFERATTACK"
"""Environment variable that holds the clone's folder where no path is given."""

# Names of the clone's modules begin with it; the hash of the clone's folder follows.
_PREFIX = "_whorl_transferattack_"
# What every module of the clone imports, and none of the attacks that run on a given network uses.
_UNUSED = ("pandas", "timm")
# Rooms of the zoo none of whose attacks runs on one given network.
_ROOMS = {
    "ensemble": "it is made for several source networks, or collects weights of its own",
    "generation": "it trains a generator, or loads the weights of one, and attacks no given network",
}
# Their own load_model takes the network from torchvision's list by name, changes it and wraps it: ours is listed there.
_LISTED = frozenset({"bpa", "metassa"})
# As their docstrings say it.
_ONE_IMAGE = re.compile(r"batch_?size\s*=?\s*1\b", re.IGNORECASE)
# What whorl hands over itself: where the attack is, what to reach, and what it is called in messages.
_OURS = frozenset({"attack", "device", "targeted"})
_NORMS: Mapping[str, NormName] = {"linfty": "linf", "linf": "linf", "l2": "l2"}
NORM_WORDS: Mapping[str, str] = {"linf": "linfty", "l2": "l2"}


@dataclass(frozen=True)
class TransferAttackClone(Library):
    """``attack = OPS(model_name=..., epsilon=...); delta = attack(images, labels)``: attacks for one given network.

    Attributes:
        path: the clone's folder; without it that of the environment variable ``WHORL_TRANSFERATTACK``.
    """

    key: ClassVar[str] = "transferattack"
    package: ClassVar[str] = "transferattack"
    synonyms: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "eps": ("epsilon",),
        "steps": ("epoch",),
        "alpha": ("lr",),
        "momentum": ("decay",),
    }
    path: str = ""

    def load(self) -> ModuleType:
        """Import the clone's package, which lists its attacks; their modules come later."""
        package: ModuleType = _imported(package_folder(self.path))
        return package

    def version(self) -> str:
        """Hash of the clone's source: it has versions that differ, and one number for all."""
        return source_sha256(package_folder(self.path))[:16]

    def attacks(self) -> Mapping[str, Any]:
        """The whole zoo, by the names that it has there; why one will not run is said when it is looked up."""
        return _Zoo(self.load())

    def settings(self, name: str) -> dict[str, Any]:
        """What the constructor takes, or passes on to that of the class above."""
        return {word: value for word, value in _known(self.attacks()[name]).items() if word not in _OURS}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the setting ``norm``, where there is one."""
        return _NORMS.get(str(settings.get("norm", self.settings(name).get("norm", "linfty"))))

    def alone(self, name: str) -> bool:
        """Whether the attack's documentation demands batches of one image."""
        return _ONE_IMAGE.search(self.attacks()[name].__doc__ or "") is not None

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Hand it a copy of the network under the network's name; what it returns is the perturbation."""
        made_by = self.attacks()[call.name]
        name = f"{self.key}:{call.name}"
        labels = self._labels(call, made_by)
        with _own_words(name, call.net), on_device(call.x.device):
            attack = self._made(call, made_by)

        def run() -> Tensor:
            with _own_words(name, call.net), on_device(call.x.device):
                perturbation: Tensor = attack(call.x.clone(), labels)
                return call.x + perturbation.detach().to(call.x)

        return run

    def targeted_only(self, name: str) -> bool:
        """Whether an attack reaches labels and nothing else: those are targeted unless told otherwise."""
        default = _known(self.attacks()[name]).get("targeted", False)
        return default is True or default is REQUIRED

    def _labels(self, call: PeerCall, made_by: Any) -> Tensor:
        """Labels as the attack takes them: for a targeted one the network's own answers above the targets."""
        always = self.targeted_only(call.name)
        if not call.targeted:
            if always:
                raise WhorlError(f"{self.key}:{call.name} has no untargeted form. Give target, the labels to reach.")
            return call.labels
        if not always and "targeted" not in made_by.forward.__code__.co_names:
            raise self.untargeted_only(call.name)
        with torch.no_grad():
            return torch.stack([call.net(call.x).argmax(1), call.labels])

    def _made(self, call: PeerCall, made_by: Any) -> Any:
        """The attack, on its copy of the network."""
        settings = dict(call.settings)
        if call.eps is not None:
            settings["epsilon"] = call.eps
        if "norm" in settings:
            settings["norm"] = NORM_WORDS.get(settings["norm"], settings["norm"])
        own = {"model_name": getattr(call.net, "name", ""), "targeted": call.targeted, "device": call.x.device}
        known = _known(made_by)
        settings = {word: value for word, value in own.items() if word in known} | settings
        # Normalisation, then the bare network: a network as the clone knows it.
        net: nn.Sequential = call.net.stages()  # type: ignore[operator]  # of PeerNetwork, which the call holds
        with _given(made_by, net, settings.get("model_name", "")):
            attack = _on(made_by, net, listed=call.name in _LISTED)(**settings)
        for word in ("epsilon", "alpha", "epoch", "decay"):
            if word in settings and getattr(attack, word, settings[word]) != settings[word]:
                fixed = getattr(attack, word)
                raise WhorlError(f"{self.key}:{call.name} sets {word} itself, to {fixed:g}. Leave it out.")
        return attack


class _Zoo(Mapping[str, Any]):
    """Classes by name; a class is imported when it is looked up."""

    def __init__(self, package: ModuleType) -> None:
        self.package = package
        self.listed: Mapping[str, tuple[str, str]] = package.attack_zoo

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)

    def __contains__(self, name: object) -> bool:  # Mapping's own would import it
        return name in self.listed

    def __getitem__(self, name: str) -> Any:
        module, attribute = self.listed[name]
        room = module.strip(".").partition(".")[0]
        if room in _ROOMS:
            raise unfit(name, _ROOMS[room])
        try:
            found = getattr(importlib.import_module(module, self.package.__name__), attribute)
        except ModuleNotFoundError as error:
            raise _without(f"{TransferAttackClone.key}:{name}", error) from error
        except Exception as error:  # the clone is anyone's code
            raise unfit(name, f"its module cannot be imported: {first_line(error)}") from error
        if found.load_model is not _base(self.package).load_model and name not in _LISTED:
            raise unfit(name, "it builds a network of its own")
        return found


def unfit(name: str, why: str) -> WhorlError:
    """Build the error for an attack that cannot run."""
    return WhorlError(f"transferattack:{name} cannot be run on a given network: {why}.")


def package_folder(path: str) -> Path:
    """Where the clone's Python package is, from the clone's folder or the package's own.

    Raises:
        WhorlError: no folder is given, or it holds no TransferAttack.
    """
    given = path or os.environ.get(VARIABLE, "")
    expected = "the folder of a git clone of TransferAttack"
    if not given:
        said = f"{expected}, or the environment variable {VARIABLE} must hold it"
        raise SettingsError([Fault(("path",), said, "none")])
    folder = Path(given).expanduser()
    for place in (folder / "transferattack", folder):
        if all((place / name).is_file() for name in ("__init__.py", "attack.py", "utils.py")):
            return place.resolve()
    there = "holds no transferattack/attack.py" if folder.is_dir() else "is no folder"
    raise SettingsError([Fault(("path",), expected, f"{quoted(given)}, which {there}")])


@cache
def source_sha256(folder: Path) -> str:
    """Hash of all Python files below a folder, with their names."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


@cache
def _imported(folder: Path) -> Any:
    """The package, under a name that nothing else has."""
    from whorl.models._torchvision import torchvision

    torchvision()  # which the clone imports, and which may need a hand
    name = f"{_PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None  # noqa: S101 - tells mypy what a file of Python's own kind gives
    assert spec.loader is not None  # noqa: S101 - likewise
    package: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    try:
        spec.loader.exec_module(package)
        with _stand_ins():
            importlib.import_module(f"{name}.attack")
        package.attack_zoo = {str(key): (str(room), str(found)) for key, (room, found) in package.attack_zoo.items()}
    except Exception as error:  # the clone is anyone's code
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[loaded]
        if isinstance(error, ModuleNotFoundError):
            raise _without("TransferAttack", error) from error
        raise WhorlError(f"{folder} cannot be imported as TransferAttack: {first_line(error)}.") from error
    return package


def _base(package: ModuleType) -> Any:
    return sys.modules[f"{package.__name__}.attack"].Attack


class _StandIn(ModuleType):
    """In place of a package that is not installed; using it fails, importing it does not."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {self.__name__!r}", name=self.__name__)


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let modules import what they never use, though it is not there."""
    absent = [name for name in _UNUSED if name not in sys.modules and importlib.util.find_spec(name) is None]
    sys.modules.update({name: _StandIn(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _known(made_by: Any) -> dict[str, Any]:
    """What a class can be made with, and the defaults: of all constructors down to the one that knows the bound.

    Those before it pass on what they do not know themselves.
    """
    known: dict[str, Any] = {}
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in made_by.__mro__:
        if "__init__" not in vars(one):
            continue
        found = inspect.signature(one).parameters.values()
        known = {each.name: each.default for each in found if each.kind in plain} | known
        if "epsilon" in known:
            break
    return known


def _on(made_by: Any, net: nn.Sequential, *, listed: bool) -> Any:
    """The same class, whose objects get a network where they would load one by its name."""
    return made_by if listed else type(made_by.__name__, (made_by,), {"load_model": lambda _self, _name: net})


@contextmanager
def _given(made_by: Any, net: nn.Sequential, name: str) -> Iterator[None]:
    """Let the clone's list of networks have ours under its name, and its normalisation be ours."""

    def wrapped(inner: nn.Module) -> nn.Module:
        net[1] = inner  # some take it out, change it and wrap it again
        return net

    given = {"models": SimpleNamespace(**{name: lambda **_: net[1]}), "wrap_model": wrapped}
    modules = [sys.modules[one.__module__] for one in made_by.__mro__ if one.__module__.startswith(_PREFIX)]
    kept = [(module, word, vars(module)[word]) for module in modules for word in given if word in vars(module)]
    try:
        for module, word, _ in kept:
            setattr(module, word, given[word])
        yield
    finally:
        for module, word, theirs in kept:
            setattr(module, word, theirs)


class _Stay(TorchFunctionMode):
    """Tensors that are sent to a GPU stay where they are: the clone sends them there without looking."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return args[0] if func is torch.Tensor.cuda else func(*args, **(kwargs or {}))


def on_device(device: torch.device) -> Any:
    """A scope in which ``.cuda()`` means a device, a CPU too."""
    return torch.cuda.device(device) if device.type == "cuda" else _Stay()


@contextmanager
def _own_words(name: str, net: nn.Module) -> Iterator[None]:
    """Whatever an attack fails with says which it was, on what; most were written for a few networks.

    What it prints is dropped: it says which weights are loaded, and none are.
    """
    try:
        with redirect_stdout(StringIO()), _nothing_fetched(name):
            yield
    except (WhorlError, torch.OutOfMemoryError):
        raise
    except ModuleNotFoundError as error:
        raise _without(name, error) from error
    except FileNotFoundError as error:
        raise WhorlError(f"{name} needs a file that is not there: {first_line(error)}.") from error
    except (Exception, SystemExit) as error:  # some end the process where they miss a layer
        raise WhorlError(f"{name} does not run on {getattr(net, 'name', net)}: {first_line(error)}.") from error


@contextmanager
def _nothing_fetched(name: str) -> Iterator[None]:
    """Some attacks have further networks, and would fetch their weights."""
    fetch = torch.hub.download_url_to_file

    def refuse(url: str, *_: Any, **__: Any) -> None:
        raise WhorlError(f"{name} needs weights of another network ({url}), which whorl does not fetch for it.")

    torch.hub.download_url_to_file = refuse
    try:
        yield
    finally:
        torch.hub.download_url_to_file = fetch


def _without(name: str, error: ModuleNotFoundError) -> WhorlError:
    """Build the error for a module that is missing: of another package, or of the clone itself."""
    package, _, rest = str(error.name).partition(".")
    if package.startswith(_PREFIX):
        return WhorlError(f"{name} needs a module that the clone does not have: {rest or error}.")
    return lacking(name, error)
