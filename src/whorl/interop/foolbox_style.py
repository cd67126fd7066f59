"""Our attacks called as foolbox's are: ``raw, clipped, success = fool(fmodel, images, labels, epsilons=...)``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from whorl.attacks.contract import Attack
from whorl.attacks.norms import find_norm
from whorl.errors import WhorlError
from whorl.evaluation import recognised
from whorl.randomness import Ids


def as_foolbox(attack: Attack, *, seed: int = 0) -> FoolboxStyle:
    """Let foolbox's users call an attack as one of foolbox's.

    Args:
        attack: any of ours, or a peer's.
        seed: of all randomness; an image gets the same result in any batch.

    Returns:
        A callable on ``(fmodel, images, criterion, epsilons=...)``.
    """
    return FoolboxStyle(attack=attack, seed=seed)


@dataclass(frozen=True, kw_only=True)
class FoolboxStyle:
    """An attack in foolbox's manner; see :func:`as_foolbox`."""

    attack: Attack
    seed: int = 0

    def __call__(
        self,
        model: Any,
        inputs: Any,
        criterion: Any,
        *,
        epsilons: Sequence[float | None] | float | None,
        ids: Ids = None,
    ) -> tuple[Any, Any, Any]:
        """Attack a batch once for every bound.

        Args:
            model: a foolbox model, such as ``foolbox.PyTorchModel(net, bounds=(0, 1))``; any bounds will do.
            inputs: (N, C, H, W) within the model's bounds, as a torch or eagerpy tensor.
            criterion: (N,) true labels, or foolbox's ``Misclassification`` or ``TargetedMisclassification``.
            epsilons: bound of the change in the model's units, in the norm of the attack; several for a result each.
                None is the attack's own bound, and no bound for one that seeks the smallest change.
            ids: as our attacks take them.

        Returns:
            ``(raw, clipped, success)``: images as the attack gave them, the same brought into the bound, and whether
            these fool the model. For several bounds two lists of length K and a (K, N) tensor.
        """
        x, low, high = _raw(inputs), float(model.bounds.lower), float(model.bounds.upper)
        labels, targeted = _goal(criterion)
        labels = labels.to(x.device)
        y, target = (None, labels) if targeted else (labels, None)
        span = high - low
        several = isinstance(epsilons, Iterable)
        wanted: list[float | None] = list(epsilons) if isinstance(epsilons, Iterable) else [epsilons]
        if not wanted:
            raise WhorlError("epsilons must hold one bound at least; got none.")

        def network(z: Tensor) -> Tensor:
            shown: Tensor = model(z * span + low)
            return shown

        raws, clips, wins = [], [], []
        seen = ((x - low) / span).clamp(0, 1)
        for eps in wanted:
            bound = None if eps is None else float(eps) / span
            raw = self._with(bound)(network, seen, y, target=target, seed=self.seed, ids=ids)
            clipped = self._clipped(raw, seen, bound)
            hit = recognised({"the model": network}, clipped, labels)[0, 0].to(x.device) == targeted
            raws.append(_like(inputs, raw * span + low))
            clips.append(_like(inputs, clipped * span + low))
            wins.append(hit)
        if several:
            return raws, clips, _like(inputs, torch.stack(wins))
        return raws[0], clips[0], _like(inputs, wins[0])

    def _with(self, bound: float | None) -> Attack:
        bounded = any(field.name == "eps" for field in fields(self.attack))  # type: ignore[arg-type]  # all are records
        return self.attack if bound is None or not bounded else self.attack.with_(eps=bound)

    def _clipped(self, adv: Tensor, x: Tensor, bound: float | None) -> Tensor:
        if bound is None:
            return adv
        # What seeks the smallest change seeks it in L2, and says nothing of a norm.
        norm = find_norm(getattr(self.attack, "norm", None) or "l2")
        return norm.ball(x, x.new_tensor(bound))(adv)


def _goal(criterion: Any) -> tuple[Tensor, bool]:
    for attribute, targeted in (("target_classes", True), ("labels", False)):
        if hasattr(criterion, attribute):
            return _raw(getattr(criterion, attribute)), targeted
    labels = _raw(criterion)
    if not isinstance(labels, Tensor):
        raise WhorlError(
            "criterion must be labels, foolbox.criteria.Misclassification or TargetedMisclassification; "
            f"got {type(criterion).__name__}."
        )
    return labels, False


def _raw(value: Any) -> Any:
    """The torch tensor inside an eagerpy one."""
    return value if isinstance(value, Tensor) else getattr(value, "raw", value)


def _like(given: Any, tensor: Tensor) -> Any:
    """Of the kind that came in: torch for torch, eagerpy for eagerpy."""
    return tensor if isinstance(given, Tensor) else type(given)(tensor)
