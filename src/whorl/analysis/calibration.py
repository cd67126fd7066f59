"""Choose a kernel for a source by how well its images fool other networks when they are turned, scaled and moved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from whorl.analysis.cross_validation import Answers, Chosen, choose, family
from whorl.analysis.kernel_grid import DEFAULT_GRID, Candidate, candidates
from whorl.errors import WhorlError
from whorl.evaluation.prediction import Precision
from whorl.files import atomic_write
from whorl.models.networks import NETWORKS
from whorl.progress import Progress, silent
from whorl.runs.declaration import Declaration, declare
from whorl.runs.experiment import Done, run
from whorl.runs.images import SAMPLES, Data


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibrated:
    """What came of it.

    Attributes:
        source: network that images were crafted on.
        attack: its name.
        settings: what else it was given.
        candidates: the kernels, baselines first.
        answers: who was fooled by what, all seeds together.
        chosen: the winner, the ranking, and how the choice does on networks it was made without.
        gradients: for each image.
        folder: of the runs.
    """

    source: str
    attack: str
    settings: Mapping[str, Any]
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
    """The zoo's networks of other families than the source's.

    >>> other_networks("efficientnet_lite0")
    ('resnet18', 'mobilenet_v2')
    """
    kin = {family(part) for part in source.split("+")}
    return tuple(name for name in NETWORKS if family(name) not in kin)


def declaration(
    source: str,
    targets: Sequence[str],
    kernels: Sequence[Candidate],
    *,
    attack: str = "dim",
    settings: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    limit: int | None = None,
    size: int | None = 224,
    seed: int = 0,
    batch_size: int | None = None,
    precision: Precision = "full",
) -> Declaration:
    """Declare the run of one seed: every kernel on the source, every target, the paper's twelve poses."""
    return declare(
        name="calibrate",
        title=f"Kernels for {attack} on {source}",
        about="Success on other networks over the paper's twelve poses, for a grid of kernels.",
        seed=seed,
        data=Data(folder=SAMPLES if data is None else str(Path(data).resolve()), limit=limit, size=size),
        sources=[source],
        attacks=[one.spec(attack, settings or {}) for one in kernels],
        targets=list(targets),
        batch_size=batch_size,
        precision=precision,
    )


def calibrate(
    source: str,
    out: str | Path,
    *,
    targets: Sequence[str] = (),
    attack: str = "dim",
    grid: str = DEFAULT_GRID,
    settings: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    limit: int | None = None,
    size: int | None = 224,
    seeds: Sequence[int] = (0,),
    folds: int = 4,
    resamples: int = 1000,
    batch_size: int | None = None,
    precision: Precision = "full",
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
        targets: networks to ask, of two families at least and none of the source's; the zoo's if empty.
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
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "local" or "ray".
        workers: of the engine ray.
        command: what the user typed, for the manifests.
        progress: called with each task.

    Raises:
        WhorlError: bad input, or targets that cannot judge: of one family, or of the source's.
    """
    kernels, asked = candidates(grid), tuple(targets) or other_networks(source)
    _check(source, asked, seeds)
    found, gradients = [], 0.0
    for seed in seeds:
        declared = declaration(
            source,
            asked,
            kernels,
            attack=attack,
            settings=settings,
            data=data,
            limit=limit,
            size=size,
            seed=seed,
            batch_size=batch_size,
            precision=precision,
        )
        done = run(
            declared,
            Path(out) / f"seed-{seed}",
            device=device,
            engine=engine,
            workers=workers,
            command=command,
            progress=progress,
        )
        found.append(answers_of(done, kernels))
        gradients = max(cell.grad_evals / cell.counts.n for cell in done.cells)
    answers = _pooled(found)
    return Calibrated(
        source=source,
        attack=attack,
        settings=dict(settings or {}),
        candidates=tuple(kernels),
        answers=answers,
        chosen=choose(answers, folds=folds, resamples=resamples, seed=min(seeds)),
        gradients=gradients,
        folder=Path(out),
    )


def answers_of(done: Done, kernels: Sequence[Candidate]) -> Answers:
    """Read from a run's records who was fooled by what."""
    found = done.outcomes
    [source] = done.declaration.sources
    rows = [found.attacks.index(f"{one.label}/{source}") for one in kernels]
    return Answers(
        names=tuple(one.label for one in kernels),
        eligible=tuple(not one.baseline for one in kernels),
        targets=found.targets,
        clean=found.clean,
        success=found.success[rows],
    )


def _pooled(found: Sequence[Answers]) -> Answers:
    """Seeds side by side: each pose of each seed counts the same."""
    first = found[0]
    return Answers(
        names=first.names,
        eligible=first.eligible,
        targets=first.targets,
        clean=torch.cat([one.clean for one in found], dim=1),
        success=torch.cat([one.success for one in found], dim=2),
    )


def _check(source: str, targets: Sequence[str], seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) != len(seeds):
        raise WhorlError(f"expected seeds, each once; got {list(seeds)}.")
    kin = {family(part) for part in source.split("+")}
    related = [name for name in targets if family(name) in kin]
    if related:
        raise WhorlError(
            f"a kernel is chosen by success on other networks, but {', '.join(related)} is of the source's family "
            f"({source}). Leave it out of the targets."
        )
    if len({family(name) for name in targets}) < 2:
        raise WhorlError(
            f"expected targets of two families at least, to choose on one and judge on the other; got {list(targets)}."
        )


def as_json(done: Calibrated) -> dict[str, Any]:
    """Give everything but the single answers as JSON values; what is undefined is null."""
    content = {
        "source": done.source,
        "attack": done.attack,
        "settings": dict(done.settings),
        "gradients": done.gradients,
        "targets": list(done.answers.targets),
        "pictures": done.answers.images,
        "winner": {"label": done.winner.label, "estimator": done.winner.estimator},
        "optimism": done.chosen.optimism,
        "judged": [asdict(one) for one in done.chosen.judged],
        "ranking": [asdict(one) | {"level": one.level} for one in done.chosen.ranking],
    }
    return {name: _defined(value) for name, value in content.items()}


def _defined(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _defined(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_defined(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_toml(done: Calibrated) -> str:
    """Write the winner as an attack that a declaration takes as it is."""
    lines = [
        f"# Chosen for {done.attack} on {done.source}, {done.gradients:g} gradients an image, by success on",
        f"# {', '.join(done.answers.targets)}; {done.answers.images} images. Goes into a declaration.",
        "[[attacks]]",
        f"name = {_toml(done.attack)}",
        f"label = {_toml(f'{done.attack}-calibrated')}",
        "[attacks.settings]",
        *(f"{name} = {_toml(value)}" for name, value in done.settings.items()),
        "[attacks.settings.estimator]",
        *(f"{name} = {_toml(value)}" for name, value in (done.winner.estimator or {}).items()),
    ]
    return "\n".join(lines) + "\n"


def write(done: Calibrated) -> dict[str, Path]:
    """Write the outcome into the folder, as JSON and the winner as TOML."""
    files = {"outcome": done.folder / "calibration.json", "winner": done.folder / "winner.toml"}
    texts = {"outcome": json.dumps(as_json(done), indent=1) + "\n", "winner": as_toml(done)}
    for what, path in files.items():
        with atomic_write(path) as file:
            file.write(texts[what].encode())
    return files


def _toml(value: Any) -> str:
    # JSON's strings, numbers and lists are TOML's too, and so are its true and false.
    return json.dumps(value)
