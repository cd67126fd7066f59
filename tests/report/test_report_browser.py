"""The report as people open it: in a browser, from a file, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from browser import DESK, PHONE, Opened, launched, opened, settled
from page_checks import page_faults
from report.made_up import GRID, grid_cells, small_gallery, some_photographs
from whorl.evaluation import Comparison
from whorl.report import Content, Drawing, query_curve, write_chart, write_report

FILE = '"><script>alert(1)</script>.png'
LABEL = "<img src=x onerror=alert(2)>"
DRAWN = (
    """[...document.querySelectorAll('.plot[data-figure]')].every((plot) => plot._fullLayout && plot.dataset.drawn)"""
)
COMMAND = ("whorl", "demo", "--out", "it's mine")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = Content(
        title=f"A report {LABEL}",
        about=FILE,
        command=COMMAND,
        cells=grid_cells(("dim", "ai-dim", LABEL), ("net-a", "net-b", LABEL)),
        comparisons={("ai-dim", "dim", "net-a", "net-b"): Comparison(n=200, b=30, c=3)},
        galleries=(small_gallery(FILE, (LABEL, "dog", "owl")),),
        settings={LABEL: {FILE: LABEL}},
        left_out=((FILE, LABEL),),
    )
    return write_report(tmp_path_factory.mktemp("page") / "report.html", content)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


def shown_on(browser: Any, report: Path, viewport: dict[str, int], **options: Any) -> AbstractContextManager[Opened]:
    return opened(browser, report.as_uri(), viewport, kind=Opened, alone=True, **options)


@pytest.fixture(scope="module")
def desk(browser: Any, report: Path) -> Iterator[Opened]:
    with shown_on(browser, report, DESK, permissions=["clipboard-read", "clipboard-write"]) as shown:
        settled(shown.page, DRAWN)
        yield shown


@pytest.fixture(scope="module")
def phone(browser: Any, report: Path) -> Iterator[Opened]:
    with shown_on(browser, report, PHONE, has_touch=True, color_scheme="dark") as shown:
        settled(shown.page, DRAWN)
        yield shown


@pytest.fixture(autouse=True)
def no_trouble(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("desk", "phone"):
        if name in request.fixturenames:
            assert request.getfixturevalue(name).trouble == []


def camera(page: Any) -> dict[str, float]:
    eye: dict[str, float] = page.evaluate("document.getElementById('surface')._fullLayout.scene._scene.getCamera().eye")
    return eye


def test_every_figure_is_drawn(desk: Opened) -> None:
    heights = desk.page.locator(".plot[data-figure]").evaluate_all("all => all.map((plot) => plot.offsetHeight)")
    assert min(heights) > 100
    assert desk.page.locator(".plot[data-figure]").count() == 1 + 2 + 4  # overview, surface and map, four profiles
    assert desk.page.locator("#surface canvas").count() >= 1


def test_the_surface_turns(desk: Opened) -> None:
    page = desk.page
    place = page.locator("#surface")
    place.scroll_into_view_if_needed()
    page.evaluate(
        "document.getElementById('surface').on('plotly_relayout', (change) => { window.turned = Object.keys(change); })"
    )
    before = camera(page)
    box = place.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 10)
    page.mouse.move(x + 160, y + 20)
    page.mouse.up()
    settled(page, "window.turned && window.turned.some((key) => key.includes('camera'))")
    after = camera(page)
    assert max(abs(after[axis] - before[axis]) for axis in "xyz") > 0.1


def test_the_menus_change_the_surface(desk: Opened) -> None:
    page = desk.page

    def heights() -> list[list[float]]:
        shown: list[list[float]] = page.evaluate("document.getElementById('surface').data[0].z")
        return shown

    views = {page.locator("#surface-view option").nth(i).inner_text(): i for i in range(3)}
    assert page.locator("#surface-view").input_value() == str(views["net-a → net-b"])  # not the attacked one
    rates = {(c.attack, c.target, c.pose): 100 * c.counts.rate for c in grid_cells(targets=("net-a", "net-b"))}
    for label, target in (("net-a → net-a (crafted on it)", "net-a"), ("net-a → net-b", "net-b")):
        page.locator("#surface-view").select_option(label=label)
        expected = [rates["dim", target, pose] for pose in GRID]
        assert [z for row in heights() for z in row] == pytest.approx(expected, abs=1e-3)
    page.locator("#surface-subject").select_option(label=LABEL)
    assert page.evaluate("document.getElementById('surface').data.length") == 2  # one surface with its mesh
    page.locator("#surface-subject").select_option(index=0)


def test_the_profiles_of_one_target_are_shown(desk: Opened) -> None:
    page = desk.page
    shown = page.locator("[data-profiles]:visible")
    assert shown.count() == 1
    page.locator("#profile-view").select_option(index=0)
    assert page.locator("[data-profiles]:visible").get_attribute("data-profiles") == "0"
    settled(page, "document.querySelectorAll('[data-profiles=\"0\"] .plot .main-svg').length > 0")


def test_an_image_opens_and_closes_by_mouse_and_by_keyboard(desk: Opened) -> None:
    page, dialog = desk.page, desk.page.locator("dialog")
    assert not dialog.is_visible()
    page.locator(".tile").first.click()
    assert dialog.is_visible()
    first = dialog.locator("img").get_attribute("src")
    assert page.evaluate("document.querySelector('dialog img').naturalWidth") > 0
    assert FILE in dialog.locator("p").inner_text()
    page.keyboard.press("ArrowRight")
    assert dialog.locator("img").get_attribute("src") != first
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    # The focus is back on the image that was shown last, and the keyboard alone opens it again.
    page.keyboard.press("Enter")
    assert dialog.is_visible()
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


def test_frames_and_marks_say_the_same(desk: Opened) -> None:
    tiles = desk.page.locator(".tile.right, .tile.wrong")
    assert tiles.count() == 2 * 3 * 4
    for i in range(tiles.count()):
        wrong = "wrong" in (tiles.nth(i).get_attribute("class") or "")
        cross = tiles.nth(i).locator(".mark path").get_attribute("d").startswith("M3 3l10 10")
        assert wrong == cross == ("wrongly" in tiles.nth(i).locator("img").get_attribute("alt"))


def test_the_command_is_copied(desk: Opened) -> None:
    import shlex

    desk.page.locator(".copy").click()
    desk.page.get_by_text("Copied").wait_for()
    assert shlex.split(desk.page.evaluate("navigator.clipboard.readText()")) == list(COMMAND)


def test_a_table_sorts(desk: Opened) -> None:
    page = desk.page
    part = page.locator("details", has=page.locator("table.sortable")).first
    part.locator("summary").click()
    heading = part.locator("th[data-column='3']")

    def column() -> list[float]:
        return [
            float(v) for v in part.locator("tbody tr td:nth-child(4)").evaluate_all("e => e.map(c => c.dataset.value)")
        ]

    given = column()
    heading.locator("button").click()
    assert column() == sorted(given)
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert column() == sorted(given, reverse=True)


def test_no_button_sends_a_figure_anywhere(desk: Opened) -> None:
    titles = desk.page.locator(".modebar-btn").evaluate_all("all => all.map((b) => b.dataset.title)")
    assert {"Zoom", "Pan", "Orbital rotation"} <= set(titles)
    assert not [
        title for title in titles if any(word in title.lower() for word in ("share", "cloud", "edit", "plotly"))
    ]


def test_names_stay_text(desk: Opened) -> None:
    page = desk.page
    assert page.title() == f"A report {LABEL}"
    assert page.locator("h1").inner_text() == f"A report {LABEL}"
    assert page.locator(".example h4").first.inner_text() == f"{LABEL} {FILE}"
    assert page.evaluate("document.scripts.length") == 3
    assert page.locator("img[src='x']").count() == 0
    # In figures too: the whole label is in the legend, letter for letter.
    legend = page.locator(".plot").first.locator(".legendtext").all_text_contents()
    assert LABEL in legend


def test_it_can_be_read_by_ear(desk: Opened) -> None:
    page = desk.page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert page.locator("main img:not([alt]), main img[alt='']").count() == 0
    assert page.locator(".plot[data-figure]:not([aria-label]), .plot[data-figure][aria-label='']").count() == 0
    assert page.locator("select").evaluate_all("all => all.every((one) => one.labels.length === 1)")
    # plotly's own buttons have titles instead of texts.
    ours = page.locator("button:not(.modebar button)")
    assert ours.evaluate_all("all => all.every((b) => b.textContent.trim() || b.querySelector('img').alt)")


def test_it_fits_a_phone(phone: Opened) -> None:
    page = phone.page
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("document.body.scrollWidth") <= PHONE["width"]
    widths = page.locator(".plot[data-figure]").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().right)"
    )
    assert max(widths) <= PHONE["width"]
    page.locator(".tile").first.tap()
    box = page.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    page.keyboard.press("Escape")


LONG = "ai-dim on resnet18+mobilenet_v2+efficientnet_lite0, five restarts, kernels of 15 and a sigma of 2.333 pixels"


def queries(path: Path) -> Path:
    outcomes = [(1 + 37 * i % 900, i % 3 > 0) for i in range(30)]
    figure = query_curve({LONG: outcomes, "nes": outcomes}, budget=1000)
    return write_chart(path, Drawing(name="queries", title="Success against queries", alt="A curve.", figure=figure))


def photographs(path: Path) -> Path:
    content = Content(title="Prints", photographs=some_photographs(), command=COMMAND, settings={"views": ["as seen"]})
    return write_report(path, content)


def long_names(path: Path) -> Path:
    return write_report(
        path, Content(title=LONG, cells=grid_cells((LONG, "dim"), ("net-a", LONG)), settings={LONG: LONG})
    )


PAGES = {"queries": queries, "photographs": photographs, "long names": long_names}


@pytest.fixture(scope="module")
def pages(report: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {"experiment": report, **{name: make(folder / f"{i}.html") for i, (name, make) in enumerate(PAGES.items())}}


@pytest.mark.parametrize("name", ["experiment", *PAGES])
def test_every_page_is_well_on_a_desk_and_on_a_phone_by_day_and_by_night(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    for viewport, scheme in ((PHONE, "light"), ({"width": 1280, "height": 900}, "dark")):
        with shown_on(browser, pages[name], viewport, color_scheme=scheme) as shown:
            page = shown.page
            page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
            settled(page, DRAWN)
            assert page_faults(shown, keyboard=viewport is PHONE or name == "experiment") == []
            # The other colours: what can be focused is the same.
            page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
            assert page_faults(shown, keyboard=False) == []


@pytest.mark.parametrize("name", ["experiment", "queries", "long names"])
def test_on_a_phone_no_plot_is_a_strip_and_no_toolbar_hides_a_legend(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    with shown_on(browser, pages[name], PHONE, has_touch=True, is_mobile=True) as shown:
        page = shown.page
        settled(page, DRAWN)
        heights = page.evaluate(
            "[...document.querySelectorAll('.plot[data-figure]')]"
            ".map((plot) => plot._fullLayout.yaxis?.type === 'linear' ? plot._fullLayout._size.h : plot.offsetHeight)"
        )
        assert heights
        assert min(heights) >= 249
        assert page.locator(".modebar-btn").count() == 0


def test_on_a_desk_the_toolbar_is_beside_the_legend_and_long_names_are_whole_under_the_mouse(
    browser: Any, pages: dict[str, Path]
) -> None:
    with shown_on(browser, pages["long names"], DESK) as shown:
        page = shown.page
        settled(page, DRAWN)
        plot = page.locator(".plot[data-figure]").first
        plot.hover()
        bar, legend = (plot.locator(part).bounding_box() for part in (".modebar", ".legend"))
        assert bar["y"] + bar["height"] <= legend["y"]
        [words, _] = plot.locator(".legendtext").all_text_contents()
        assert LONG not in words
        assert "…" in words
        assert plot.locator(".legendtoggle title").first.text_content() == LONG
        assert page.locator("th .name").first.get_attribute("title") == LONG


def test_figures_follow_light_and_dark(phone: Opened) -> None:
    page = phone.page

    def ink() -> str:
        colour: str = page.evaluate("document.querySelector('.plot[data-figure]')._fullLayout.font.color")
        return colour

    dark = ink()
    page.emulate_media(color_scheme="light")
    settled(page, "(was) => document.querySelector('.plot[data-figure]')._fullLayout.font.color !== was", arg=dark)
    assert (dark, ink()) == ("#e6edf3", "#1f2328")


def test_without_scripts_the_tables_are_still_there(browser: Any, report: Path) -> None:
    with shown_on(browser, report, DESK, java_script_enabled=False) as shown:
        assert shown.page.locator("#tables table").first.is_visible()
        assert shown.page.locator(".tile img").first.is_visible()
        assert shown.trouble == []
