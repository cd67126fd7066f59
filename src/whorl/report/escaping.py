"""Names and labels may come from strangers: here they are made harmless wherever HTML's own escaping does not reach."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}


def figure_text(text: str) -> str:
    """Write text so that plotly shows it as it is.

    plotly takes some tags, entities and formulas between dollar signs in names and titles for markup.

    >>> figure_text("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    visible = "".join(" " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter for letter in text)
    return "".join(_ENTITIES.get(letter, letter) for letter in visible)


def script_json(value: object) -> str:
    r"""Write a value as JSON that cannot end, or open, a script element.

    Raises:
        ValueError: a number is not finite, which JSON cannot hold.

    >>> script_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def inline_script(source: str) -> str:
    """Prepare a script of ours, or plotly's, for standing between script tags.

    Line ends become those that a browser hashes, and nothing in it reads as the end of the element.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|script|!--)", r"\\x3c", lines, flags=re.IGNORECASE)


def source_hash(script: str) -> str:
    """The hash by which a content security policy allows one script and no other."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii") + "'"
