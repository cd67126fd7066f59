"""The page as a file: whole, the same every time, and nothing in it but what we put there."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report.made_up import GRID, cell, grid_cells, luminance, rate, small_gallery, some_photographs
from whorl import WhorlError
from whorl.evaluation import Comparison, Pose, SuccessRate, poses
from whorl.report import Content, Table, headline, write_report
from whorl.report.charts import figure_text
from whorl.report.front import front
from whorl.report.page import inline_script, render, script_json

NASTY = (
    '"><script>alert(1)</script>.png',
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }} {% raw %}",
    "javascript:alert(1)",
    "a\u2028b\u2029c & <b>d</b>",
)


class Parsed(HTMLParser):
    """What a browser makes of a page: elements with their attributes, text, and the content of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.raw: list[str] = []
        self._open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag in ("script", "style"):
            self._open = tag
            self.raw.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.raw[-1] += data
        else:
            self.text.append(data)

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Elements and the names of their attributes, without their values."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    @property
    def words(self) -> str:
        return "\n".join(self.text)


def named(name: str) -> Content:
    """A report in which everything that has a name is called so."""
    attacks, target = (name, f"ai-{name}"), f"t{name}"
    cells = tuple(
        cell(a, target, rate(20 + i), pose=pose, source=f"s{name}") for i, a in enumerate(attacks) for pose in GRID
    )
    return Content(
        title=name,
        about=name,
        command=("whorl", name),
        cells=cells,
        comparisons={(attacks[1], attacks[0], f"s{name}", target): Comparison(n=9, b=8, c=0)},
        galleries=(small_gallery(name, (name, f"b{name}", f"c{name}")),),
        settings={"k" + name: {"n" + name: [name, {"deep": name}]}},
        provenance={"k" + name: name},
        left_out=((name, name),),
        paper=(Table(title=name, about=name, columns=("a", name), rows=((name, name),), notes=(name,)),),
        photographs=some_photographs(name, attacks),
    )


@pytest.fixture(scope="module")
def harmless() -> Parsed:
    return Parsed(render(named("plain")))


def unpacked(parsed: Parsed) -> str:
    """plotly's code, as the page's own script takes it out of the page."""
    [packed] = [raw for raw in parsed.raw if raw.startswith("H4sI")]
    return gzip.decompress(base64.b64decode(packed)).decode()


def check_that_it_stays_text(name: str, harmless: Parsed) -> None:
    parsed = Parsed(render(named(name)))
    # The same elements with the same attributes: no name has become markup.
    assert parsed.shape == harmless.shape
    assert unpacked(parsed) == unpacked(harmless)
    # plotly is given no tags but our own, and the data is still JSON.
    figures = json.loads(next(raw for raw in parsed.raw if raw.startswith("[{")))
    for figure in figures:
        for text in _texts(figure["data"]) + _texts(figure["layout"]):
            assert set(re.findall(r"<[^>]*>?", text)) <= {"<br>", "<b>", "</b>", "<extra>", "</extra>"}
    titles = [a["alt"] for tag, a in parsed.elements if tag == "img" and a.get("alt")]
    assert any(name in title for title in titles)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


@pytest.mark.parametrize("name", NASTY)
def test_nasty_names_stay_text(name: str, harmless: Parsed) -> None:
    check_that_it_stays_text(name, harmless)


# What a browser or Python's parser would fold or drop is no matter of escaping: line ends, NUL and the like.
names = st.text(
    st.one_of(st.sampled_from("<>&\"'`=/!-$%{}\\"), st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"))),
    min_size=1,
    max_size=30,
)


@settings(max_examples=15, deadline=None)
@given(names)
def test_any_name_stays_text(harmless: Parsed, name: str) -> None:
    check_that_it_stays_text(name, harmless)


@given(st.text())
def test_json_in_a_script_is_whole_and_cannot_end_it(text: str) -> None:
    written = script_json({"name": text})
    assert json.loads(written) == {"name": text}
    assert not set("<>&\u2028\u2029") & set(written)


@given(st.text())
def test_figure_text_has_no_markup(text: str) -> None:
    written = figure_text(text)
    assert not set("<>$\n\r") & set(written)
    assert not re.search(r"&(?!(amp|lt|gt|#36);)", written)


def test_a_script_cannot_end_itself() -> None:
    assert inline_script("a = '</SCRIPT>'\r\nb = '<!--<script>'") == "a = '\\x3c/SCRIPT>'\nb = '\\x3c!--\\x3cscript>'"


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_report(tmp_path / name / "report.html", named("plain")).read_bytes() for name in "ab")
    assert first == second


