"""The approximations measured from end to end: from names of networks and images to tables, JSON and a figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whorl.analysis.error import Draws, LawMeasurement, measure
from whorl.analysis.error_report import draw, law_as_json, markdown
from whorl.analysis.kernel_grid import read_kernel
from whorl.analysis.laws import law_of_kernel, law_of_range
from whorl.attacks import attack
from whorl.attacks.objectives import LOSSES
from whorl.errors import WhorlError, unknown_name
from whorl.estimators import Estimator, identity
from whorl.files import json_text, write_file
from whorl.models.labels import shared_labels
from whorl.models.zoo import find_device, load_model
from whorl.progress import Progress, silent
from whorl.records import Record
from whorl.runs.folder import folder_name
from whorl.runs.images import Data

_PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True, repr=False)
class ErrorOptions(Record):
    """What to measure.

    Attributes:
        model: network whose gradients are taken.
        data: folder of labelled images, or a CSV list; the bundled samples if None.
        limit: take only the first so many images.
        size: side in pixels to resize to; the network's own if None.
        ranges: uniform transforms, as shares of EOT's range.
        kernels: as :func:`whorl.analysis.kernel_grid.read_kernel` takes them.
        draws: transforms for each image.
        loss: one of the attacks' losses.
        source: hold this network's gradient, through each kernel, against the truth of ``model``.
        at: measure at what this attack makes of the images.
        precision: ``"float32"`` or ``"float64"``.
        batch_size: images at a time; 8 on a CPU and 32 on a GPU if None.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        seed: of the draws and of the attack.
    """

    model: str
    data: str | Path | None = None
    limit: int = 8
    size: int | None = None
    ranges: tuple[float, ...] = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
    kernels: tuple[str, ...] = ("0.5", "reference", "printed", "uniform")
    draws: int = 256
    loss: str = "ce"
    source: str | None = None
    at: str | None = None
    precision: str = "float32"
    batch_size: int | None = None
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES, hint=f"There are: {', '.join(LOSSES)}.")
        if self.precision not in _PRECISIONS:
            raise WhorlError(f"precision must be float32 or float64; got {self.precision!r}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorMeasurement:
    """What was measured for one network.

    Attributes:
        options: what was wanted.
        laws: one record for each law, ranges first.
        names: of the network, and of the source of the gradients if that is another.
        images: how many.
        side: theirs, in pixels.
    """

    options: ErrorOptions
    laws: list[LawMeasurement]
    names: tuple[str, ...]
    images: int
    side: int

    @property
    def heading(self) -> str:
        """What was measured, in a line."""
        of = self.options
        what = f"{self.names[0]}: {self.images} images of {self.side} pixels, {of.draws} transforms each, {of.loss}"
        return what + ("" if of.at is None else f", at what {of.at} makes of them")

    def as_json(self) -> dict[str, Any]:
        """Give everything as JSON values; what is undefined is null."""
        of = self.options
        settings = {name: getattr(of, name) for name in ("draws", "loss", "seed", "at", "source", "precision")}
        about = {"model": of.model, "images": self.images, "size": self.side, **settings}
        return {
            "settings": {**about, "data": str(of.data or "samples")},
            "laws": [law_as_json(one) for one in self.laws],
        }


def measure_error(options: ErrorOptions, progress: Progress = silent) -> ErrorMeasurement:
    """Load the networks and the images, and measure the approximations.

    Raises:
        WhorlError: bad options, images that cannot be read, or networks that there are not.
    """
    kernels = {f"kernel {text}": read_kernel(text) for text in options.kernels}
    dtype, where = _PRECISIONS[options.precision], find_device(options.device)
    draws = Draws(count=options.draws, seed=options.seed)
    names = (options.model,) if options.source is None else (options.model, options.source)
    network, *other = (load_model(name, device=where).to(dtype) for name in names)
    side = options.size or max(network.size)
    images = Data.of(folder=options.data, limit=options.limit, size=side)
    crafted = None if options.at is None else attack(options.at)  # an unknown name is refused before images are read
    batches = []
    labels = shared_labels({network.name: network, **{f"the source {net.name}": net for net in other}})
    for one in images.batches(options.batch_size or (32 if where.type == "cuda" else 8), labels):
        x, y = one.x.to(where, dtype), one.y.to(where)
        batches.append((x if crafted is None else crafted(network, x, y, seed=options.seed, ids=one.ids), y))
    laws = [law_of_range(share, side, side) for share in options.ranges]
    laws += [law_of_kernel(kernel, side, side, label) for label, kernel in kernels.items()]
    estimators: dict[str, Estimator] = {"no kernel": identity, **kernels}
    for source in other:
        estimators = {f"{name} of {source.name}": estimator for name, estimator in estimators.items()}
    chosen: Any = options.loss  # checked by the record
    return ErrorMeasurement(
        options=options,
        laws=measure(
            network,
            batches,
            laws,
            draws,
            loss=chosen,
            estimators=estimators,
            source=other[0] if other else None,
            progress=progress,
        ),
        names=tuple(net.name for net in (network, *other)),
        images=sum(len(x) for x, _ in batches),
        side=side,
    )


def write_error(found: ErrorMeasurement, folder: Path, *, command: str = "", figure: bool = False) -> dict[str, Path]:
    """Write the figures as JSON and the tables as Markdown; and PNG and PDF, if they are wanted.

    Returns:
        The paths, by what they hold.
    """
    at = () if found.options.at is None else (found.options.at,)
    stem = folder / folder_name("-".join(("error", found.names[0], *(f"from-{name}" for name in found.names[1:]), *at)))
    content = found.as_json()
    files = {"figures": Path(f"{stem}.json"), "tables": Path(f"{stem}.md")}
    write_file(files["figures"], json_text(content))
    write_file(files["tables"], markdown(found.laws, heading=found.heading, command=command))
    if figure:
        from whorl.report import save_charts  # needs packages that the rest does not

        drawn = draw(content)
        files["figure"] = save_charts({Path(f"{stem}.{ending}"): drawn for ending in ("png", "pdf")})[0]
    return files
