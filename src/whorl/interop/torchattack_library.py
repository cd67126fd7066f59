"""torchattack: ``atk = torchattack.MIFGSM(model, normalize, device, eps=...); adv = atk(x, y)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from whorl.attacks.norms import NormName
from whorl.errors import WhorlError, unknown_name
from whorl.interop.library import Job, Library, arguments, make, refuse_target, takes

_LAYER = "feature_layer_cfg"
_LOOKING = (_LAYER, "hook_cfg")


class Torchattack(Library):
    """All attacks. Those that look into the network by the names of its layers need a setting that says which."""

    key: ClassVar[str] = "torchattack"
    package: ClassVar[str] = "torchattack"
    module: ClassVar[str] = "torchattack"

    def attacks(self) -> Mapping[str, Any]:
        """What the library registers."""
        registered: Mapping[str, Any] = self.load().ATTACK_REGISTRY
        return registered

    def norm(self, name: str, settings: Mapping[str, Any]) -> NormName | None:  # noqa: ARG002 - it has no such setting
        """By the name."""
        return "l2" if name == "PGDL2" else "linf"

    def run(self, job: Job) -> Tensor:
        """Make it for the network, where it takes one, and call it."""
        made_by = self.attacks()[job.name]
        settings = arguments(job, made_by)
        # The network takes images in [0, 1] and normalises them itself.
        ours = {"model": job.net, "normalize": None, "device": job.x.device}
        settings |= {word: value for word, value in ours.items() if takes(made_by, word)}
        for word in _LOOKING:
            if takes(made_by, word) and not settings.get(word):
                raise WhorlError(
                    f"{self.key}:{job.name} looks into the network, and needs {word} to know where; got none."
                )
        if _LAYER in settings:
            settings[_LAYER] = full_name(job.net, settings[_LAYER])
        if job.targeted:
            if not takes(made_by, "targeted"):
                raise refuse_target(f"{self.key}:{job.name}")
            settings["targeted"] = True
        attack = make(f"{self.key}:{job.name}", made_by, **settings)
        adv: Tensor = attack(job.x, job.labels)
        return adv.detach()


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
