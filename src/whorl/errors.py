"""The one error type of whorl, and the wording of errors that many places raise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

# Control characters but for tab and newline, and what the bytes of a name become that are no UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Write what a terminal would obey, and bytes that are no text, as ``%XX``; everything else stays as it is.

    >>> printable("a\x1b[31mb, \udcff, é")
    'a%1B[31mb, %FF, é'
    """
    return _UNPRINTABLE.sub(_as_bytes, text)


def _as_bytes(found: re.Match[str]) -> str:
    how = "surrogateescape" if "\udc80" <= found[0] <= "\udcff" else "surrogatepass"
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors=how))


class WhorlError(ValueError):
    """Input that whorl cannot work with. The message says what was expected, what came, and what to do."""

    def __str__(self) -> str:
        return printable(super().__str__())  # it may name a file, and a file may have any name


def unknown_name(kind: str, name: str, known: Iterable[str], *, hint: str) -> WhorlError:
    """Build the error for a name that is not in a registry, quoting the nearest names.

    Args:
        kind: what the name stands for, such as "attack".
        name: what the caller wrote.
        known: every valid name.
        hint: where to find the full list, as a sentence.

    >>> print(unknown_name("attack", "ai-dmi", ["ai-dim", "ai-mim", "fgsm"], hint="`whorl attacks` lists all."))
    unknown attack 'ai-dmi'. Did you mean 'ai-dim', 'ai-mim'? `whorl attacks` lists all.
    """
    names = sorted(known)
    likeness = {known_name: SequenceMatcher(None, name.lower(), known_name).ratio() for known_name in names}
    near = sorted((n for n in names if likeness[n] >= 0.5), key=lambda n: (-likeness[n], n))[:3]
    guess = f" Did you mean {', '.join(repr(n) for n in near)}?" if near else f" Known: {', '.join(names)}."
    return WhorlError(f"unknown {kind} {name!r}.{guess} {hint}")


def missing_extra(what: str, package: str, *, extra: str = "", cause: str = "") -> WhorlError:
    """Build the error for something that needs a package which cannot be imported.

    Args:
        what: wants it; the subject of the sentence, in the singular.
        package: as pip calls it.
        extra: of whorl that brings it, if one does.
        cause: why it cannot be imported, if it is not just absent.

    >>> print(missing_extra("an ONNX model", "onnxruntime", extra="onnx"))
    an ONNX model needs the package onnxruntime, which is not installed. `pip install 'whorl[onnx]'` brings it.
    >>> print(missing_extra("this model", "timm"))
    this model needs the package timm, which is not installed. `pip install timm` brings it.
    """
    state = f"cannot be imported ({cause})" if cause else "is not installed"
    wanted = f"'whorl[{extra}]'" if extra else package
    return WhorlError(f"{what} needs the package {package}, which {state}. `pip install {wanted}` brings it.")
