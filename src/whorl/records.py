"""Frozen settings records: checked by their annotations, readable as text and as HTML; registries of parts by name."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache
from html import escape
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from torch import Tensor, nn

from whorl.errors import Fault, SettingsError, WhorlError, quoted, unknown_name

_Part = TypeVar("_Part")


class Registry(Mapping[str, _Part], Generic[_Part]):
    """Parts by name, each entered where it is defined; TOML, command line and catalogue read it.

    Args:
        kind: what the parts are, such as "estimator".

    >>> COLOURS = Registry[type]("colour")
    >>> @COLOURS.add
    ... class Red: ...
    >>> list(COLOURS), COLOURS.find("Red") is Red
    (['Red'], True)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, _Part] = {}

    def add(self, part: _Part) -> _Part:
        """Enter a part under its own ``name``, or its class's; a decorator."""
        name = getattr(part, "name", None) or getattr(part, "__name__", None)
        if not isinstance(name, str) or name in self._parts:
            raise WhorlError(f"a {self.kind} needs a name that no other has; got {name!r} of {part!r}.")
        self._parts[name] = part
        return part

    def find(self, name: str) -> _Part:
        """Look a part up.

        Raises:
            WhorlError: there is none of that name; the nearest are named.
        """
        if name not in self._parts:
            raise unknown_name(self.kind, name, self._parts, hint=f"Expected one of {', '.join(self._parts)}.")
        return self._parts[name]

    def __getitem__(self, name: str) -> _Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


# A number of another size is a slip, and float32 overflows, or vanishes, where a few such are multiplied.
_SMALLEST, _LARGEST = 1e-12, 1e9


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a number must lie, for a setting's ``Annotated`` type. Numbers are finite in any case.

    >>> Limits(above=0, most=1).words("a number"), Limits(least=1).hold(0)
    ('a number in (0, 1]', False)
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def hold(self, value: float) -> bool:
        """Whether a number lies within."""
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        return low and (self.most is None or value <= self.most) and (self.below is None or value < self.below)

    def words(self, kind: str) -> str:
        """What is expected, such as "a whole number >= 1"."""
        low, high = (self.above if self.least is None else self.least), (self.below if self.most is None else self.most)
        if low is not None and high is not None:
            return f"{kind} in {'(['[self.above is None]}{low:g}, {high:g}{')]'[self.below is None]}"
        if low is not None:
            return f"{kind} above {low:g}" if self.least is None else f"{kind} >= {low:g}"
        return kind if high is None else f"{kind} {'<' if self.most is None else '<='} {high:g}"


Positive = Annotated[float, Limits(above=0)]
NotNegative = Annotated[float, Limits(least=0)]
Share = Annotated[float, Limits(least=0, most=1)]
Part = Annotated[float, Limits(above=0, most=1)]
Count = Annotated[int, Limits(least=1)]
"""What most settings are: numbers above 0, from 0, in [0, 1], in (0, 1], and whole numbers from 1."""


NO_IDENTITY: Mapping[str, bool] = {"identity": False}
"""Metadata of a field that a result does not depend on, such as where something lies: manifests leave it out."""


class Record:
    """Mixin for frozen dataclasses: settings that are what their annotations say, a short repr, and ``with_``.

    The repr shows only what differs from the defaults. A setting's annotation is its check: a flag is True or False and
    nothing that is like it, a number is no flag and no text, and lies within its :class:`Limits`; a list will do for a
    tuple, and numpy's numbers become Python's.

    >>> @dataclass(frozen=True, kw_only=True, repr=False)
    ... class Blur(Record):
    ...     width: Positive = 1.0
    ...     twice: bool = False
    >>> Blur(width=2)
    Blur(width=2.0)
    >>> Blur(width=True, twice="no")
    Traceback (most recent call last):
    whorl.errors.SettingsError: width must be a number above 0; got True; twice must be True or False; got 'no'.
    """

    _always_shown: ClassVar[tuple[str, ...]] = ()
    """Fields that are shown all the same: what a record must say whatever the default will be."""

    def __post_init__(self) -> None:
        faults, kind = [], cast(Hashable, type(self))
        for name, reader in _readers(kind).items():
            given = getattr(self, name)
            read = reader.read(given)
            if read is _REFUSED:
                faults.append(Fault((name,), reader.wanted(given), quoted(given)))
            elif read is not given:
                object.__setattr__(self, name, read)
        faults += self._faults_between([fault.place[0] for fault in faults])
        if faults:
            raise SettingsError(faults)

    def _faults_between(self, wrong: Sequence[str | int]) -> list[Fault]:  # noqa: ARG002 - of those that have some
        """Settings that do not go together; ``wrong`` are wrong by themselves."""
        return []

    def __repr__(self) -> str:
        shown = [f"{name}={text}" for name, text, telling in self._settings() if telling]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """All settings as a table, for notebooks; those that the repr shows are bold."""
        settings = list(self._settings())
        strong = {place for place, (_, _, telling) in enumerate(settings) if telling}
        rows = [(name, text) for name, text, _ in settings]
        return html_table(type(self).__name__, ("setting", "value"), rows, strong=strong)

    def _settings(self) -> Iterator[tuple[str, str, bool]]:
        """By name and as text, and whether they differ from the defaults or must be shown whatever these are."""
        for f in fields(self):  # type: ignore[arg-type]  # every user of the mixin is a dataclass
            if f.init:
                value = getattr(self, f.name)
                yield f.name, _show(value), f.name in self._always_shown or not _same(value, f.default)

    def with_(self, /, **settings: Any) -> Self:
        """Copy with some settings changed; an unknown setting is an error that names the nearest ones."""
        known = [f.name for f in fields(self) if f.init]  # type: ignore[arg-type]  # as above
        hint = f"{type(self).__name__} has: {', '.join(known)}."
        unknown = [name for name in settings if name not in known]
        faults = [Fault((name,), str(unknown_name("setting", name, known, hint=hint))) for name in unknown]
        try:
            made = replace(self, **{name: settings[name] for name in settings if name in known})  # type: ignore[type-var]  # as above
        except WhorlError as error:
            faults += error.faults if isinstance(error, SettingsError) else [Fault((), str(error))]
            raise SettingsError(faults) from error
        if faults:
            raise SettingsError(faults)
        return made


