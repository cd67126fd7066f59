"""A gate from end to end: check, craft and evaluate, decide, write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whorl
from whorl.data.images import Images
from whorl.defenses import Defended
from whorl.errors import WhorlError
from whorl.evaluation import Verdict
from whorl.evaluation.verdict import RATES
from whorl.files import json_text, write_file
from whorl.gate.baseline import FILE, Baseline, read_baseline, regression
from whorl.gate.checks import CheckedNetwork, check_count, check_images, check_network, sample
from whorl.gate.junit import junit
from whorl.gate.record import GateRecord, content
from whorl.gate.rules import accuracy, attacked_rates, decided, posed_accuracy
from whorl.gate.sarif import sarif
from whorl.gate.settings import FAIL_DROP, GateSettings
from whorl.models import Classifier, Ensemble
from whorl.models.backward import scripted
from whorl.models.sources import parse
from whorl.models.zoo import find_device
from whorl.progress import Progress, silent
from whorl.report import report_experiment
from whorl.runs.done import Done
from whorl.runs.experiment import run
from whorl.runs.folder import Json
from whorl.runs.images import with_classes
from whorl.runs.networks import Networks, members, split_target
from whorl.runs.store import Store

JUNIT, SARIF = "gate.junit.xml", "gate.sarif"
_LOST = 0.501 / 255  # a smaller change is lost when an image is saved, or is that of saving itself


@dataclass(frozen=True, kw_only=True)
class Gated:
    """What a gate came to.

    Attributes:
        verdict: what was decided.
        done: the experiment that it rests on.
        summary: what ``gate.json`` says but for the images, as JSON.
        files: what was written, by what it is.
    """

    verdict: Verdict
    done: Done
    summary: Json
    files: Mapping[str, Path]


def gate(
    settings: GateSettings,
    out: str | Path,
    *,
    device: str = "auto",
    command: Sequence[str] = (),
    copies: Mapping[str, Path] | None = None,
    progress: Progress = silent,
) -> Gated:
    """Check a network, attack it, show it the images in 25 poses, decide, and write what was found.

    The folder is an experiment's: whatever it holds that the same settings, weights, images and versions made is kept,
    and a second process waits.

    Args:
        settings: what is checked.
        out: the run folder, which gets ``gate.json``, ``gate.junit.xml``, ``gate.sarif`` and ``report.html`` too.
        device: "auto", "cpu", "cuda" or "cuda:1".
        command: what the user typed.
        copies: where to write "junit" and "sarif" besides.
        progress: called with each step.

    Raises:
        WhorlError: whatever would make the verdict untrustworthy: a network at chance, with the wrong statistics or
            order of classes, that answers NaN or has no gradients; too few images, an empty class; a baseline of other
            images or attacks.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    earlier = None if settings.baseline is None else read_baseline(settings.baseline)
    if earlier is not None and os.path.realpath(earlier.path) == os.path.realpath(Path(out) / FILE):
        raise WhorlError(f"{out} is the baseline's own folder, which this gate would overwrite. Choose another (out).")
    where = find_device(device)
    checked = check(settings, where, progress=progress)
    declared = settings.declaration(size=checked.size, crafting=checked.crafting)
    done = run(declared, out, device=device, command=command, progress=progress)
    _check_changed(done)
    subjects = {variant.name: checked.subjects[variant.source] for variant in done.plan.variants if variant.attack}
    record = GateRecord.of(done, subjects)
    verdict = judge(record, settings, checked, done, earlier)
    shown = content(record, verdict, settings, done, where)
    # One at a time: what lies there in the end is all of one gate.
    with Store.open(out, command) as store:
        files = _written(store.path, verdict, shown, done, copies or {})
        files |= report_experiment(done, device=device, verdict=verdict, progress=progress)
    summary = {name: part for name, part in shown.items() if name not in ("images", "outcomes")}
    return Gated(verdict=verdict, done=done, summary=summary, files=files)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A network and its surrogates that are fit to be judged.

    Attributes:
        name: what the network is called.
        size: side in pixels to resize images to.
        crafting: networks to craft on, by name, with the settings that the attack has on each besides its own.
        subjects: by source, what the attack on it is called, as in "ai-best, white-box".
        notes: what must be known along with a verdict.
    """

    name: str
    size: int
    crafting: Mapping[str, Json]
    subjects: Mapping[str, str]
    notes: tuple[str, ...]


def check(settings: GateSettings, device: torch.device, *, progress: Progress = silent) -> Checked:
    """See whether a network and its images are fit to be judged, before anything is crafted; nothing is written.

    Raises:
        WhorlError: they are not; see :func:`gate`.
    """
    declared = settings.declaration()
    stage, total = "checking the network and the images", 1 + len(declared.sources)
    progress(stage, 0, total)
    networks = Networks(device, settings.seed, addresses=declared.models)
    loaded = {name: networks.source(name) for name in declared.sources}
    [name] = declared.targets
    size: int = settings.size or max(loaded[name].size)
    data = declared.data.model_copy(update={"size": size})
    listed = data.listed()
    check_images(listed, settings)
    batch = data.read(sample(with_classes(listed, loaded, data)))
    found: dict[str, CheckedNetwork] = {}
    for place, source in enumerate(declared.sources, start=1):
        progress(stage, place, total)
        found[source] = _all_checked(loaded[source], source, batch)
    progress(stage, total, total)
    if found[name].checked == len(listed):
        check_count(found[name].recognised, settings, f"{name} recognises {found[name].recognised} images")
    crafting = _crafting(name, found)
    backward = getattr(whorl.attack(settings.attack), "backward", None)
    unhooked = [source for source in crafting if backward is not None and backward.changes and scripted(loaded[source])]
    for source in unhooked:
        crafting[source]["backward"] = {}
    sure = "{} is so confident that the gradient of the cross entropy vanishes, so its margin is attacked"
    plain = (
        "{} is a ScriptModule, whose backward pass cannot be changed: there " + settings.attack + " follows it as it is"
    )
    through = "{} is attacked through its defence; where that cannot be differentiated, gradients pass straight through"
    return Checked(
        name=name,
        size=size,
        crafting=crafting,
        subjects={
            source: f"{settings.attack}, {'white-box' if source == name else f'transfer from {source}'}"
            for source in declared.sources
        },
        notes=(
            *(sure.format(source) for source, one in found.items() if one.gradients == "margin"),
            *(plain.format(source) for source in unhooked),
            *(through.format(source) for source in crafting if isinstance(loaded[source], Defended)),
        ),
    )


def _all_checked(model: Classifier | Ensemble | Defended, name: str, batch: Images) -> CheckedNetwork:
    """Check a network, or each member of an ensemble: what is crafted on it needs all of them."""
    bare: Any = model
    while isinstance(bare, Defended):
        bare = bare.model
    behind = model if bare is not model else None
    found = [check_network(one, name if one is bare else one.name, batch, behind=behind) for one in members(bare)]
    return min(found, key=lambda one: ("none", "margin", "ce").index(one.gradients))


def _crafting(name: str, found: Mapping[str, CheckedNetwork]) -> dict[str, Json]:
    """What to craft on, with what becomes of the attack's settings on each."""
    without = [source for source, one in found.items() if one.gradients == "none"]
    for source in without:
        if source != name:
            raise WhorlError(f"{source} has no gradients, so nothing can be crafted on it: it is no surrogate.")
    if without and len(found) == 1:
        raise WhorlError(
            f"{name} has no gradients (an ONNX file answers queries alone): no white-box attack is possible. Give its "
            "weights as file:PATH?arch=NAME or python:MODULE:FACTORY, or networks of the same classes to craft on, "
            "--surrogates A,B: what is measured then is a transfer rate, which a white-box attack would exceed."
        )
    flat = {"ce": {}, "margin": {"loss": "margin"}}
    return {source: dict(flat[one.gradients]) for source, one in found.items() if source not in without}


