"""What a score leaves behind: tables, contact sheets, and a page for people."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl.artifacts import atomic_write
from whorl.data.pictures import to_tensor
from whorl.errors import WhorlError
from whorl.evaluation import SuccessRate
from whorl.physical.scoring import Scored, View
from whorl.physical.sheet import CLEAN
from whorl.physical.summary import Line, by_version, cells, pooled, summarise
from whorl.runs.figure import Panel, Tile, draw
from whorl.runs.results import write_results
from whorl.runs.targets import Target

_COLUMNS = (
    *("photo", "sheet", "page", "cell", "id", "label", "attack", "source"),
    *("angle", "scale", "shift_x", "shift_y", "tilt", "pixels_per_pixel", "misfit"),
)
_UNITS = {"rotation": "°", "scale": "", "tilt": "°"}


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where everything was written."""

    results: dict[View, Path]
    captures: Path
    contact: Path | None
    page: Path


def write_all(scored: Scored, folder: Path, targets: Sequence[Target]) -> Files:
    """Write ``results.csv``, ``captures.csv``, a contact sheet and ``physical.html``.

    Args:
        scored: what came of the photographs.
        folder: where to write.
        targets: the networks that were asked.
    """
    names = {target.name: (target.model, target.defense) for target in targets}
    results: dict[View, Path] = {}
    for view in scored.settings.views:
        # What the paper tests has the usual name.
        plain = view == "as seen" or len(scored.settings.views) == 1
        results[view] = folder / ("results.csv" if plain else "results-rectified.csv")
        write_results(results[view], cells(scored, view, names))
    captures = folder / "captures.csv"
    _write(captures, _captures_csv(scored))
    contact = None
    if scored.shown:
        contact = folder / "contact.png"
        draw_contact(scored, contact, targets[0])
    page = folder / "physical.html"
    _write(page, _page(scored, contact))
    return Files(results=results, captures=captures, contact=contact, page=page)


def as_json(scored: Scored) -> dict[str, Any]:
    """Everything that was counted, as plain JSON; undefined rates are null.

    ``accuracy`` and ``asr`` at the top are those of the attacked pictures, in the first view, asked of the first
    target; without attacked pictures, of the clean ones.
    """
    lines = summarise(scored)
    first = [line for line in lines if (line.view, line.target) == (scored.settings.views[0], scored.targets[0])]
    attacked, clean = pooled(first, clean=False), pooled(first, clean=True)
    return {
        "photos": scored.photos,
        "read": scored.photos - len(scored.unread),
        "identified": len(scored.captures),
        "partly_visible": scored.partly,
        "accuracy": _number((attacked if attacked.n else clean).accuracy),
        "clean_accuracy": _number(clean.accuracy),
        "asr": _number(attacked.rate),
        "scale_one": scored.settings.scale_one,
        "offset": scored.settings.offset,
        "surroundings": scored.settings.surroundings,
        "white_balance": scored.settings.white_balance,
        "without_patch_strip": scored.unbalanced,
        "summary": [_line(line) for line in lines],
        "unread": [{"photo": unread.photo, "reason": unread.reason} for unread in scored.unread],
    }


def section(scored: Scored, contact: str | None = None) -> str:
    """Write the part of a report that is about photographs, as HTML without a head.

    Args:
        scored: what came of the photographs.
        contact: address of the contact sheet; None if there is none.
    """
    lines = summarise(scored)
    read = scored.photos - len(scored.unread)
    parts = [
        "<section class='physical'><h2>Photographs of prints</h2>",
        f"<p>{read} of {scored.photos} photographs read; {len(scored.captures)} pictures identified, {scored.partly} "
        f"seen in part and left out. Scale 1 is where {_scale_one(scored.settings.scale_one)}.</p>",
        _table(
            ("view", "pictures", "network", "n", "recognised", "success rate", "95% interval"),
            ((line.view, line.version, line.target, *_counts(line.counts, line.version)) for line in lines),
        ),
    ]
    for name, unit in _UNITS.items():
        rows = (
            (line.view, line.version, line.target, f"{step:g}{unit}", *_counts(counts, line.version))
            for line in lines
            for step, counts in line.by[name].items()
        )
        headings = ("view", "pictures", "network", name, "n", "recognised", "success rate", "95% interval")
        parts += [f"<details><summary>By {name}, as measured</summary>", _table(headings, rows), "</details>"]
    if contact:
        parts.append(f"<h3>Contact sheet</h3><img src='{html.escape(contact)}' alt='Pictures cut out of photographs'>")
    if scored.unread:
        parts.append("<h3>Photographs that were not read</h3>")
        parts.append(_table(("photograph", "reason"), ((unread.photo, unread.reason) for unread in scored.unread)))
    if scored.unbalanced:
        parts.append(f"<p>No patch strip could be seen in: {html.escape(', '.join(scored.unbalanced))}.</p>")
    return "\n".join([*parts, "</section>"])


