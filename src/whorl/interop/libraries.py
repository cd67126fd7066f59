"""The other libraries: what each calls its attacks and their settings, in which ball they stay, and how one is run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from whorl.attacks.norms import NormName
from whorl.errors import WhorlError, unknown_name
from whorl.interop.library import (
    REQUIRED,
    Library,
    PeerCall,
    find_ignoring_case,
    parameters,
    takes,
)
from whorl.interop.transferattack import TransferAttackClone

# As AutoAttack's authors write them, whose code several libraries hold.
NORM_WORDS: Mapping[NormName, str] = {"linf": "Linf", "l2": "L2"}


class Torchattacks(Library):
    """``atk = torchattacks.PGD(model, eps=...); adv = atk(images, labels)``: all attacks but two that wrap others."""

    key: ClassVar[str] = "torchattacks"
    package: ClassVar[str] = "torchattacks"

    def attacks(self) -> Mapping[str, Any]:
        """What the library lists."""
        library = self.load()
        return {name: getattr(library, name) for name in library.__all__ if name not in library.__wrapper__}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the setting ``norm`` where there is one, else by the name."""
        if takes(self.attacks()[name], "norm"):
            return named_norm(settings.get("norm", "linf"))
        return "l2" if name in ("PGDL2", "PGDRSL2") else "linf"

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make it for the network and set its mode."""
        made_by = self.attacks()[call.name]
        settings = self.arguments(call, made_by)
        if "norm" in settings:
            settings["norm"] = NORM_WORDS.get(settings["norm"], settings["norm"])
        if takes(made_by, "n_classes"):
            settings.setdefault("n_classes", call.classes)  # the library's own default is 10
        attack = self.make(call.name, call.net, **settings)
        if call.targeted:
            if "targeted" not in attack.supported_mode:
                raise self.untargeted_only(call.name)
            attack.set_mode_targeted_by_label(quiet=True)
        return lambda: attack(call.x, call.labels)


class Torchattack(Library):
    """``atk = torchattack.MIFGSM(model, normalize, device, eps=...); adv = atk(x, y)``: all attacks.

    Those that look into the network by the names of its layers need a setting that says which.
    """

    key: ClassVar[str] = "torchattack"
    package: ClassVar[str] = "torchattack"
    _layer: ClassVar[str] = "feature_layer_cfg"

    def attacks(self) -> Mapping[str, Any]:
        """What the library registers."""
        registered: Mapping[str, Any] = self.load().ATTACK_REGISTRY
        return registered

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:  # noqa: ARG002 - it has no such setting
        """By the name."""
        return "l2" if name == "PGDL2" else "linf"

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make it for the network, where it takes one."""
        made_by = self.attacks()[call.name]
        settings = self.arguments(call, made_by)
        # The network takes images in [0, 1] and normalises them itself.
        ours = {"model": call.net, "normalize": None, "device": call.x.device}
        settings |= {word: value for word, value in ours.items() if takes(made_by, word)}
        for word in (self._layer, "hook_cfg"):
            if takes(made_by, word) and not settings.get(word):
                raise WhorlError(
                    f"{self.key}:{call.name} looks into the network, and needs {word} to know where; got none."
                )
        if self._layer in settings:
            settings[self._layer] = full_name(call.net, settings[self._layer])
        settings |= self.goal(call, made_by)
        attack = self.make(call.name, **settings)
        return lambda: attack(call.x, call.labels)


