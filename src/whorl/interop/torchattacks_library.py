"""torchattacks: ``atk = torchattacks.PGD(model, eps=...); adv = atk(images, labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from whorl.attacks.norms import NormName
from whorl.interop.library import Job, Library, arguments, make, refuse_target, takes

# As AutoAttack's authors write them, whose code several libraries hold.
NORM_WORDS: Mapping[NormName, str] = {"linf": "Linf", "l2": "L2"}
_L2 = {"PGDL2", "PGDRSL2"}


class Torchattacks(Library):
    """All attacks but the two that wrap other attacks."""

    key: ClassVar[str] = "torchattacks"
    package: ClassVar[str] = "torchattacks"
    module: ClassVar[str] = "torchattacks"

    def attacks(self) -> Mapping[str, Any]:
        """What the library lists."""
        library = self.load()
        return {name: getattr(library, name) for name in library.__all__ if name not in library.__wrapper__}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:
        """By the setting ``norm`` where there is one, else by the name."""
        if takes(self.attacks()[name], "norm"):
            return named_norm(settings.get("norm", "linf"))
        return "l2" if name in _L2 else "linf"

    def run(self, job: Job) -> Tensor:
        """Make it for the network, set its mode, call it."""
        made_by = self.attacks()[job.name]
        settings = arguments(job, made_by)
        if "norm" in settings:
            settings["norm"] = NORM_WORDS.get(settings["norm"], settings["norm"])
        if takes(made_by, "n_classes"):
            settings.setdefault("n_classes", job.classes)  # the library's own default is 10
        attack = make(f"{self.key}:{job.name}", made_by, job.net, **settings)
        if job.targeted:
            if "targeted" not in attack.supported_mode:
                raise refuse_target(f"{self.key}:{job.name}")
            attack.set_mode_targeted_by_label(quiet=True)
        adv: Tensor = attack(job.x, job.labels)
        return adv.detach()


def named_norm(word: object) -> NormName | None:
    """Our name of a norm, from ours or from theirs; None for one that is not ours.

    >>> named_norm("Linf"), named_norm("l2"), named_norm("L1")
    ('linf', 'l2', None)
    """
    return next((ours for ours, theirs in NORM_WORDS.items() if word in (ours, theirs)), None)
