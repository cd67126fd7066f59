"""The whole story on the bundled photographs: craft on one network, ask three, turned and scaled."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from whorl.data import load_samples
from whorl.data.layouts import SAMPLE_FILES
from whorl.demo.showcase import draw_showcase
from whorl.errors import WhorlError
from whorl.models.zoo import find_device
from whorl.progress import Progress, silent
from whorl.runs.declaration import Declaration, declare
from whorl.runs.experiment import Done, run
from whorl.runs.folder import RunFolder
from whorl.runs.networks import Networks
from whorl.runs.results import mean_rate

# The figure asks the target that differs most from the source.
_SHOWN_TARGET = "efficientnet_lite0"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found, and where it lies.

    Attributes:
        done: the experiment.
        figure: the image.
    """

    done: Done
    figure: Path

    def mean(self, attack: str, target: str) -> float:
        """Mean success rate over all poses, in [0, 1]."""
        return mean_rate(cell for cell in self.done.cells if (cell.attack, cell.target) == (attack, target))


def demo_declaration(*, images: int | None = None, seed: int = 0) -> Declaration:
    """What the demo runs.

    Args:
        images: take the first so many of the 20 bundled photographs.
        seed: of all randomness.

    >>> demo_declaration(images=4).targets
    ('resnet18', 'mobilenet_v2', 'efficientnet_lite0')
    """
    total = len(SAMPLE_FILES.files)
    if images is not None and not 1 <= images <= total:
        raise WhorlError(f"there are {total} samples; expected a number from 1 to {total}, got {images}.")
    content = tomllib.loads(resources.files("whorl.demo").joinpath("demo.toml").read_text(encoding="utf-8"))
    return declare(**content, seed=seed, data={"limit": images})


def demo(
    out: str | Path = "runs/demo",
    *,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Demo:
    """Run the demo's experiment, and draw what the attacks do to a few photographs.

    Args:
        out: the run folder. What an earlier demo made with the same settings is used again.
        images: take the first so many of the 20 bundled photographs.
        seed: of all randomness.
        device: "auto", "cpu", "cuda" or "cuda:1".
        command: what the user typed, for the manifest.
        progress: called with each step.
    """
    declared = demo_declaration(images=images, seed=seed)
    done = run(declared, out, device=device, command=command, progress=progress)
    [source], where = declared.sources, find_device(device)
    x, y, ids = load_samples(images)
    folder = RunFolder(done.folder)
    shown = {spec.title: folder.load(spec.title, source, ids).to(where) for spec in declared.attacks}
    eps = next(cell.eps for cell in done.cells) or 1.0
    model = Networks(where).model(_SHOWN_TARGET)
    figure = done.folder / "demo.png"
    draw_showcase(figure, model, x.to(where), shown, y.to(where), source=source, eps=eps)
    return Demo(done=done, figure=figure)