class Foolbox(Library):
    """``raw, clipped, success = attack(fmodel, images, criterion, epsilons=...)``: all attacks.

    By class name, or by the library's short names, such as PGD.
    """

    key: ClassVar[str] = "foolbox"
    package: ClassVar[str] = "foolbox"
    _norms: ClassVar[Mapping[float, NormName]] = {math.inf: "linf", 2: "l2"}

    def attacks(self) -> Mapping[str, Any]:
        """Every class that can be made."""
        attacks = self.load().attacks
        found = {name: value for name, value in vars(attacks).items() if inspect.isclass(value)}
        return {
            name: made_by
            for name, made_by in found.items()
            if issubclass(made_by, attacks.Attack) and not inspect.isabstract(made_by)
        }

    def settings(self, name: str) -> dict[str, Any]:
        """What the constructor takes, and the bound, which foolbox wants with the call."""
        made_by = self.attacks()[name]
        # An attack that seeks the smallest change is cut off at eps where one is given.
        return {"eps": REQUIRED if issubclass(made_by, self._bounded()) else None, **parameters(made_by)}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the attack's own distance."""
        known = {key: value for key, value in settings.items() if key != "eps"}
        attack = self.make(name, **known)
        try:
            return self._norms.get(getattr(attack.distance, "p", math.nan))
        except (ValueError, AttributeError):  # some have a distance only where they are told which
            return None

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make it and wrap the network; take the images that are clipped to the bound."""
        foolbox, attack = self.load(), self.make(call.name, **call.settings)
        model = foolbox.PyTorchModel(call.net, bounds=(0, 1), device=call.x.device)
        criteria = foolbox.criteria
        wanted = criteria.TargetedMisclassification if call.targeted else criteria.Misclassification
        criterion = wanted(call.labels)
        bounded = isinstance(attack, self._bounded())

        def run() -> Any:
            try:
                if not bounded:
                    return attack(model, call.x, criterion, epsilons=call.eps)[1]
                # The attack's own call would also evaluate the network, whether it was fooled: a pass more.
                adv = attack.run(model, call.x, criterion, epsilon=call.eps)
                return attack.distance.clip_perturbation(call.x, adv, call.eps)
            except ValueError as error:
                if "unsupported criterion" not in str(error):
                    raise
                if call.targeted:
                    raise self.untargeted_only(call.name) from error
                name = f"{self.key}:{call.name}"
                raise WhorlError(f"{name} has no untargeted form. Give target, the labels to reach.") from error

        return run

    def _bounded(self) -> Any:
        return self.load().attacks.base.FixedEpsilonAttack


class Toolbox(Library):
    """``attack = Attack(PyTorchClassifier(...), eps=...); adv = attack.generate(x, y)``: all evasion attacks.

    By class name, or as FGSM, BIM, PGD and MIM.
    """

    key: ClassVar[str] = "art"
    package: ClassVar[str] = "adversarial-robustness-toolbox"
    _short: ClassVar[Mapping[str, str]] = {
        "FGSM": "FastGradientMethod",
        "BIM": "BasicIterativeMethod",
        "PGD": "ProjectedGradientDescent",
        "MIM": "MomentumIterativeMethod",
    }
    _norms: ClassVar[Mapping[str, NormName]] = {"inf": "linf", "linf": "linf", "2": "l2", "2.0": "l2", "l2": "l2"}
    _numbers: ClassVar[Mapping[NormName, float]] = {"linf": math.inf, "l2": 2}

    def attacks(self) -> Mapping[str, Any]:
        """Every class in its room for evasion attacks."""
        room = self.load().attacks
        listed = {name: value for name, value in vars(room.evasion).items() if inspect.isclass(value)}
        found = {name: value for name, value in listed.items() if issubclass(value, room.EvasionAttack)}
        return {**found, **{short: found[name] for short, name in self._short.items()}}

    def settings(self, name: str) -> dict[str, Any]:
        """As its constructor has them; quiet by default."""
        known = super().settings(name)
        return {key: False if key == "verbose" else value for key, value in known.items()}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the setting ``norm``, where there is one."""
        known = self.settings(name)
        if "norm" in known:
            return self._norms.get(str(settings.get("norm", known["norm"])))
        # They take no norm, and are bounded in this one.
        return "linf" if name in ("BasicIterativeMethod", "BIM") else None

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make a classifier and the attack, and take the arrays there and back."""
        made_by = self.attacks()[call.name]
        settings = self._settings(call, made_by)
        settings |= self.goal(call, made_by)
        with torch.cuda.device_of(call.x):  # the toolbox takes the current GPU, whichever the network is on
            attack = self.make(call.name, self.classifier(call.net, call.x, call.classes), **settings)
        x, y = call.x.float().cpu().numpy(), call.labels.cpu().numpy()

        def run() -> Any:
            with torch.cuda.device_of(call.x):
                return attack.generate(x=x, y=y)

        return run

    def classifier(self, net: nn.Module, x: Tensor, classes: int, *preprocessing: Any) -> Any:
        """The toolbox's own around a network of images in [0, 1], such as ``x``, with its preprocessing before it."""
        wrap = self.load().estimators.classification.PyTorchClassifier
        return wrap(
            model=net,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=classes,
            clip_values=(0.0, 1.0),
            preprocessing_defences=list(preprocessing) or None,
            device_type="gpu" if x.is_cuda else "cpu",
        )

    def _settings(self, call: PeerCall, made_by: Any) -> dict[str, Any]:
        known, settings = parameters(made_by), self.arguments(call, made_by)
        if "verbose" in known:
            settings.setdefault("verbose", False)
        norm = self._norms.get(str(settings.get("norm")))
        if norm is not None:
            settings["norm"] = self._numbers[norm]
        if "eps_step" in known and "eps_step" not in settings and call.eps is not None:
            # Its default, 0.1, is wider than the whole ball of most users. The ratio to its own eps is kept.
            settings["eps_step"] = call.eps * known["eps_step"] / known["eps"]
        return settings


