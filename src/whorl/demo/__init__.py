"""The demo: craft on one network, evaluate on three, rotated and scaled; a table and a figure of what came out."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from whorl.data.layouts import SAMPLE_FILES
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.progress import Progress, Tracker, silent
from whorl.report.experiment import run_gallery, telling_target
from whorl.report.export import save_gallery
from whorl.report.gallery import RULE, recognised_first
from whorl.runs.declaration import Declaration, declare
from whorl.runs.done import Done
from whorl.runs.experiment import run

POSES = {
    "as it is": Pose(),
    "rotated left 30°": Pose(angle=-30),
    "rotated right 30°": Pose(angle=30),
    "30°, scale 0.7": Pose(angle=30, scale=0.7),
    "30°, scale 1.5": Pose(angle=30, scale=1.5),
}
"""Five of the demo's poses, by what is written above them."""
PHOTOGRAPHS = 2


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found, and where it lies.

    Attributes:
        done: the experiment.
        figure: the image.
    """

    done: Done
    figure: Path


class RunningRates(Tracker):
    """Says, as images are done, how often each attack fools the networks that it was not crafted on.

    Args:
        say: called with the line.

    >>> RunningRates(print).log(4, {"success_rate/dim/net/net": 1.0, "success_rate/dim/net/other": 0.5})
    Success so far, 4 images, networks not attacked: dim 50%
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Say the mean over those networks."""
        rates: dict[str, list[float]] = {}
        for name, value in values.items():
            _, attack, source, target = name.split("/")
            if source != target:
                rates.setdefault(attack, []).append(value)
        words = ", ".join(f"{attack} {sum(own) / len(own):.0%}" for attack, own in rates.items())
        self.say(f"Success so far, {step} image{'s' * (step != 1)}, networks not attacked: {words or 'none yet'}")


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
    say: Callable[[str], None] | None = None,
) -> Demo:
    """Run the demo's experiment, and draw what the attacks do to a few photographs.

    Args:
        out: the run folder. What an earlier demo made with the same settings is used again.
        images: take the first so many of the 20 bundled photographs.
        seed: of all randomness.
        device: "auto", "cpu", "cuda" or "cuda:1".
        command: what the user typed, for the manifest.
        progress: called with each step.
        say: called with the success rates so far, in a line.
    """
    declared = demo_declaration(images=images, seed=seed)
    track = None if say is None else RunningRates(say)
    done = run(declared, out, device=device, command=command, progress=progress, track=track)
    return Demo(done=done, figure=draw_figure(done, device=device))


def draw_figure(done: Done, *, device: str = "auto") -> Path:
    """Draw what a network that was not attacked makes of two photographs, clean and attacked, in five poses.

    Shown are the first photographs whose clean version it recognises in each of these poses, whatever the attacks make
    of them.

    Args:
        done: what came of the demo's experiment.
        device: "auto", "cpu", "cuda" or "cuda:1".

    Returns:
        The file, ``demo.png`` in the run folder.
    """
    declared, [source] = done.declaration, done.declaration.sources
    target = telling_target(declared.targets, source)
    chosen = recognised_first(done.outcomes(source), target, tuple(POSES.values()))[:PHOTOGRAPHS]
    made = run_gallery(done, source, target, chosen, poses=POSES, device=device)
    eps = next(cell.eps for cell in done.cells) or 1.0
    title = f"Crafted on {source}, evaluated on {target}, which was not attacked"
    about = f"No pixel changes by more than {eps * 255:g} of 255 levels. Photographs: {RULE.format(target)}"
    [path] = save_gallery(done.folder / "demo", replace(made, title=title, about=about), ["png"])
    return path
