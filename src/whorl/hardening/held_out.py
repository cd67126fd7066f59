"""Accuracy on held-out images while a student learns: clean, against images made elsewhere, and white-box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.attacks.contract import Model
from whorl.evaluation import recognised
from whorl.evaluation.prediction import slices
from whorl.hardening.examples import perturb
from whorl.hardening.recipes import Examples

TRANSFER = Examples(eps=(16 / 255, 16 / 255), steps=10, reach=5.0, momentum=1.0)
"""MIM at ε = 16/255, made once on the first static network."""
WHITE_BOX = Examples(eps=(4 / 255, 4 / 255), steps=5, reach=2.5, random_start=True)
"""PGD at ε = 4/255, made anew for the student each time."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out images, and their adversarial versions from the pool.

    Attributes:
        x: (N, 3, H, W) float in [0, 1], or empty.
        y: (N,) labels.
        keys: (N,) random keys.
        transferred: (N, 3, H, W), or None where there is no pool.
        batch: images at a time.
    """

    x: Tensor
    y: Tensor
    keys: Tensor
    transferred: Tensor | None
    batch: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor, keys: Tensor, maker: Model | None, batch: int) -> HeldOut:
        """Make the adversarial versions."""
        made = None
        if maker is not None and len(x):
            parts = [perturb(TRANSFER, maker, x[p], y[p], keys[p]) for p in slices(len(x), batch)]
            made = torch.cat(parts)
        return cls(x, y, keys, made, batch)

    def measure(self, student: Model) -> dict[str, float]:
        """Evaluate a student: shares of images that it recognises, in [0, 1], and how many there are (``held_out``).

        Nothing where nothing is held out.
        """
        if not len(self.x):
            return {}
        right: dict[str, list[Tensor]] = {"clean": [], "transfer": [], "white_box": []}
        for part in slices(len(self.x), self.batch):
            x, y, keys = self.x[part], self.y[part], self.keys[part]
            right["clean"].append(recognised({"student": student}, x, y))
            attacked = perturb(WHITE_BOX, student, x, y, keys)
            right["white_box"].append(recognised({"student": student}, attacked, y))
            if self.transferred is not None:
                right["transfer"].append(recognised({"student": student}, self.transferred[part], y))
        shares = {name: float(torch.cat(parts, dim=-1).double().mean()) for name, parts in right.items() if parts}
        return {"held_out": float(len(self.x)), **shares}
