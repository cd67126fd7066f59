"""Images with their adversarial versions, and their evaluation: images × poses × targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.attacks.contract import check_images
from whorl.errors import WhorlError
from whorl.evaluation.distance import Distance
from whorl.evaluation.outcomes import Outcomes
from whorl.evaluation.prediction import Precision, Predictor, Targets, checked_labels, slices
from whorl.evaluation.success import SuccessRate
from whorl.geometry.pose import PAPER_POSES, Pose
from whorl.records import Count, checked


class AttackedImages(NamedTuple):
    """Some images with all their adversarial versions; a plain tuple will do."""

    x: Tensor
    """(B, C, H, W) clean images in [0, 1]."""
    adversarial: Mapping[str, Tensor]
    """Attack's name to (B, C, H, W); rounded to 8 bits before anything is predicted."""
    y: Tensor
    """(B,) true labels."""
    ids: Sequence[str]
    """B names."""
    wanted: Tensor | None = None
    """(B,) classes that a targeted attack is to reach, none of them an image's own; None if untargeted."""

    @classmethod
    def of(cls, batch: AttackedBatch, *, first: int = 0) -> AttackedImages:
        """Take a batch with or without ids, and with one attack or several by name; ``first`` is its first place.

        >>> x, y = torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])
        >>> AttackedImages.of((x, x, y), first=6).ids
        ['6', '7']
        """
        if not isinstance(batch, tuple | list) or not 3 <= len(batch) <= 5:
            came = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
            raise WhorlError(f"a batch must be (x, adversarial, y) or (x, adversarial, y, ids); got {came}.")
        x, adversarial, y, *rest = batch
        named = adversarial if isinstance(adversarial, Mapping) else {"adversarial": adversarial}
        for what, part in (("images", x), *(("adversarial images", made) for made in named.values()), ("labels", y)):
            if not isinstance(part, Tensor):
                raise WhorlError(f"{what} must be a tensor; got {type(part).__name__}.")
        return cls(x, named, y, *(rest or [[str(place) for place in range(first, first + len(x))]]))


AttackedBatch = (
    AttackedImages
    | tuple[Tensor, Tensor | Mapping[str, Tensor], Tensor, Sequence[str]]
    | tuple[Tensor, Tensor | Mapping[str, Tensor], Tensor]
)
"""Images, adversarial versions, labels, and ids where there are any."""


def to_8_bits(x: Tensor) -> Tensor:
    """Round images in [0, 1] to what an 8-bit file holds.

    >>> (to_8_bits(torch.tensor([0.0, 0.501, 1.0])) * 255).tolist()
    [0.0, 128.0, 255.0]
    """
    return (x.clamp(0, 1) * 255).round() / 255


def outcomes(
    batches: Iterable[AttackedBatch],
    targets: Targets,
    poses: Sequence[Pose] = PAPER_POSES,
    *,
    precision: Precision = "full",
) -> Outcomes:
    """Evaluate several attacks on several targets over several poses, batch by batch.

    In one pass: each image is warped once a pose for all targets, clean predictions are shared by all attacks, and no
    batch is kept once it is evaluated. So a data set of any size needs the memory of one batch, and a byte for each
    image, attack, target and pose.

    Args:
        batches: ``(x, {attack: adversarial}, y, ids)``, and the classes to reach if the attacks are targeted, see
            :class:`AttackedImages`, on the targets' device; or ``(x, adversarial, y)``, where the only attack is called
            "adversarial" and images go by their place. All batches have the same attacks, and no image comes twice.
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        poses: transforms to apply, each counted once; the paper's twelve by default.
        precision: ``"full"`` evaluates every network as it is; ``"bf16"`` computes in bfloat16, which is faster on a
            GPU and changes a few predictions that were close.

    Raises:
        WhorlError: an unknown precision, there are no batches, the parts of one do not fit together, or a target
            answers with NaN, infinity, the wrong shape or the wrong number of classes, or a label is none of them.

    >>> x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> halves = [(x[i : i + 2], {"none": x[i : i + 2]}, y[i : i + 2], [f"{i}a", f"{i}b"]) for i in (0, 2)]
    >>> outcomes(halves, {"mine": net}, [Pose()]).counts["none", "mine", Pose()].n
    4
    >>> outcomes([(x, x, y)], {"mine": net}, [Pose()]).counts["adversarial", "mine", Pose()].n_success
    0
    """
    evaluate, parts, seen = BatchEvaluator(targets, poses, precision=precision), list[Outcomes](), 0
    for given in batches:
        batch = AttackedImages.of(given, first=seen)
        seen += len(batch.x)
        parts.append(evaluate(batch))
    return Outcomes.joined(parts)


