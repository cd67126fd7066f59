"""The documentation as a site: it builds without a warning, and a page asks nobody else for anything."""

from __future__ import annotations

import functools
import html
import http.server
import json
import os
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from browser import Opened, launched, opened
from page_checks import axe_faults, keyboard_faults, page_faults

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']?(https?:)?//""")

pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def addresses() -> list[str]:
    """Where each page of docs/ is to be found in the site."""
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).with_suffix("").as_posix() for page in sorted(docs.rglob("*.md"))]
    return ["." if page == "index" else page for page in pages]


def test_every_page_is_in_it(site: Path) -> None:
    for address in addresses():
        assert (site / address / "index.html").is_file(), address


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8").partition('<div class="md-content"')[0]
    for address in addresses():
        assert f'href="{address}/"' in menu or address == ".", f"{address}.md is not in mkdocs.yml's nav"


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page


def test_every_link_to_a_file_of_ours_leads_somewhere(site: Path) -> None:
    """Beyond what ``--strict`` looks at: scripts and images are files, not pages."""
    for page in site.rglob("index.html"):
        for target in re.findall(r'<(?:a|img)\b[^>]*?(?:href|src)="([^"#?:]+)"', page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.parent.name}: {target}"


def reference_pages(site: Path) -> str:
    return "".join(page.read_text(encoding="utf-8") for page in sorted((site / "reference").rglob("index.html")))


def test_the_reference_has_every_public_name(site: Path) -> None:
    reference = reference_pages(site)
    shown = set(re.findall(r'<h2 id="whorl\.[\w.]*?(\w+)"', reference))
    assert set(whorl.__all__) - shown == set()
    assert not re.search(r"Bases:(?:(?!</p>).)*?\b(?:_[A-Z]|Record\b)", reference, re.DOTALL)


def test_formulas_are_drawn_by_the_browser_itself(site: Path) -> None:
    assert (site / "explained" / "index.html").read_text(encoding="utf-8").count('<div class="formula"><math') == 3
    for page in site.rglob("index.html"):
        text = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "arithmatex" not in text, page
        assert not re.search(r"\$[^$\n]*\\\w+[^$\n]*\$", text), page


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    reference = reference_pages(site)
    assert reference.count("&gt;&gt;&gt;") > 15
    assert "&gt;&gt;&gt;" not in re.sub(r"<pre.*?</pre>", "", reference, flags=re.DOTALL)


def test_docstrings_are_shown_as_markdown(site: Path) -> None:
    reference = reference_pages(site)
    words = re.sub(r"<[^>]+>", "", reference)
    assert not re.findall(r":(?:func|class|meth|mod|attr):.{20}", words)
    assert "=====" not in words
    assert not re.search(r"\bAnnotated\b|\bLimits\b", words)
    assert "int ≥ 1" in words  # whorl.records.Count
    (eps,) = re.findall(r"<td>\s*<code[^>]*>eps</code>\s*</td>(?:(?!</tr>).)*one per image", reference, re.DOTALL)
    _, _, rest = reference.partition(eps)
    assert "16 / 255" in re.sub(r"<[^>]+>", "", rest.partition("</tr>")[0])  # a setting's default
    assert "&amp;#58;" not in reference
    # The declared type, not what stands before a colon in the text.
    typed = r"Tensor</span></code>\s*</td>\s*<td>\s*<div[^>]*>\s*<p>\(B, C, n, angles\)(?:&#58;|:) rows"
    assert re.search(typed, reference)


def test_how_docstrings_become_markdown() -> None:
    markdown = runpy.run_path(str(ROOT / "docs" / "site" / "docstrings.py"))["markdown"]
    assert markdown("Adds; see :func:`plus`.") == "Adds; see `plus`."
    assert markdown("Adds.\n\n>>> 1 + 1\n2") == "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```"
    around = "Args:\n    n: of them.\n\nReturns:\n{}\n\nRaises:\n    E: if."
    given, made = "    (n,): the sums.\n    Two: lines.", "    (n,)&#58; the sums.\n    Two&#58; lines."
    assert markdown(around.format(given)) == around.format(made)
    assert markdown("====  ====\none   two\n====  ====\n1     2\n====  ====") == "```text\none   two\n1     2\n```"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


