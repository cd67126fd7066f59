"""One HTML file that opens anywhere, without a network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whorl.evaluation import FEWEST
from whorl.evaluation.rate_table import percent
from whorl.files import write_file
from whorl.report.content import Content, Drawing, Kind, Photographs
from whorl.report.figures import drawings
from whorl.report.front import front, missing
from whorl.report.headline import headline
from whorl.report.series import bound, series, transfers
from whorl.report.tables import (
    UNDEFINED,
    DetailTable,
    MeanTable,
    comparison_rows,
    cut_out_tables,
    group_tables,
    mean_tables,
    pose_tables,
    span,
)

if TYPE_CHECKING:
    from jinja2 import Environment

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
    place = Path(path)
    write_file(place, render(content))
    return place


def write_chart(path: str | Path, chart: Drawing, *, title: str = "", about: str = "") -> Path:
    """Write a page that holds one figure, and needs neither a browser to be drawn nor a network to be seen.

    Args:
        path: an HTML file.
        chart: the figure, with a title and a description.
        title: of the page; the chart's if empty.
        about: a paragraph below it.

    Returns:
        The path.
    """
    return write_report(path, Content(title=title or chart.title, about=about, charts=(chart,)))


def templates(folder: Path) -> Environment:
    """Read templates of HTML: every value is escaped, and one that is missing is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(content: Content) -> str:
    """The page as text."""
    from markupsafe import Markup

    drawn = [*drawings(content.cells), *content.charts]
    white_box = {str(transfer) for transfer in transfers(series(content.cells)) if transfer.white_box}
    surfaces, profiles = _surfaces(drawn), _profiles(drawn)
    script, plotly = inline_script(_read("report.js")), inline_script(_plotly_js()) if drawn else ""
    environment = templates(_TEMPLATES)
    environment.filters["percent"] = percent
    environment.filters["setting"] = _setting
    environment.tests["nested"] = _nested
    # Whatever is marked as safe here is ours, or was made harmless by the two functions below.
    return environment.get_template("report.html.j2").render(
        content=content,
        command=shlex.join(content.command),
        gate=content.defender is not None and content.defender.gate,
        headline=headline(content),
        # A page of charts alone has nothing else to say.
        found=bool(content.cells or content.finding or content.photographs or not content.charts),
        recorded=bool(content.settings or content.provenance or content.left_out or not content.charts),
        facts=_facts(content),
        front=front(content.cells),
        missing=missing(content, drawn),
        settings=filled(content.settings),
        provenance=filled(content.provenance),
        mean_tables=mean_tables(content.cells),
        pose_tables=pose_tables(content.cells),
        comparisons=comparison_rows(content.comparisons),
        cut_out=_cut_out(content.photographs),
        photograph_comparisons=comparison_rows(content.photographs.comparisons) if content.photographs else (),
        overview=_numbered(drawn, "overview"),
        cost=_numbered(drawn, "cost"),
        charts=_numbered(drawn, "chart"),
        surfaces=surfaces,
        surface_start=_first_unseen(surfaces["transfers"], white_box),
        profiles=profiles,
        profile_start=_first_unseen(list(profiles), white_box),
        white_box=white_box,
        fewest=FEWEST,
        figures=Markup(script_json([_as_json(one) for one in drawn])),  # noqa: S704
        style=Markup(_read("report.css")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        plotly=packed(plotly) if plotly else "",
        policy=_policy([one for one in (script, plotly) if one]),
    )


def script_json(value: object) -> str:
    r"""Write a value as JSON that cannot end, or open, a script element.

    Raises:
        ValueError: a number is not finite, which JSON cannot hold.

    >>> script_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def inline_script(source: str) -> str:
    """Prepare a script of ours, or plotly's, for standing between script tags.

    Line ends become those that a browser hashes, and nothing in it reads as the end of the element.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|script|!--)", r"\\x3c", lines, flags=re.IGNORECASE)


def packed(script: str) -> str:
    """Compress a script into letters, which ``report.js`` unpacks: plotly's code takes 2 MB so, instead of 5."""
    return base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode("ascii")


def filled(value: Any) -> Any:
    """Settings without those that say nothing: None, empty text, and lists and records that hold nothing else.

    >>> filled({"seed": 0, "limit": None, "data": {"size": None}, "defenses": [], "quick": False})
    {'seed': 0, 'quick': False}
    """
    if isinstance(value, Mapping):
        parts = {key: filled(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if not _empty(part)}
    return [filled(part) for part in value] if isinstance(value, list | tuple) else value


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str | list | Mapping) and not value)


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and no script may run but those of the page, known by their hashes."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
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
    found = series(cells)
    return [
        ("images", span(cell.counts.n for cell in cells)),
        ("attacks", str(len({key.attack for key in found}))),
        ("targets", str(len({transfer.target for transfer in transfers(found)}))),
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
            cut_out_tables(cut),
            [table for group in cut.groups for table in group_tables(group)],
        )
        for cut in photographs.cut_out
    ]


def _numbered(drawn: Sequence[Drawing], kind: Kind) -> list[tuple[int, Drawing]]:
    return [(number, one) for number, one in enumerate(drawn) if one.kind == kind]


def _surfaces(drawn: Sequence[Drawing]) -> dict[str, Any]:
    """Menus, and which figure belongs to which choice."""
    found = _numbered(drawn, "surface")
    maps = {(one.subject, one.transfer): number for number, one in _numbered(drawn, "map")}
    subjects = list(dict.fromkeys(one.subject for _, one in found))
    seen = list(dict.fromkeys(one.transfer for _, one in found))
    choices = [
        {
            "subject": subjects.index(one.subject),
            "transfer": seen.index(one.transfer),
            "surface": number,
            "map": maps[one.subject, one.transfer],
        }
        for number, one in found
    ]
    return {"subjects": subjects, "transfers": seen, "choices": json.dumps(choices)}


def _first_unseen(seen: Sequence[str], white_box: set[str]) -> int:
    """Which transfer to show first: one that the attacks were not crafted on, if there is one."""
    return next((number for number, transfer in enumerate(seen) if transfer not in white_box), 0)


def _profiles(drawn: Sequence[Drawing]) -> dict[str, list[tuple[int, Drawing]]]:
    found = _numbered(drawn, "profile")
    return {
        transfer: [(n, one) for n, one in found if one.transfer == transfer]
        for transfer in dict.fromkeys(d.transfer for _, d in found)
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
