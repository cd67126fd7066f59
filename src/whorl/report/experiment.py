"""From what came of an experiment to what its report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from whorl.data import Images
from whorl.evaluation import Comparison
from whorl.models.zoo import find_device
from whorl.progress import Progress, silent
from whorl.report.content import Content, Gallery, Photographs, Table
from whorl.report.examples import gallery
from whorl.report.page import write_report
from whorl.report.saving import save_figures
from whorl.runs.experiment import Done
from whorl.runs.folder import RunFolder
from whorl.runs.networks import Networks, split_target

# Enough to choose examples from, and few enough to ask a network about while someone waits.
_LOOKED_AT = 24
_SHOWN_ATTACKS = 3


def report_experiment(
    done: Done,
    *,
    device: str = "auto",
    tables: Sequence[Table] = (),
    photographs: Photographs | None = None,
    figures: bool = False,
    progress: Progress = silent,
) -> dict[str, Path]:
    """Write ``report.html`` into an experiment's folder, and the figures as files if they are wanted.

    Args:
        done: what came of it.
        device: where to ask networks about the examples.
        tables: further tables to show.
        photographs: what came of photographs of the same images, printed; ``whorl.physical.section`` makes it.
        figures: whether to write each figure as PNG and PDF too, into ``figures``.
        progress: told how far it is.

    Returns:
        What was written, by what it is.
    """
    stage = "writing the report"
    progress(stage, 0, 1)
    content = experiment_content(done, device=device, tables=tables, photographs=photographs)
    written = {"report": write_report(done.folder / "report.html", content)}
    progress(stage, 1, 1)
    if figures:
        save_figures(done.folder / "figures", content, progress=progress)
        written["figures"] = done.folder / "figures"
    return written


def experiment_content(
    done: Done, *, device: str = "auto", tables: Sequence[Table] = (), photographs: Photographs | None = None
) -> Content:
    """Gather what the report of an experiment shows.

    Args:
        done: what came of it.
        device: where to ask networks about the examples.
        tables: further tables.
        photographs: what came of photographs of the same images, printed.
    """
    declared, manifest = done.declaration, RunFolder(done.folder).read()
    return Content(
        title=declared.title or declared.name,
        about=declared.about,
        command=tuple(manifest.get("command", ())),
        cells=done.cells,
        comparisons=dict(_comparisons(done)),
        galleries=tuple(_galleries(done, device)),
        settings=manifest["experiment"],
        provenance=_provenance(done, manifest),
        left_out=tuple(done.left_out),
        paper=tuple(tables),
        photographs=photographs,
    )


def plain_names(attacks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find the attacks that differ in their estimator alone, by the plain one's name, from plain to affine-invariant.

    >>> plain_names(["dim", "ti-dim", "ai-dim", "eot"])
    {'dim': ('dim', 'ti-dim', 'ai-dim')}
    """
    families = {name: tuple(n for n in (name, f"ti-{name}", f"ai-{name}") if n in attacks) for name in attacks}
    return {name: family for name, family in families.items() if len(family) > 1}


def _comparisons(done: Done) -> Iterator[tuple[tuple[str, str, str, str], Comparison]]:
    """Every two attacks on the same source, on every target; the later in the declaration first."""
    for source, labels in _by_source(done).items():
        for other, one in combinations(labels, 2):
            for target in done.declaration.targets:
                yield (one, other, source, target), done.compare(one, other, source, target)


def _galleries(done: Done, device: str) -> Iterator[Gallery]:
    declared, folder = done.declaration, RunFolder(done.folder)
    networks = Networks(find_device(device), declared.seed)
    images = _first(done)
    x, y = images.x.to(networks.device), images.y.to(networks.device)
    for source, labels in _by_source(done).items():
        families = plain_names(labels)
        shown = list(families.values())[-1:] or [tuple(labels[:_SHOWN_ATTACKS])]
        for family in shown:
            adversarial = {name: folder.load(name, source, images.ids).to(networks.device) for name in family}
            target: Any = networks.target(_telling_target(declared.targets, source))
            yield gallery(target, x, adversarial, y, images.ids, eps=_bound(done, family[-1], source), source=source)


def _first(done: Done) -> Images:
    """The first images of the experiment, as many as are looked at."""
    data, used = done.declaration.data, set(done.ids[:_LOOKED_AT])
    found: list[Images] = []
    for batch in data.batches(_LOOKED_AT):
        keep = [i for i, name in enumerate(batch.ids) if name in used]
        found.append(Images(batch.x[keep], batch.y[keep], [batch.ids[i] for i in keep]))
        if sum(len(part.ids) for part in found) >= len(used):
            break
    x, y = torch.cat([part.x for part in found]), torch.cat([part.y for part in found])
    return Images(x, y, [name for part in found for name in part.ids])


def _telling_target(targets: Sequence[str], source: str) -> str:
    """The network whose answers tell most: one that was not attacked, without a defence, as far from the start."""
    members = source.split("+")
    unseen = [name for name in targets if split_target(name)[0] not in members]
    plain = [name for name in unseen if not split_target(name)[1]]
    return (plain or unseen or list(targets))[-1]


def _by_source(done: Done) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for spec, source in done.declaration.versions():
        labels.setdefault(source, []).append(spec.title)
    return labels


def _bound(done: Done, attack: str, source: str) -> float | None:
    return next(cell.eps for cell in done.cells if (cell.attack, cell.source) == (attack, source))


def _provenance(done: Done, manifest: dict[str, Any]) -> dict[str, Any]:
    """Where the figures come from: data, weights, versions, device."""
    attacked = {
        key: {"settings": entry["repr"], "models": entry["models"]}
        for key, entry in manifest["crafted"].items()
        if "cells" in entry
    }
    return {
        "pictures": {"used": len(done.ids), "left out": len(done.left_out), **manifest["experiment"]["data"]},
        "attacks": attacked,
        "targets": manifest["targets"],
        "seed": manifest["experiment"]["seed"],
        "started": manifest["started"],
        "device": manifest["device"],
        "versions": manifest["versions"],
    }
