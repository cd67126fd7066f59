"""How the text of options is read."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whorl.cli.options import split_models
from whorl.errors import WhorlError
from whorl.runs.settings import parse_eps


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16/255", 16 / 255),
        (" 16 / 255 ", 16 / 255),
        ("0.5/255", 0.5 / 255),
        ("0.06", 0.06),
        (".06", 0.06),
        ("6e-2", 0.06),
        ("0", 0.0),
        ("1", 1.0),
        ("1.", 1.0),
        ("255/255", 1.0),
    ],
)
def test_eps_in_every_spelling(text: str, value: float) -> None:
    assert parse_eps(text) == value


@given(st.integers(0, 255), st.integers(255, 100_000))
def test_eps_is_the_nearest_float_to_the_fraction(levels: int, of: int) -> None:
    assert parse_eps(f"{levels}/{of}") == levels / of


@pytest.mark.parametrize(
    ("text", "guess"), [("16", "16/255"), ("8.5", "8.5/255"), ("300", "16/255"), ("9/2", "4.5/255")]
)
def test_eps_above_one_suggests_levels(text: str, guess: str) -> None:
    with pytest.raises(WhorlError, match=rf"in \[0, 1\].*did you mean {guess}\?.*got "):
        parse_eps(text)


@pytest.mark.parametrize(
    "text", ["", "sixteen", "-1", "1/0", "nan", "inf", "1//2", "1/2/3", "1e999999999", "٣", "1_0", "0x1", "16/"]
)
def test_what_is_no_eps(text: str) -> None:
    with pytest.raises(WhorlError, match="must be a fraction or a decimal"):
        parse_eps(text)


@given(st.text(alphabet="0159./e- _٣", max_size=8))
def test_any_text_is_an_eps_or_an_error(text: str) -> None:
    with suppress(WhorlError):
        assert 0 <= parse_eps(text) <= 1


def test_an_l2_ball_may_be_larger_than_one() -> None:
    assert parse_eps("3.5", norm="l2") == 3.5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("resnet18", ["resnet18"]),
        ("a,b , c", ["a", "b", "c"]),
        ("a,,b,", ["a", "b"]),
        ("", []),
        ("timm:x?mean=0.5,0.5,0.5&std=1,1,1,b", ["timm:x?mean=0.5,0.5,0.5&std=1,1,1", "b"]),
        ("a,onnx:n.onnx?std=.5,1.,1e-1", ["a", "onnx:n.onnx?std=.5,1.,1e-1"]),
    ],
)
def test_lists_of_models(text: str, names: list[str]) -> None:
    assert split_models(text) == names