@dataclass(frozen=True, init=False, repr=False)
class InOrder(Generic[_Part]):
    """Several parts of one kind, applied one after the other, the first one first."""

    parts: tuple[_Part, ...]

    def __init__(self, *parts: _Part) -> None:
        object.__setattr__(self, "parts", parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"

    def all_are(self, kind: str) -> bool:
        """Whether all parts say of themselves that they are ``pure``, or ``short``."""
        return all(getattr(part, kind, False) for part in self.parts)


class Plotted:
    """Mixin for what came of a measurement: its figures, see :func:`whorl.report.plot.figure_of`."""

    def plot(self, kind: str = "overview", **which: str) -> Any:
        """Draw a plotly figure; ``kind`` and ``which`` (``source``, ``target``) as of ``whorl.report.plot``."""
        # By name, for the chart toolkit stands above all that has something to show.
        return import_module("whorl.report.plot").figure_of(self, kind, **which)


def html_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], *, strong: Container[int] = ()
) -> str:
    """Make a small table for a notebook: every text is escaped, and colours are the page's own, light or dark.

    Args:
        caption: stands above it.
        head: of the columns.
        rows: as many cells each.
        strong: places of rows that are bold.

    >>> html_table("one cell", ["a"], [["<b>"]]).endswith("&lt;b&gt;</td></tr></tbody></table>")
    True
    """
    left = ' style="text-align:left"'

    def row(kind: str, cells: Sequence[object], bold: bool = False) -> str:
        texts = (f"<b>{escape(str(cell))}</b>" if bold else escape(str(cell)) for cell in cells)
        return "<tr>" + "".join(f"<{kind}{left}>{text}</{kind}>" for text in texts) + "</tr>"

    body = "".join(row("td", cells, place in strong) for place, cells in enumerate(rows))
    title = f'<caption style="text-align:left;color:inherit">{escape(caption)}</caption>'
    return f"<table>{title}<thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"


# Letters of a number that is best read as it is: 0.8, and not 204/255.
_SHORT = 5


def _same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _show(value: object) -> str:
    if isinstance(value, float) and len(repr(value)) > _SHORT:
        as_pixels = Fraction(value * 255).limit_denominator(64)
        if 0 < value < 1 and as_pixels.denominator == 1 and abs(as_pixels / 255 - value) < 1e-9:
            return f"{as_pixels}/255"
    if isinstance(value, Tensor):
        return f"<{'x'.join(map(str, value.shape))} tensor>"
    if isinstance(value, nn.Module):
        # A network's own repr is a page long.
        return f"<{getattr(value, 'name', type(value).__name__)}>"
    return repr(value)


def checked(name: str, given: object, annotation: Any) -> Any:
    """Read one argument of a function as a record reads its settings.

    Raises:
        SettingsError: it is something else.

    >>> checked("quality", 75, Count)
    75
    """
    reader = _reader(annotation)
    read = reader.read(given)
    if read is _REFUSED:
        raise SettingsError([Fault((name,), reader.wanted(given), quoted(given))])
    return read


_REFUSED = object()


class _Reader(NamedTuple):
    """How a setting is read."""

    expected: str
    read: Callable[[object], Any]
    """From what is given to what is kept; ``_REFUSED`` if it is something else."""

    def wanted(self, given: object) -> str:
        """What is expected, said to somebody who gave something else."""
        extreme = isinstance(given, int | float) and (0 < abs(given) < _SMALLEST or _LARGEST < abs(given) < math.inf)
        return f"{self.expected}, of a size from {_SMALLEST:g} to {_LARGEST:g}" if extreme else self.expected