LOOK = """() => ({
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  broken: [...document.images].filter((one) => !one.naturalWidth).map((one) => one.src),
  cut: [...document.querySelectorAll(".md-content p, .md-content li, .md-content h1, .md-content h2, .md-content img")]
    .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .filter((one) => !one.closest(".md-typeset__scrollwrap, pre")).map((one) => one.outerHTML.slice(0, 90)),
})"""
TALLEST = 6000  # pixels of a page that is read, at 1280 wide; the reference is looked up
SCREENS = [(width, colours) for width in (1280, 390) for colours in ("light", "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


def screen(browser: Any, address: str, width: int, colours: str = "light") -> AbstractContextManager[Opened]:
    """The landing page, watched."""
    height = 900 if width > 600 else 844
    size = {"width": width, "height": height}
    return opened(browser, f"{address}/", size, kind=Opened, color_scheme=colours, is_mobile=width < 600)


@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_every_page_fits_the_screen(site: Path, address: str, browser: Any, width: int) -> None:
    with screen(browser, address, width) as shown:
        shown.page.on("response", lambda answer: shown.trouble.extend([answer.url] if answer.status >= 400 else []))
        for made in sorted(site.rglob("index.html")):
            place = made.parent.relative_to(site).as_posix()
            shown.page.goto(f"{address}/{place}/")
            assert shown.page.evaluate(LOOK) == {"wide": 0, "broken": [], "cut": []}, place
            if width == 1280 and not place.startswith("reference/"):
                assert shown.page.evaluate("document.documentElement.scrollHeight") < TALLEST, f"{place}: split it"
        assert shown.trouble == []


@pytest.mark.parametrize(("width", "colours"), SCREENS)
def test_everybody_can_use_the_landing_page(address: str, browser: Any, width: int, colours: str) -> None:
    with screen(browser, address, width, colours) as shown:
        assert page_faults(shown) == []
        assert shown.page.evaluate(LOOK) == {"wide": 0, "broken": [], "cut": []}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("width", "colours"), SCREENS)
def test_everybody_can_use_every_page(site: Path, address: str, browser: Any, width: int, colours: str) -> None:
    found = {}
    with screen(browser, address, width, colours) as shown:
        for made in sorted(site.rglob("index.html")):
            place = made.parent.relative_to(site).as_posix()
            shown.page.goto(f"{address}/{place}/")
            found[place] = [*axe_faults(shown.page), *keyboard_faults(shown.page)]
        assert {place: wrong for place, wrong in found.items() if wrong} == {}
        assert shown.trouble == []


def test_the_search_finds_the_fields_words(address: str, browser: Any) -> None:
    with screen(browser, address, 1280) as shown:
        shown.page.keyboard.press("f")  # the search is open
        shown.page.keyboard.type("expectation over transformation")
        shown.page.locator(".md-search-result__link", has_text="Expectation over transformation").first.wait_for()
        assert shown.trouble == []


WORDS = ("transferability", "attack success rate", "robust accuracy", "adversarial training", "surrogate", "ASR", "PGD")


@pytest.mark.parametrize("words", WORDS)
def test_the_fields_words_are_found(site: Path, words: str) -> None:
    """The search index holds them, so the search box finds them."""
    pages = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert [page["location"] for page in pages if words.lower() in f"{page['title']} {page['text']}".lower()]


def test_an_interval_and_a_name_stay_in_one_line_and_a_figure_opens() -> None:
    shown = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))["on_page_content"]
    cell, text = "<td>+1.2 (+0.9 to +1.4) / 7.7, p 0.012 ✓</td>", "<p>from 0.9 to 1.4</p>"
    whole = "<td>+1.2 (+0.9&nbsp;to&nbsp;+1.4) /&nbsp;7.7, p&nbsp;0.012&nbsp;✓</td>"
    assert shown(cell + text) == whole + text
    assert shown("<td>-0.6 (-1.3 to -0.2) ✗</td>") == "<td>-0.6 (-1.3&nbsp;to&nbsp;-0.2)&nbsp;✗</td>"
    assert shown("<td>90.8 (88.7–92.6)</td>") == "<td>90.8 (88.7–&#8288;92.6)</td>"
    assert shown("<code>ai-dim</code> <code>python verify_docs.py</code>") == (
        '<code class="name">ai-dim</code> <code>python verify_docs.py</code>'
    )
    command = (
        '<div class="language-sh highlight"><code>whorl gate<span> </span>--fail-above <span>60</span></code></div>'
    )
    whole = command.replace("--fail-above", '<span class="whole option">--fail-above</span>')
    assert shown(command) == whole
    assert shown("<code>whorl evaluate photos/ mine/ --worst-case</code>") == (
        '<code>whorl evaluate photos/ mine/ <span class="whole option">--worst-case</span></code>'
    )
    assert shown("<td><code>16 / 255</code></td>") == '<td><code class="name">16 / 255</code></td>'
    heading = '<span class="doc doc-object-name doc-class-name">whorl.report.{}Rate</span>'
    assert shown(heading.format("")) == heading.replace(".", ".<wbr>").format("")
    image, link = '<img alt="A map" src="../map.png" />', '<a href="b/"><img alt="A map" src="c.png" /></a>'
    assert shown(image + link) == f'<a href="../map.png">{image}</a>{link}'


