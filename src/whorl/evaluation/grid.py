"""Transform first, then ask: several attacks on several targets over several poses, in one pass over the images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation.success import SuccessRate
from whorl.evaluation.tally import Batch, Evaluation, Tally
from whorl.geometry.pose import PAPER_POSES, Pose

Targets = Mapping[str, Callable[[Tensor], Tensor]]
"""Name to network, (B, C, H, W) in [0, 1] to logits: classifiers, ensembles, defended ones."""

Precision = Literal["full", "bf16"]
"""What networks are asked in. Images are warped in full precision either way: that is a small share of the time."""


def to_8_bits(x: Tensor) -> Tensor:
    """Round images in [0, 1] to what an 8-bit file holds.

    >>> (to_8_bits(torch.tensor([0.0, 0.501, 1.0])) * 255).tolist()
    [0.0, 128.0, 255.0]
    """
    return (x.clamp(0, 1) * 255).round() / 255


@torch.no_grad()
def evaluate(
    targets: Targets,
    batches: Iterable[tuple[Tensor, Mapping[str, Tensor], Tensor, Sequence[str]]],
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    keep_outcomes: bool = False,
    precision: Precision = "full",
) -> Evaluation:
    """Count successes of several attacks on several targets over several poses, batch by batch.

    One pass over the images: each is warped once a pose for all targets, the clean side is shared by all attacks, and
    no batch is held once it is counted, so a data set of any size needs the memory of one batch.

    Args:
        targets: name to network.
        batches: ``(x, {attack: adversarial}, y, ids)``, see :class:`Batch`, on the targets' device. All batches have
            the same attacks.
        poses: transforms to apply, each counted once.
        keep_outcomes: whether to keep what became of each image (a byte for each image, attack, target and pose), so
            that attacks can be compared.
        precision: ``"full"`` asks every network as it is. ``"bf16"`` asks in bfloat16, which is faster on a GPU and
            changes a few answers that were close.

    Raises:
        WhorlError: an unknown precision, there are no batches, or the parts of one do not fit together.

    >>> x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> halves = [(x[i : i + 2], {"none": x[i : i + 2]}, y[i : i + 2], ["a", "b"]) for i in (0, 2)]
    >>> evaluate({"mine": net}, halves, poses=[Pose()]).counts["none", "mine", Pose()].n
    4
    """
    poses = tuple(dict.fromkeys(poses))  # a pose given twice would count its images twice
    asked = {name: in_precision(target, precision) for name, target in targets.items()}
    tally: Tally | None = None
    for x, adversarial, y, ids in batches:
        batch = Batch(x, adversarial, y, ids)
        tally = tally or Tally(tuple(adversarial), tuple(targets), poses, keep_outcomes)
        _check(batch, tally.attacks)
        rounded = {name: to_8_bits(images) for name, images in adversarial.items()}
        tally.add(batch, rounded, *_ask(asked, x, rounded, y, poses))
    if tally is None:
        raise WhorlError("expected at least one batch of images, got none.")
    return tally.result()


def success_rates(
    targets: Targets,
    x: Tensor,
    adversarial: Mapping[str, Tensor],
    y: Tensor,
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    batch_size: int = 64,
    precision: Precision = "full",
) -> dict[tuple[str, str, Pose], SuccessRate]:
    """Count successes on images that are in memory; see ``evaluate``.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        x: (N, C, H, W) clean images.
        adversarial: attack's name to (N, C, H, W) images; rounded to 8 bits first.
        y: (N,) true labels.
        poses: transforms to apply.
        batch_size: images per forward pass.
        precision: see ``evaluate``.

    Returns:
        Counts by (attack, target, pose).
    """
    whole = Batch(x, adversarial, y, [str(i) for i in range(len(x))])
    _check(whole, tuple(adversarial))
    return evaluate(targets, _split(whole, batch_size), poses=poses, precision=precision).counts


def _split(whole: Batch, size: int) -> Iterator[Batch]:
    if size < 1:
        raise WhorlError(f"batch_size must be a whole number from 1; got {size}.")
    for start in range(0, len(whole.x), size):
        part = slice(start, start + size)
        adversarial = {name: images[part] for name, images in whole.adversarial.items()}
        yield Batch(whole.x[part], adversarial, whole.y[part], whole.ids[part])


def _check(batch: Batch, attacks: tuple[str, ...]) -> None:
    x, adversarial, y, ids = batch
    if tuple(adversarial) != attacks:
        raise WhorlError(f"all batches must have the same attacks, {list(attacks)}; got {list(adversarial)}.")
    for name, images in adversarial.items():
        if images.shape != x.shape:
            raise WhorlError(
                f"adversarial images of {name!r} must match x, {tuple(x.shape)}; got {tuple(images.shape)}."
            )
    if y.shape != x.shape[:1] or len(ids) != len(x):
        raise WhorlError(
            f"expected a label and an id for each of {len(x)} images; got {tuple(y.shape)} and {len(ids)}."
        )


def in_precision(target: Callable[[Tensor], Tensor], precision: Precision) -> Callable[[Tensor], Tensor]:
    """Give a network that answers in a precision; see ``evaluate``."""
    if precision not in get_args(Precision):
        raise WhorlError(f"precision must be 'full' or 'bf16'; got {precision!r}.")
    if precision == "full":
        return target
    from whorl.models.prepared.network import prepared  # needed here alone

    @cache
    def quick() -> Callable[[Tensor], Tensor] | None:
        # Once: to see whether a network is still the same takes a look at all its weights.
        kept = prepared(target)
        return None if kept is None else kept.network

    def ask(x: Tensor) -> Tensor:
        network = quick() if x.is_cuda else None
        if network is not None:
            return network(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return target(x)

    return ask


def _ask(
    targets: Targets, x: Tensor, adversarial: Mapping[str, Tensor], y: Tensor, poses: Sequence[Pose]
) -> tuple[Tensor, Tensor]:
    """Which answers are right: of clean images, (targets, poses, B), and of all attacks', (attacks, ...the same)."""
    clean = torch.empty(len(targets), len(poses), len(x), dtype=torch.bool, device=x.device)
    attacked = torch.empty(len(adversarial), *clean.shape, dtype=torch.bool, device=x.device)
    for p, pose in enumerate(poses):
        versions = zip((clean, *attacked), (x, *adversarial.values()), strict=True)
        for right, images in versions:
            seen = pose.apply(images)
            for t, target in enumerate(targets.values()):
                right[t, p] = target(seen).argmax(1) == y
    # Moved once a batch, not once a cell: the device is never waited for in between.
    return clean.cpu(), attacked.cpu()
