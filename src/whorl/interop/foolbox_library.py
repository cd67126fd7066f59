"""foolbox: ``raw, clipped, success = attack(fmodel, images, criterion, epsilons=...)``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from whorl.attacks.norms import NormName
from whorl.errors import WhorlError
from whorl.interop.library import REQUIRED, Job, Library, make, parameters, refuse_target

_NORMS: Mapping[float, NormName] = {math.inf: "linf", 2: "l2"}


class Foolbox(Library):
    """All attacks, by class name or by the library's short names, such as PGD."""

    key: ClassVar[str] = "foolbox"
    package: ClassVar[str] = "foolbox"
    module: ClassVar[str] = "foolbox"

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
        bounded = issubclass(made_by, self.load().attacks.base.FixedEpsilonAttack)
        # An attack that seeks the smallest change is cut off at eps where one is given.
        return {"eps": REQUIRED if bounded else None, **parameters(made_by)}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the attack's own distance."""
        known = {key: value for key, value in settings.items() if key != "eps"}
        attack = make(f"{self.key}:{name}", self.attacks()[name], **known)
        try:
            return _NORMS.get(getattr(attack.distance, "p", math.nan))
        except (ValueError, AttributeError):  # some have a distance only where they are told which
            return None

    def run(self, job: Job) -> Tensor:
        """Make it, wrap the network, and take the images that are clipped to the bound."""
        foolbox, name = self.load(), f"{self.key}:{job.name}"
        attack = make(name, self.attacks()[job.name], **job.settings)
        model = foolbox.PyTorchModel(job.net, bounds=(0, 1), device=job.x.device)
        criteria = foolbox.criteria
        wanted = criteria.TargetedMisclassification if job.targeted else criteria.Misclassification
        try:
            _, clipped, _ = attack(model, job.x, wanted(job.labels), epsilons=job.eps)
        except ValueError as error:
            if "unsupported criterion" not in str(error):
                raise
            if job.targeted:
                raise refuse_target(name) from error
            raise WhorlError(f"{name} has no untargeted form. Give target, the labels to reach.") from error
        adv: Tensor = clipped
        return adv.detach()
