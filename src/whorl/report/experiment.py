"""From what came of an experiment to what its report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whorl.evaluation import Pose, Verdict
from whorl.files import write_csv, write_file
from whorl.models.zoo import find_device
from whorl.progress import Progress, silent
from whorl.report.content import Content, DefenderView, Photographs, Table
from whorl.report.defender import (
    classes_of,
    fooling_poses,
    fragile_first,
    gate_view,
    name_of,
    strongest,
    with_gallery,
    withstood,
)
from whorl.report.export import save_figures
from whorl.report.gallery import POSES, Gallery, described, examples, reach, recognised_first
from whorl.report.headline import Headline, headline
from whorl.report.page import write_report
from whorl.report.result_table import latex, markdown, result_tables, wide_rows
from whorl.runs.done import Done
from whorl.runs.folder import RunFolder
from whorl.runs.networks import Networks, split_target, white_box_on

_SHOWN_ATTACKS, _SHOWN_IMAGES = 3, 3


def report_experiment(
    done: Done,
    *,
    device: str = "auto",
    tables: Sequence[Table] = (),
    photographs: Photographs | None = None,
    verdict: Verdict | None = None,
    figures: bool = False,
    progress: Progress = silent,
) -> dict[str, Path]:
    """Write ``report.html`` into an experiment's folder, and the figures as files if they are wanted.

    Args:
        done: the finished experiment, as :func:`whorl.runs.run` returns it.
        device: where to evaluate networks on the examples.
        tables: further tables to show.
        photographs: what came of photographs of the same images, printed; ``whorl.physical.report`` makes it.
        verdict: what a gate decided; ``whorl.gate`` makes it.
        figures: whether to write each figure as PNG and PDF too, into ``figures``.
        progress: called with how far it is.

    Returns:
        What was written, by what it is.
    """
    stage = "writing the report"
    progress(stage, 0, 1)
    content = experiment_content(done, device=device, tables=tables, photographs=photographs, verdict=verdict)
    written = {"report": write_report(done.folder / "report.html", content)}
    progress(stage, 1, 1)
    if figures:
        save_figures(done.folder / "figures", content, progress=progress)
        written["figures"] = done.folder / "figures"
    return written


def write_tables(done: Done, *, intervals: bool = False) -> dict[str, Path]:
    """Write the rates of an experiment beside ``results.csv``, as LaTeX, as Markdown and as wide CSV.

    Args:
        done: the finished experiment, as :func:`whorl.runs.run` returns it.
        intervals: whether LaTeX and Markdown show the intervals; the CSV has them in any case.

    Returns:
        What was written, by what it is.
    """
    tables = result_tables(done.cells, done.comparisons, name=done.declaration.name)
    files = {"LaTeX": done.folder / "results.tex", "Markdown": done.folder / "results.md"}
    write_file(files["LaTeX"], latex(tables, intervals=intervals))
    write_file(files["Markdown"], markdown(tables, intervals=intervals))
    files["wide CSV"] = done.folder / "results-wide.csv"
    write_csv(files["wide CSV"], wide_rows(tables))
    return files


def experiment_content(
    done: Done,
    *,
    device: str = "auto",
    tables: Sequence[Table] = (),
    photographs: Photographs | None = None,
    verdict: Verdict | None = None,
) -> Content:
    """Gather what the report of an experiment shows.

    Args:
        done: the finished experiment, as :func:`whorl.runs.run` returns it.
        device: where to evaluate networks on the examples.
        tables: further tables.
        photographs: what came of photographs of the same images, printed.
        verdict: what a gate decided.
    """
    declared, manifest = done.declaration, RunFolder(done.folder).read()
    return Content(
        title=declared.title or declared.name,
        about=declared.about,
        command=tuple(manifest.get("command", ())),
        cells=done.cells,
        comparisons=done.comparisons,
        galleries=tuple(_galleries(done, device)),
        settings=manifest["experiment"],
        provenance=_provenance(done, manifest),
        left_out=tuple(done.left_out),
        paper=tuple(tables),
        photographs=photographs,
        defender=_defender(done, verdict, device),
    )


def headline_of(done: Done) -> Headline:
    """What was found, in a few sentences, without the rest of a report."""
    return headline(Content(title="", cells=done.cells, comparisons=done.comparisons))


def _defender(done: Done, verdict: Verdict | None, device: str) -> DefenderView:
    """What the owner of a network reads first: of a gate its decision, with images to look at."""
    found = done.whole
    if verdict is None:
        return withstood(found)
    [target], worst = done.declaration.targets, strongest(verdict)
    labels = {name: image.entry.label for name, image in done.plan.images.items()}
    made = gate_view(found, target, verdict, classes_of(found, labels, done.labels))
    poses = {"as it is": Pose()} if Pose() in found.poses else {}
    poses |= {str(pose): pose for pose in fooling_poses(found, target, name_of(worst)) if pose != Pose()}
    shown = dict(list(poses.items())[: len(POSES)])
    chosen = fragile_first(found, target, name_of(worst))[:_SHOWN_IMAGES]
    if not chosen:
        return made
    gallery = run_gallery(done, worst.source, target, chosen, attacks=[worst.attack], poses=shown, device=device)
    return with_gallery(made, gallery, len(done.ids))


def plain_names(attacks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find the attacks that differ in their estimator alone, by the plain one's name, from plain to affine-invariant.

    >>> plain_names(["dim", "ti-dim", "ai-dim", "eot"])
    {'dim': ('dim', 'ti-dim', 'ai-dim')}
    """
    versions = {name: (name, *(f"{family}-{name}" for family in ("ti", "ai", "ri"))) for name in attacks}
    families = {name: tuple(n for n in named if n in attacks) for name, named in versions.items()}
    return {name: family for name, family in families.items() if len(family) > 1}


