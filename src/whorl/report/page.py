"""One HTML file that opens anywhere, without a network."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.report.content import Content, Photographs
from whorl.report.drawings import Drawing, Kind, drawings
from whorl.report.escaping import inline_script, script_json, source_hash
from whorl.report.headline import headline
from whorl.report.lines import bound, lines, views
from whorl.report.tables import (
    UNDEFINED,
    DetailTable,
    MeanTable,
    comparison_rows,
    cut_out_tables,
    group_tables,
    mean_tables,
    percent,
    pose_tables,
)

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(path: str | Path, content: Content) -> Path:
    """Write a report; the file appears whole or not at all.

    The same content gives the same bytes, with the same version of plotly.

    Args:
        path: an HTML file; missing folders are made.
        content: what to show.

    Returns:
        The path.

    Raises:
        WhorlError: the file cannot be written.
    """
    place, page = Path(path), render(content)
    try:
        with atomic_write(place) as file:
            file.write(page.encode())
    except OSError as error:
        raise WhorlError(f"cannot write {place} ({error}). Choose a folder that is writable and has space.") from error
    return place


def render(content: Content) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    drawn = drawings(content.cells)
    white_box = {str(view) for view in views(lines(content.cells)) if view.white_box}
    surfaces, profiles = _surfaces(drawn), _profiles(drawn)
    scripts = [inline_script(text) for text in (_plotly_js() if drawn else "", _read("report.js"))]
    kept = [script for script in scripts if script]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["percent"] = percent
    environment.filters["setting"] = _setting
    environment.tests["nested"] = _nested
    # Whatever is marked as safe here is ours, or has passed through ``escaping``.
    return environment.get_template("report.html.j2").render(
        content=content,
        command=shlex.join(content.command),
        headline=headline(content),
        facts=_facts(content),
        mean_tables=mean_tables(content.cells),
        pose_tables=pose_tables(content.cells),
        comparisons=comparison_rows(content.comparisons),
        cut_out=_cut_out(content.photographs),
        photograph_comparisons=comparison_rows(content.photographs.comparisons) if content.photographs else (),
        overview=_numbered(drawn, "overview"),
        cost=_numbered(drawn, "cost"),
        surfaces=surfaces,
        surface_start=_first_unseen(surfaces["views"], white_box),
        profiles=profiles,
        profile_start=_first_unseen(list(profiles), white_box),
        white_box=white_box,
        figures=Markup(script_json([_as_json(one) for one in drawn])),  # noqa: S704
        style=Markup(_read("report.css")),  # noqa: S704
        scripts=[Markup(script) for script in kept],  # noqa: S704
        policy=_policy(kept),
    )


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and no script may run but those of the page, known by their hashes."""
    hashes = " ".join(source_hash(script) for script in scripts)
    # Styles cannot reach out either: there is nowhere that they may load from. plotly sets some as attributes.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _facts(content: Content) -> list[tuple[str, str]]:
    """A line of figures below the headline."""
    cells = content.cells
    if not cells:
        return list(content.photographs.facts) if content.photographs else []
    counts = sorted({cell.counts.n for cell in cells})
    pictures = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    found = lines(cells)
    return [
        ("pictures", pictures),
        ("attacks", str(len({line.attack for line in found}))),
        ("targets", str(len({view.target for view in views(found)}))),
        ("poses", str(len({cell.pose for cell in cells}))),
        ("bound ε", ", ".join(dict.fromkeys(bound(cell.eps) for cell in cells))),
    ]


def _cut_out(photographs: Photographs | None) -> list[tuple[str, list[MeanTable], list[DetailTable]]]:
    """Each way of cutting out with its tables, over all photographs and by what was measured."""
    if photographs is None:
        return []
    return [
        (
            cut.way,
            cut_out_tables(cut, repeats=photographs.repeats),
            [table for group in cut.groups for table in group_tables(group)],
        )
        for cut in photographs.cut_out
    ]


def _numbered(drawn: Sequence[Drawing], kind: Kind) -> list[tuple[int, Drawing]]:
    return [(number, one) for number, one in enumerate(drawn) if one.kind == kind]


def _surfaces(drawn: Sequence[Drawing]) -> dict[str, Any]:
    """Menus, and which figure belongs to which choice."""
    found = _numbered(drawn, "surface")
    subjects = list(dict.fromkeys(one.subject for _, one in found))
    seen = list(dict.fromkeys(one.view for _, one in found))
    choices = [
        {"subject": subjects.index(one.subject), "view": seen.index(one.view), "figure": number}
        for number, one in found
    ]
    return {"subjects": subjects, "views": seen, "choices": json.dumps(choices)}


def _first_unseen(seen: Sequence[str], white_box: set[str]) -> int:
    """Which view to show first: one that the attacks were not crafted on, if there is one."""
    return next((number for number, view in enumerate(seen) if view not in white_box), 0)


def _profiles(drawn: Sequence[Drawing]) -> dict[str, list[tuple[int, Drawing]]]:
    found = _numbered(drawn, "profile")
    return {
        view: [(n, one) for n, one in found if one.view == view] for view in dict.fromkeys(d.view for _, d in found)
    }


def _as_json(one: Drawing) -> dict[str, Any]:
    figure = json.loads(one.figure.to_json())
    return {"data": figure["data"], "layout": figure["layout"], "alt": one.alt}


def _nested(value: object) -> bool:
    """Whether a setting is a record, or a list that holds one."""
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in value)


def _setting(value: object) -> str:
    """A setting in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_setting(part) for part in value) or "none"
    if isinstance(value, Mapping):
        return "none"
    return str(value) or UNDEFINED


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text
