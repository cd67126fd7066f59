"""What a score leaves behind: tables, a contact sheet, and its section of a report for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from PIL import Image

import whorl
from whorl.evaluation import Comparison, ImageCounts, SuccessRate, holm, rate
from whorl.files import defined, write_csv
from whorl.physical.captures import Scored, View
from whorl.physical.simulation import SIMULATED
from whorl.physical.summary import VersionSummary, by_version, cell_of, cells, compared, pooled, summarise
from whorl.report.content import Content, CutOut, Grouped, Photographs
from whorl.report.export import save_gallery
from whorl.report.gallery import CLEAN, Example, Gallery, Tile, TileRow
from whorl.report.page import write_report
from whorl.runs.networks import Target, identify
from whorl.runs.results import Cell, write_results

UNITS = {"rotation": "°", "scale": "", "tilt": "°"}
_RATES = (
    "Success rate: of the images whose clean version in the same photograph is recognised, the share whose attacked "
    "version is not. Accuracy: of all images, the share that is recognised. Intervals are over prints: several "
    "photographs of one print count as one print."
)
_COLUMNS = (
    *("photo", "sheet", "page", "cell", "id", "label", "attack", "source"),
    *("angle", "scale", "shift_x", "shift_y", "tilt", "pixels_per_pixel", "misfit"),
)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where everything was written."""

    results: dict[View, Path]
    captures: Path
    contact: Path | None
    report: Path


def write_all(scored: Scored, folder: Path, targets: Sequence[Target], *, command: Sequence[str] = ()) -> Files:
    """Write ``results.csv``, ``captures.csv``, a contact sheet and ``report.html``.

    Args:
        scored: what came of the photographs.
        folder: where to write.
        targets: the networks that were evaluated.
        command: what the user typed, for the report.
    """
    results: dict[View, Path] = {}
    for view in scored.settings.views:
        # What the paper tests has the usual name.
        plain = view == "as seen" or len(scored.settings.views) == 1
        results[view] = folder / ("results.csv" if plain else "results-rectified.csv")
        write_results(results[view], cells(scored, view, targets))
    captures = folder / "captures.csv"
    write_csv(captures, _captures(scored))
    contact = None
    if scored.shown:
        contact = folder / "contact.png"
        save_gallery(contact.with_suffix(""), contact_sheet(scored, targets[0]), ["png"])
    report = write_report(folder / "report.html", content(scored, targets, command=command))
    return Files(results=results, captures=captures, contact=contact, report=report)


def content(scored: Scored, targets: Sequence[Target], *, command: Sequence[str] = ()) -> Content:
    """Gather what the report of photographs shows.

    Args:
        scored: what came of them.
        targets: the networks that were evaluated.
        command: what the user typed.
    """
    made = photographs(scored, targets)
    return Content(
        title=made.title,
        about="Printed images in photographs, found by their markers, cut out and classified.",
        command=tuple(command),
        photographs=made,
        settings=vars(scored.settings),
        provenance=provenance(scored, targets),
    )


def provenance(scored: Scored, targets: Sequence[Target]) -> dict[str, Any]:
    """Where the figures come from: the prints, and the networks with their weights."""
    return {
        "sheets": sorted({capture.sheet for capture in scored.captures}),
        "networks": {target.name: identify(target.net) for target in targets},
        "whorl": whorl.__version__,
    }


def as_json(scored: Scored) -> dict[str, Any]:
    """Everything that was counted, as plain JSON; undefined rates are null.

    ``accuracy`` and ``asr`` at the top are those of the attacked images, in the first view, of the first
    target; without attacked images, of the clean ones.
    """
    lines = summarise(scored)
    first = [line for line in lines if (line.view, line.target) == (scored.settings.views[0], scored.targets[0])]
    attacked, clean = pooled(first, clean=False), pooled(first, clean=True)
    content = {
        "photos": scored.photos,
        "read": scored.photos - len(scored.unread),
        "identified": len(scored.captures),
        "simulated": len(scored.simulated),
        "partly_visible": scored.partly,
        "accuracy": (attacked if attacked.n else clean).accuracy,
        "clean_accuracy": clean.accuracy,
        "asr": attacked.rate,
        "scale_one": scored.settings.scale_one,
        "offset": scored.settings.offset,
        "surroundings": scored.settings.surroundings,
        "white_balance": scored.settings.white_balance,
        "without_patch_strip": scored.unbalanced,
        "summary": [_plain(line) for line in lines],
        "unread": [{"photo": unread.photo, "reason": unread.reason} for unread in scored.unread],
    }
    return defined(content)


