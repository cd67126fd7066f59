"""Makes Markdown of docstrings: examples and tables become code, roles become names, results keep the declared type."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|func|meth|mod):`~?([^`]+)`")
_HIDDEN = re.compile(r"_|(?:Record|TomlTable)$")
_RESULT = re.compile(r"^(Returns|Yields):\n(?:(?:[ ]+.*)?\n?)*", re.MULTILINE)


def markdown(text: str) -> str:
    r"""Rewrite a docstring, paragraph by paragraph.

    >>> markdown("Adds; see :func:`plus`.")
    'Adds; see `plus`.'
    >>> markdown("Adds.\n\n>>> 1 + 1\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    >>> markdown("Adds.\n\nReturns:\n    (n,): the sums.").splitlines()
    ['Adds.', '', 'Returns:', '    (n,)&#58; the sums.']
    """
    # What stands before a colon would be taken for the type, which the signature knows better.
    text = _RESULT.sub(lambda part: part[0].replace(": ", "&#58; "), _ROLE.sub(r"`\1`", text))
    return "\n\n".join(_shown(paragraph) for paragraph in text.split("\n\n"))


def _shown(paragraph: str) -> str:
    if paragraph.lstrip().startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"
    if paragraph.startswith("===="):  # a table whose columns are lined up
        rows = [line for line in paragraph.splitlines() if not line.startswith("====")]
        return "```text\n" + "\n".join(rows) + "\n```"
    return paragraph


class Docstrings(griffe.Extension):
    """Changes each docstring before it is read, and leaves out what nobody can import."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show no base that is private or only keeps settings: nobody imports it."""
        cls.bases = [base for base in cls.bases if not _HIDDEN.match(str(base).rpartition(".")[2])]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring, if there is one."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
