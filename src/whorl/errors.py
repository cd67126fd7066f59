"""The one error type of whorl, and the wording of errors that many places raise."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

DISTRIBUTION = "torchwhorl"
"""What pip calls whorl: on the package index, ``whorl`` is somebody else's."""


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


def out_of_range(low: float, high: float) -> WhorlError:
    """Build the error for images whose values do not lie in [0, 1], with the likely reason.

    Args:
        low: least value.
        high: greatest value.

    >>> print(out_of_range(0.0, 255.0))
    images must lie in [0, 1]; got values in [0, 255]. Divide by 255, or load them with whorl.load_images.
    >>> print(out_of_range(-2.1179, 2.64))  # doctest: +NORMALIZE_WHITESPACE
    images must lie in [0, 1]; got values in [-2.118, 2.64], which look normalised: whorl takes [0, 1] and normalises
    itself. Leave the normalisation out, and give its mean and std to whorl.Classifier.from_module.
    """
    if low != low:  # NaN, which is nowhere in the comparisons below
        return WhorlError("images must lie in [0, 1]; got NaN. Check how they were read or made.")
    came = f"images must lie in [0, 1]; got values in [{low:.4g}, {high:.4g}]"
    # Pixels less the mean, in standard deviations: a few at most, on either side of 0.
    if -8 <= low < 0 < high <= 8:
        return WhorlError(
            f"{came}, which look normalised: whorl takes [0, 1] and normalises itself. Leave the normalisation out, "
            "and give its mean and std to whorl.Classifier.from_module."
        )
    return WhorlError(f"{came}. Divide by 255, or load them with whorl.load_images.")


def install_line(extra: str) -> str:
    """Give the command that brings an extra.

    >>> install_line("onnx")
    "pip install 'torchwhorl[onnx]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_extra(what: str, package: str, *, extra: str = "", cause: str = "") -> WhorlError:
    """Build the error for something that needs a package which cannot be imported.

    Args:
        what: wants it; the subject of the sentence, in the singular.
        package: as pip calls it.
        extra: of whorl that brings it, if one does.
        cause: why it cannot be imported, if it is not just absent.

    >>> print(missing_extra("an ONNX model", "onnxruntime", extra="onnx"))
    an ONNX model needs the package onnxruntime, which is not installed. `pip install 'torchwhorl[onnx]'` brings it.
    >>> print(missing_extra("this model", "timm"))
    this model needs the package timm, which is not installed. `pip install timm` brings it.
    """
    state = f"cannot be imported ({cause})" if cause else "is not installed"
    line = install_line(extra) if extra else f"pip install {package}"
    return WhorlError(f"{what} needs the package {package}, which {state}. `{line}` brings it.")