def photographs(
    scored: Scored, targets: Sequence[Target], *, title: str = "", about: Sequence[str] = ()
) -> Photographs:
    """Make the part of a report that is about photographs of prints.

    Args:
        scored: what came of them.
        targets: the networks that were evaluated. The contact sheet shows what the first one says.
        title: what they are; says whether a camera was simulated if empty.
        about: further sentences, before all others.
    """
    lines, by_name = summarise(scored), {target.name: target for target in targets}
    attacks = {line.version for line in lines if line.item.attack != CLEAN}
    return Photographs(
        title=title or _title(scored),
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
        comparisons=holm(dict(_comparisons(scored))),
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

    def tile(photo: str, name: str, version: str, view: View) -> Tile | None:
        image, capture = scored.shown[photo, name].get((version, view)), captures.get((photo, name, version))
        if image is None or capture is None:
            return None
        return Tile(
            image=Image.fromarray(image),
            caption=named(capture.predictions[view, target.name]),
            fooled=not capture.correct(view, target.name),
        )

    truth = {capture.item.id: capture.item.label for capture in scored.captures}
    return Gallery(
        title=f"Cut out of photographs, evaluated on {target.name}",
        about="The first images that were found, whatever the network predicts.",
        columns=tuple(versions),
        examples=tuple(
            Example(
                id=f"{name} in {photo}",
                truth=named(truth[name]),
                rows=tuple(
                    TileRow(name=view, tiles=tuple(tile(photo, name, version, view) for version in versions))
                    for view in scored.settings.views
                ),
            )
            for photo, name in scored.shown
        ),
    )


def _captures(scored: Scored) -> Iterator[tuple[str | int | float, ...]]:
    """Give the rows of ``captures.csv``, the headings first."""
    evaluated = [(view, target) for view in scored.settings.views for target in scored.targets]
    yield (*_COLUMNS, *(f"{target} {view}" for view, target in evaluated))
    for capture in scored.captures:
        item, lies = capture.item, capture.appearance
        numbers = (lies.pose.angle, lies.pose.scale, *lies.pose.shift, lies.tilt, lies.density, capture.misfit)
        place = (capture.photo, capture.sheet, item.page + 1, item.place + 1)
        known = (*place, item.id, item.label, item.attack, item.source)
        yield (*known, *(round(number, 4) for number in numbers), *(capture.predictions[key] for key in evaluated))


def _plain(line: VersionSummary) -> dict[str, Any]:
    return {
        "view": line.view,
        "images": line.version,
        "target": line.target,
        **_rates(line.counts, line.images),
        "compared_across_photos": line.across,
        **{
            f"by_{name}": [{name: step, **_rates(*counted)} for step, counted in groups.items()]
            for name, groups in line.by.items()
        },
    }


def _rates(counts: SuccessRate, images: ImageCounts) -> dict[str, Any]:
    found = rate(images)
    return {
        "n": counts.n,
        "n_clean_correct": counts.n_clean_correct,
        "n_success": counts.n_success,
        "accuracy": counts.accuracy,
        "asr": counts.rate,
        "interval": found.interval,
        "prints": found.images,
        "few": found.few,
    }


def _title(scored: Scored) -> str:
    title = Photographs.title
    return f"Simulated {title[0].lower()}{title[1:]}" if scored.simulated and not _others(scored) else title


def _others(scored: Scored) -> int:
    """How many of the photographs that were read are not simulated."""
    unread = {one.photo for one in scored.unread}
    return scored.photos - len(unread | scored.simulated)


def _notes(scored: Scored) -> Iterator[str]:
    settings = scored.settings
    if scored.simulated:
        others = _others(scored)
        yield f"{SIMULATED} {others} of {scored.photos} photographs are real." if others else SIMULATED
    yield _RATES
    partly = f" {scored.partly:,} more are seen in part, and left out." if scored.partly else ""
    shifted = f" Windows are off the middle by up to {settings.offset:g} pixels, at random." if settings.offset else ""
    yield f"Scale 1: {_scale_one(settings.scale_one)}.{shifted}{partly}"
    if scored.unbalanced:
        yield f"No patch strip was found, so colours were not corrected, in: {', '.join(scored.unbalanced)}."


def _scale_one(setting: str | float) -> str:
    if setting == "page":
        return "the page just fills the photograph"
    if setting == "image":
        return "an image is as long as the photograph's shorter side"
    return f"a millimetre of paper is {setting:g} pixels of the photograph"


def _cut_out(view: View, lines: Sequence[VersionSummary], targets: dict[str, Target]) -> CutOut:
    def cell(line: VersionSummary, counts: SuccessRate, images: ImageCounts) -> Cell:
        return replace(cell_of(line.item, targets[line.target], counts), images=images)

    groups = []
    for name, unit in UNITS.items():
        steps = sorted({step for line in lines for step in line.by[name]})
        found = {
            step: tuple(cell(line, *line.by[name][step]) for line in lines if step in line.by[name]) for step in steps
        }
        groups.append(Grouped(by=name, unit=unit, steps=found))
    return CutOut(way=view, cells=tuple(cell(line, line.counts, line.images) for line in lines), groups=tuple(groups))


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
