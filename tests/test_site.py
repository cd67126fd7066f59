"""The documentation as a site: it builds without a warning, and a page asks nobody else for anything."""

from __future__ import annotations

import functools
import http.server
import os
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from browser import chromium

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


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    reference = reference_pages(site)
    assert reference.count("&gt;&gt;&gt;") > 15
    assert "&gt;&gt;&gt;" not in re.sub(r"<pre.*?</pre>", "", reference, flags=re.DOTALL)


def test_docstrings_are_shown_as_markdown(site: Path) -> None:
    reference = reference_pages(site)
    words = re.sub(r"<[^>]+>", "", reference)
    assert not re.findall(r":(?:func|class|meth|mod|attr):.{20}", words)
    assert "=====" not in words
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


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_every_page_fits_the_screen(site: Path, address: str, width: int, height: int) -> None:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; it is in torchwhorl[dev]"
    )
    program = chromium()
    trouble: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, is_mobile=width < 600)
        page.on("response", lambda answer: trouble.extend([answer.url] if answer.status >= 400 else []))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        for made in sorted(site.rglob("index.html")):
            place = made.parent.relative_to(site).as_posix()
            page.goto(f"{address}/{place}/")
            assert page.evaluate(LOOK) == {"wide": 0, "broken": [], "cut": []}, place
        browser.close()
    assert trouble == []
