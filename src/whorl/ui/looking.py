"""What a network says of an image in a pose and in a grid of poses, counted as ``whorl.evaluation`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whorl.evaluation import Pose, SuccessRate, poses, predictions
from whorl.ui.crafting import Crafted

MAP_ANGLES = (-45.0, -30.0, -15.0, 0.0, 15.0, 30.0, 45.0)
MAP_SCALES = (1.5, 1.3, 1.0, 0.7, 0.5)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the network said of one version."""

    label: int
    name: str
    """The label in words."""
    probability: float
    """In [0, 1]."""
    right: bool


@dataclass(frozen=True, kw_only=True)
class View:
    """All versions in one pose."""

    pose: Pose
    pictures: dict[str, Tensor] = field(repr=False)
    """By version, (3, H, W) in [0, 1], as the network saw them."""
    answers: dict[str, Answer]
    """By version."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One pose of the map."""

    pose: Pose
    answers: dict[str, Answer]
    """By version."""
    counts: dict[str, SuccessRate]
    """By attack, of this one image: a success, a failure, or not counted because the clean version is wrong."""


@dataclass(frozen=True, kw_only=True)
class SuccessMap:
    """Cells by pose, as far as they are asked; ``total`` is how many there will be."""

    cells: dict[Pose, Cell]
    total: int

    @property
    def complete(self) -> bool:
        """Whether all poses are asked."""
        return len(self.cells) == self.total

    def pooled(self, attack: str) -> SuccessRate:
        """All poses together."""
        return sum((cell.counts[attack] for cell in self.cells.values()), SuccessRate())


def look(crafted: Crafted, pose: Pose) -> View:
    """Put all versions into a pose and predict them, in one pass."""
    seen = {name: pose.apply(version)[0].cpu() for name, version in crafted.versions.items()}
    return View(pose=pose, pictures=seen, answers=_predict(crafted, (pose,))[pose])


def success_map(crafted: Crafted) -> Iterator[SuccessMap]:
    """Predict in every pose of a small grid of angles and scales, a row of the map at a time.

    Returns:
        An iterator over the map as it fills; the last is complete.
    """
    cells: dict[Pose, Cell] = {}
    total = len(MAP_ANGLES) * len(MAP_SCALES)
    for scale in MAP_SCALES:
        row = poses(angles=MAP_ANGLES, scales=(scale,))
        for pose, said in _predict(crafted, row).items():
            cells[pose] = Cell(pose=pose, answers=said, counts=_counts(crafted, said))
        yield SuccessMap(cells=dict(cells), total=total)


def _predict(crafted: Crafted, asked: tuple[Pose, ...]) -> dict[Pose, dict[str, Answer]]:
    """What the network says, by pose and version."""
    versions, names = torch.cat(tuple(crafted.versions.values())), list(crafted.versions)
    y = torch.full((len(names),), crafted.label)
    found = predictions({crafted.model.name: crafted.model}, versions, asked, y=y, ids=names)
    rows = zip(asked, found.labels[0].tolist(), found.probabilities[0].tolist(), strict=True)
    return {
        pose: {name: _answer(crafted, *said) for name, *said in zip(names, labels, shares, strict=True)}
        for pose, labels, shares in rows
    }


def _answer(crafted: Crafted, label: int, probability: float) -> Answer:
    name = str(crafted.model.labels[label])
    return Answer(label=label, name=name, probability=probability, right=label == crafted.label)


def _counts(crafted: Crafted, said: Mapping[str, Answer]) -> dict[str, SuccessRate]:
    right = {name: torch.tensor([answer.right]) for name, answer in said.items()}
    return {name: SuccessRate.counted(right["clean"], right[name]) for name in crafted.attacks}


def whorls(crafted: Crafted) -> dict[str, Tensor]:
    """The two perturbations, magnified until the bound fills the range: gray is no change.

    Returns:
        By attack, (3, H, W) in [0, 1].
    """
    clean = crafted.versions["clean"][0]
    # Half a level, for a bound of 0 leaves nothing to magnify.
    bound = max(crafted.settings.eps, 0.5 / 255)
    return {
        name: ((crafted.versions[name][0] - clean) / (2 * bound) + 0.5).clamp(0, 1).cpu() for name in crafted.attacks
    }
