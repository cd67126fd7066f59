"""The one error type of whorl, and the wording of "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher


class WhorlError(ValueError):
    """Input that whorl cannot work with. The message says what was expected, what came, and what to do."""


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
