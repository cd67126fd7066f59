"""Images, attacks on them, and how often networks are fooled: for every benchmark that evaluates."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import whorl
from whorl.evaluation import PAPER_POSES, AttackedImages, Outcomes, Pose, Precision, outcomes
from whorl.evaluation.attacked_images import split


@dataclass(frozen=True, kw_only=True)
class Data:
    """Labelled images on the device: (N, C, H, W), (N,) labels, N names."""

    x: Tensor
    y: Tensor
    ids: list[str]

    @classmethod
    def load(cls, folder: str | None, n: int | None, size: int, device: torch.device | str, *, skip: int = 0) -> Data:
        """``n`` images of a folder, or of the bundled samples, after the first ``skip``, at one size."""
        last = None if n is None else skip + n
        x, y, ids = whorl.load_images(folder, limit=last, size=size) if folder else whorl.load_samples(last, size=size)
        return cls(x=x[skip:].to(device), y=y[skip:].to(device), ids=list(ids)[skip:])

    def spread(self, n: int) -> Data:
        """``n`` of the images, evenly spread: the first of a folder of classes would be all of one kind."""
        if n >= len(self.ids):
            return self
        chosen = [place * len(self.ids) // n for place in range(n)]
        return Data(x=self.x[chosen], y=self.y[chosen], ids=[self.ids[place] for place in chosen])

    def parts(self, size: int) -> list[slice]:
        """Batches, as places."""
        return [slice(start, start + size) for start in range(0, len(self.x), size)]

    def attacked(self, attack: whorl.Attack, source: nn.Module, *, batch_size: int, seed: int = 0) -> Tensor:
        """Attack all images, some at a time: (N, C, H, W)."""
        parts = self.parts(batch_size)
        return torch.cat([attack(source, self.x[p], self.y[p], seed=seed, ids=self.ids[p]) for p in parts])


def evaluated(
    targets: Mapping[str, nn.Module],
    data: Data,
    adversarial: Mapping[str, Tensor],
    poses: Sequence[Pose] = PAPER_POSES,
    *,
    batch_size: int,
    precision: Precision = "full",
) -> Outcomes:
    """Evaluate attacks on images that are in memory; ``adversarial`` is attack's name to (N, C, H, W)."""
    batches = split(AttackedImages(data.x, adversarial, data.y, data.ids), batch_size)
    return outcomes(batches, targets, poses, precision=precision)


def percent(done: Outcomes, attack: str, target: str) -> float:
    """Mean over the poses of the success rate, in percent; a pose in which nothing clean is recognised has none."""
    return 100 * done.rate(attack, target, "mean").value


def rows(done: Outcomes) -> list[dict[str, Any]]:
    """Every attack on every network in every pose, as they are saved: counts, and the outcome of each image.

    ``recognised`` has the clean and the adversarial images in the order of the data, whose ids stand in the metadata.
    """
    found = []
    for (a, t, p), c in done.counts.items():
        attack, target, pose = done.attacks.index(a), done.targets.index(t), done.poses.index(p)
        clean, adversarial = done.clean[target, pose], done.adversarial[attack, target, pose]
        both = {"clean": packed(clean.numpy()), "adversarial": packed(adversarial.numpy())}
        where = {"attack": a, "target": t, "angle": p.angle, "scale": p.scale, "shift": p.shift}
        found.append({**where, **vars(c), "recognised": both})
    return found


def packed(outcomes: np.ndarray) -> str:
    """Outcomes as text: row after row, eight a byte, base64.

    >>> packed(np.array([True, False, True, True]))
    'sA=='
    """
    return base64.b64encode(np.packbits(outcomes).tobytes()).decode()


def unpacked(stored: Mapping[str, Any], poses: int) -> np.ndarray:
    """What :func:`packed` made of (poses, n) outcomes; ``stored`` has ``n`` and ``bits``.

    >>> unpacked({"n": 2, "bits": "sA=="}, 2).tolist()
    [[True, False], [True, True]]
    """
    bits = np.unpackbits(np.frombuffer(base64.b64decode(stored["bits"]), np.uint8), count=poses * stored["n"])
    return bits.reshape(poses, stored["n"]).astype(bool)
