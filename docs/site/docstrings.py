"""Makes Markdown of docstrings, shows ranges and defaults of settings, leaves out what nobody can import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
_HIDDEN = re.compile(r"_|(?:Record|TomlTable|ABC|CellTable|InBall|InOrder|Plotted)$")
_FIELDS = re.compile(r"^Attributes:$", re.MULTILINE)
_SHORT = 26  # characters of a default
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
        lined_up = re.sub(r"``([^`]*)``", r"\1    ", "\n".join(rows))
        return f"```text\n{lined_up}\n```"
    return paragraph


def ranged(annotation: Any) -> Any:
    """An annotation with its limits: ``Count``, which is ``Annotated[int, Limits(least=1)]``, becomes "int ≥ 1"."""
    if isinstance(annotation, griffe.ExprName):
        alias = _value(annotation)
        return ranged(alias) if _annotated(alias) else annotation
    if _annotated(annotation):
        kind, *metadata = annotation.slice.elements
        limits = [part for part in metadata if isinstance(part, griffe.ExprCall) and str(part.function) == "Limits"]
        return f"{kind} {_within(limits[0])}" if limits else ranged(kind)
    if isinstance(annotation, griffe.Expr):
        parts = {field.name: getattr(annotation, field.name) for field in fields(annotation)}
        return replace(annotation, **{name: ranged(part) for name, part in parts.items()})
    return [ranged(part) for part in annotation] if isinstance(annotation, list) else annotation


def valued(default: Any) -> Any:
    """A default that is a constant as its value, where that is short: 2000 for ``RESAMPLES``."""
    if not isinstance(default, griffe.ExprName) or not default.name.isupper():
        return default
    value = _value(default)
    return default if value is None or len(str(value)) > _SHORT else value


def _annotated(annotation: Any) -> bool:
    return isinstance(annotation, griffe.ExprSubscript) and annotation.canonical_path == "typing.Annotated"


def _value(name: griffe.ExprName) -> Any:
    """What a name of the package stands for; None where it is no variable of it."""
    try:
        known = name.parent.modules_collection[name.canonical_path]  # type: ignore[union-attr]  # no parent: caught
    except (AttributeError, KeyError):
        return None
    # Of several names in one assignment, each would have the values of all.
    several = known.is_attribute and known.annotation is None and isinstance(known.value, griffe.ExprTuple)
    return known.value if known.is_attribute and not several else None


def _within(limits: griffe.ExprCall) -> str:
    """As ``whorl.records.Limits`` has it, shorter: "> 0", "in [0, 1)"."""
    least, above, most, below = (_number(limits, name) for name in ("least", "above", "most", "below"))
    low, high = above or least, below or most
    if low and high:
        return f"in {'(' if above else '['}{low}, {high}{')' if below else ']'}"
    return f"{'>' if above else '≥'} {low}" if low else f"{'<' if below else '≤'} {high}"


def _number(limits: griffe.ExprCall, name: str) -> str:
    for given in limits.arguments:
        if isinstance(given, griffe.ExprKeyword) and given.name == name:
            value = _value(given.value) if isinstance(given.value, griffe.ExprName) else given.value
            number = ast.literal_eval(str(value))
            return f"{number:g}" if abs(number) < 1e5 else f"{number:,.0f}"
    return ""


class Docstrings(griffe.Extension):
    """Changes each docstring before it is read."""

    def __init__(self) -> None:
        super().__init__()
        self._settings: set[str] = set()

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Put ranges in words, and note which classes are settings, before bases are left out."""
        for one in _objects(pkg):
            if isinstance(one, griffe.Class) and any(base.path == "whorl.records.Record" for base in one.mro()):
                self._settings.add(one.path)
            elif isinstance(one, griffe.Function):
                for parameter in one.parameters:
                    parameter.default = valued(parameter.default)
            elif isinstance(one, griffe.Attribute) and isinstance(one.parent, griffe.Class):
                one.annotation, one.value = ranged(one.annotation), valued(one.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show no base that is private or only shares code: nobody imports it."""
        cls.bases = [base for base in cls.bases if not _HIDDEN.match(_name(base))]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring, if there is one. Fields of settings are parameters, whose defaults are shown."""
        if obj.docstring is not None:
            text = markdown(obj.docstring.value)
            obj.docstring.value = _FIELDS.sub("Args:", text) if obj.path in self._settings else text


def _name(base: Any) -> str:
    return str(base).partition("[")[0].rpartition(".")[2]


def _objects(within: griffe.Object) -> Iterator[griffe.Object]:
    for member in within.members.values():
        if not member.is_alias:
            yield member  # type: ignore[misc]  # no alias, so an object
            yield from _objects(member)  # type: ignore[arg-type]  # likewise