class PyAutoAttack(Library):
    """``AutoAttack(model, norm=..., eps=...).run_standard_evaluation(x, y)``, by AutoAttack's authors.

    The whole, and each of the attacks that it is made of with the settings of its standard version.
    """

    key: ClassVar[str] = "pyautoattack"
    package: ClassVar[str] = "pyautoattack"
    _whole: ClassVar[str] = "AutoAttack"
    # The standard version's; the constructor takes none of them, the attacks inside it have them as attributes.
    _inside: ClassVar[Mapping[str, int]] = {"n_iter": 100, "n_restarts": 1, "n_target_classes": 9, "n_queries": 5000}

    def attacks(self) -> Mapping[str, Any]:
        """One class serves all names."""
        parts = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
        return dict.fromkeys((self._whole, *parts), self.load().AutoAttack)

    def settings(self, name: str) -> dict[str, Any]:
        """Bound, norm, and what the attacks inside have."""
        whole = {"version": "standard"} if name == self._whole else {}
        return {"eps": 0.3, "norm": "linf", **whole, **self._inside}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:  # noqa: ARG002 - all names alike
        """By the setting ``norm``."""
        return named_norm(settings.get("norm", "linf"))

    def ready(self, call: PeerCall) -> Callable[[], Any]:
        """Make it and tell it which attacks to run; an image that resists comes back as it was."""
        if call.targeted:
            raise self.untargeted_only(call.name)
        norm = call.settings.get("norm", "linf")
        attack = self.make(
            call.name,
            call.net,
            norm=NORM_WORDS.get(norm, norm),
            eps=call.eps,
            version=call.settings.get("version", "standard"),
            seed=call.seed,
            device=call.x.device,
        )
        if call.name != self._whole:
            attack.attacks_to_run = [call.name]
        for setting in set(self._inside) & set(call.settings):
            for part in (attack.apgd, attack.apgd_targeted, attack.fab, attack.square):
                if hasattr(part, setting):
                    setattr(part, setting, call.settings[setting])
        return lambda: attack.run_standard_evaluation(call.x, call.labels, batch_size=len(call.x))[0]


TOOLBOX = Toolbox()
LIBRARIES: Mapping[str, Library] = {
    library.key: library
    for library in (Torchattacks(), Torchattack(), Foolbox(), TOOLBOX, PyAutoAttack(), TransferAttackClone())
}


def library_names() -> list[str]:
    """The libraries whose attacks can be called: what ``peer``'s names start with, before the colon.

    >>> library_names()
    ['torchattacks', 'torchattack', 'foolbox', 'art', 'pyautoattack', 'transferattack']
    """
    return list(LIBRARIES)


def peer_names(library: str, *, path: str = "") -> list[str]:
    """List the attacks of a library, as :func:`whorl.interop.peer` takes them.

    Args:
        library: one of :func:`library_names`. It must be installed.
        path: of TransferAttack, the folder of its clone.

    >>> [name for name in peer_names("torchattacks") if "MIFGSM" in name]
    ['torchattacks:MIFGSM', 'torchattacks:VMIFGSM']
    """
    found = find_library(library, path)
    return [f"{found.key}:{name}" for name in found.attacks()]


def find_library(key: str, path: str = "") -> Library:
    """Look a library up by name, in any case; ``path`` is for one that is a folder and not installed."""
    found = find_ignoring_case(key, LIBRARIES)
    if found is None:
        hint = f"A peer's attack is LIBRARY:NAME, such as torchattacks:VMIFGSM; libraries: {', '.join(LIBRARIES)}."
        raise unknown_name("library", key, LIBRARIES, hint=hint)
    return TransferAttackClone(path) if found == TransferAttackClone.key else LIBRARIES[found]


def named_norm(word: object) -> NormName | None:
    """Our name of a norm, from ours or from theirs; None for one that is not ours.

    >>> named_norm("Linf"), named_norm("l2"), named_norm("L1")
    ('linf', 'l2', None)
    """
    return next((ours for ours, theirs in NORM_WORDS.items() if word in (ours, theirs)), None)


def full_name(net: nn.Module, layer: str) -> str:
    """The name of a layer from outside everything that is wrapped around its network.

    >>> full_name(nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity(), nn.ReLU())), "1.1")
    '1.1'
    """
    names: list[str] = [name for name, _ in net.named_modules()]
    found = [name for name in names if name == layer or name.endswith(f".{layer}")]
    if not found:
        raise unknown_name("layer", layer, filter(None, names), hint="Expected a name of net.named_modules().")
    return min(found, key=len)
