"""Text for LaTeX: whatever a name holds, it is shown and runs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.latex_parser import cells as latex_cells
from whorl.report.latex import latex_label, latex_text


@given(st.text(st.characters(blacklist_categories=["C", "Z"]) | st.sampled_from(' {}\\$%&#_^~[]<>|`"-'), max_size=20))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    maths = set("→°×±≥≤εθσ∞†")
    if maths & set(text):
        return  # formulas, which the parser does not read back
    [[shown]] = latex_cells(latex_text(text) + r" \\")
    assert shown == text.replace('"', "''").strip()


@pytest.mark.parametrize("name", ["a_b c", "θ–ε", r"}\input{x}", ""])
def test_a_label_is_plain(name: str) -> None:
    label = latex_label(name)
    assert label.isascii()
    assert not set(label) & set(r"{}\%#_ ")
