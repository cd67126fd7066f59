"""Attacks on a GPU: one step on fixed buffers, recorded as a graph and replayed for every step and every batch.

What cannot be recorded goes step by step on a prepared network, and what cannot be prepared on the network as it is.
"""

from __future__ import annotations

import gc
from functools import lru_cache
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.loop import Made, SampledGradient, UnderAttack, planned_input, step_by_step, take_steps
from whorl.attacks.objectives import Goal
from whorl.attacks.step import State
from whorl.attacks.step_gpu import move_in_place
from whorl.estimators import Chain, Estimator, at_step, following
from whorl.models.prepared.graph import Recorded, searching, turns
from whorl.models.prepared.network import Kept, forget, prepared
from whorl.progress import count_work
from whorl.transforms import Planned
from whorl.transforms.spread import taken

# All graphs of a device share the memory of a step, and all loops of one shape their buffers, so more of them cost
# little: what a graph itself takes, some megabytes.
_MOST_LOOPS = 8
# A pass over more images than this is no faster for each of them.
_IMAGES_PER_PASS = 512


class Buffers:
    """Where a step finds what it needs, and leaves what it changes.

    Args:
        like: a batch, (B, C, H, W).
    """

    def __init__(self, like: Tensor) -> None:
        batch, device = like.shape[0], like.device
        self.x, self.adv, self.velocity = (like.new_empty(like.shape) for _ in range(3))
        self.eps, self.alpha = (torch.empty(batch, 1, 1, 1, dtype=like.dtype, device=device) for _ in range(2))
        self.labels, self.keys = (torch.zeros(batch, dtype=torch.int64, device=device) for _ in range(2))
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.finite = torch.ones(batch, dtype=torch.bool, device=device)


_BUFFERS: WeakValueDictionary[tuple[object, ...], Buffers] = WeakValueDictionary()


def buffers_for(like: Tensor) -> Buffers:
    """Buffers for batches of one shape, shared by all loops that are there: they take turns, and fill them anew."""
    key = (tuple(like.shape), like.dtype, like.device)
    with turns(like.device).lock:
        found = _BUFFERS.get(key)
        if found is None:
            with torch.inference_mode(False):  # they outlive the mode they are first needed in
                found = _BUFFERS[key] = Buffers(like)
        return found


