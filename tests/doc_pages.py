"""The documentation's pages: their fenced blocks, their prose, and what a reader does with them, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"# ([\w-]+\.\w+)\n")
PROGRAMS = ("make", "pip", "whorl")


class Block(NamedTuple):
    """A fenced block of a page; ``line`` is where its text starts, counted from 1."""

    language: str
    text: str
    line: int


class Action(NamedTuple):
    """What a reader does at a line of a page: types a command, runs Python, or saves a file.

    ``text`` is the command without its comment, the block, or the file's content; ``name`` is that of the file.
    """

    page: Path
    line: int
    kind: Literal["command", "python", "file"]
    text: str
    name: str = ""


def all_blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in FENCE.finditer(text)]


def blocks(page: Path, language: str) -> list[Block]:
    return [block for block in all_blocks(page) if block.language == language]


def prose(page: Path) -> str:
    """A page without its blocks; every line keeps its number."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))


def commands(block: Block) -> list[tuple[int, str]]:
    """The commands of a shell block, each with its line; comments are gone, and lines that go on are joined.

    >>> commands(Block("sh", "make demo  # draws this\\nwhorl run \\\\\\n  a.toml\\n", 7))
    [(7, 'make demo'), (8, 'whorl run a.toml')]
    """
    found = []
    for match in re.finditer(r"(?:[^\\\n]|\\.|\\\n)+", block.text):
        words = shlex.split(match[0].replace("\\\n", " "), comments=True)
        if words:
            found.append((block.line + block.text.count("\n", 0, match.start()), shlex.join(words)))
    return found


def actions(page: Path) -> list[Action]:
    """Everything on a page that can be done, from top to bottom: blocks, and commands that stand in the text.

    A block of Python or TOML whose first line is a comment with a file's name is that file.
    """
    found = []
    for block in all_blocks(page):
        name = FILE_NAME.match(block.text)
        if block.language == "sh":
            found += [Action(page, line, "command", command) for line, command in commands(block)]
        elif name:
            found.append(Action(page, block.line, "file", block.text, name[1]))
        elif block.language == "python":
            found.append(Action(page, block.line, "python", block.text))
    for number, line in enumerate(prose(page).splitlines(), 1):
        for span in SPAN.findall(line):
            if span.startswith(tuple(f"{program} " for program in PROGRAMS)):
                found.append(Action(page, number, "command", shlex.join(shlex.split(span))))
    return sorted(found, key=lambda action: action.line)
