"""Which photographs the demo's figure shows, and what a network makes of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from whorl.evaluation import Pose
from whorl.models import Classifier
from whorl.report.sheet import Panel, Tile, draw

POSES = {
    "as it is": Pose(),
    "turned left 30°": Pose(angle=-30),
    "turned right 30°": Pose(angle=30),
    "turned, small, moved": Pose(angle=30, scale=0.7, shift=(20, 20)),
    "turned, large, moved": Pose(angle=30, scale=1.5, shift=(20, 20)),
}
"""Five of the paper's poses, by what is written above them."""
PHOTOGRAPHS = 2
CLEAN = "clean"


@torch.no_grad()
def draw_showcase(
    path: Path, model: Classifier, x: Tensor, adversarial: dict[str, Tensor], y: Tensor, *, source: str, eps: float
) -> None:
    """Draw what a network makes of a few photographs, clean and attacked, in several poses.

    Shown are the photographs whose clean version the network recognises in most poses, and of those the ones on which
    the first and the last attack differ most.

    Args:
        path: a PNG file.
        model: the network that is asked.
        x: (N, 3, H, W) clean photographs.
        adversarial: attack's name to (N, 3, H, W), from the weaker to the stronger.
        y: (N,) true labels.
        source: name of the network that was attacked.
        eps: the bound of the attacks, for the scale of the perturbations.
    """
    versions = {CLEAN: x, **adversarial}
    seen = {name: torch.stack([pose.apply(images) for pose in POSES.values()]) for name, images in versions.items()}
    answers = {name: torch.stack([model(images).argmax(1) for images in shown]) for name, shown in seen.items()}
    panels = []
    for i in _telling(answers, y):
        rows = {}
        for name, images in versions.items():
            views = zip(seen[name][:, i], answers[name][:, i].tolist(), strict=True)
            tiles = [Tile(picture=v, caption=model.labels[a], fooled=a != int(y[i])) for v, a in views]
            # Half a range on either side of grey, so that a pixel changed by eps is black or white.
            change = Tile(picture=(images[i] - x[i]) / (2 * eps) + 0.5, caption="")
            rows[name] = (None if name == CLEAN else change, *tiles)
        panels.append(Panel(name=model.labels[int(y[i])], rows=rows))
    draw(
        panels,
        path,
        title=f"Made to fool {source}; shown to {model.name}, which the attacks never saw",
        subtitle=f"No pixel changes by more than {eps * 255:g} of 255 levels. Shown where the two attacks differ most.",
        columns=(f"perturbation x {0.5 / eps:.0f}", *POSES),
    )


def _telling(answers: dict[str, Tensor], y: Tensor) -> list[int]:
    """The photographs to show, by index. ``answers`` are (poses, N) by version."""
    right = {name: given == y for name, given in answers.items()}
    first, last = list(right)[1], list(right)[-1]
    recognised = right[CLEAN].sum(0).tolist()
    difference = (right[first].int() - right[last].int()).sum(0).tolist()
    order = sorted(range(len(y)), key=lambda i: (-recognised[i], -difference[i], i))
    return order[:PHOTOGRAPHS]
