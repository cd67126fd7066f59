"""The part of a report that is about photographs of prints: in words and tables, and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from browser import DESK, PHONE, Opened, launched, opened
from report.made_up import cell, grid_cells, rate, some_photographs
from whorl.evaluation import ImageCounts
from whorl.report import Content, CutOut, Photographs, headline, write_report
from whorl.report.page import render
from whorl.report.tables import cut_out_tables, group_tables

FILE = '"><img src=x onerror=alert(1)>.jpg'


def test_the_headline_is_about_the_first_way_of_cutting_out() -> None:
    found = headline(Content(title="t", photographs=some_photographs("b")))
    # 150 and 159 of 200 on the network that was not attacked.
    assert found.statement.startswith(
        "ai-dim fools networks that it was not crafted on most often: in 79.5% (95% interval 73.4 to 84.5%) of cases, "
        "in photographs of prints (cut out as seen) on tb; dim in 75.0% ("
    )
    assert found.details[-1] == (
        "Few images: measured on 200 images in photographs, about 3 of each print, so intervals are "
        "wide and the figures preliminary."
    )


def test_a_run_s_own_headline_comes_first() -> None:
    cells = grid_cells()
    assert headline(Content(title="t", cells=cells, photographs=some_photographs())) == headline(
        Content(title="t", cells=cells)
    )


def test_clean_images_alone_and_nothing_at_all() -> None:
    clean = CutOut(way="as seen", cells=(cell("clean", "net-b", rate(0, 120), source=""),))
    content = Content(title="t", photographs=Photographs(cut_out=(clean,)))
    assert headline(content).statement == (
        "Photographs of prints: of clean images, cut out as seen, are recognised: net-b 60.0%."
    )
    assert "60.0%" in render(content)
    empty = Content(title="t", photographs=Photographs(unread=(("wall.jpg", "no markers found."),)))
    assert headline(empty).statement == "No image could be identified in the photographs."
    assert "no markers found." in render(empty)


def test_one_print_in_three_photographs_is_not_three() -> None:
    [cut, _] = some_photographs("b").cut_out
    thrice = tuple(
        replace(one, images=None if one.images is None else ImageCounts.joined([one.images] * 3)) for one in cut.cells
    )
    [once], [repeated] = cut_out_tables(cut), cut_out_tables(replace(cut, cells=thrice))
    one, three = once.success[0][1][0], repeated.success[0][1][0]
    assert one.note == "69 to 80%, n = 200"
    assert three.note.endswith("%, n = 600")
    low, _, high = three.note.split("%")[0].split()
    assert abs(int(high) - int(low) - 12) <= 1  # as wide as that of the prints alone
    assert one.text == three.text == "75.0%"
    # The clean row is that of clean prints, not of the images that an attack is compared on.
    assert [entry.text for entry in once.clean] == ["80.0%", "80.0%"]


def test_what_was_not_photographed_in_a_step_is_a_dash() -> None:
    [group] = some_photographs("b").cut_out[0].groups
    without = tuple(c for c in group.steps[5.0] if c.attack == "ai-dim" and c.target == "net-a")
    table, other = group_tables(replace(group, steps={**group.steps, 5.0: without}))
    assert [row[0][0].text for row in table.rows] == ["0°", "5°", "15°"]
    assert [entry.text for entry in table.rows[1][1]] == ["–", "77.0%"]
    assert table.rows[1][2].text == "–"
    assert [entry.text for entry in other.rows[1][3]] == ["–", "–"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = Content(title="Photographs", command=("whorl", FILE), photographs=some_photographs(FILE))
    return write_report(tmp_path_factory.mktemp("page") / "report.html", content)


def test_on_a_desk(browser: Any, report: Path) -> None:
    with opened(browser, report.as_uri(), DESK, kind=Opened, alone=True) as shown:
        page = shown.page
        part = page.locator("#photographs")
        assert part.locator("dt", has_text=FILE).inner_text() == FILE
        assert page.locator("img[src='x']").count() == 0
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
        assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
        table = part.locator("details", has_text="By rotation: net-a → net-a").first
        table.locator("summary").click()
        heading = table.locator("th[data-column='1'] button")
        heading.click()
        assert table.locator("tbody tr td:first-child").all_inner_texts() == ["15°", "5°", "0°"]
        part.locator(".tile").click()
        assert f"wrongly taken for {FILE}" in page.locator("dialog p").inner_text()
        assert page.evaluate("document.querySelector('dialog img').naturalWidth") == 24
        page.keyboard.press("Escape")
        assert shown.trouble == []


def test_on_a_phone_in_light_and_dark(browser: Any, report: Path) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        with opened(browser, report.as_uri(), PHONE, kind=Opened, alone=True, color_scheme=scheme) as shown:
            page = shown.page
            page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
            # Names and reasons are read without scrolling sideways.
            edges = page.locator("#photographs dl.tree > *").evaluate_all(
                "all => all.map((one) => one.getBoundingClientRect().right)"
            )
            assert max(edges) <= PHONE["width"]
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert shown.trouble == []
    assert len(grounds) == 2
