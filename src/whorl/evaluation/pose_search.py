"""The pose in which a network errs on an image: no perturbation, only the worst rotation, scale and shift found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.attacks.contract import check_images
from whorl.evaluation.prediction import Network, Predictor, checked_labels, slices
from whorl.evaluation.success import SuccessRate
from whorl.geometry.pose import Pose, posed
from whorl.randomness import check_ids
from whorl.records import Count, checked
from whorl.transforms.inputs import RandomAffine
from whorl.transforms.spread import golden_ratio

BUDGET = 200
# Poses that are tried of each image at a time: so many more than needed are paid for at most, less one.
_AT_ONCE = 4
_COARSE = 72
_MOST_CORNERS = 32
# Of the refinement: how many of the best poses it goes on from, and how far it looks at first and at last, as a share
# of the box.
_ELITE = 4
_FAR, _NEAR = 0.5, 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class WorstPoses:
    """The worst pose that was found of each of B images; ``a + b`` adds other images.

    Attributes:
        ids: B names.
        poses: of each image, that in which another class is farthest above the label.
        fooled: (B,) bool: in that pose the network errs.
        recognised: (B,) bool: as it is, the image is recognised.
        margins: (B,) float: how far the best other class is above the label in that pose, in logits.
        queries: (B,) int64: poses in which the network saw the image, each once, the image as it is included.
    """

    ids: tuple[str, ...]
    poses: tuple[Pose, ...]
    fooled: Tensor
    recognised: Tensor
    margins: Tensor
    queries: Tensor

    @property
    def counts(self) -> SuccessRate:
        """Of the images that are recognised as they are, those that some pose fools."""
        known = int(self.recognised.sum())
        fooled = int((self.recognised & self.fooled).sum())
        return SuccessRate(len(self.ids), known, fooled, int((~self.fooled).sum()))

    def __add__(self, other: WorstPoses) -> WorstPoses:
        return WorstPoses(
            ids=self.ids + other.ids,
            poses=self.poses + other.poses,
            fooled=torch.cat((self.fooled, other.fooled)),
            recognised=torch.cat((self.recognised, other.recognised)),
            margins=torch.cat((self.margins, other.margins)),
            queries=torch.cat((self.queries, other.queries)),
        )


def worst_pose(
    model: Network,
    x: Tensor,
    y: Tensor,
    *,
    ids: Sequence[str] | None = None,
    box: RandomAffine | None = None,
    budget: int = BUDGET,
    batch_size: int = 64,
) -> WorstPoses:
    """Find, for each image, a pose in which a network errs: clean images or adversarial ones, as they come.

    First the image as it is, then the corners of the box and points spread evenly through it, then poses near the
    worst ones so far, nearer and nearer. An image is done when it is fooled, or when its budget is spent. Only answers
    are used, no gradients; nothing is random, and an image's result does not depend on the others.

    Args:
        model: (B, C, H, W) in [0, 1] to (B, classes) logits.
        x: (B, C, H, W) images in [0, 1].
        y: (B,) true labels.
        ids: B names; their places by default.
        box: within which to search. By default EOT's: 30° either way, scales from 0.5 to 1.5, shifts by 20 pixels of
            299 either way. It may have the other parts of a pose.
        budget: poses to try for each image at most, the image as it is included.
        batch_size: images per forward pass.

    Raises:
        WhorlError: images or labels of the wrong kind, a budget below 1, or an answer that is no finite logits.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    >>> x = torch.rand(3, 3, 8, 8)
    >>> found = worst_pose(net, x, net(x).argmax(1), budget=20)
    >>> bool((found.queries <= 20).all()), bool(found.recognised.all())
    (True, True)
    """
    checked("budget", budget, Count)
    checked("batch_size", batch_size, Count)
    x = check_images(x)
    y = checked_labels(y, x)
    check_ids(ids, len(x))
    names = [str(i) for i in range(len(x))] if ids is None else [str(name) for name in ids]
    search = _Search(model, x, y, names, box or RandomAffine(), batch_size)
    search.run(budget)
    return search.found()


class _Tried(NamedTuple):
    """What came of one round: (b, k, dimensions) points and (b, k) margins of the images that were left."""

    points: Tensor
    margins: Tensor


class _Search:
    """The search on one batch of images; what it knows of each image lies on the CPU."""

    def __init__(
        self, model: Network, x: Tensor, y: Tensor, ids: list[str], box: RandomAffine, batch_size: int
    ) -> None:
        self.x, self.y, self.ids, self.box, self.batch_size = x, y, ids, box, batch_size
        self.name = str(getattr(model, "name", "the network"))
        self.predictor = Predictor({self.name: model})
        self.numbers = torch.tensor(Pose().numbers, dtype=torch.float64).repeat(len(x), 1)
        self.margins = torch.full((len(x),), -torch.inf)
        self.fooled = torch.zeros(len(x), dtype=torch.bool)
        self.queries = torch.zeros(len(x), dtype=torch.int64)
        self.recognised = ~self.fooled

    def run(self, budget: int) -> None:
        still = self.numbers[:, None].clone()
        self._evaluate(torch.arange(len(self.x)), still)
        self.recognised = ~self.fooled
        free = [place for place, name in enumerate(self.box.drawn) if len(set(self.box.ranges[name])) == 2]
        if not free:
            return
        coarse = coarse_points(len(free), min(_COARSE, budget - 1))
        left, known = (~self.fooled).nonzero()[:, 0], None
        while len(left) and (spent := int(self.queries[left[0]])) < budget:
            count = min(_AT_ONCE, budget - spent)
            points = coarse[spent - 1 : spent - 1 + count].expand(len(left), -1, -1)
            if known is not None and not points.shape[1]:
                points = refined(known, (spent - len(coarse) - 1) / max(1, budget - len(coarse) - 1), count, spent)
            margins = self._evaluate(left, self._numbers(points, free))
            tried = _Tried(points, margins)
            if known is not None:
                tried = _Tried(*(torch.cat(pair, dim=1) for pair in zip(known, tried, strict=True)))
            kept = ~self.fooled[left]
            left, known = left[kept], _Tried(*(part[kept] for part in tried))

    def found(self) -> WorstPoses:
        return WorstPoses(
            ids=tuple(self.ids),
            poses=tuple(Pose.of(row) for row in self.numbers.tolist()),
            fooled=self.fooled,
            recognised=self.recognised,
            margins=self.margins,
            queries=self.queries,
        )

    def _numbers(self, points: Tensor, free: list[int]) -> Tensor:
        """(b, k, 12) numbers of poses, of (b, k, free) points of the unit cube."""
        draws = torch.full((*points.shape[:2], self.box.dimensions), 0.5, dtype=torch.float64)
        draws[..., free] = points
        return self.box.numbers(draws.flatten(0, 1)).reshape(*points.shape[:2], -1)

    def _evaluate(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """Show images ``rows`` in (rows, k, 12) poses; keep the worst of each. Gives (rows, k) margins."""
        count = numbers.shape[1]
        every, flat = rows.repeat_interleave(count), numbers.flatten(0, 1)
        found = [self._answers(every[at], flat[at]) for at in slices(len(every), self.batch_size)]
        if not found:
            return torch.empty(0, count)
        wrong, margins = (torch.cat(column).reshape(-1, count) for column in zip(*found, strict=True))
        # A tie between two classes is an error or not as argmax has it, so errors go first.
        best = torch.where(wrong, margins + 1e9, margins).argmax(1, keepdim=True)
        top, erred = margins.gather(1, best)[:, 0], wrong.any(1)
        better = erred | (top > self.margins[rows])
        self.numbers[rows[better]] = numbers.gather(1, best[..., None].expand(-1, 1, numbers.shape[2]))[better, 0]
        self.margins[rows[better]] = top[better]
        self.fooled[rows] |= erred
        self.queries[rows] += count
        return margins

    def _answers(self, rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the network errs on images in poses, and its margins: (B,) each."""
        y = self.y[rows.to(self.y.device)]
        images = self.x[rows.to(self.x.device)]
        if not bool((numbers == numbers.new_tensor(Pose().numbers)).all()):
            images = posed(images, numbers.to(images.device), self.box.drawn)

        ids = [self.ids[place] for place in rows.tolist()]
        ((right, margins),) = self.predictor.margins(images, y, {self.name: (Pose(),)}, ids=ids).values()
        return ~right, margins


