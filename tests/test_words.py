"""One word for one thing: what the pages and the source call an image, a rotation and an evaluation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = {".css", ".html", ".j2", ".js", ".json", ".md", ".py", ".toml", ".yml"}
WORDS = {
    "picture": (r"pictur\w*", "say image"),
    "turned": (r"turned", "say rotated; of data, converted"),
    "asked": (r"(?:un)?asked", "say evaluated, queried or requested"),
    "told apart": (r"t(?:old|ells?)\b[^.\n]{0,40}\bapart", "say significant, or distinguished"),
    "what it bought": (r"bought", "say gain or cost"),
}
# Where each is right; a line that goes is taken out here too.
ALLOWED = {
    ("src/whorl/physical/sheet.py", "picture"): 1,  # a field of sheets that are printed already
    ("src/whorl/models/defended/manifest.json", "picture"): 6,  # records of trainings, whose hashes cover them
}


def files() -> list[Path]:
    found = [path for place in ("docs", "src") for path in sorted((ROOT / place).rglob("*")) if path.suffix in TEXT]
    return [*found, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_has_another_stays_out(word: str) -> None:
    pattern, instead = WORDS[word]
    found: Counter[str] = Counter()
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        count = len(re.findall(rf"\b{pattern}\b", path.read_text(encoding="utf-8"), re.IGNORECASE))
        if count:
            found[name] = count
    assert found == {name: count for (name, of), count in ALLOWED.items() if of == word}, instead


def test_the_patterns_find_what_they_should() -> None:
    said = "Pictures are turned and, unasked, told to be far apart: what it bought."
    assert [word for word, (pattern, _) in WORDS.items() if re.search(rf"\b{pattern}\b", said, re.IGNORECASE)] == [
        *WORDS
    ]