def draw_contact(scored: Scored, path: Path, target: Target) -> None:
    """Draw a few pictures as they were cut out, with what a network says of each."""
    versions = [CLEAN, *(version for version in by_version(scored.captures) if version != CLEAN)]
    labels = getattr(target.net, "labels", None)

    def named(label: int) -> str:
        return labels[label] if labels is not None and label < len(labels) else f"class {label}"

    answers = {(capture.photo, capture.item.id, capture.item.version): capture for capture in scored.captures}
    panels = []
    for (photo, name), kept in scored.shown.items():
        rows: dict[str, tuple[Tile | None, ...]] = {}
        label = 0
        for view in scored.settings.views:
            tiles: list[Tile | None] = []
            for version in versions:
                picture, capture = kept.get((version, view)), answers.get((photo, name, version))
                if picture is None or capture is None:
                    tiles.append(None)
                    continue
                label = capture.item.label
                said = named(capture.answers[view, target.name])
                fooled = not capture.right(view, target.name)
                tiles.append(Tile(picture=to_tensor(picture), caption=said, fooled=fooled))
            rows[view] = tuple(tiles)
        panels.append(Panel(name=named(label), rows=rows))
    draw(
        panels,
        path,
        title=f"Cut out of photographs, shown to {target.name}",
        subtitle="As seen, and set straight.",
        columns=versions,
    )


def _captures_csv(scored: Scored) -> str:
    asked = [(view, target) for view in scored.settings.views for target in scored.targets]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_COLUMNS, *(f"{target} {view}" for view, target in asked)))
    for capture in scored.captures:
        item, seen = capture.item, capture.seen
        numbers = (seen.pose.angle, seen.pose.scale, *seen.pose.shift, seen.tilt, seen.density, capture.misfit)
        place = (capture.photo, capture.sheet, item.page + 1, item.place + 1)
        known = (*place, item.id, item.label, item.attack, item.source)
        writer.writerow((*known, *(round(number, 4) for number in numbers), *(capture.answers[key] for key in asked)))
    return text.getvalue()


def _line(line: Line) -> dict[str, Any]:
    return {
        "view": line.view,
        "pictures": line.version,
        "target": line.target,
        **_rates(line.counts),
        "compared_across_photos": line.across,
        **{
            f"by_{name}": [{name: step, **_rates(counts)} for step, counts in groups.items()]
            for name, groups in line.by.items()
        },
    }


def _rates(counts: SuccessRate) -> dict[str, Any]:
    return {
        "n": counts.n,
        "n_clean_correct": counts.n_clean_correct,
        "n_success": counts.n_success,
        "accuracy": _number(counts.accuracy),
        "asr": _number(counts.rate),
        "interval": [_number(edge) for edge in counts.interval()],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _counts(counts: SuccessRate, version: str) -> tuple[str, ...]:
    low, high = counts.interval()
    rates: tuple[str, ...] = ("", "")
    if version != CLEAN and counts.n_clean_correct:
        rates = (f"{counts.rate:.1%}", f"{low:.1%} to {high:.1%}")
    return (str(counts.n), "–" if math.isnan(counts.accuracy) else f"{counts.accuracy:.1%}", *rates)


def _scale_one(setting: str | float) -> str:
    if setting == "page":
        return "the page just fills the photograph"
    if setting == "picture":
        return "a picture is as long as the photograph's shorter side"
    return f"a millimetre of paper is {setting:g} pixels of the photograph"


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1f2328}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #d0d7de}"
    "img{max-width:100%}summary{cursor:pointer}"
)


def _page(scored: Scored, contact: Path | None) -> str:
    body = section(scored, contact.name if contact else None)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>Photographs of prints</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error
