"""The moving parts of the page as HTML. Images are inside it, so no file is written to show one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from whorl.evaluation import Pose, SuccessRate, poses
from whorl.report.gallery import CLEAN, data_uri, to_image
from whorl.report.page import templates
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


def percent(share: float) -> str:
    """A share in [0, 1] for people; certainty is not rounded up to.

    >>> percent(0.42), percent(0.9996), percent(0.004)
    ('42%', '>99%', '<1%')
    """
    if 0.995 <= share < 1:
        return ">99%"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


@cache
def _macros() -> Any:
    """The template's macros: each takes what it shows, and escapes it."""
    environment = templates(Path(__file__).parent / "templates")
    environment.filters |= {"title": title, "percent": percent, "address": image_uri, "thumbnail": _thumbnail}
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


def perturbations(images: Mapping[str, Tensor], settings: PairSettings) -> str:
    """The magnified perturbations side by side."""
    return str(_macros().perturbations(images, 0.5 / max(settings.eps, 0.5 / 255)))


class MapCell(NamedTuple):
    """One pose of a map: ``kind`` is waiting, uncounted, fooled or held; ``here`` is whether its pose is shown."""

    kind: str
    pose: Pose
    text: str
    here: bool


class HeatMap(NamedTuple):
    """One attack's map: a row of cells for each scale."""

    attack: str
    counts: SuccessRate
    angles: Sequence[float]
    rows: Sequence[tuple[float, list[MapCell]]]


def heat_maps(found: SuccessMap, pair: CraftedPair, pose: Pose | None = None) -> str:
    """One map an attack: angles across, scales down, a mark in each cell.

    Args:
        found: as far as it is known.
        pair: what it is about.
        pose: the one that is shown, which is marked.
    """
    maps = []
    for attack in pair.attacks:
        rows = [(scale, [_cell(found, attack, place, place == pose) for place in _row(scale)]) for scale in MAP_SCALES]
        maps.append(HeatMap(attack, found.pooled(attack), MAP_ANGLES, rows))
    return str(_macros().heat_maps(maps, _summary(found, pair)))


def _row(scale: float) -> Sequence[Pose]:
    return poses(angles=MAP_ANGLES, scales=(scale,))


def _cell(found: SuccessMap, attack: str, place: Pose, here: bool) -> MapCell:
    if place not in found.answers:
        return MapCell("waiting", place, "", here)
    answers, counts = found.answers[place], found.counts(attack, place)
    answer = answers[attack]
    if not counts.n_clean_correct:
        kind, text = "uncounted", f"not counted: the clean version is taken for {answers[CLEAN].name}"
    elif counts.n_success:
        kind, text = "fooled", f"fooled: {answer.name}, {percent(answer.probability)}"
    else:
        kind, text = "held", f"recognised, {percent(answer.probability)}"
    return MapCell(kind, place, f"{place}: {text}", here)


def _summary(found: SuccessMap, pair: CraftedPair) -> str:
    if not found.complete:
        return f"Evaluating: {len(found.answers)} of {found.total} poses."
    right = found.pooled(pair.attacks[0]).n_clean_correct
    return (
        f"Red: fooled. Green: recognised. Hatched: not counted, for the clean version is not recognised there either; "
        f"it is in {right} of {found.total} poses. Choose a cell to see its pose."
    )
