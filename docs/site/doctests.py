"""Shows the examples in docstrings as code: they stand in the text, without a heading of their own."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""Put paragraphs that begin with a prompt between fences.

    >>> print(fenced("Adds.\n\n>>> 1 + 1\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    shown = []
    for paragraph in text.split("\n\n"):
        code = paragraph.lstrip().startswith(">>> ")
        shown.append(f"```pycon\n{paragraph}\n```" if code else paragraph)
    return "\n\n".join(shown)


class Doctests(griffe.Extension):
    """Changes each docstring before it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put its examples between fences."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