def test_the_policy_allows_these_scripts_and_no_address(harmless: Parsed) -> None:
    policy = next(a["content"] for _, a in harmless.elements if a.get("http-equiv") == "Content-Security-Policy")
    kinds = [a.get("type", "") for tag, a in harmless.elements if tag == "script"]
    assert kinds == ["application/json", "application/gzip", ""]
    assert "plotly.js v" in unpacked(harmless)[:40]
    assert policy.count("'sha256-") == 2
    for script in (unpacked(harmless), harmless.raw[-1]):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "unsafe-eval" not in policy


def test_nothing_leads_outside(harmless: Parsed) -> None:
    for tag, attributes in harmless.elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    style = next(raw for raw in harmless.raw if "prefers-color-scheme" in raw)
    assert "url(" not in style
    assert "@import" not in style


def test_headline_tables_and_settings_are_there() -> None:
    content = Content(
        title="Mine",
        about="What it is.",
        command=("whorl", "demo", "--out", "my runs"),
        cells=grid_cells(),
        comparisons={("ai-dim", "dim", "net-a", "net-b"): Comparison(n=200, b=3, c=9)},
        settings={"seed": 0, "data": {"limit": None, "skip_bad": False, "sizes": [224, 299]}},
        left_out=(("bad.png", "cannot be read"),),
    )
    words = Parsed(render(content)).words
    for expected in (
        *("Mine", "What it is.", "whorl demo --out 'my runs'", headline(content).statement),
        *("0.146", "not significant", "bad.png", "cannot be read", "224, 299", "skip_bad"),
    ):
        assert expected in words
    for one in content.cells:
        assert f"{one.counts.n_success} of {one.counts.n_clean_correct}" in words
        assert f"{100 * one.counts.rate:.1f}%" in words
        assert f"{100 * one.counts.accuracy:.1f}%" in words


def test_an_undefined_rate_is_a_dash() -> None:
    cells = tuple(cell("dim", "net-b", SuccessRate(7, 0, 0, 2), pose=pose) for pose in (Pose(), Pose(angle=9)))
    words = Parsed(render(Content(title="t", cells=cells))).words
    assert "0 of 7 recognised" in words
    assert "–" in words
    assert not re.search(r"\bnan\b", words.lower())


@pytest.mark.parametrize("attacks", [("dim",), ("dim", "ai-dim")])
@pytest.mark.parametrize("where", [(Pose(),), GRID])
def test_few_or_many_poses_and_attacks(attacks: tuple[str, ...], where: tuple[Pose, ...]) -> None:
    parsed = Parsed(render(Content(title="t", cells=grid_cells(attacks, where=where))))
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert ("surface" in ids) == (len(where) > 1)
    assert len(ids) == len(set(ids))


def test_settings_are_folded_and_say_nothing_of_what_is_empty() -> None:
    content = Content(
        title="t", settings={"seed": 0, "limit": None, "data": {"size": None, "label": ""}, "quick": False}
    )
    parsed = Parsed(render(content))
    assert {"seed", "quick", "0", "no"} <= set(parsed.text)
    assert not {"limit", "data", "size", "label"} & set(parsed.text)
    assert [attributes for tag, attributes in parsed.elements if tag == "details"] == [{}]


MISSING = {
    "surfaces": ("Surfaces and heat maps", "Angles here: 1, scales: 1"),
    "profiles": ("Profiles", "3 poses that differ in one parameter"),
    "cost": ("Success against cost", "All attacks cost the same: 0.5 input gradients"),
    "examples": ("Examples", "No images were kept"),
}


