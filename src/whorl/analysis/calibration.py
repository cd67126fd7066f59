"""Choose a kernel for a source by how often other networks are fooled by its rotated, scaled and translated images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from whorl.analysis.cross_validation import Answers, Chosen, choose, families_of, family
from whorl.analysis.kernel_grid import DEFAULT_GRID, Candidate, candidates
from whorl.errors import WhorlError
from whorl.evaluation import Outcomes
from whorl.evaluation.prediction import Precision
from whorl.files import defined, json_text, write_file
from whorl.models.networks import NETWORKS
from whorl.progress import Progress, silent
from whorl.records import Record
from whorl.runs.declaration import Declaration, declare
from whorl.runs.experiment import run
from whorl.runs.images import SAMPLES, Data
from whorl.runs.networks import split_source


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibrationOptions(Record):
    """What to choose from, and on what.

    Attributes:
        targets: networks to evaluate on, of two families at least and none of the source's; the zoo's if empty.
        attack: a gradient attack.
        grid: see :func:`whorl.analysis.kernel_grid.candidates`.
        settings: of the attack, such as ``steps`` (its budget of gradients) and ``eps``.
        data: folder of labelled images, or a CSV list; the bundled samples if None.
        limit: take only the first so many.
        size: side in pixels to resize to.
        seeds: each is a run of its own; their poses are pooled.
        folds: parts of the images, each held out once.
        resamples: of the images, for intervals.
        batch_size: images at a time.
        precision: in which targets answer; see ``whorl.evaluation.outcomes``.
    """

    targets: Sequence[str] = ()
    attack: str = "dim"
    grid: str = DEFAULT_GRID
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str | Path | None = None
    limit: int | None = None
    size: int | None = 224
    seeds: Sequence[int] = (0,)
    folds: int = 4
    resamples: int = 1000
    batch_size: int | None = None
    precision: Precision = "full"


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibrated:
    """What came of it.

    Attributes:
        source: network that images were crafted on.
        options: what it was chosen from, and on what.
        candidates: the kernels, baselines first.
        answers: which images were fooled by what, all seeds together.
        chosen: the winner, the ranking, and how the choice does on networks it was made without.
        gradients: for each image.
        folder: of the runs.
    """

    source: str
    options: CalibrationOptions
    candidates: tuple[Candidate, ...]
    answers: Answers
    chosen: Chosen
    gradients: float
    folder: Path

    @property
    def winner(self) -> Candidate:
        """The kernel that was chosen."""
        return next(one for one in self.candidates if one.label == self.chosen.winner)


def other_networks(source: str) -> tuple[str, ...]:
    """The zoo's networks of other families than the source's, of those that pip brings.

    >>> other_networks("efficientnet_lite0")
    ('resnet18', 'mobilenet_v2')
    """
    kin = set(map(family, split_source(source)))
    return tuple(name for name, net in NETWORKS.items() if net.artifact.source == "pip" and family(name) not in kin)


def calibrate(
    source: str,
    out: str | Path,
    options: CalibrationOptions | None = None,
    *,
    device: str = "auto",
    engine: str = "local",
    workers: int | None = None,
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Calibrated:
    """Choose a kernel, going on where an earlier run in the same folder stopped.

    Args:
        source: network to craft on; ``a+b`` for an ensemble.
        out: folder; each seed has a run folder in it.
        options: what to choose from, and on what; by default those of :class:`CalibrationOptions`.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "local" or "ray".
        workers: of the engine ray.
        command: what the user typed, for the manifests.
        progress: called with each task.

    Raises:
        WhorlError: bad input, or targets that cannot judge: of one family, or of the source's.
    """
    options = options or CalibrationOptions()
    kernels, targets = candidates(options.grid), tuple(options.targets) or other_networks(source)
    _check(source, targets, options.seeds)
    done = [
        run(
            _declaration(source, targets, kernels, options, seed),
            Path(out) / f"seed-{seed}",
            device=device,
            engine=engine,
            workers=workers,
            command=command,
            progress=progress,
        )
        for seed in options.seeds
    ]
    answers = _answers([one.outcomes(one.declaration.sources[0]) for one in done], kernels)
    return Calibrated(
        source=source,
        options=options,
        candidates=tuple(kernels),
        answers=answers,
        chosen=choose(answers, folds=options.folds, resamples=options.resamples, seed=min(options.seeds)),
        gradients=max(cell.grad_evals / cell.counts.n for cell in done[-1].cells),
        folder=Path(out),
    )


def _declaration(
    source: str, targets: Sequence[str], kernels: Sequence[Candidate], options: CalibrationOptions, seed: int
) -> Declaration:
    """Declare the run of one seed: every kernel on the source, every target, the paper's twelve poses."""
    folder = SAMPLES if options.data is None else str(options.data)
    return declare(
        name="calibrate",
        title=f"Kernels for {options.attack} on {source}",
        about="Success on other networks over the paper's twelve poses, for a grid of kernels.",
        seed=seed,
        data=Data(folder=folder, limit=options.limit, size=options.size).seen_from(Path.cwd()),
        sources=[source],
        attacks=[one.spec(options.attack, options.settings) for one in kernels],
        targets=list(targets),
        batch_size=options.batch_size,
        precision=options.precision,
    )


