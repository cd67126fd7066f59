"""The moving parts of the page as HTML. Images are inside it, so no file is written to show one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from whorl.evaluation import Pose, SuccessRate, poses
from whorl.evaluation.rate_table import whole_percent
from whorl.progress import duration
from whorl.report.gallery import CLEAN, data_uri, to_image
from whorl.report.page import templates
from whorl.ui.bundle import Download
from whorl.ui.image import ChosenImage
from whorl.ui.pair import MAP_ANGLES, MAP_SCALES, CraftedPair, PairSettings, PosedPair, StepTaken, SuccessMap


def image_uri(image: Tensor) -> str:
    """A (3, H, W) image in [0, 1] as an address, every pixel as it is."""
    return data_uri(to_image(image), side=None)


def title(version: str) -> str:
    """What a version is called on the page.

    >>> title("clean"), title("ai-dim")
    ('Clean', 'AI-DIM')
    """
    return "Clean" if version == CLEAN else version.upper()


@cache
def _macros() -> Any:
    """The template's macros: each takes what it shows, and escapes it."""
    environment = templates(Path(__file__).parent / "templates")
    environment.filters |= {"title": title, "percent": whole_percent, "address": image_uri, "thumbnail": _thumbnail}
    return environment.get_template("fragments.html.j2").module


def _thumbnail(image: ChosenImage, side: int) -> str:
    return image_uri(image.pixels((side, side))[0])


def notice(text: str, *, bad: bool = False) -> str:
    """A message to the user, read aloud when it appears."""
    return str(_macros().notice(text, bad)) if text else ""


def empty(text: str) -> str:
    """Where something will be."""
    return str(_macros().empty(text))


def samples(images: Sequence[ChosenImage]) -> str:
    """A button an image, to choose it by; nothing where there is none."""
    return str(_macros().samples(images)) if images else ""


def chosen(image: ChosenImage) -> str:
    """The image that is chosen, small, with its name."""
    return str(_macros().chosen(image))


def progress(settings: PairSettings, steps: Sequence[StepTaken], state: str) -> str:
    """How far both attacks are, and how the label's probability falls.

    Args:
        settings: what is pair.
        steps: those taken so far.
        state: a few words on what is going on.
    """
    runs = []
    for name, attack in settings.attacks().items():
        own = [step.probability for step in steps if step.attack == name]
        last, count = own[-1] if own else None, attack.steps
        runs.append({"name": name, "steps": count, "done": len(own), "probability": last, "points": _curve(own, count)})
    return str(_macros().progress(runs, state))


