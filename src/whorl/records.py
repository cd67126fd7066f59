"""Frozen settings records: one readable repr for all of them, and one way to change a setting."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, Self

from torch import Tensor, nn

from whorl.errors import unknown_name


class Record:
    """Mixin for frozen dataclasses: a repr that shows only what differs from the defaults, and ``with_``."""

    def __repr__(self) -> str:
        own = [f for f in fields(self) if f.init]  # type: ignore[arg-type]  # every user of the mixin is a dataclass
        shown = [f"{f.name}={_show(getattr(self, f.name))}" for f in own if not _same(getattr(self, f.name), f.default)]
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
