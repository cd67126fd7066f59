"""What came of photographs, as a part of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from whorl.data.image_files import to_tensor
from whorl.evaluation import Comparison, Pose, SuccessRate
from whorl.physical.captures import Scored, View
from whorl.physical.sheet import CLEAN
from whorl.physical.summary import Line, by_version, compared, summarise
from whorl.report.content import CutOut, Example, Gallery, Grouped, Photographs, Shot, Version
from whorl.report.examples import encode
from whorl.runs.networks import Target
from whorl.runs.results import Cell

UNITS = {"rotation": "°", "scale": "", "tilt": "°"}
_RATES = (
    "Success rate: of the images whose clean version in the same photograph is recognised, the share whose attacked "
    "version is not. Accuracy: of all images, the share that is recognised."
)


def photographs(
    scored: Scored, targets: Sequence[Target], *, title: str = Photographs.title, about: Sequence[str] = ()
) -> Photographs:
    """Make the part of a report that is about photographs of prints.

    Args:
        scored: what came of them.
        targets: the networks that were asked. The contact sheet shows what the first one says.
        title: what they are, such as simulated ones.
        about: further sentences, before all others.
    """
    lines, by_name = summarise(scored), {target.name: target for target in targets}
    attacks = {line.version for line in lines if line.item.attack != CLEAN}
    return Photographs(
        title=title,
        about=(*about, *_notes(scored)),
        facts=(
            ("photographs read", f"{scored.photos - len(scored.unread):,} of {scored.photos:,}"),
            ("images identified", f"{len(scored.captures):,}"),
            ("attack" if len(attacks) == 1 else "attacks", str(len(attacks))),
            ("network" if len(targets) == 1 else "networks", str(len(targets))),
        ),
        cut_out=tuple(
            _cut_out(view, [line for line in lines if line.view == view], by_name)
            for view in scored.settings.views
            if lines
        ),
        repeats=max((line.repeats for line in lines), default=1),
        comparisons=dict(_comparisons(scored)),
        galleries=(contact_sheet(scored, targets[0]),) if scored.shown else (),
        unread=tuple((unread.photo, unread.reason) for unread in scored.unread),
    )


def contact_sheet(scored: Scored, target: Target) -> Gallery:
    """Show the first images that were cut out, all versions of each, with what a network says."""
    versions = list(by_version(scored.captures))
    labels = getattr(target.net, "labels", ())
    captures = {(capture.photo, capture.item.id, capture.item.version): capture for capture in scored.captures}

    def named(label: int) -> str:
        return labels[label] if label < len(labels) else f"class {label}"

    def shot(photo: str, name: str, version: str, view: View) -> Shot | None:
        picture, capture = scored.shown[photo, name].get((version, view)), captures.get((photo, name, version))
        if picture is None or capture is None:
            return None
        return Shot(
            picture=encode(to_tensor(picture)),
            pose=version,
            label=named(capture.answers[view, target.name]),
            fooled=not capture.right(view, target.name),
        )

    truth = {capture.item.id: capture.item.label for capture in scored.captures}
    return Gallery(
        title=f"Contact sheet: cut out of photographs, shown to {target.name}",
        about="The first images that were found, whatever the network says of them.",
        poses=tuple(versions),
        examples=tuple(
            Example(
                id=f"{name} in {photo}",
                truth=named(truth[name]),
                versions=tuple(
                    Version(name=view, shots=tuple(shot(photo, name, version, view) for version in versions))
                    for view in scored.settings.views
                ),
            )
            for photo, name in scored.shown
        ),
    )


def _notes(scored: Scored) -> Iterator[str]:
    settings = scored.settings
    yield _RATES
    partly = f" {scored.partly:,} more are seen in part, and left out." if scored.partly else ""
    shifted = f" Windows are off the middle by up to {settings.offset:g} pixels, at random." if settings.offset else ""
    yield f"Scale 1 is where {_scale_one(settings.scale_one)}.{shifted}{partly}"
    if scored.unbalanced:
        yield f"Colours are as they were, for no patch strip could be seen, in: {', '.join(scored.unbalanced)}."


def _scale_one(setting: str | float) -> str:
    if setting == "page":
        return "the page just fills the photograph"
    if setting == "picture":
        return "an image is as long as the photograph's shorter side"
    return f"a millimetre of paper is {setting:g} pixels of the photograph"


def _cut_out(view: View, lines: Sequence[Line], targets: dict[str, Target]) -> CutOut:
    groups = []
    for name, unit in UNITS.items():
        steps = sorted({step for line in lines for step in line.by[name]})
        cells = {
            step: tuple(_cell(line, line.by[name][step], targets) for line in lines if step in line.by[name])
            for step in steps
        }
        groups.append(Grouped(by=name, unit=unit, steps=cells))
    return CutOut(way=view, cells=tuple(_cell(line, line.counts, targets) for line in lines), groups=tuple(groups))


def _cell(line: Line, counts: SuccessRate, targets: dict[str, Target]) -> Cell:
    target = targets[line.target]
    return Cell(
        attack=line.item.attack,
        source=line.item.source,
        target=target.model,
        defense=target.defense,
        pose=Pose(),
        eps=line.item.eps,
        counts=counts,
        recorded=False,
    )


def _comparisons(scored: Scored) -> Iterator[tuple[tuple[str, str, str, str], Comparison]]:
    """Every two attacks from the same source, on every network; the later in the print first."""
    items = [captures[0].item for captures in by_version(scored.captures).values()]
    attacked = [item for item in items if item.attack != CLEAN]
    view = scored.settings.views[0]
    for other, one in combinations(attacked, 2):
        if one.source == other.source:
            for target in scored.targets:
                found = compared(scored, view, one.version, other.version, target)
                if found.n:
                    yield (one.attack, other.attack, one.source, target), found
