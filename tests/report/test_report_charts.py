"""Charts that need no cells: bars in pairs, and success against queries."""

from __future__ import annotations

import html
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.made_up import luminance
from whorl.report import Content, Drawing, bars, query_curve
from whorl.report.charts import BASELINE, COLOURS, figure_text, line_style, readable_on, success_curve, wrapped
from whorl.report.page import render


def test_bars_are_as_long_as_the_rates_and_none_is_drawn_for_nan() -> None:
    figure = bars({"share": {"a": {"before": 0.25, "after": 1.0}, "b": {"before": math.nan, "after": 0.5}}})
    before, after = figure.data
    assert (before.name, before.x, before.y) == ("before", (25.0, None), ("a", "b"))
    assert (after.name, after.x, after.text) == ("after", (100.0, 50.0), ("100.0%", "50.0%"))
    assert before.text == ("25.0%", "")
    assert before.marker.color == BASELINE
    assert after.marker.color == COLOURS[0]


@given(st.text(max_size=200), st.integers(4, 40), st.integers(1, 4))
def test_wrapped_names_are_short_lines_of_the_same_letters(name: str, width: int, lines: int) -> None:
    shown = [html.unescape(line) for line in wrapped(name, width, lines).split("<br>")]
    assert len(shown) <= lines
    assert all(len(line) <= width for line in shown)

    def letters(text: str) -> str:
        return "".join(letter for letter in html.unescape(figure_text(text)) if not letter.isspace())

    together = letters("".join(shown))
    if together.endswith("…") and not letters(name).endswith("…"):
        assert letters(name).startswith(together[:-1])
    else:
        assert together == letters(name)


@given(st.integers(0, 0xFFFFFF))
def test_words_on_any_colour_are_readable(number: int) -> None:
    ground = f"#{number:06x}"
    dark, bright = sorted((luminance(ground), luminance(readable_on(ground))))
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_each_group_of_bars_has_a_panel_and_all_one_legend() -> None:
    groups = {"one": {"a": {"x": 0.1, "y": 0.2}}, "two": {"a": {"x": 0.3, "y": 0.4}, "b": {"y": 0.5}}}
    figure = bars(groups)
    assert [trace.xaxis for trace in figure.data] == ["x", "x", "x2", "x2"]
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    assert [note.text for note in figure.layout.annotations] == ["one", "two"]
    assert figure.data[2].x == (30.0, None)


def test_the_query_curve_steps_up_where_images_give_way() -> None:
    outcomes = [(1, True), (100, False), (40, True), (40, True)]
    assert success_curve(outcomes) == [(0, 0.0), (1, 0.25), (40, 0.75)]
    [line] = query_curve({"nes on small": outcomes}, budget=1000).data
    assert line.name == "nes on small: 3 of 4"
    assert line.line.shape == "hv"
    assert list(zip(line.x, line.y, strict=True)) == [(1, 0.0), (1, 25.0), (40, 75.0), (1000, 75.0)]


@pytest.mark.parametrize("budget", [0, 5, 10_000])
def test_the_axis_of_queries_ends_at_the_budget(budget: int) -> None:
    figure = query_curve({"a": [(3, False)]}, budget=budget)
    assert figure.layout.xaxis.range == (0, math.log10(max(budget, 10)))
    assert figure.layout.xaxis.ticktext[:2] == ("1", "10")


def test_lines_differ_in_colour_and_dash() -> None:
    looks = [(line_style(i)["line"]["color"], line_style(i)["line"]["dash"]) for i in range(28)]
    assert len(set(looks)) == 28


def test_a_page_of_charts_alone_says_nothing_else() -> None:
    chart = Drawing(name="c", title="Bars <i>", alt="what they show", figure=bars({"g": {"r": {"s": 0.5}}}))
    page = render(Content(title="t", about="a", charts=(chart,)))
    assert "Bars &lt;i&gt;" in page
    assert "what they show" in page
    assert "Nothing was measured." not in page
    assert "None were recorded." not in page
    assert "A finding." in render(Content(title="t", finding="A finding.", charts=(chart,)))