def test_what_is_missing_says_why() -> None:
    few = Parsed(render(Content(title="t", cells=grid_cells(("dim",), where=(Pose(),))))).words
    for name, reason in MISSING.values():
        assert name in few
        assert reason in few
    assert "A comparison needs two attacks." in few
    cells = tuple(
        cell(a, "net-b", rate(9), pose=pose, grad_evals=n) for a, n in (("dim", 9), ("eot", 99)) for pose in GRID
    )
    whole = Content(
        title="t",
        cells=cells,
        comparisons={("eot", "dim", "net-a", "net-b"): Comparison(n=200, b=3, c=9)},
        galleries=(small_gallery(),),
    )
    assert "Not in this report" not in render(whole)


def test_the_front_sets_cost_and_transfer_side_by_side() -> None:
    rates = {("dim", "net-a"): 100, ("dim", "net-b"): 40, ("eot", "net-a"): 150, ("eot", "net-b"): 90}
    rotated = Pose(angle=30)
    cells = tuple(
        cell(a, t, rate(n if pose == rotated else n + 20), pose=pose, grad_evals=2000 if a == "dim" else 200_000)
        for (a, t), n in rates.items()
        for pose in (Pose(), rotated)
    )
    made = front(cells)
    assert made is not None
    assert made.columns == ("gradients", "transfer, all poses", "transfer, image as it is", "white-box, all poses")
    (dim, first), (eot, second) = made.rows
    assert (dim, [entry.text for entry in first]) == ("dim", ["10", "25.0%", "30.0%", "55.0%"])
    assert (eot, [entry.text for entry in second]) == ("eot", ["1,000", "50.0%", "55.0%", "80.0%"])
    assert [entry.best for entry in second] == [False, True, True, True]
    assert "n = 400" in second[1].note
    assert front(grid_cells(("dim",))) is None
    unknown = front(tuple(cell(a, "net-b", rate(9), source="") for a in ("dim", "eot")))
    assert unknown is not None
    assert unknown.columns[-1] == "success rate"


def test_nothing_at_all_is_a_page_too() -> None:
    page = render(Content(title="Empty"))
    assert "Nothing was measured." in page
    assert len(page) < 100_000  # without plotly


def test_five_hundred_cells_fit_into_a_mail(tmp_path: Path) -> None:
    where = poses(angles=range(-60, 65, 5), scales=(0.5, 0.75, 1, 1.25, 1.5))
    cells = grid_cells(targets=("net-a", "net-b"), where=where)
    assert len(cells) == 500
    path = write_report(tmp_path / "report.html", Content(title="Large", cells=cells))
    assert path.stat().st_size < 4_000_000


def test_the_same_cell_twice_is_refused() -> None:
    with pytest.raises(WhorlError, match=r"'dim' from 'net-a' on 'net-b' .* twice"):
        Content(title="t", cells=(cell("dim", "net-b", rate(1)), cell("dim", "net-b", rate(2))))


@pytest.mark.parametrize(
    ("rows", "notes", "message"),
    [((("a",),), (), "must have 2 entries"), ((("a", "b"),), ("x", "y"), "a note for each of its 1 rows")],
)
def test_crooked_tables_are_refused(rows: tuple[tuple[str, ...], ...], notes: tuple[str, ...], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        Table(title="t", columns=("one", "two"), rows=rows, notes=notes)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WhorlError, match="cannot write"):
        write_report(tmp_path / "file" / "report.html", Content(title="t"))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(harmless: Parsed, theme: int) -> None:
    style = next(raw for raw in harmless.raw if "prefers-color-scheme" in raw)
    tokens = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", style.split(":root {")[1 + theme].split("}")[0]))
    for ground in ("paper", "raised"):
        for ink in ("ink", "faint", "accent", "right", "wrong"):
            dark, bright = sorted((luminance(tokens[ground]), luminance(tokens[ink])))
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)