def _curve(shares: Sequence[float], total: int) -> str:
    places = [(100 * k / max(1, total - 1), 2 + 20 * (1 - share)) for k, share in enumerate(shares)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def tiles(posed: PosedPair, pair: CraftedPair) -> str:
    """All versions in one pose, each with a frame, a mark and the answer."""
    return str(_macros().tiles(posed, pair, CLEAN))


def cost(settings: PairSettings, seconds: float | None) -> str:
    """What the attacks cost, before they start.

    Args:
        settings: what is chosen.
        seconds: about how long they take; None if that is unknown.
    """
    spent = settings.gradients()
    words = ", ".join(f"{title(name)} {count:,}" for name, count in spent.items())
    least, most = min(spent.values()), max(spent.values())
    times = f", {most / least:,.3g} times as many" if most > 2 * least else ""
    pace = f"; {duration(seconds)} here, by the last attack" if seconds is not None else ""
    return str(_macros().cost(f"Input gradients: {words}{times}{pace}.", most > 2 * least))


def path(seen: SuccessMap, pair: CraftedPair) -> str:
    """How often each attack fools along the poses that the sliders went through, and a mark for each."""
    rows = []
    for other, network in _networks(pair):
        for attack in pair.attacks:
            cells = [_cell(seen, attack, place, False, other=other) for place in seen.answers]
            rows.append((attack, network, seen.pooled(attack, other=other), cells))
    return str(_macros().path(rows, len(seen.answers)))


def downloads(files: Sequence[Download], commands: Sequence[str], note: str = "") -> str:
    """Links to files that are inside the page, and the commands that repeat what was made."""
    return str(_macros().downloads(files, commands, note))


def perturbations(images: Mapping[str, Tensor], settings: PairSettings) -> str:
    """The magnified perturbations side by side."""
    return str(_macros().perturbations(images, settings.magnified))


class MapCell(NamedTuple):
    """One pose of a map: ``kind`` is waiting, uncounted, fooled or held; ``here`` is whether its pose is shown."""

    kind: str
    pose: Pose
    text: str
    here: bool


class HeatMap(NamedTuple):
    """One attack's map on one network: a row of cells for each scale."""

    attack: str
    network: str
    counts: SuccessRate
    angles: Sequence[float]
    rows: Sequence[tuple[float, list[MapCell]]]


def heat_maps(found: SuccessMap, pair: CraftedPair, pose: Pose | None = None) -> str:
    """One map an attack and network: angles across, scales down, a mark in each cell.

    Args:
        found: as far as it is known.
        pair: what it is about.
        pose: the one that is shown: the cell nearest to it is marked.
    """
    maps, here = [], None if pose is None else nearest(pose)
    for other, network in _networks(pair):
        for attack in pair.attacks:
            rows = [
                (scale, [_cell(found, attack, place, place == here, other=other) for place in _row(scale)])
                for scale in MAP_SCALES
            ]
            maps.append(HeatMap(attack, network, found.pooled(attack, other=other), MAP_ANGLES, rows))
    return str(_macros().heat_maps(maps, _summary(found), _marked(pose)))


def nearest(pose: Pose) -> Pose | None:
    """The cell of the map that is nearest to a pose by angle and scale; None if the pose lies outside.

    >>> str(nearest(Pose(angle=20, scale=0.9))), nearest(Pose(angle=90))
    ('15°', None)
    """
    margin = (MAP_ANGLES[1] - MAP_ANGLES[0]) / 2
    if abs(pose.angle) > MAP_ANGLES[-1] + margin:
        return None
    angle = min(MAP_ANGLES, key=lambda one: abs(one - pose.angle))
    return Pose(angle=angle, scale=min(MAP_SCALES, key=lambda one: abs(math.log(one / pose.scale))))


def _marked(pose: Pose | None) -> str:
    """What the mark means, in words."""
    if pose is None:
        return ""
    here = nearest(pose)
    if here is None:
        return f"The current pose, {pose}, lies outside the map."
    return "The ring marks the current pose." if here == pose else f"The ring marks the cell nearest to {pose}."


def _networks(pair: CraftedPair) -> list[tuple[bool, str]]:
    """Whether it was not attacked, and its name."""
    shown = [(False, f"{pair.model.name}, attacked")]
    return shown if pair.other is None else [*shown, (True, f"{pair.other.name}, not attacked")]


def _row(scale: float) -> Sequence[Pose]:
    return poses(angles=MAP_ANGLES, scales=(scale,))


def _cell(found: SuccessMap, attack: str, place: Pose, here: bool, *, other: bool = False) -> MapCell:
    if place not in found.answers:
        return MapCell("waiting", place, "", here)
    answers, counts = (found.other if other else found.answers)[place], found.counts(attack, place, other=other)
    answer = answers[attack]
    if not counts.n_clean_correct:
        kind, text = "uncounted", f"not counted: the clean version is taken for {answers[CLEAN].name}"
    elif counts.n_success:
        kind, text = "fooled", f"fooled: {answer.name}, {whole_percent(answer.probability)}"
    else:
        kind, text = "held", f"recognised, {whole_percent(answer.probability)}"
    return MapCell(kind, place, f"{place}: {text}", here)


def _summary(found: SuccessMap) -> str:
    if not found.complete:
        return f"Evaluating: {len(found.answers)} of {found.total} poses."
    return (
        "Red: fooled. Green: recognised. Hatched: not counted, because the clean version is not recognised either. "
        "Choose a cell to see its pose."
    )
