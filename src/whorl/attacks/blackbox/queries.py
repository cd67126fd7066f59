"""A target that answers and nothing more: every image it sees is counted, and what it answers is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from whorl.attacks.contract import AttackInfo, Crafted, Model, Trace
from whorl.attacks.norms import Norm
from whorl.attacks.objectives import Goal, Loss, LossName
from whorl.errors import WhorlError, first_line
from whorl.models.classifier import network_dtype
from whorl.models.prepared import copies
from whorl.progress import count_work

# On a CPU a larger batch is no faster, only larger; on a GPU this many pixel values fill it without filling its memory.
_CPU_IMAGES_PER_PASS = 32
_GPU_VALUES_PER_PASS = 2**25
# What float32 may be off by, in 8-bit levels, where a whole number is meant.
_LEVEL_SLACK = 1e-3


class TargetError(WhorlError):
    """A target that failed under attack. What was reached until then is kept.

    Attributes:
        adv: (B, C, H, W) best images so far.
        info: what they cost, as an attack would have returned it. To go on, give ``adv`` as the next attack's ``init``
            and take ``info.queries`` off its budget.
    """

    adv: Tensor | None = None
    info: AttackInfo | None = None


class QueriedTarget:
    """Queries a model, a pass at a time, and counts for whom.

    Args:
        model: from (n, C, H, W) images to (n, classes) scores or, where ``labels_suffice``, to (n,) integer labels.
        x: (B, C, H, W) the images under attack.
        goal: of the attack.
        budget: most queries for each image. The caller checks :meth:`affords` first; nothing here enforces it.
        chunk: images per pass; None for as many as fit.
        labels_suffice: whether labels will do in place of scores.
    """

    def __init__(
        self, model: Model, x: Tensor, goal: Goal, *, budget: int, chunk: int | None, labels_suffice: bool = False
    ) -> None:
        self.model, self.goal, self.budget, self.labels_suffice = model, goal, budget, labels_suffice
        fits = max(1, _GPU_VALUES_PER_PASS // x[0].numel()) if x.is_cuda else _CPU_IMAGES_PER_PASS
        self.chunk = fits if chunk is None else chunk
        self.queries = torch.zeros_like(goal.labels)
        self.step = 0
        self._classes: int | None = None

    def affords(self, rows: Tensor, cost: int) -> Tensor:
        """(n,) bool: which of the images ``rows`` can pay for ``cost`` more queries."""
        return self.queries[rows] + cost <= self.budget

    def objective(self, images: Tensor, rows: Tensor, loss: LossName | Loss) -> tuple[Tensor, Tensor]:
        """Query scores.

        Args:
            images: (n, C, H, W).
            rows: (n,) which image of the batch each of them is a query for.
            loss: of the scores.

        Returns:
            (n,) what the attack raises, and (n,) bool: whether the answer is the wanted one.
        """
        scores = self._ask(images, rows)
        goal = self.goal.rows(rows)
        return goal.objective(scores, loss), goal.reached(scores)

    def reached(self, images: Tensor, rows: Tensor) -> Tensor:
        """Query labels: (n, C, H, W) images for the batch's ``rows`` to (n,) bool, the answer is the wanted one."""
        answer = self._ask(images, rows)
        goal = self.goal.rows(rows)
        return goal.reached(answer) if answer.dim() == 2 else (answer == goal.labels) == goal.targeted

    def _ask(self, images: Tensor, rows: Tensor) -> Tensor:
        # A GPU looks for the best kernels whenever a batch has a new size, which takes longer than the pass itself, and
        # images leave all the time. So it is shown few sizes; nothing is added to fill them up, for that would count.
        sizes = even_sizes(len(images), self.chunk) if images.is_cuda else self.chunk
        passes = zip(images.split(sizes), rows.split(sizes), strict=True)
        return torch.cat([self._one_pass(*part) for part in passes])

    def _one_pass(self, images: Tensor, rows: Tensor) -> Tensor:
        # Counted before the call: a target that raises has been sent them all the same.
        self.queries.index_add_(0, rows, torch.ones_like(rows))
        count_work(len(rows) / len(self.queries), "queries")
        try:
            with torch.no_grad():
                # A copy: a target that works in place must not move the images under attack.
                answer = copies.answer(self.model, images.to(network_dtype(self.model, images), copy=True))
        except Exception as error:  # the target is anyone's code, and whatever it raises must not lose the work so far
            raise self._failed(f"it raised {first_line(error)}") from error
        if not isinstance(answer, Tensor):
            raise self._failed(f"it must return a tensor; got {type(answer).__name__}")
        if self.labels_suffice and answer.dim() == 1 and not answer.is_floating_point():
            if answer.shape != rows.shape:
                raise self._failed(f"it must return ({len(rows)},) labels; got {tuple(answer.shape)}")
            return answer.to(rows.device)
        try:
            self.goal.rows(rows).check_classes(answer)
        except WhorlError as error:
            # At first the labels may be to blame; later the target has changed, and work would be lost.
            if self._classes is None:
                raise
            raise self._failed(str(error).rstrip(".")) from error
        self._classes = answer.shape[1] if self._classes is None else self._classes
        if answer.shape[1] != self._classes:
            raise self._failed(f"it gave {self._classes} classes before and {answer.shape[1]} now")
        if not bool(answer.isfinite().all()):
            raise self._failed("its scores must be finite; got NaN or infinity")
        return answer.to(images)

    def _failed(self, what: str) -> TargetError:
        return TargetError(
            f"the target failed in step {self.step}, after at most {int(self.queries.max())} queries an image: {what}. "
            "The best images so far are on this error, as .adv and .info."
        )


