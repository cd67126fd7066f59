"""What networks say of images in poses: the one place where an answer is checked and becomes a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from whorl.attacks.contract import check_images, held_in_eval
from whorl.attacks.objectives import margin, whole_numbers
from whorl.errors import WhorlError, quoted
from whorl.geometry.pose import Pose
from whorl.models.classifier import forward, network_dtype
from whorl.models.prepared import copies
from whorl.randomness import check_ids

Network = Callable[[Tensor], Tensor]
"""(B, C, H, W) in [0, 1] to (B, classes) logits: a classifier, an ensemble, a defended one."""

Targets = Mapping[str, Network]
"""Networks by name. Each is looked up when it is first needed, so a mapping may load them one by one."""

PosesByTarget = Mapping[str, Sequence[Pose]]
"""In which poses each target is evaluated."""

Cells = dict[tuple[str, Pose], Tensor]
"""By target and pose, one row of values, an entry for each image."""

Precision = Literal["full", "bf16"]
"""What networks compute in. Images are warped in full precision either way: that is a small share of the time."""


class Predictions(NamedTuple):
    """What each target says of each image in each pose; both on the CPU."""

    labels: Tensor
    """(targets, poses, B) int64."""
    probabilities: Tensor
    """(targets, poses, B) float: of those labels, in [0, 1]."""


class Predictor:
    """Networks to evaluate, with what is known of their answers so far.

    Transform first, then predict: each pose is warped once for all targets. A network's answer must be a floating
    (B, classes) tensor of finite values, with as many classes every time and in all targets, and labels must be among
    them. The device is
    waited for once a call, not once a cell: answers, and whether they are finite, are moved together.

    Args:
        targets: name to network, on the images' device.
        precision: ``"full"`` evaluates every network as it is. ``"bf16"`` computes in bfloat16, which is faster on a
            GPU and changes a few predictions that were close.

    Raises:
        WhorlError: an unknown precision.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> predictor = Predictor({"mine": net})
    >>> x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 1])
    >>> list(predictor.recognised(x, y, {"mine": [Pose(), Pose(angle=30)]}))
    [('mine', Pose(angle=0.0, scale=1.0, shift=(0.0, 0.0))), ('mine', Pose(angle=30, scale=1.0, shift=(0.0, 0.0)))]
    """

    def __init__(self, targets: Targets, *, precision: Precision = "full") -> None:
        if precision not in get_args(Precision):
            raise WhorlError(f"precision must be 'full' or 'bf16'; got {precision!r}.")
        self.targets, self.precision = targets, precision
        self._networks: dict[str, Network] = {}
        self._classes: dict[str, int] = {}

    def recognised(self, images: Tensor, y: Tensor, poses: PosesByTarget, *, ids: Sequence[str] | None = None) -> Cells:
        """Predict, and hold the predictions against the true labels.

        Args:
            images: (B, C, H, W) in [0, 1]; none is fine.
            y: (B,) true labels, on any device.
            poses: of each target; another number for each if need be.
            ids: B names, for errors.

        Returns:
            (B,) bool on the CPU, by (target, pose).

        Raises:
            WhorlError: images that do not lie in [0, 1], an answer of the wrong kind or shape, NaN or infinity, another
                number of classes than before, or a label that is none of a target's classes.
        """
        found = self.labels(images, poses, y=y, ids=ids)
        labels = checked_labels(y, images)
        return {cell: row == labels for cell, row in found.items()}

    def labels(
        self, images: Tensor, poses: PosesByTarget, *, y: Tensor | None = None, ids: Sequence[str] | None = None
    ) -> Cells:
        """Predict: (B,) int64 on the CPU, by (target, pose). Arguments and errors as of ``read``."""
        found = self.read(images, poses, lambda logits: (logits.argmax(1),), y=y, ids=ids)
        return {cell: labels for cell, (labels,) in found.items()}

    def margins(
        self, images: Tensor, y: Tensor, poses: PosesByTarget, *, ids: Sequence[str] | None = None
    ) -> dict[tuple[str, Pose], tuple[Tensor, Tensor]]:
        """Predict, and say how sure of it a network is; arguments and errors as of ``recognised``.

        Returns:
            By (target, pose), (B,) bool: recognised; and (B,) float: how far the best other class is above the label,
            in logits. Both on the CPU.
        """

        def compared(logits: Tensor) -> tuple[Tensor, Tensor]:
            labels = y.to(logits.device, torch.int64)
            return logits.argmax(1) == labels, margin(logits.float(), labels)

        found = self.read(images, poses, compared, y=y, ids=ids)
        return {cell: (right, apart) for cell, (right, apart) in found.items()}

    @torch.no_grad()
    def read(
        self,
        images: Tensor,
        poses: PosesByTarget,
        how: Callable[[Tensor], tuple[Tensor, ...]],
        *,
        y: Tensor | None = None,
        ids: Sequence[str] | None = None,
    ) -> dict[tuple[str, Pose], tuple[Tensor, ...]]:
        """Read several things off each answer, such as the label and its probability.

        Args:
            images: (B, C, H, W) in [0, 1]; none is fine.
            poses: of each target.
            how: (B, classes) logits to some (B,) tensors.
            y: (B,) true labels, to be checked; None where there are none.
            ids: B names, for errors.

        Returns:
            What ``how`` gave, on the CPU, by (target, pose).

        Raises:
            WhorlError: as of ``recognised``.
        """
        check_images(images)
        check_ids(ids, len(images))
        labels = None if y is None else checked_labels(y, images)
        cells: list[tuple[str, Pose]] = []
        rows: list[tuple[Tensor, ...]] = []
        if not len(images):
            nothing = how(torch.empty(0, 1))
            return {(name, pose): nothing for name, own in poses.items() for pose in own}
        for pose in dict.fromkeys(pose for own in poses.values() for pose in own):
            seen = pose.apply(images)
            for name, own in poses.items():
                if pose in own:
                    logits = self._logits(name, seen)
                    if labels is not None:
                        self._check_among_classes(name, labels, ids)  # before ``how``, which may look them up
                    cells.append((name, pose))
                    rows.append((logits.isfinite().all(1), *how(logits)))
        if not cells:
            return {}
        finite, *columns = (torch.stack(column).cpu() for column in zip(*rows, strict=True))
        _check_finite(finite, cells, ids)
        return dict(zip(cells, zip(*columns, strict=True), strict=True))

    def _logits(self, name: str, seen: Tensor) -> Tensor:
        if name not in self._networks:
            self._networks[name] = _in_precision(self.targets[name], self.precision)
        with held_in_eval(self.targets[name]):
            # A copy: a network that works in place must change neither the caller's images nor the next one's. Ours
            # take any floating dtype, and round less than others could be given.
            own = hasattr(self.targets[name], "num_classes")
            dtype = seen.dtype if own else network_dtype(self.targets[name], seen)
            logits = forward(self._networks[name], seen.to(dtype, copy=True))
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = f"a tensor of {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
            raise WhorlError(f"{name!r} must return a floating tensor of logits; got {kind}. {_WRAP}")
        if logits.dim() != 2 or logits.shape[0] != len(seen) or not logits.shape[1]:
            raise WhorlError(f"{name!r} must return ({len(seen)}, classes) logits; got {tuple(logits.shape)}. {_WRAP}")
        other = next(iter(self._classes.items()), (name, logits.shape[1]))
        classes = self._classes.setdefault(name, logits.shape[1])
        if name != other[0] and classes != other[1]:
            raise WhorlError(
                f"networks that share images must have the same classes; {other[0]!r} has {other[1]} and {name!r} has "
                f"{classes}. Evaluate them one by one, each on images of its own classes."
            )
        if logits.shape[1] != classes:
            raise WhorlError(
                f"{name!r} must have the same classes every time; got {classes} before and {logits.shape[1]} now."
            )
        return logits

    def _check_among_classes(self, name: str, y: Tensor, ids: Sequence[str] | None) -> None:
        classes = self._classes[name]
        for place in (int(y.argmin()), int(y.argmax())):
            if not 0 <= int(y[place]) < classes:
                raise WhorlError(
                    f"labels must lie in [0, {classes - 1}], the classes of {name!r}; got {int(y[place])} for image "
                    f"{_name(place, ids)}. Check the labels, and that it is the right network."
                )


_WRAP = "Wrap the network so that it returns just them."


def slices(count: int, size: int) -> Iterator[slice]:
    """Where to cut so many images into batches of one size, the last of which may be smaller.

    >>> list(slices(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    return (slice(start, start + size) for start in range(0, count, size))


def predictions(
    targets: Targets,
    images: Tensor,
    poses: Sequence[Pose] = (Pose(),),
    *,
    y: Tensor | None = None,
    ids: Sequence[str] | None = None,
    precision: Precision = "full",
) -> Predictions:
    """Predict labels, with their probabilities.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits, on the images' device.
        images: (B, C, H, W) in [0, 1].
        poses: transforms to apply before the networks see the images; by default they see them as they are.
        y: (B,) true labels, only to check that they are among the classes.
        ids: B names, for error messages.
        precision: ``"full"`` evaluates every network as it is; ``"bf16"`` computes in bfloat16, which is faster on a
            GPU and changes a few predictions that were close.

    Returns:
        ``labels``, (targets, poses, B) int64, and ``probabilities`` of those labels, the same shape, in [0, 1]; on the
        CPU.

    Raises:
        WhorlError: images that do not lie in [0, 1], labels that are none of a target's classes, or an answer with NaN,
            infinity or the wrong shape.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> predictions({"mine": net}, torch.rand(5, 3, 8, 8), [Pose(), Pose(scale=0.7)]).labels.shape
    torch.Size([1, 2, 5])
    """
    found = Predictor(targets, precision=precision).read(
        images,
        dict.fromkeys(targets, tuple(poses)),
        lambda logits: (
            logits.argmax(1),
            logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32)).amax(1),
        ),
        y=y,
        ids=ids,
    )
    labels, probabilities = ({cell: row[i] for cell, row in found.items()} for i in range(2))
    return Predictions(_grid(labels, targets, poses), _grid(probabilities, targets, poses))