@cache
def _readers(kind: Any) -> dict[str, _Reader]:
    """By setting of a record, how it is read."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: _reader(hints[f.name]) for f in fields(kind) if f.init}


def _reader(annotation: Any, bounds: Limits | None = None) -> _Reader:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = _reader(parts[0], next((extra for extra in parts[1:] if isinstance(extra, Limits)), bounds))
        return inner._replace(expected=next((extra for extra in parts[1:] if isinstance(extra, str)), inner.expected))
    if origin in (Union, types.UnionType):
        return _any_of([_reader(part, bounds) for part in parts])
    if origin is tuple:
        return _several(parts, bounds)
    if origin is Literal:
        wanted = [repr(choice) for choice in parts]
        return _Reader(
            " or ".join(filter(None, [", ".join(wanted[:-1]), wanted[-1]])),
            lambda given: next((one for one in parts if type(one) is type(given) and one == given), _REFUSED),
        )
    if annotation in _SCALARS:
        kind, read = _SCALARS[annotation]
        limits = bounds or Limits()
        # A whole number without limits is a seed, and may be any; what must be above 0 must not vanish either.
        largest = math.inf if annotation is int and bounds is None else _LARGEST
        sizes = (_SMALLEST if limits.above == 0 else 0.0, largest)
        return _Reader(limits.words(kind), lambda given: _within(read(given), limits, sizes))
    return _instance(origin or annotation)


def _within(value: Any, limits: Limits, sizes: tuple[float, float]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    sized = value == 0 or sizes[0] <= abs(value) <= sizes[1]
    return value if sized and limits.hold(value) else _REFUSED


def _whole(given: object) -> Any:
    if isinstance(given, bool | np.bool_) or not isinstance(given, Integral):
        return _REFUSED
    return int(given)


def _number(given: object) -> Any:
    if isinstance(given, bool | np.bool_) or not isinstance(given, Real):
        return _REFUSED
    # Compared first: NaN is refused too, and no whole number is too long for a float.
    return float(given) if abs(given) <= _LARGEST else _REFUSED  # type: ignore[operator]  # real numbers compare


def _path(given: object) -> Any:
    if not isinstance(given, str | Path) or "\0" in str(given):
        return _REFUSED
    return Path(given)


_SCALARS: dict[Any, tuple[str, Callable[[object], Any]]] = {
    bool: ("True or False", lambda given: bool(given) if isinstance(given, bool | np.bool_) else _REFUSED),
    int: ("a whole number", _whole),
    float: ("a number", _number),
    str: ("text", lambda given: given if isinstance(given, str) else _REFUSED),
    Path: ("a path", _path),
    types.NoneType: ("None", lambda given: given if given is None else _REFUSED),
}


def _any_of(readers: Sequence[_Reader]) -> _Reader:
    def read(given: object) -> Any:
        return next((found for reader in readers if (found := reader.read(given)) is not _REFUSED), _REFUSED)

    return _Reader(", or ".join(dict.fromkeys(reader.expected for reader in readers)), read)


def _several(parts: tuple[Any, ...], bounds: Limits | None) -> _Reader:
    """A tuple of some length, or of any."""
    any_length = len(parts) == 2 and parts[1] is Ellipsis
    readers = [_reader(part, bounds) for part in (parts[:1] if any_length else parts)]

    def read(given: object) -> Any:
        if not isinstance(given, list | tuple | np.ndarray) or not (any_length or len(given) == len(readers)):
            return _REFUSED
        found = tuple(reader.read(one) for reader, one in zip(readers * len(given) if any_length else readers, given))  # noqa: B905 - one reader may serve all
        if any(one is _REFUSED for one in found):
            return _REFUSED
        return given if isinstance(given, tuple) and found == given else found

    if any_length:
        return _Reader(f"several, each {readers[0].expected}", read)
    alike = len({reader.expected for reader in readers}) == 1
    each = readers[0].expected if alike else ", ".join(reader.expected for reader in readers)
    return _Reader(f"{'a pair' if len(readers) == 2 else f'{len(readers)} values'}, each {each}", read)


def _instance(kind: Any) -> _Reader:
    """A value of a class, or with the methods of a protocol; a class itself is neither, though it can be called."""
    if kind is Any or not isinstance(kind, type):
        return _Reader("anything", lambda given: given)
    about, called = (kind.__doc__ or "").partition("\n")[0].rstrip("."), kind.__name__
    article = "an" if called[0] in "AEIOU" else "a"

    def read(given: object) -> Any:
        text = isinstance(given, str) and kind is not str  # a sequence too, but never meant as one
        return given if isinstance(given, kind) and not isinstance(given, type) and not text else _REFUSED

    if kind is Callable:
        return _Reader("a function", read)
    return _Reader(f"a{about[1:]}" if about.startswith("Anything that") else f"{article} {called}", read)
