"""The checks of pages find what they are there for: a good page has no fault, and each fault is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import PHONE, Opened, launched, opened
from page_checks import page_faults

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<link rel="icon" href="data:,"><style>body {{ margin: 0; color: #222; background: #fff; }} {style}</style></head>
<body><main><h1>One</h1><p>Words with <a href="#end">a link</a>.</p>
<label>Number <input type="range"></label> <button type="button">Press</button>
<details><summary>More</summary><button type="button">Inside</button></details>
<label><input type="radio" name="which" checked> this</label><label><input type="radio" name="which"> that</label>
<img alt="A dot" width="9" height="9" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">
{body}<p id="end">End.</p></main><script>{script}</script></body></html>"""

FAULTS = [
    ("", "<p style='color: #999'>Pale words.</p>", "", "color-contrast"),
    ("", "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='>", "", "image-alt"),
    ("", "<button type='button'></button>", "", "button-name"),
    ("", "<h3>Three</h3>", "", "heading-order"),
    ("", "<div style='width: 600px'>wide</div>", "", "px wide on a screen of 390"),
    ("", "", "console.error('it is broken')", "it is broken"),
    ("", "", "document.querySelector('button').onfocus = (e) => e.target.blur()", "Tab never reaches: button Press"),
    (":focus-visible { outline: none; }", "", "", "focus cannot be seen on: button Press"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


def faults(browser: Any, folder: Path, style: str, body: str, script: str) -> list[str]:
    path = folder / "page.html"
    path.write_text(PAGE.format(style=style, body=body, script=script), encoding="utf-8")
    with opened(browser, path.as_uri(), PHONE, kind=Opened, alone=True) as shown:
        return page_faults(shown)


def test_a_good_page_has_none(browser: Any, tmp_path: Path) -> None:
    assert faults(browser, tmp_path, "", "", "") == []


@pytest.mark.parametrize(("style", "body", "script", "named"), FAULTS, ids=[fault[-1] for fault in FAULTS])
def test_each_fault_is_named(browser: Any, tmp_path: Path, style: str, body: str, script: str, named: str) -> None:
    assert any(named in line for line in faults(browser, tmp_path, style, body, script))