def recognised(
    targets: Targets,
    images: Tensor,
    y: Tensor,
    poses: Sequence[Pose] = (Pose(),),
    *,
    ids: Sequence[str] | None = None,
    precision: Precision = "full",
) -> Tensor:
    """Whether each target predicts the true label of each image in each pose: (targets, poses, B) bool, on the CPU.

    Args:
        targets: name to network, (B, C, H, W) in [0, 1] to logits, on the images' device.
        images: (B, C, H, W) in [0, 1].
        y: (B,) true labels.
        poses: transforms to apply before the networks see the images; by default they see them as they are.
        ids: B names, for error messages.
        precision: ``"full"`` evaluates every network as it is; ``"bf16"`` computes in bfloat16, which is faster on a
            GPU and changes a few predictions that were close.

    Raises:
        WhorlError: images that do not lie in [0, 1], labels that are none of a target's classes, or an answer with NaN,
            infinity or the wrong shape.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> x = torch.rand(5, 3, 8, 8)
    >>> bool(recognised({"mine": net}, x, net(x).argmax(1)).all())
    True
    """
    predictor = Predictor(targets, precision=precision)
    return _grid(predictor.recognised(images, y, dict.fromkeys(targets, tuple(poses)), ids=ids), targets, poses)


def _grid(cells: Cells, targets: Targets, poses: Sequence[Pose]) -> Tensor:
    """(targets, poses, B)."""
    return torch.stack([torch.stack([cells[name, pose] for pose in poses]) for name in targets])


