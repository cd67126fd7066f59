"""Frozen settings records, with one readable repr and one way to change a setting; and registries of parts by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import Tensor, nn

from whorl.errors import WhorlError, unknown_name

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


class Record:
    """Mixin for frozen dataclasses: a repr that shows only what differs from the defaults, and ``with_``."""

    _always_shown: ClassVar[tuple[str, ...]] = ()
    """Fields that are shown all the same: what a record must say whatever the default will be."""

    def __repr__(self) -> str:
        own = [f for f in fields(self) if f.init]  # type: ignore[arg-type]  # every user of the mixin is a dataclass
        shown = [
            f"{f.name}={_show(getattr(self, f.name))}"
            for f in own
            if f.name in self._always_shown or not _same(getattr(self, f.name), f.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def with_(self, **settings: Any) -> Self:
        """Copy with some settings changed; an unknown setting is an error that names the nearest ones."""
        known = [f.name for f in fields(self) if f.init]  # type: ignore[arg-type]  # as above
        for name in settings:
            if name not in known:
                hint = f"{type(self).__name__} has: {', '.join(known)}."
                raise unknown_name("setting", name, known, hint=hint)
        return replace(self, **settings)  # type: ignore[type-var]  # as above


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
