"""The moving parts of the page as HTML. Images are inside it, so no file is written to show one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from torch import Tensor

from whorl.evaluation import Pose, poses
from whorl.report.gallery import CLEAN, data_uri, to_image
from whorl.ui.image import ChosenImage
from whorl.ui.pair import MAP_ANGLES, MAP_SCALES, Answer, CraftedPair, PairSettings, PosedPair, StepTaken, SuccessMap

_THUMBNAIL = (96, 96)
_TICK = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M3 8.5l3.5 3.5L13 4.5"/></svg>'
_CROSS = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 4l8 8M12 4l-8 8"/></svg>'


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


def notice(text: str, *, bad: bool = False) -> str:
    """A message to the user, read aloud when it appears."""
    kind = "bad" if bad else "good"
    role = "alert" if bad else "status"
    return f'<p class="w-notice {kind}" role="{role}">{escape(text)}</p>' if text else ""


def chosen(image: ChosenImage) -> str:
    """The image that is chosen, small, with its name."""
    known = image.label is not None
    truth = "The true label is known." if known else "What the network says of it will count as right."
    return (
        f'<div class="w-chosen"><img alt="the chosen image" src="{image_uri(image.pixels(_THUMBNAIL)[0])}">'
        f"<div><b>{escape(image.name)}</b><span>{truth}</span></div></div>"
    )


def progress(settings: PairSettings, steps: Sequence[StepTaken], state: str) -> str:
    """How far both attacks are, and how the label's probability falls.

    Args:
        settings: what is pair.
        steps: those taken so far.
        state: a few words on what is going on.
    """
    rows = []
    for name, attack in settings.attacks().items():
        own = [step for step in steps if step.attack == name]
        done = len(own)
        share = f"label at {percent(own[-1].probability)}" if own else "waiting"
        rows.append(
            f'<div class="w-run"><b>{title(name)}</b>'
            f'<div class="w-bar" role="progressbar" aria-label="steps of {title(name)}" aria-valuemin="0" '
            f'aria-valuemax="{attack.steps}" aria-valuenow="{done}"><i style="width:{100 * done / attack.steps:.4g}%">'
            f"</i></div><span>{done} / {attack.steps}</span>{_curve(own, attack.steps)}<span>{share}</span></div>"
        )
    return f'<div class="w-progress">{"".join(rows)}<p role="status">{escape(state)}</p></div>'


def _curve(steps: Sequence[StepTaken], total: int) -> str:
    places = [(100 * k / max(1, total - 1), 2 + 20 * (1 - step.probability)) for k, step in enumerate(steps)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        '<svg class="w-curve" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" '
        'aria-label="probability of the label, step by step"><polyline points="' + points + '"/></svg>'
    )


def empty(text: str) -> str:
    """Where something will be."""
    return f'<div class="w-empty">{escape(text)}</div>'


def tiles(posed: PosedPair, pair: CraftedPair) -> str:
    """All versions in one pose, each with a frame, a mark and the answer."""
    shown = "".join(_tile(name, posed.images[name], answer) for name, answer in posed.answers.items())
    whose = "" if pair.known else " (the network's own answer, for the true label is unknown)"
    moot = "" if posed.answers[CLEAN].right else " The clean version is wrong here too, so this pose does not count."
    return (
        f'<div class="w-tiles">{shown}</div>'
        f'<p class="w-caption">Right would be <b>{escape(pair.label_name)}</b>{whose}. '
        f"Pose: {escape(str(posed.pose))}.{moot} Right and down are in pixels of an image of 299.</p>"
    )


def _tile(version: str, image: Tensor, answer: Answer) -> str:
    kind, mark = ("right", _TICK) if answer.right else ("wrong", _CROSS)
    alt = f"{title(version)} version, {kind}: {answer.name}"
    return (
        f'<figure class="w-tile {kind}" data-version="{escape(version)}"><div class="w-frame">'
        f'<img alt="{escape(alt)}" src="{image_uri(image)}"><span class="w-mark">{mark}</span></div>'
        f"<figcaption><b>{title(version)}</b><span class='w-said' title='{escape(answer.name)}'>"
        f"{escape(answer.name)}</span><span class='w-sure'>{percent(answer.probability)} · {kind}</span>"
        "</figcaption></figure>"
    )


def perturbations(images: Mapping[str, Tensor], settings: PairSettings) -> str:
    """The magnified perturbations side by side."""
    times = 0.5 / max(settings.eps, 0.5 / 255)
    shown = "".join(
        f'<figure class="w-tile plain" data-version="{escape(name)}"><div class="w-frame">'
        f'<img alt="what {title(name)} adds, magnified" src="{image_uri(image)}"></div>'
        f"<figcaption><b>{title(name)}</b></figcaption></figure>"
        for name, image in images.items()
    )
    return (
        f'<div class="w-tiles two">{shown}</div><p class="w-caption">What each adds, {times:.3g} times magnified.</p>'
    )


def heat_maps(found: SuccessMap, pair: CraftedPair, pose: Pose | None = None) -> str:
    """One map an attack: angles across, scales down, a mark in each cell.

    Args:
        found: as far as it is known.
        pair: what it is about.
        pose: the one that is shown, which is marked.
    """
    maps = "".join(_heat_map(found, attack, pose) for attack in pair.attacks)
    return f'<div class="w-maps">{maps}</div><p class="w-caption">{_summary(found, pair)}</p>'


def _heat_map(found: SuccessMap, attack: str, pose: Pose | None) -> str:
    heads = "".join(f'<th scope="col">{angle:g}°</th>' for angle in MAP_ANGLES)
    rows = "".join(
        f'<tr><th scope="row">×{scale:g}</th>'
        + "".join(_cell(found, attack, place, place == pose) for place in _row(scale))
        + "</tr>"
        for scale in MAP_SCALES
    )
    counts = found.pooled(attack)
    rate = "–" if math.isnan(counts.rate) else percent(counts.rate)
    return (
        f'<table class="w-map" data-attack="{escape(attack)}"><caption><b>{title(attack)}</b> fools it in '
        f"{counts.n_success} of {counts.n_clean_correct} poses: <b>{rate}</b></caption>"
        f'<thead><tr><th aria-label="scale and angle"></th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(scale: float) -> Sequence[Pose]:
    return poses(angles=MAP_ANGLES, scales=(scale,))


def _cell(found: SuccessMap, attack: str, place: Pose, here: bool) -> str:
    if place not in found.answers:
        return "<td><span class='w-cell waiting'></span></td>"
    answers, counts = found.answers[place], found.counts(attack, place)
    answer = answers[attack]
    if not counts.n_clean_correct:
        kind, mark, text = "uncounted", "", f"not counted: the clean version is taken for {answers[CLEAN].name}"
    elif counts.n_success:
        kind, mark, text = "fooled", _CROSS, f"fooled: {answer.name}, {percent(answer.probability)}"
    else:
        kind, mark, text = "held", _TICK, f"recognised, {percent(answer.probability)}"
    words = escape(f"{place}: {text}", quote=True)
    return (
        f'<td><button type="button" class="w-cell {kind}{" here" if here else ""}" data-angle="{place.angle:g}" '
        f'data-scale="{place.scale:g}" title="{words}" aria-label="{words}">{mark}</button></td>'
    )


def _summary(found: SuccessMap, pair: CraftedPair) -> str:
    if not found.complete:
        return f"Evaluating: {len(found.answers)} of {found.total} poses."
    right = found.pooled(pair.attacks[0]).n_clean_correct
    return (
        f"Red: fooled. Green: recognised. Hatched: not counted, for the clean version is not recognised there either; "
        f"it is in {right} of {found.total} poses. Choose a cell to see its pose."
    )
