"""pyautoattack, AutoAttack by its authors: ``AutoAttack(model, norm=..., eps=...).run_standard_evaluation(x, y)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from whorl.attacks.norms import NormName
from whorl.interop.library import Job, Library, make, refuse_target
from whorl.interop.torchattacks_library import NORM_WORDS, named_norm

_WHOLE = "AutoAttack"
_PARTS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
# The standard version's; the constructor takes none of them, the attacks inside it have them as attributes.
_INSIDE = {"n_iter": 100, "n_restarts": 1, "n_target_classes": 9, "n_queries": 5000}


class PyAutoAttack(Library):
    """The whole AutoAttack, and each of the attacks that it is made of with the settings of its standard version."""

    key: ClassVar[str] = "pyautoattack"
    package: ClassVar[str] = "pyautoattack"
    module: ClassVar[str] = "pyautoattack"

    def attacks(self) -> Mapping[str, Any]:
        """One class serves all names."""
        return dict.fromkeys((_WHOLE, *_PARTS), self.load().AutoAttack)

    def settings(self, name: str) -> dict[str, Any]:
        """Bound, norm, and what the attacks inside have."""
        whole = {"version": "standard"} if name == _WHOLE else {}
        return {"eps": 0.3, "norm": "linf", **whole, **_INSIDE}

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:  # noqa: ARG002 - all names alike
        """By the setting ``norm``."""
        return named_norm(settings.get("norm", "linf"))

    def run(self, job: Job) -> Tensor:
        """Make it, tell it which attacks to run, and run them; an image that resists comes back as it was."""
        name = f"{self.key}:{job.name}"
        if job.targeted:
            raise refuse_target(name)
        norm = job.settings.get("norm", "linf")
        attack = make(
            name,
            self.attacks()[job.name],
            job.net,
            norm=NORM_WORDS.get(norm, norm),
            eps=job.eps,
            version=job.settings.get("version", "standard"),
            seed=job.seed,
            device=job.x.device,
        )
        if job.name != _WHOLE:
            attack.attacks_to_run = [job.name]
        for setting in set(_INSIDE) & set(job.settings):
            for part in (attack.apgd, attack.apgd_targeted, attack.fab, attack.square):
                if hasattr(part, setting):
                    setattr(part, setting, job.settings[setting])
        adv: Tensor = attack.run_standard_evaluation(job.x, job.labels, batch_size=len(job.x))[0]
        return adv.detach()
