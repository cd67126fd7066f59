"""What the site needs beyond Markdown: examples, descriptions, formulas, figures that open, names in one piece."""

from __future__ import annotations

import html
import itertools
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

_EXAMPLES = Path(__file__).parents[2] / "examples"
_SUMMARY = re.compile(r"^# [^\n]+\n+([^\n]+(?:\n[^\n]+)*)")
_CELL = re.compile(r"(?<=<td)[^>]*>.*?</td>", re.DOTALL)
# 1.2 (0.9 to 1.4) / 1.5, p 0.012 ✓: the interval, what it is beside, and p with its mark.
_WHOLE = re.compile(r"\(?[+-]?\d[\d.,]* to [+-]?\d[\d.,]*[);]?(?: [✓✗])?|/ \d[\d.]*|p (?:= )?\d[\d.e-]*(?: [✓✗])?")
_CODE = re.compile(r"(<code\b.*?</code>)", re.DOTALL)
_RANGE = re.compile(r"(?<=\d)–(?=\d)")
_NAME = re.compile(r"<code>(?=(?:[^<\s]{1,26}|[^<]{1,16})</code>)")
_HEADING = re.compile(r'(?<=doc-object-name )(doc-\w+-name">)([\w.]+)(?=</span>)')
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_BOX = re.compile(r"<(t[dh])>(.*?)</\1>", re.DOTALL)
_PHRASE = re.compile(r"ε \d+|as it is|as they are|[\w-]+ →|\(\d+, \d+\)")
# Characters of a cell that is not broken, of a row's first likewise, and of cells whose column is narrow.
_SHORT, _SHORT_NAME, _NARROW = 14, 16, 11
_IMAGE = re.compile(r'(<a\b[^>]*>\s*)?<img\b[^>]*?\bsrc="([^"]+)"[^>]*>')
_COMMANDS = re.compile(r'<div class="language-sh .*?</div>|<code>[^<]*</code>', re.DOTALL)
# --fail-above, ai-dim/resnet18: a browser would break the line after a hyphen.
_HYPHENATED = re.compile(r"(?<=[\s>])(?=[\w./:+,-]{3,34}(?:[\s<]|$))[\w./:+,]*-[\w./:+,-]*", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Take the examples along."""
    for path in sorted(_EXAMPLES.rglob("*")):
        if path.suffix in (".ipynb", ".py", ".sh", ".yaml", ".yml"):
            where = path.relative_to(_EXAMPLES.parent).as_posix()
            files.append(File.generated(config, where, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point to where they then are; describe the page by the sentence below its heading."""
    page.meta["description"] = summary(markdown)
    return markdown.replace("](../examples/", "](examples/")


def summary(markdown: str) -> str:
    r"""Give the paragraph below a page's first heading as plain text.

    >>> summary("# Speed\n\nWhat is `fast`,\nand [how](how.md).\n\nMore.")
    'What is fast, and how.'
    """
    found = _SUMMARY.match(markdown.lstrip())
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found[1]) if found else ""
    return " ".join(re.sub(r"[`*$]", "", text).split())


def on_page_content(content: str, **_: Any) -> str:
    """Make MathML of formulas, which browsers draw without a script; keep intervals and names whole; link figures."""
    content = _FORMULA.sub(lambda found: _drawn(html.unescape(found[3]), alone=found[2] == "["), content)
    content = _TABLE.sub(lambda table: _fitted(table[0]), content)
    content = _CELL.sub(lambda cell: _kept(cell[0]), content)
    content = _NAME.sub('<code class="name">', content)
    content = _COMMANDS.sub(lambda block: _HYPHENATED.sub(_whole, block[0]), content)
    content = _HEADING.sub(lambda name: name[1] + name[2].replace(".", ".<wbr>"), content)
    return _IMAGE.sub(_opening, content)


def _kept(cell: str) -> str:
    """A table's cell, in which no interval is broken in two; code stays as it is, for it is copied."""

    def kept(text: str) -> str:
        return _RANGE.sub("–&#8288;", _WHOLE.sub(lambda found: found[0].replace(" ", "&nbsp;"), text))

    return "".join(part if part.startswith("<code") else kept(part) for part in _CODE.split(cell))


def _whole(word: re.Match[str]) -> str:
    """A word with hyphens in one piece; an option, which is short, in a table's cell too."""
    return f'<span class="{"whole option" if word[0].startswith("--") else "whole"}">{word[0]}</span>'


def _fitted(table: str) -> str:
    """A table whose short cells are not broken, and whose columns of very short ones need no room to spare."""
    body = [[_length(cell[2]) for cell in _BOX.finditer(row)] for row in _ROW.findall(table)[1:]]
    widest = [max(column) for column in zip(*body, strict=False)]

    def row(found: re.Match[str]) -> str:
        column = itertools.count()
        return _BOX.sub(lambda cell: box(cell, next(column)), found[0])

    def box(cell: re.Match[str], column: int) -> str:
        if cell[1] == "td":
            whole = 0 < _length(cell[2]) <= (_SHORT if column else _SHORT_NAME)
            return f'<td class="whole">{cell[2]}</td>' if whole else cell[0]
        heading = _PHRASE.sub(lambda found: found[0].replace(" ", "&nbsp;"), cell[2])
        narrow = column < len(widest) and widest[column] <= _NARROW
        return f'<th class="narrow">{heading}</th>' if narrow else f"<th>{heading}</th>"

    return _ROW.sub(row, table)


def _length(cell: str) -> int:
    return len(html.unescape(re.sub(r"<[^>]+>", "", cell)).strip())


def _opening(image: re.Match[str]) -> str:
    """A figure that is no link opens as a file: on a phone its words are too small else."""
    return image[0] if image[1] else f'<a href="{image[2]}">{image[0]}</a>'


def _drawn(formula: str, *, alone: bool) -> str:
    if not alone:
        return convert(formula)
    return f'<div class="formula">{convert(formula, display="block")}</div>'