def _answers(seeds: Sequence[Outcomes], kernels: Sequence[Candidate]) -> Answers:
    """Put the outcomes of seeds side by side: each pose of each seed counts the same."""
    first = seeds[0]
    places = [first.attacks.index(one.label) for one in kernels]
    return Answers(
        names=tuple(one.label for one in kernels),
        eligible=tuple(not one.baseline for one in kernels),
        targets=first.targets,
        clean=torch.cat([one.clean for one in seeds], dim=1),
        success=torch.cat([one.success[places] for one in seeds], dim=2),
    )


def _check(source: str, targets: Sequence[str], seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) != len(seeds):
        raise WhorlError(f"expected seeds, each once; got {list(seeds)}.")
    kin = set(map(family, split_source(source)))
    related = [name for name in targets if family(name) in kin]
    if related:
        raise WhorlError(
            f"a kernel is chosen by success on other networks, but {', '.join(related)} is of the source's family "
            f"({source}). Leave it out of the targets."
        )
    families_of(targets)


def as_json(done: Calibrated) -> dict[str, Any]:
    """Give everything but the single answers as JSON values; what is undefined is null."""
    content = {
        "source": done.source,
        "attack": done.options.attack,
        "settings": dict(done.options.settings),
        "gradients": done.gradients,
        "targets": list(done.answers.targets),
        "images": done.answers.images,
        "winner": {"label": done.winner.label, "estimator": done.winner.estimator},
        "optimism": done.chosen.optimism,
        "judged": [asdict(one) for one in done.chosen.judged],
        "ranking": [asdict(one) | {"level": one.level} for one in done.chosen.ranking],
    }
    return defined(content)


def as_toml(done: Calibrated) -> str:
    """Write the winner as an attack that a declaration takes as it is."""
    lines = [
        f"# Chosen for {done.options.attack} on {done.source}, {done.gradients:g} gradients an image, by success on",
        f"# {', '.join(done.answers.targets)}; {done.answers.images} images. Goes into a declaration.",
        "[[attacks]]",
        f"name = {_toml(done.options.attack)}",
        f"label = {_toml(f'{done.options.attack}-calibrated')}",
        "[attacks.settings]",
        *(f"{name} = {_toml(value)}" for name, value in done.options.settings.items()),
        "[attacks.settings.estimator]",
        *(f"{name} = {_toml(value)}" for name, value in (done.winner.estimator or {}).items()),
    ]
    return "\n".join(lines) + "\n"


def write(done: Calibrated) -> dict[str, Path]:
    """Write the outcome into the folder, as JSON and the winner as TOML."""
    files = {"outcome": done.folder / "calibration.json", "winner": done.folder / "winner.toml"}
    write_file(files["outcome"], json_text(as_json(done)))
    write_file(files["winner"], as_toml(done))
    return files


def _toml(value: Any) -> str:
    # JSON's strings, numbers and lists are TOML's too, and so are its true and false.
    return json.dumps(value)
