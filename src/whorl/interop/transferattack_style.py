"""Our attacks as classes of TransferAttack: ``Ours = as_transferattack(attack, base)``, then as any of its zoo."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Attack
from whorl.errors import WhorlError, quoted
from whorl.interop.transferattack import NORM_WORDS


def as_transferattack(attack: Attack, base: type, *, seed: int = 0) -> type:
    """Make a class of TransferAttack's kind that crafts with one of our attacks.

    Its objects load a network by name as theirs do, or take one that is given in place of the name: any module from
    (B, C, H, W) images in [0, 1] to logits. They return perturbations.

    Args:
        attack: any of ours that has an ``eps``.
        base: the clone's ``transferattack.attack.Attack``.
        seed: of all randomness; an image gets the same result in any batch.

    Returns:
        A subclass of ``base``, made with ``model_name``, ``epsilon`` (the attack's by default), ``targeted`` and
        ``device``; all other settings are the attack's.

    Raises:
        WhorlError: the base is something else, or the attack has no bound.
    """
    if not (isinstance(base, type) and all(callable(getattr(base, word, None)) for word in ("load_model", "__call__"))):
        raise WhorlError(f"base must be the class transferattack.attack.Attack of a clone; got {quoted(base)}.")
    bound = getattr(attack, "eps", None)
    if bound is None:
        raise WhorlError(f"an attack of TransferAttack has a bound; {attack!r} has no eps.")
    norm = NORM_WORDS[getattr(attack, "norm", "linf")]

    def __init__(  # noqa: N807 - of the class that is made below
        self: Any,
        model_name: str | list[str] | nn.Module,
        epsilon: float = bound,
        targeted: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.whorl_attack = attack.with_(eps=epsilon)
        base.__init__(self, type(self).__name__, model_name, epsilon, targeted, False, norm, "crossentropy", device)  # type: ignore[misc]  # theirs

    def load_model(self: Any, model_name: str | list[str] | nn.Module) -> nn.Module:
        if isinstance(model_name, nn.Module):
            return model_name.eval()
        loaded: nn.Module = base.load_model(self, model_name)  # type: ignore[attr-defined]  # looked at above
        return loaded

    def forward(self: Any, data: Tensor, label: Any, **_: Any) -> Tensor:
        """Craft perturbations of (B, C, H, W) images; labels are (B,), or if targeted true ones and targets."""
        x = data.detach().to(self.device)
        goal = {"target": label[1].to(self.device)} if self.targeted else {"y": label.to(self.device)}
        adv: Tensor = self.whorl_attack(self.model, x, seed=seed, **goal)
        return adv - x

    made = {"__init__": __init__, "load_model": load_model, "forward": forward, "__doc__": f"{attack!r}, of whorl."}
    return type("Whorl", (base,), made)