def _in_precision(target: Network, precision: Precision) -> Network:
    """Give a network that answers in a precision."""
    if precision == "full":
        return partial(copies.answer, target)
    from whorl.models.prepared.network import prepared  # needed here alone

    @cache
    def quick() -> Network | None:
        # Once: to see whether a network is still the same takes a look at all its weights.
        kept = prepared(target)
        return None if kept is None else kept.network

    def answer(x: Tensor) -> Tensor:
        network = quick() if x.is_cuda else None
        if network is not None:
            return network(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return target(x)

    return answer


def checked_labels(y: Tensor, images: Tensor) -> Tensor:
    """The labels of (B, C, H, W) images, (B,) int64 on the CPU.

    Raises:
        WhorlError: they are no whole numbers, or not one for each image.
    """
    if not isinstance(y, Tensor) or not whole_numbers(y) or y.shape != images.shape[:1]:
        came = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else quoted(y)
        raise WhorlError(f"labels must be integers, one for each of {len(images)} images; got {came}.")
    return y.cpu().to(torch.int64)  # of the unsigned kinds torch finds no ends


def _check_finite(finite: Tensor, cells: Sequence[tuple[str, Pose]], ids: Sequence[str] | None) -> None:
    """Refuse answers that are not numbers. ``finite`` is (cells, B), on the CPU."""
    if bool(finite.all()):
        return
    cell, place = (~finite).nonzero()[0].tolist()
    name, pose = cells[cell]
    raise WhorlError(
        f"{name!r} must return finite logits; got NaN or infinity for image {_name(place, ids)} in the pose {pose}. "
        "Check its weights, and that images lie in [0, 1]."
    )


def _name(place: int, ids: Sequence[str] | None) -> str:
    return str(place) if ids is None else repr(ids[place])
