"""Attacks on a GPU as fast as the model allows: recorded, or step by step on a prepared network, or as it is."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from whorl.attacks.contract import Model
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.loop import Made, UnderAttack, step_by_step
from whorl.attacks.recorded import loop_for, recordable
from whorl.models.prepared.network import Kept, forget, prepared


def run_fast(attack: GradientAttack, model: Model, batch: UnderAttack) -> Made:
    """Attack a batch in the fastest way that is known to be right for the model, in as few parts as fit into memory.

    Args:
        attack: its settings.
        model: in eval mode, on the batch's device.
        batch: not empty.
    """
    count, most = len(batch.x), len(batch.x)
    made: list[Made] = []
    start = 0
    while start < count:
        part = batch if most >= count else batch.rows(slice(start, start + most))
        fits = True
        try:
            with torch.cuda.device_of(part.x):
                made.append(_run(attack, model, part))
        except torch.cuda.OutOfMemoryError:
            if len(part.x) == 1:
                raise
            fits = False
        if fits:
            start += len(part.x)
            continue
        most = (len(part.x) + 1) // 2
        # Other graphs may hold what is missing here. Not before the error is gone: it holds the loop that failed.
        forget()
        gc.collect()
        torch.cuda.empty_cache()
    return made[0] if len(made) == 1 else Made(*(torch.cat(parts) for parts in zip(*made, strict=True)))


def _run(attack: GradientAttack, model: Model, batch: UnderAttack) -> Made:
    kept = prepared(model) if batch.x.dtype == torch.float32 else None
    if kept is None or kept.network is None:
        return step_by_step(attack, model, batch)
    if not recordable(attack):
        return step_by_step(attack, kept.network, batch)
    return _replay(attack, kept, batch)


def _replay(attack: GradientAttack, kept: Kept, batch: UnderAttack) -> Made:
    x, start, goal, keys, eps, alpha = batch
    # The loop itself looks at no label: that would make the device wait.
    classes = getattr(kept.network, "num_classes")  # noqa: B009 - an attribute of both kinds of network
    goal.check_classes(torch.empty(len(x), classes, device="meta"))
    loop = loop_for(attack, kept, x, targeted=goal.targeted)
    size: Tensor = alpha if isinstance(alpha, Tensor) else x.new_full((1, 1, 1, 1), alpha)
    adv, finite = loop.run(x, start, goal.labels, keys, eps, size, attack.steps)
    return Made(adv, finite, torch.full_like(goal.labels, attack.steps * attack.samples))