def _check_changed(done: Done) -> None:
    """Refuse an attack that changed nothing: every network would withstand it.

    Raises:
        WhorlError: the images that it made are the clean ones, saved with 8 bits.
    """
    for (attack, source), distance in done.distances.items():
        if distance.n and distance.linf_max < _LOST:
            raise WhorlError(
                f"{attack} on {source} changed no pixel of any image, so nothing was tested: less than half a step of "
                "8 bits is lost when images are saved. Take a larger --eps, 1/255 at least."
            )


def judge(
    record: GateRecord, settings: GateSettings, checked: Checked, done: Done, baseline: Baseline | None
) -> Verdict:
    """Decide every rule.

    Raises:
        WhorlError: too few images are recognised, or the baseline cannot be compared with.
    """
    attacks = tuple(
        attacked_rates(
            record,
            checked.subjects[variant.source],
            attack=variant.label,
            source=variant.source,
            kind="white-box" if variant.source == checked.name else "transfer",
        )
        for variant in done.plan.variants
        if variant.attack is not None
    )
    for one in attacks:
        check_count(one.success.images, settings, f"{checked.name} recognises {one.success.images} images in some pose")
    clean, notes = accuracy(record), checked.notes
    if not any(one.kind == "white-box" for one in attacks):
        said = f"{checked.name} has no gradients: these are transfer rates, which a white-box attack would exceed"
        notes = (*notes, said)
    most = FAIL_DROP if settings.fail_drop is None else settings.fail_drop
    since = None if baseline is None else regression(record, baseline, fail_drop=most)
    return Verdict(
        model=checked.name,
        images=len(record.outcomes.ids),
        poses=len(record.outcomes.poses),
        accuracy=clean,
        posed_accuracy=posed_accuracy(record),
        attacks=attacks,
        rules=(*decided(settings, clean, attacks), *(() if since is None else since.rules)),
        strict=settings.strict,
        changed={} if since is None else since.changed,
        notes=(*notes, *(() if since is None else since.notes)),
    )


def _written(folder: Path, verdict: Verdict, shown: Json, done: Done, copies: Mapping[str, Path]) -> dict[str, Path]:
    """Write what machines read; gives the paths."""
    address = parse(split_target(shown["model"]["address"])[0])
    paths = {name: image.entry.path for name, image in done.plan.images.items()}
    facts = {"model": address.text, "images": str(verdict.images), "poses": str(verdict.poses)}
    for one in verdict.attacks:
        facts[f"{one.subject}: {RATES[one.kind]}"] = str(one.success)
        facts[f"{one.subject}: fooled in some pose"] = str(one.worst_case)
    facts |= {"clean accuracy": str(verdict.accuracy), "whorl": shown["versions"]["whorl"]}
    properties = {name: shown[name] for name in ("accuracy", "posed_accuracy", "rates", "model", "versions", "notes")}
    artifact = address.place if address.is_file else FILE
    texts: dict[str, str | bytes] = {
        "verdict": json_text(shown),
        "junit": junit(verdict, facts),
        "sarif": sarif(verdict, artifact=artifact, images=paths, properties=properties),
    }
    places = {"verdict": folder / FILE, "junit": folder / JUNIT, "sarif": folder / SARIF}
    for what, text in texts.items():
        for path in dict.fromkeys(filter(None, (places[what], copies.get(what)))):
            write_file(path, text)
    return {what: copies.get(what, path) for what, path in places.items()}
