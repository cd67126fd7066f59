"""Adversarial Robustness Toolbox: ``attack = Attack(PyTorchClassifier(...), eps=...); adv = attack.generate(x, y)``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

from whorl.attacks.norms import NormName
from whorl.interop.library import Job, Library, arguments, make, parameters, refuse_target, takes

_SHORT = {
    "FGSM": "FastGradientMethod",
    "BIM": "BasicIterativeMethod",
    "PGD": "ProjectedGradientDescent",
    "MIM": "MomentumIterativeMethod",
}
_NORMS: Mapping[str, NormName] = {"inf": "linf", "linf": "linf", "2": "l2", "2.0": "l2", "l2": "l2"}
_NUMBERS: Mapping[NormName, float] = {"linf": math.inf, "l2": 2}
# They take no norm, and are bounded in this one.
_LINF = {"BasicIterativeMethod", "BIM"}


class Toolbox(Library):
    """All evasion attacks, by class name or as FGSM, BIM, PGD and MIM."""

    key: ClassVar[str] = "art"
    package: ClassVar[str] = "adversarial-robustness-toolbox"
    module: ClassVar[str] = "art"

    def attacks(self) -> Mapping[str, Any]:
        """Every class in its room for evasion attacks."""
        room = self.load().attacks
        listed = {name: value for name, value in vars(room.evasion).items() if inspect.isclass(value)}
        found = {name: value for name, value in listed.items() if issubclass(value, room.EvasionAttack)}
        return {**found, **{short: found[name] for short, name in _SHORT.items()}}

    def settings(self, name: str) -> dict[str, Any]:
        """As its constructor has them; quiet by default."""
        known = super().settings(name)
        return {key: False if key == "verbose" else value for key, value in known.items()}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the setting ``norm``, where there is one."""
        known = self.settings(name)
        if "norm" in known:
            return _NORMS.get(str(settings.get("norm", known["norm"])))
        return "linf" if name in _LINF else None

    def run(self, job: Job) -> Tensor:
        """Make a classifier and the attack, and take the arrays there and back."""
        wrap = self.load().estimators.classification.PyTorchClassifier
        name, made_by = f"{self.key}:{job.name}", self.attacks()[job.name]
        settings = self._settings(job, made_by)
        if job.targeted:
            if not takes(made_by, "targeted"):
                raise refuse_target(name)
            settings["targeted"] = True
        on_gpu = job.x.is_cuda
        # The toolbox takes the current GPU, whichever the network is on.
        with torch.cuda.device(job.x.device) if on_gpu else nullcontext():
            classifier = wrap(
                model=job.net,
                loss=torch.nn.CrossEntropyLoss(),
                input_shape=tuple(job.x.shape[1:]),
                nb_classes=job.classes,
                clip_values=(0.0, 1.0),
                device_type="gpu" if on_gpu else "cpu",
            )
            attack = make(name, made_by, classifier, **settings)
            made = attack.generate(x=job.x.float().cpu().numpy(), y=job.labels.cpu().numpy())
        return torch.from_numpy(made).to(job.x)

    def _settings(self, job: Job, made_by: Any) -> dict[str, Any]:
        known, settings = parameters(made_by), arguments(job, made_by)
        if "verbose" in known:
            settings.setdefault("verbose", False)
        norm = _NORMS.get(str(settings.get("norm")))
        if norm is not None:
            settings["norm"] = _NUMBERS[norm]
        if "eps_step" in known and "eps_step" not in settings and job.eps is not None:
            # Its default, 0.1, is wider than the whole ball of most users. The ratio to its own eps is kept.
            settings["eps_step"] = job.eps * known["eps_step"] / known["eps"]
        return settings
