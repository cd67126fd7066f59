"""What did hardening buy: a network and its hardened version, asked about the same adversarial images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from whorl.attacks import attack
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, SuccessRate, mean_rate, outcomes
from whorl.models.classifier import Classifier
from whorl.progress import Progress, silent

ATTACKS = ("fgsm", "pgd", "mim", "dim", "ai-pgd", "ai-mim", "ai-dim", "ai-ram")
Batches = Iterable[tuple[Tensor, Tensor, Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One attack: how often it fools the original and the hardened network, in [0, 1]; NaN where undefined."""

    attack: str
    upright: tuple[float, float]
    """At identity: (original, hardened)."""
    posed: tuple[float, float]
    """Mean over all poses: (original, hardened)."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What hardening bought, and what it cost.

    Attributes:
        original: name of the network.
        hardened: name of its hardened version.
        source: name of the network that the images were crafted on.
        n: images.
        poses: how many poses the means are over.
        clean: accuracy on clean images as they are, (original, hardened), in [0, 1].
        rows: one an attack.
    """

    original: str
    hardened: str
    source: str
    n: int
    poses: int
    clean: tuple[float, float]
    rows: tuple[Row, ...]

    def record(self) -> dict[str, Any]:
        """Everything as plain JSON; rates that are undefined are null."""

        def pair(values: tuple[float, float]) -> dict[str, float | None]:
            return {
                name: None if math.isnan(value) else value
                for name, value in zip(("original", "hardened"), values, strict=True)
            }

        return {
            "original": self.original,
            "hardened": self.hardened,
            "source": self.source,
            "n": self.n,
            "poses": self.poses,
            "clean_accuracy": pair(self.clean),
            "attacks": {row.attack: {"identity": pair(row.upright), "mean": pair(row.posed)} for row in self.rows},
        }


def measure_gain(
    original: Classifier,
    hardened: Classifier,
    source: Classifier,
    batches: Batches,
    *,
    attacks: Sequence[str] = ATTACKS,
    poses: Sequence[Pose] = PAPER_POSES,
    eps: float = 16 / 255,
    seed: int = 0,
    total: int = 0,
    progress: Progress = silent,
) -> Gain:
    """Craft on one network, and ask two others, batch by batch.

    Args:
        original: the undefended network.
        hardened: its hardened version.
        source: network to craft on; all three on one device.
        batches: (x, y, ids) on that device.
        attacks: names of gradient attacks.
        poses: to take the mean over; the identity is asked in any case.
        eps: radius of the ball.
        seed: of the attacks.
        total: images in all, for the report.
        progress: told how many images are done.
    """
    asked = tuple(dict.fromkeys((Pose(), *poses)))
    if not attacks:
        raise WhorlError("expected at least one attack to compare with, got none.")
    chosen = {name: attack(name, eps=eps) for name in attacks}
    done = 0

    def crafted() -> Iterable[tuple[Tensor, dict[str, Tensor], Tensor, Sequence[str]]]:
        nonlocal done
        for x, y, ids in batches:
            yield x, {name: how(source, x, y, seed=seed, ids=ids) for name, how in chosen.items()}, y, ids
            done += len(x)
            progress("crafting and asking", done, max(total, done))

    counts = outcomes(crafted(), {"original": original, "hardened": hardened}, asked).counts

    def mean(name: str, target: str) -> float:
        return mean_rate(counts[name, target, pose] for pose in poses)

    def at(name: str, target: str) -> SuccessRate:
        return counts[name, target, Pose()]

    first = next(iter(chosen))
    return Gain(
        original=original.name,
        hardened=hardened.name,
        source=source.name,
        n=at(first, "original").n,
        poses=len(poses),
        clean=(at(first, "original").clean_accuracy, at(first, "hardened").clean_accuracy),
        rows=tuple(
            Row(
                attack=name,
                upright=(at(name, "original").rate, at(name, "hardened").rate),
                posed=(mean(name, "original"), mean(name, "hardened")),
            )
            for name in chosen
        ),
    )


def draw(bought: Gain, path: Path) -> None:
    """Draw the comparison as pairs of bars and save it as a PNG.

    Args:
        bought: what to draw.
        path: where; the file appears whole or not at all.
    """
    from whorl.hardening.bars import Bar, Block, draw_bars

    def bars(pair: tuple[float, float]) -> tuple[Bar, ...]:
        return (Bar(pair[0], bought.original, faint=True), Bar(pair[1], bought.hardened))

    blocks = [
        Block(title="clean accuracy", bars={"as they are": bars(bought.clean)}),
        Block(title="fooled, as they are", bars={row.attack: bars(row.upright) for row in bought.rows}),
        Block(
            title=f"fooled, mean over {bought.poses} poses", bars={row.attack: bars(row.posed) for row in bought.rows}
        ),
    ]
    subtitle = f"{bought.n} images; attacks crafted on {bought.source}. Fooled: success rate, lower is better."
    draw_bars(blocks, path, title=f"What hardening bought: {bought.hardened}", subtitle=subtitle)
