"""What a score leaves behind: tables, a contact sheet, and a report for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whorl
from whorl.errors import WhorlError
from whorl.evaluation import SuccessRate
from whorl.files import atomic_write
from whorl.physical.captures import Scored, View
from whorl.physical.section import contact_sheet, photographs
from whorl.physical.summary import Line, cells, pooled, summarise
from whorl.report.content import Content
from whorl.report.page import write_report
from whorl.report.saving import save_gallery
from whorl.runs.networks import Target
from whorl.runs.results import write_results

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
        targets: the networks that were asked.
        command: what the user typed, for the report.
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
    report = write_report(folder / "report.html", content(scored, targets, command=command))
    return Files(results=results, captures=captures, contact=contact, report=report)


def content(scored: Scored, targets: Sequence[Target], *, command: Sequence[str] = ()) -> Content:
    """Gather what the report of photographs shows.

    Args:
        scored: what came of them.
        targets: the networks that were asked.
        command: what the user typed.
    """
    return Content(
        title="Photographs of prints",
        about="Images that were printed and photographed, found by their markers, cut out and shown to networks.",
        command=tuple(command),
        photographs=photographs(scored, targets),
        settings=vars(scored.settings),
        provenance=provenance(scored, targets),
    )


def provenance(scored: Scored, targets: Sequence[Target]) -> dict[str, Any]:
    """Where the figures come from: the prints, and the networks with their weights."""
    weights = {target.name: getattr(target.net, "weights_sha256", None) for target in targets}
    return {
        "sheets": sorted({capture.sheet for capture in scored.captures}),
        "networks": {name: {"weights_sha256": digest} for name, digest in weights.items()},
        "whorl": whorl.__version__,
    }


def as_json(scored: Scored) -> dict[str, Any]:
    """Everything that was counted, as plain JSON; undefined rates are null.

    ``accuracy`` and ``asr`` at the top are those of the attacked images, in the first view, asked of the first
    target; without attacked images, of the clean ones.
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


def draw_contact(scored: Scored, path: Path, target: Target) -> None:
    """Draw a few images as they were cut out, with what a network says of each, as a PNG file."""
    save_gallery(path.with_suffix(""), contact_sheet(scored, target), ["png"])


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
        **_rates(line.counts, line.repeats),
        "compared_across_photos": line.across,
        **{
            f"by_{name}": [{name: step, **_rates(counts, line.repeats)} for step, counts in groups.items()]
            for name, groups in line.by.items()
        },
    }


def _rates(counts: SuccessRate, repeats: int) -> dict[str, Any]:
    return {
        "n": counts.n,
        "n_clean_correct": counts.n_clean_correct,
        "n_success": counts.n_success,
        "accuracy": _number(counts.accuracy),
        "asr": _number(counts.rate),
        "interval": [_number(edge) for edge in counts.interval(poses=repeats)],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error
