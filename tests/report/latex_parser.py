"""Reads LaTeX tables as LaTeX would, as far as whorl writes them: an independent check where no TeX is at hand."""

from __future__ import annotations

import re
from typing import NamedTuple

TOKEN = re.compile(r"\\([A-Za-z]+|.)|([{}$&#_^~%])|([^\\{}$&#_^~%]+)", re.DOTALL)
TEXTS = {
    "textbackslash": "\\",
    "textasciitilde": "~",
    "textasciicircum": "^",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textasciigrave": "`",
    "textendash": "–",
    "textemdash": "—",
    "ldots": "…",
}
MATHS = {"rightarrow", "circ", "times", "pm", "ge", "le", "varepsilon", "theta", "sigma", "infty", "dagger"}
STYLES = {"textbf", "scriptsize", "centering", "caption", "label"}
RULES = {"toprule", "midrule", "bottomrule"}


class Parsed(NamedTuple):
    """One table: the letters of its column specification, and the plain text of each cell; bold cells as ``*text*``."""

    spec: str
    rows: list[list[str]]
    caption: str
    label: str


def parse(text: str) -> list[Parsed]:
    """Read all tables of a file.

    Raises:
        AssertionError: a group or an environment does not end, a row has more or fewer cells than there are columns, or
            something stands there that LaTeX would stumble over.
    """
    code = "\n".join(re.sub(r"(?<!\\)%.*", "", line) for line in text.splitlines())
    found = re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", code, re.DOTALL)
    assert code.count("\\begin{") == code.count("\\end{") == 2 * len(found)
    assert not re.sub(r"\\begin\{table\}.*?\\end\{table\}", "", code, flags=re.DOTALL).strip()
    tables = []
    for inside in found:
        head = re.fullmatch(
            r"\s*\\centering\s*\\caption\{(.*)\}\s*\\label\{tab:([a-zA-Z0-9-]+)\}\s*"
            r"\\begin\{tabular\}\{([lrc]+)\}\s*\\toprule(.*)\\bottomrule\s*\\end\{tabular\}\s*",
            inside,
            re.DOTALL,
        )
        assert head, inside
        caption, label, spec, body = head.groups()
        rows = cells(body)
        assert all(len(row) == len(spec) for row in rows), (spec, rows)
        [[said]] = cells(caption + r"\\")
        tables.append(Parsed(spec, rows, said, label))
    return tables


def cells(body: str) -> list[list[str]]:
    """Split a table's body into rows and cells of plain text; groups must close, formulas too."""
    rows: list[list[str]] = []
    row: list[str] = []
    cell, depth, maths, place = "", 0, False, 0
    while place < len(body):
        token = TOKEN.match(body, place)
        assert token, body[place:]
        place = token.end()
        command, special, plain = token.groups()
        if command == "\\":
            assert (depth, maths) == (0, False)
            assert not re.match(r"\s*[\[*]", body[place:]), "taken for an option of the line's end"
            rows.append([*row, cell.strip()])
            row, cell = [], ""
        elif special == "&":
            assert (depth, maths) == (0, False)
            row.append(cell.strip())
            cell = ""
        elif special in ("{", "}"):
            depth += 1 if special == "{" else -1
            assert depth >= 0
        elif special == "$":
            maths = not maths
        elif special == "^":
            assert maths
        elif special is not None:
            raise AssertionError(f"{special!r} is not escaped: {body[max(0, place - 20) : place + 20]!r}")
        elif command is not None:
            if command.isalpha():
                cell += TEXTS.get(command, "*" if command == "textbf" else "")
                assert command in {*TEXTS, *STYLES, *RULES} or (maths and command in MATHS), command
                place += len(re.match(r" *", body[place:])[0])  # type: ignore[index]  # it matches
            else:
                assert command in "&%$#_{}", command
                cell += command
        else:
            cell += plain
    assert (depth, maths, row, cell.strip()) == (0, False, [], "")
    return rows