def even_sizes(count: int, most: int) -> list[int]:
    """Cut a number into few of few sizes: ``most`` and powers of two, the largest first.

    >>> even_sizes(950, 222), even_sizes(7, 222), even_sizes(222, 222)
    ([222, 222, 222, 222, 32, 16, 8, 4, 2], [4, 2, 1], [222])
    """
    whole, rest = divmod(count, most)
    powers = (1 << place for place in reversed(range(rest.bit_length())))
    return [most] * whole + [power for power in powers if rest & power]


class BestSoFar:
    """The best each image has come to, and the way there.

    Args:
        x: (B, C, H, W) the images under attack.
        best: (B, C, H, W) what to return of an image until something better is offered.
        target: whose queries are counted.
        norm: in which distances are measured.
        trace: whether to keep the way.
        grad_evals: (B,) int64 input gradients spent on surrogates; grown in place.
    """

    def __init__(
        self, x: Tensor, best: Tensor, target: QueriedTarget, norm: Norm, *, trace: bool, grad_evals: Tensor
    ) -> None:
        self.x, self.target, self.norm, self.grad_evals = x, target, norm, grad_evals
        self.best = best.clone()
        self.value = torch.full_like(target.goal.labels, -torch.inf, dtype=x.dtype)
        self.success = torch.zeros_like(target.goal.labels, dtype=torch.bool)
        self._loss = torch.full_like(self.value, torch.nan)
        self._distance = norm.size(best - x)
        self._keeps_trace = trace
        self._course: list[tuple[Tensor, Tensor, Tensor]] = []

    def offer(
        self, rows: Tensor, images: Tensor, value: Tensor, success: Tensor, *, loss: Tensor | None = None
    ) -> None:
        """Take (n, C, H, W) ``images`` for the ``rows`` where their (n,) ``value`` is the highest yet.

        ``success`` belongs to the images; ``loss`` is what the trace shows, none where nothing but labels is known.
        """
        better = value > self.value[rows]
        chosen = rows[better]
        self.best[chosen], self.value[chosen], self.success[chosen] = images[better], value[better], success[better]
        if self._keeps_trace:
            self._distance[rows] = self.norm.size(images - self.x[rows])
            if loss is not None:
                self._loss[rows] = loss
            self._course.append((self.target.queries.clone(), self._loss.clone(), self._distance.clone()))

    def crafted(self) -> Crafted:
        """Hand back the best images."""
        trace = Trace(*(torch.stack(part) for part in zip(*self._course, strict=True))) if self._course else None
        return Crafted(
            self.best, grad_evals=self.grad_evals, queries=self.target.queries, success=self.success, trace=trace
        )

    @contextmanager
    def kept_on_failure(self) -> Iterator[None]:
        """Put the best images so far onto the error, should the target fail meanwhile."""
        try:
            yield
        except TargetError as error:
            made = self.crafted()
            error.adv = made.images
            error.info = AttackInfo(
                success=self.success, grad_evals=made.grad_evals, queries=made.queries, trace=made.trace
            )
            raise


def in_8_bits(images: Tensor, x: Tensor, norm: Norm, eps: float) -> Tensor:
    """Round images to 256 levels without leaving the ball around ``x``.

    Args:
        images: (n, C, H, W) in the ball of radius ``eps`` around ``x``.
        x: (n, C, H, W), whole multiples of 1/255.
        norm: of the ball.
        eps: its radius.

    >>> from whorl.attacks.norms import find_norm
    >>> x, moved = torch.full((1, 1, 1, 1), 127 / 255), torch.full((1, 1, 1, 1), 130.6 / 255)
    >>> round(float(in_8_bits(moved, x, find_norm("linf"), 3.6 / 255)) * 255, 3)
    130.0
    """
    if norm.name == "l2":
        # Towards x, pixel by pixel: no pixel's change grows, so neither does their norm.
        change = (images - x) * 255
        return (((x * 255).round() + (change + _LEVEL_SLACK * change.sign()).trunc()) / 255).clamp(0, 1)
    low = ((x - eps) * 255 - _LEVEL_SLACK).ceil()
    high = ((x + eps) * 255 + _LEVEL_SLACK).floor()
    return (torch.minimum(torch.maximum((images * 255).round(), low), high) / 255).clamp(0, 1)
