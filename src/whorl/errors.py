"""The one error type of whorl, and the wording of errors that many places raise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time
from difflib import SequenceMatcher
from importlib import import_module
from reprlib import Repr
from typing import Any

# As TOML writes it without quotation marks.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_MOST_LISTED = 20
# A value that is quoted: no deeper, and no longer, than a sentence can hold.
_QUOTE = Repr()
_QUOTE.maxlevel, _QUOTE.maxstring, _QUOTE.maxother, _QUOTE.maxlong = 3, 80, 80, 80

DISTRIBUTION = "torchwhorl"
"""What pip calls whorl: on the package index, ``whorl`` is somebody else's."""

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


@dataclass(frozen=True)
class Fault:
    """A setting that is wrong: where, and why.

    Attributes:
        place: names and indices that lead to it, from the outside in.
        expected: what it should be; or, where there is nothing that it should be, the whole sentence.
        got: what it is, quoted; None where ``expected`` is the whole sentence.

    >>> fault = Fault(("attacks", 0, "eps"), "a number above 0", "true")
    >>> print(fault), print(fault.said())
    attacks[0].eps: expected a number above 0, got true
    eps must be a number above 0; got true
    (None, None)
    """

    place: tuple[str | int, ...]
    expected: str
    got: str | None = None

    def said(self) -> str:
        """The fault as a call says it: with the setting's own name alone."""
        name = self.place[-1] if self.place else "it"
        return self.expected if self.got is None else f"{name} must be {self.expected}; got {self.got}"

    def within(self, *place: str | int) -> Fault:
        """The same fault seen from further out."""
        return Fault((*place, *self.place), self.expected, self.got)

    def __str__(self) -> str:
        at = "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in self.place).removeprefix(
            "."
        )
        said = self.expected if self.got is None else f"expected {self.expected}, got {self.got}"
        return f"{at}: {said}" if at else said


class SettingsError(WhorlError):
    """Settings that are wrong, each with its own sentence.

    Args:
        faults: all of them.
        where: the file that they are in, which then has a line for each; none for a call.

    Attributes:
        faults: as given.

    >>> faults = [Fault(("seed",), "a whole number", "'zero'"), Fault(("data", "limit"), "a whole number", "true")]
    >>> print(SettingsError(faults, where="mine.toml"))
    mine.toml has 2 faults:
      seed: expected a whole number, got 'zero'
      data.limit: expected a whole number, got true
    """

    def __init__(self, faults: Sequence[Fault], *, where: str = "") -> None:
        said = [str(fault) if where else fault.said() for fault in faults]
        if where and len(said) > 1:
            more = [f"and {len(said) - _MOST_LISTED} more"] if len(said) > _MOST_LISTED else []
            super().__init__("\n  ".join([f"{where} has {len(said)} faults:", *said[:_MOST_LISTED], *more]))
        else:
            super().__init__((f"{where}: " if where else "") + "; ".join(one.rstrip(".") for one in said) + ".")
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[Any, ...]:
        return _settings_error, (str(self), self.faults)


def _settings_error(message: str, faults: tuple[Fault, ...]) -> SettingsError:
    """Build one again in another process."""
    made = SettingsError(faults)
    made.args = (message,)
    return made


def _key(part: str) -> str:
    return part if _PLAIN_KEY.fullmatch(part) else quoted(part)


def quoted(value: object) -> str:
    r"""Quote a value in a message, cut to what a line can hold, whatever its own repr does.

    >>> quoted([1, [2, [3, [4]]]]), quoted("a\x1bb")
    ('[1, [2, [...]]]', "'a\\x1bb'")
    """
    if isinstance(value, int) and abs(value) >= 10**400:
        return "a number of hundreds of digits"  # Python refuses to write out thousands
    if isinstance(value, date | time):
        return value.isoformat()  # as TOML writes it
    return " ".join(_QUOTE.repr(value).split())


