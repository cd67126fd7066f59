"""A run that never happened: how many images each attack fools is given, and everything else follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from whorl.evaluation import Comparison, ImageCounts, Over, Pose, SuccessRate, compare
from whorl.runs.declaration import Declaration
from whorl.runs.networks import UNDEFENDED, split_target
from whorl.runs.results import Cell

Fooled = Callable[[str, str, str, Pose], int]
"""(attack, source, target, pose) to how many images."""


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """An attack that fools k images fools the first k that are recognised; ``recognised`` of ``n`` are."""

    declaration: Declaration
    fooled: Fooled
    n: int = 200
    recognised: int = 150
    gradients: int = 10

    @property
    def cells(self) -> tuple[Cell, ...]:
        made = []
        for spec, source in self.declaration.versions():
            for target in self.declaration.targets:
                model, layers = split_target(target)
                for pose in self.declaration.all_poses():
                    k = self.fooled(spec.title, source, target, pose)
                    cell = Cell(
                        attack=spec.title,
                        source=source,
                        target=model,
                        defense="+".join(layers) or UNDEFENDED,
                        pose=pose,
                        eps=16 / 255,
                        counts=SuccessRate(self.n, self.recognised, k, self.recognised - k),
                        grad_evals=self.gradients * self.n,
                        seconds=0.5 * self.n,
                        images=ImageCounts(
                            np.arange(self.n)[None] < self.recognised, np.arange(self.n)[None] < min(k, self.recognised)
                        ),
                    )
                    made.append(cell)
        return tuple(made)

    def compare(
        self, first: str, second: str, source: str, target: str, pose: Pose | None = None, *, poses: Over | None = None
    ) -> Comparison:
        where = self.declaration.all_poses() if pose is None else (pose,)
        order = torch.arange(self.n).expand(len(where), -1)
        clean = order < self.recognised
        one, other = (
            clean & (order >= torch.tensor([[self.fooled(name, source, target, p)] for p in where]))
            for name in (first, second)
        )
        return compare(ImageCounts.of(clean, one), ImageCounts.of(clean, other), poses or "pooled")