def coarse_points(dimensions: int, count: int) -> Tensor:
    """Points of the unit cube that a search begins with, those farthest from the middle first.

    Args:
        dimensions: of the cube.
        count: of points; the first of them are the corners, if there are no more than 32.

    Returns:
        (count, dimensions) float64.

    >>> coarse_points(2, 5)[:4].tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    corners = list(product((0.0, 1.0), repeat=dimensions)) if 2**dimensions <= _MOST_CORNERS else []
    first = torch.tensor(corners, dtype=torch.float64).reshape(-1, dimensions)[:count]
    # Stretched by a quarter and cut, so that faces and edges of the box are met too.
    inner = ((spread_points(dimensions, count - len(first)) - 0.5) * 1.25).clamp(-0.5, 0.5) + 0.5
    order = (inner - 0.5).square().sum(1).argsort(descending=True, stable=True)
    return torch.cat((first, inner[order]))


def spread_points(dimensions: int, count: int, first: int = 0) -> Tensor:
    """Points of a lattice that fills the unit cube evenly, from the ``first`` on: (count, dimensions) float64."""
    share = torch.tensor([golden_ratio(dimensions) ** -i for i in range(1, dimensions + 1)], dtype=torch.float64)
    return (0.5 + torch.arange(first + 1, first + count + 1, dtype=torch.float64)[:, None] * share) % 1


def refined(known: _Tried, progress: float, count: int, first: int) -> Tensor:
    """Points near the best so far: (b, count, dimensions).

    Args:
        known: of b images.
        progress: from 0 to 1; the farther, the nearer.
        count: of points of each image.
        first: how many have been tried, so that no direction comes twice.
    """
    best = known.margins.topk(min(_ELITE, known.margins.shape[1]), dim=1).indices
    chosen = best[:, torch.arange(count) % best.shape[1]]
    dimensions = known.points.shape[2]
    start = known.points.gather(1, chosen[..., None].expand(-1, -1, dimensions))
    reach = _FAR * (_NEAR / _FAR) ** progress
    nearby: Tensor = start + (2 * spread_points(dimensions, count, first) - 1) * reach
    return nearby.clamp(0, 1)
