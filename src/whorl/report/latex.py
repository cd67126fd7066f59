r"""Text for LaTeX: names may hold anything, and come out as they are."""

from __future__ import annotations

import re
import unicodedata

_ESCAPED = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "`": "\\textasciigrave{}",
    '"': "{''}",
    "*": "{*}",  # at a row's beginning this and the next would be taken for options of the last row's end
    "[": "{[}",
    "]": "{]}",
    "→": "$\\rightarrow$",
    "°": "$^\\circ$",
    "×": "$\\times$",
    "±": "$\\pm$",
    "≥": "$\\ge$",
    "≤": "$\\le$",
    "ε": "$\\varepsilon$",
    "θ": "$\\theta$",
    "σ": "$\\sigma$",
    "∞": "$\\infty$",
    "†": "$^\\dagger$",
    "–": "\\textendash{}",
    "—": "\\textemdash{}",
    "…": "\\ldots{}",
}
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def latex_text(text: str) -> str:
    r"""Write text so that LaTeX shows it as it is; what is no letter or sign at all becomes a space.

    Letters beyond Latin stay: pdfLaTeX does not know them, XeLaTeX and LuaLaTeX do.

    >>> print(latex_text("100% of net_a & {b}, θ = 30°"))
    100\% of net\_a \& \{b\}, $\theta$ = 30$^\circ$
    """
    visible = (" " if unicodedata.category(one) in _INVISIBLE else one for one in text)
    return re.sub("-(?=-)", "-{}", "".join(_ESCAPED.get(one, one) for one in visible))  # two would become a dash


def latex_label(text: str) -> str:
    """Make a name fit for a reference.

    >>> latex_label("mine-timm:resnet50.a1_in1k")
    'mine-timm-resnet50-a1-in1k'
    """
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")