class BatchEvaluator:
    """Evaluates one batch after the other: what :func:`outcomes` does with each.

    Args:
        targets: name to network.
        poses: transforms to apply, each counted once.
        precision: see :class:`whorl.evaluation.Predictor`.
    """

    def __init__(self, targets: Targets, poses: Sequence[Pose] = PAPER_POSES, *, precision: Precision = "full") -> None:
        self.targets = tuple(targets)
        self.poses = tuple(dict.fromkeys(poses))  # a pose given twice would count its images twice
        self._predictor = Predictor(targets, precision=precision)
        self._attacks: tuple[str, ...] | None = None

    def __call__(self, batch: AttackedImages) -> Outcomes:
        """Evaluate a batch, which has the attacks that the first one had.

        Raises:
            WhorlError: as ``outcomes``.
        """
        self._attacks = tuple(batch.adversarial) if self._attacks is None else self._attacks
        _check(batch, self._attacks)
        y = checked_labels(batch.y, batch.x)
        wanted = None if batch.wanted is None else checked_labels(batch.wanted, batch.x)
        clean, made, distances = self._labels(batch.x, y, batch.ids) == y, [], {}
        for name, images in batch.adversarial.items():
            rounded = to_8_bits(check_images(images))  # rounding would make anything an image
            made.append(self._labels(rounded, y if wanted is None else wanted, batch.ids))
            distances[name] = Distance.of(batch.x, rounded)
        attacked = torch.stack(made) if made else torch.empty(0, *clean.shape, dtype=torch.int64)
        return Outcomes(
            ids=tuple(batch.ids),
            attacks=self._attacks,
            targets=self.targets,
            poses=self.poses,
            clean=clean,
            adversarial=attacked == y,
            distances=distances,
            reached=None if wanted is None else attacked == wanted,
        )

    def _labels(self, images: Tensor, checked: Tensor, ids: Sequence[str]) -> Tensor:
        everywhere, shape = dict.fromkeys(self.targets, self.poses), (len(self.targets), len(self.poses))
        cells = self._predictor.labels(images, everywhere, y=checked, ids=ids)
        rows = [cells[name, pose] for name in self.targets for pose in self.poses]
        return torch.stack(rows).unflatten(0, shape) if rows else torch.empty(*shape, len(images), dtype=torch.int64)


def success_rates(
    targets: Targets,
    x: Tensor,
    adversarial: Tensor | Mapping[str, Tensor],
    y: Tensor,
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    batch_size: int = 64,
    precision: Precision = "full",
) -> dict[tuple[str, str, Pose], SuccessRate]:
    """Count successes on images that are in memory; see ``outcomes``.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits.
        x: (N, C, H, W) clean images.
        adversarial: (N, C, H, W) images, or several by their attack's name; rounded to 8 bits first.
        y: (N,) true labels.
        poses: transforms to apply.
        batch_size: images per forward pass.
        precision: ``"full"`` or ``"bf16"``; see :func:`outcomes`.

    Returns:
        Counts by (attack, target, pose).
    """
    whole = AttackedImages.of((x, adversarial, y))
    _check(whole, tuple(whole.adversarial))
    return outcomes(split(whole, batch_size), targets, poses, precision=precision).counts


def split(whole: AttackedImages, size: int) -> Iterator[AttackedImages]:
    """Cut images that are in memory into batches for ``outcomes``."""
    checked("batch_size", size, Count)
    for part in slices(len(whole.x), size):
        adversarial = {name: images[part] for name, images in whole.adversarial.items()}
        wanted = None if whole.wanted is None else whole.wanted[part]
        yield AttackedImages(whole.x[part], adversarial, whole.y[part], whole.ids[part], wanted)


def check_fit(x: Tensor, adversarial: Mapping[str, Tensor], y: Tensor, ids: Sequence[str]) -> None:
    """Refuse adversarial images of another shape than the clean ones, and labels and ids of another number."""
    for name, images in adversarial.items():
        if images.shape != x.shape:
            raise WhorlError(
                f"adversarial images of {name!r} must match x, {tuple(x.shape)}; got {tuple(images.shape)}."
            )
    if y.shape != x.shape[:1] or len(ids) != len(x):
        raise WhorlError(
            f"expected a label and an id for each of {len(x)} images; got {tuple(y.shape)} and {len(ids)}."
        )


def _check(batch: AttackedImages, attacks: tuple[str, ...]) -> None:
    x, adversarial, y, ids, wanted = batch
    if tuple(adversarial) != attacks:
        raise WhorlError(f"all batches must have the same attacks, {list(attacks)}; got {list(adversarial)}.")
    check_fit(x, adversarial, y, ids)
    if wanted is not None and (wanted.shape != y.shape or bool((wanted.to(y.device) == y).any())):
        raise WhorlError(
            "expected a class to reach for each image, other than its own; got "
            f"{tuple(wanted.shape)} for {len(x)} images, or an image's own label. Leave that image out."
        )