def reason(error: BaseException) -> str:
    r"""The first line of an error's message, or its type where it has none.

    >>> reason(OSError("no space\non the device")), reason(KeyError())
    ('no space', 'KeyError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def first_line(error: BaseException) -> str:
    r"""What another's error says, in a line: its type, and the beginning of its message.

    >>> first_line(RuntimeError("sizes differ.\nat line 3"))
    'RuntimeError: sizes differ'
    """
    said = (str(error).splitlines() or ["no message"])[0].rstrip(".")
    return f"{type(error).__name__}: {said:.200}"


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
    if not near and all(known_name in hint for known_name in names):
        guess = ""  # the hint lists them
    return WhorlError(f"unknown {kind} {quoted(name)}.{guess} {hint}")


def out_of_range(low: float, high: float) -> WhorlError:
    """Build the error for images whose values do not lie in [0, 1], with the likely reason.

    Args:
        low: least value.
        high: greatest value.

    >>> print(out_of_range(0.0, 255.0))
    images must lie in [0, 1]; got values in [0, 255]. Divide by 255, or load them with whorl.load_images.
    >>> print(out_of_range(-0.06, 1.02))
    images must lie in [0, 1]; got values in [-0.06, 1.02]. Clamp what was added to them: clamp(0, 1).
    >>> print(out_of_range(-2.1179, 2.64))  # doctest: +NORMALIZE_WHITESPACE
    images must lie in [0, 1]; got values in [-2.118, 2.64], which look normalised: whorl takes [0, 1] and normalises
    itself. Leave the normalisation out, and give its mean and std to whorl.Classifier.from_module.
    """
    if low != low:  # NaN, which is nowhere in the comparisons below
        return WhorlError("images must lie in [0, 1]; got NaN. Check how they were read or made.")
    came = f"images must lie in [0, 1]; got values in [{low:.4g}, {high:.4g}]"
    if low > -0.3 and high < 1.3:
        return WhorlError(f"{came}. Clamp what was added to them: clamp(0, 1).")
    # Pixels less the mean, in standard deviations: a few at most, on either side of 0.
    if -8 <= low <= -0.3 and high <= 8:
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


def some_of(names: Sequence[object], shown: int = 3) -> str:
    """Quote the first few names and count the rest.

    >>> some_of(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    more = len(names) - shown
    return ", ".join(map(repr, names[:shown])) + (f" and {more} more" if more > 0 else "")


def imported(module: str, what: str, *, package: str = "", extra: str = "") -> Any:
    """Import a module that need not be there, where somebody wants it.

    Args:
        module: as Python imports it, such as ``reportlab.pdfgen.canvas``.
        what: wants it; the subject of the sentence, in the singular.
        package: that has it, as pip calls it, if that is another name.
        extra: of whorl that brings it, if one does.

    Raises:
        WhorlError: it cannot be imported; says what brings it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise missing_extra(what, package or name, extra=extra, error=error, module=name) from error


def missing_extra(
    what: str, package: str, *, extra: str = "", error: ImportError | None = None, module: str = ""
) -> WhorlError:
    """Build the error for something that needs a package which cannot be imported.

    Args:
        what: wants it; the subject of the sentence, in the singular.
        package: as pip calls it.
        extra: of whorl that brings it, if one does.
        error: why it cannot be imported, where that may be something else than that it is absent.
        module: as Python imports it, if that is another name.

    >>> print(missing_extra("an ONNX model", "onnxruntime", extra="onnx"))
    an ONNX model needs the package onnxruntime, which is not installed. `pip install 'torchwhorl[onnx]'` brings it.
    >>> print(missing_extra("this model", "timm"))
    this model needs the package timm, which is not installed. `pip install timm` brings it.
    """
    absent = error is None or (isinstance(error, ModuleNotFoundError) and error.name == (module or package))
    state = "is not installed" if absent else f"cannot be imported ({error})"
    line = install_line(extra) if extra else f"pip install {package}"
    return WhorlError(f"{what} needs the package {package}, which {state}. `{line}` brings it.")