class BufferedStep:
    """One step of an attack; everything it needs and changes is in buffers.

    Calling it does all of it. Where the estimator changes from step to step, and cannot read the step from where it
    lies, it only finds the gradient, and :meth:`finish`, which is not recorded, does the rest.

    Args:
        attack: its settings.
        network: (B, C, H, W) images in [0, 1] to logits, and nothing that waits for the device.
        buffers: for batches of one shape.
        targeted: whether labels are to be reached.
    """

    def __init__(self, attack: GradientAttack, network: nn.Module, buffers: Buffers, *, targeted: bool) -> None:
        self.attack, self.buffers = attack, buffers
        # Labels were checked against the classes before the loop.
        goal = Goal(buffers.labels, targeted, 0)
        chunk = attack.chunk or max(1, _IMAGES_PER_PASS // len(buffers.x))
        # In the network's bfloat16 the transform's matrix products run on tensor cores, and the gradient stays short.
        narrow = torch.bfloat16 if buffers.x.is_cuda and getattr(attack.input, "short", False) else None
        # It stays where it is, and takes over the plans of other batches.
        self.plan = planned_input(attack, buffers.keys)
        self.gradient = SampledGradient(network, goal, attack.loss, self.plan, attack.samples, chunk, narrow=narrow)
        self.step = take_steps(attack, buffers.x, buffers.eps, buffers.alpha)
        # A loop is found again by the parts that it holds.
        self.estimator = self.step.estimator
        whole = following(self.estimator, buffers.step, attack.steps, buffers.x)
        self.changes = whole is None
        self.step.estimator = whole or self.estimator
        self.found: Tensor | None = None

    def replan(self) -> None:
        """Plan the draws of the images that are in the buffers now."""
        taken(self.plan, planned_input(self.attack, self.buffers.keys))

    def __call__(self) -> None:
        """Take it, or its first part."""
        at = self.buffers
        g, logits = self.gradient(at.adv, at.keys, at.step)
        at.finite &= logits.isfinite().all(1)
        if not self.changes:
            self._move(self.step.estimate(g, 0))
            return
        if self.found is None:
            # While it warms up, so that it does not lie in the memory of a graph.
            self.found = torch.empty_like(g, memory_format=torch.contiguous_format)
        self.found.copy_(g)

    def finish(self, step: int, steps: int) -> None:
        """Take the second part, of ``step``, counted from 0, of ``steps``."""
        assert self.found is not None  # noqa: S101 - the first part has run
        self._move(at_step(self.step.estimator, step, steps)(self.found))

    def _move(self, g: Tensor) -> None:
        at = self.buffers
        alpha = self.step.size(at.step)
        assert isinstance(alpha, Tensor)  # noqa: S101 - that of the buffers, cooled
        size = move_in_place(self.step, State(at.adv, at.velocity, at.finite), g, alpha)
        at.finite &= size.isfinite()
        at.step += 1


class Loop:
    """An attack on batches of one shape.

    Args:
        attack: its settings; ``eps``, ``alpha`` and ``steps`` are given to :meth:`run`.
        network: (B, C, H, W) images in [0, 1] to logits, and nothing that waits for the device.
        like: a batch, (B, C, H, W).
        targeted: whether labels are to be reached.
        search: whether cuDNN may try its kernels for the fastest.
    """

    def __init__(
        self, attack: GradientAttack, network: nn.Module, like: Tensor, *, targeted: bool, search: bool = False
    ) -> None:
        self.buffers, self.search = buffers_for(like), search
        # Apart from the loop, so that nothing holds itself: the memory of one that is let go is free at once.
        self.step = BufferedStep(attack, network, self.buffers, targeted=targeted)
        self.recorded: Recorded | None = None

    def run(
        self, x: Tensor, start: Tensor, labels: Tensor, keys: Tensor, eps: Tensor, alpha: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """Attack a batch of at most the loop's size.

        Args:
            x: (n, C, H, W) clean images.
            start: where to start, likewise.
            labels: (n,).
            keys: (n,) int64 random keys.
            eps: broadcasts to (n, 1, 1, 1).
            alpha: likewise.
            steps: how many.

        Returns:
            (n, C, H, W) images; (n,) bool, whether all their gradients were finite.
        """
        given = (x, start, labels, keys, eps, alpha)
        device = self.buffers.x.device
        with turns(device).taken(), searching(self.search), torch.autocast(device.type, enabled=False):
            if self.recorded is None or not self.recorded.held():
                self._fill(*given)
                self.recorded = None  # frees the old graph before the new one is made
                self.recorded = Recorded(self.step, device, shared=True)
            self._fill(*given)
            for step in range(steps):
                self.recorded()
                if self.step.changes:
                    self.step.finish(step, steps)
                count_work(self.step.attack.samples, "gradients")
            n = len(x)
            return self.buffers.adv[:n].clone(), self.buffers.finite[:n].clone()

    def _fill(self, x: Tensor, start: Tensor, labels: Tensor, keys: Tensor, eps: Tensor, alpha: Tensor) -> None:
        to = self.buffers
        n, size = len(x), len(to.x)
        # What is left of a short batch is filled with its last image, whose result nobody looks at.
        for buffer, value in ((to.x, x), (to.adv, start), (to.labels, labels), (to.keys, keys)):
            buffer[:n] = value
            if n < size:
                buffer[n:] = value[-1]
        for buffer, value in ((to.eps, eps), (to.alpha, alpha)):
            each = value.to(buffer).expand(n, 1, 1, 1)
            buffer[:n] = each
            if n < size:
                buffer[n:] = each[-1]
        to.velocity.zero_()
        to.step.zero_()
        to.finite.fill_(True)
        self.step.replan()


def recordable(attack: GradientAttack) -> bool:
    """Whether an attack's step is the same operations every time, whatever came out of the last one."""
    # Recording a part that is a function of tensors alone stands for calling it each time.
    if not attack.pure or attack.optimizer != "sign" or attack.early_stop:
        return False
    return not isinstance(attack.input, Planned) or _plans_purely(attack.input)


@lru_cache(maxsize=64)
def _plans_purely(transform: Planned) -> bool:
    """Whether what a transform plans is a function of tensors alone too."""
    return bool(getattr(transform.plan(torch.zeros(2, 1, dtype=torch.int64)), "pure", False))


def _fixed_steps(attack: GradientAttack) -> int | None:
    """The number of steps, where that is part of what is recorded."""
    changes = at_step(attack.bound_estimator, 0, 1) is not attack.bound_estimator
    return attack.steps if changes or attack.cooling != 1 or isinstance(attack.input, Planned) else None


def loop_for(attack: GradientAttack, kept: Kept, x: Tensor, *, targeted: bool) -> Loop:
    """The loop for a batch: the one that was made before, or a new one."""
    assert kept.network is not None  # noqa: S101 - the caller has looked
    size = roomy(len(x))
    # By identity where equality is not enough: an estimator does not compare its own weights. The loop holds the
    # attack, and so its parts, for as long as it is kept.
    estimator = _identity(attack.bound_estimator)
    parts = (estimator, id(attack.input), attack.loss, attack.norm, attack.momentum, attack.samples)
    settings = (attack.chunk, attack.fast, attack.cooling, _fixed_steps(attack), targeted)
    key = (*parts, *settings, size, tuple(x.shape[1:]), x.dtype, x.device)
    with turns(x.device).lock:
        if key not in kept.loops:
            while len(kept.loops) >= _MOST_LOOPS:
                kept.loops.popitem(last=False)
            like = x.new_empty(size, *x.shape[1:])
            kept.loops[key] = Loop(attack, kept.network, like, targeted=targeted, search=attack.fast is True)
        kept.loops.move_to_end(key)
        loop: Loop = kept.loops[key]
        return loop


def _identity(estimator: Estimator) -> object:
    """What two estimators share only where they are the same: a chain is made anew for each ε, of the same parts."""
    return tuple(map(_identity, estimator.parts)) if isinstance(estimator, Chain) else id(estimator)


def roomy(count: int) -> int:
    """The size of a loop for so many images: the next of 1, 2, 3, 4, 6, 8, 12, 16, ...

    Few sizes, so that few graphs are recorded; and the size follows from the batch alone, not from what came before, so
    that a batch gives the same result in a run that was interrupted.

    >>> [roomy(n) for n in (1, 5, 52, 64, 65)]
    [1, 6, 64, 64, 96]
    """
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


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
    kept = prepared(model, attack.source_backward) if batch.x.dtype == torch.float32 else None
    if kept is None or kept.network is None:
        with attack.changed(model, batch.x) as source:
            return step_by_step(attack, source, batch)
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