def _galleries(done: Done, device: str) -> Iterator[Gallery]:
    for source, labels in _by_source(done).items():
        family = list(plain_names(labels).values())[-1:] or [tuple(labels[:_SHOWN_ATTACKS])]
        shown = tuple(dict.fromkeys((*family[0], *(name for name in labels if name == "ai-best"))))
        target = telling_target(done.declaration.targets, source)
        poses = _shown_poses(done.plan.poses)
        chosen = recognised_first(done.outcomes(source), target, tuple(poses.values()))[:_SHOWN_IMAGES]
        made = run_gallery(done, source, target, chosen, attacks=shown, poses=poses, device=device)
        yield described(made, target, len(done.ids), source=source)


def _shown_poses(evaluated: Sequence[Pose]) -> dict[str, Pose]:
    """The poses of the examples, by heading: of the usual ones those that were evaluated, or else the first that were.

    So it is known in which of them each clean image is recognised.
    """
    usual = {heading: pose for heading, pose in POSES.items() if pose in evaluated}
    return usual if len(usual) > 1 else {str(pose): pose for pose in evaluated[: len(POSES)]}


def run_gallery(
    done: Done,
    source: str,
    target: str,
    chosen: Sequence[int],
    *,
    attacks: Sequence[str] = (),
    poses: Mapping[str, Pose] = POSES,
    device: str = "auto",
) -> Gallery:
    """Show some images of an experiment, clean and attacked, with what one of its targets says of each.

    Args:
        done: what came of the experiment.
        source: network that the attacks were crafted on.
        target: as the declaration names it.
        chosen: which images, by their place in ``done.ids``. What was recognised is known without evaluating again;
            see ``Done.outcomes`` and :func:`whorl.report.gallery.recognised_first`.
        attacks: labels; all that were crafted on ``source`` if empty.
        poses: heading to pose.
        device: "auto", "cpu", "cuda" or "cuda:1".
    """
    declared, folder = done.declaration, RunFolder(done.folder)
    networks = Networks(find_device(device), declared.seed, addresses=declared.models, labels=done.labels)
    model: Any = networks.target(target)
    names = attacks or _by_source(done)[source]
    eps = next(cell.eps for cell in done.cells if (cell.attack, cell.source) == (names[-1], source))
    loaded = []
    for image in (done.ids[place] for place in chosen):  # one by one, for their sizes may differ
        x, y, ids = declared.data.read([done.plan.images[image]])
        adversarial = {name: folder.load(name, source, ids).to(networks.device) for name in names}
        loaded.append((x.to(networks.device), adversarial, y.to(networks.device), ids))
    bound = eps or max(reach(x, adversarial) for x, adversarial, _, _ in loaded)
    made = [examples(model, *one, poses=poses, eps=bound) for one in loaded]
    return replace(made[0], examples=tuple(example for one in made for example in one.examples))


def telling_target(targets: Sequence[str], source: str) -> str:
    """The network whose answers tell most: one that was not attacked, without a defence, as far from the start."""
    unseen = [name for name in targets if not white_box_on(source, split_target(name)[0])]
    plain = [name for name in unseen if not split_target(name)[1]]
    return (plain or unseen or list(targets))[-1]


def _by_source(done: Done) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for spec, source in done.declaration.versions():
        labels.setdefault(source, []).append(spec.title)
    return labels


def _provenance(done: Done, manifest: dict[str, Any]) -> dict[str, Any]:
    """Where the figures come from: data, weights, versions, device."""
    attacked = {
        key: {"settings": entry["repr"], "models": entry["models"]}
        for key, entry in manifest["crafted"].items()
        if "cells" in entry
    }
    return {
        "images": {"used": len(done.ids), "left out": len(done.left_out), **manifest["experiment"]["data"]},
        "attacks": attacked,
        "targets": manifest["targets"],
        "seed": manifest["experiment"]["seed"],
        "started": manifest["started"],
        "device": manifest["device"],
        "versions": manifest["versions"],
    }