def test_a_short_cell_is_not_broken_and_a_column_of_them_is_narrow() -> None:
    shown = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))["on_page_content"]
    rows = (
        ("attack", "gradients", "ε 16, (5, 5)"),
        ("ai-dim (ours)", "10", "92.9 (90.7 to 94.5)"),
        ("a name of two words", "50", ""),
    )
    cells = [
        "".join(f"<{kind}>{cell}</{kind}>" for cell in row) for kind, row in zip(("th", "td", "td"), rows, strict=True)
    ]
    made = shown("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")
    assert re.findall(r'<th class="narrow">(.*?)</th>', made) == ["gradients"]
    assert re.findall(r'<td class="whole">(.*?)</td>', made) == ["ai-dim (ours)", "10", "50"]
    assert "<th>ε&nbsp;16, (5,&nbsp;5)</th>" in made


PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_a_page_begins_with_one_sentence_that_describes_it(page: Path, site: Path) -> None:
    said = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))["summary"](page.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[^.!?]+(?:[.](?=[\w,])[^.!?]*)*[.?]", said), f"one sentence below the heading; got {said!r}"
    assert 30 < len(said) < 220, said
    name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
    made = (site / ("" if name == "index" else name) / "index.html").read_text(encoding="utf-8")
    described = re.search(r'<meta name="description" content="([^"]*)">', made)
    assert described is not None
    assert html.unescape(described[1]) == said


def test_the_polar_warp_is_that_of_the_library(address: str, browser: Any) -> None:
    """As it is, the second image is ``whorl.to_polar``; rotated, it is that one shifted; scaled, it is not."""
    with screen(browser, address, 1280, "dark") as shown:
        page = shown.page
        page.goto(f"{address}/explained/")
        page.locator("#polar-warp canvas").nth(2).wait_for()
        page.get_by_role("button", name="Reset").press("Enter")
        read = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        image, polar, shifted = (
            torch.tensor(page.locator("#polar-warp canvas").nth(i).evaluate(read)).unflatten(0, (196, 196, 4)).float()
            for i in range(3)
        )
        expected = whorl.to_polar(image[None, ..., :3].permute(0, 3, 1, 2))[0].permute(1, 2, 0)
        assert (polar[..., :3] - expected).abs().max() <= 0.51
        assert torch.equal(polar, shifted)
        page.get_by_role("slider", name="Rotation").press("PageUp")
        rotated = float(page.locator("#polar-warp").get_attribute("data-difference"))
        assert "columns" in page.locator("#polar-warp [role=status]").inner_text()
        page.get_by_role("slider", name="Scale").press("End")
        scaled = float(page.locator("#polar-warp").get_attribute("data-difference"))
        assert 0 < rotated < 5 < 3 * rotated < scaled
        box = page.locator("#polar-warp canvas").first.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.get_by_role("button", name="Reset").press("Enter")
        page.mouse.move(middle[0] + 80, middle[1])
        page.mouse.down()
        page.mouse.move(middle[0], middle[1] + 80)  # a quarter of the circle, clockwise
        page.mouse.up()
        assert abs(float(page.get_by_role("slider", name="Rotation").input_value()) - 90) <= 2
        assert shown.trouble == []
