"""Settings of attacks as text and tables can hold them: ``"16/255"``, ``{type = "AffineInvariant", sigma = 0.7}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import whorl
from whorl.attacks import Attack
from whorl.attacks.norms import radius_faults
from whorl.errors import Fault, SettingsError, WhorlError, quoted
from whorl.estimators import ESTIMATORS, Chain
from whorl.models.backward import Backward
from whorl.records import Record, Registry
from whorl.transforms import TRANSFORMS, InputChain

# Checked before they are worked out: Fraction takes 1e999999999, underscores, and the digits of any script.
_NUMBER = re.compile(r"([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e-?[0-9]{1,2})?")
_FRACTIONS = ("eps", "alpha")
_A_TABLE = 'a table with a type, such as {{type = "{}"}}, or a list of such tables'
# By setting: where its parts are registered, and what applies several one after the other.
_PARTS: Mapping[str, tuple[Registry[Any], Callable[..., Any]]] = {
    "input": (TRANSFORMS, InputChain),
    "estimator": (ESTIMATORS, Chain),
}


# Those of one type alone, which a table need not name.
_RECORDS: Mapping[str, Callable[[], Record]] = {"backward": Backward}


def parse_eps(text: str, *, norm: str = "linf") -> float:
    """Read the bound of a perturbation.

    Args:
        text: a fraction or a decimal, in units of the [0, 1] range.
        norm: for "linf" it is at most 1; an L2 ball may well be larger.

    >>> parse_eps("16/255") == 16 / 255
    True
    """
    value = _fraction("eps", text)
    # As it was typed, so that the message can repeat it.
    if faults := radius_faults(int(value) if value.is_integer() else value, norm):
        raise SettingsError(faults)
    return value


def parse_fraction(text: str) -> float | None:
    """Read a fraction or a decimal, from 0; None if it is neither.

    >>> parse_fraction("1/4"), parse_fraction("1/0")
    (0.25, None)
    """
    parts = [part.strip().lower() for part in text.split("/")]
    if len(parts) > 2 or not all(_NUMBER.fullmatch(part) for part in parts) or (parts[1:] and not Fraction(parts[1])):
        return None
    return float(Fraction(parts[0]) / Fraction(parts[-1] if parts[1:] else 1))


def _fraction(name: str, text: str) -> float:
    value = parse_fraction(text)
    if value is None:
        raise SettingsError([Fault((name,), "a fraction or a decimal, such as 16/255 or 0.06", quoted(text))])
    return value


def build_attack(name: str, settings: Mapping[str, Any]) -> Attack:
    """Make an attack of a name and a table of settings.

    Args:
        name: one of ``whorl.attack_names()``.
        settings: as ``whorl.attack`` takes them. ``eps`` and ``alpha`` may be fractions as text; an estimator or an
            input transform is a table that names its type, as ``ESTIMATORS`` and ``TRANSFORMS`` know it, or a list of
            such tables, one applied after the other. The table ``backward`` has the fields of ``Backward``; an empty
            one leaves the backward pass as it is.

    Raises:
        WhorlError: an unknown name, or a setting that the attack or its part does not take.

    >>> build_attack("dim", {"eps": "8/255", "estimator": {"type": "AffineInvariant", "sigma": 0.7}}).estimator
    AffineInvariant(sigma=0.7)
    """
    read, faults = _read(settings)
    try:
        made = whorl.attack(name, **read)
    except SettingsError as error:
        raise SettingsError([*faults, *error.faults]) from error
    if faults:
        raise SettingsError(faults)
    return made


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a table of settings into what ``whorl.attack`` takes; see :func:`build_attack`.

    >>> read_settings({"steps": 3, "estimator": {"type": "AffineInvariant", "sigma": "reference"}})
    {'steps': 3, 'estimator': AffineInvariant(sigma='reference')}
    """
    read, faults = _read(settings)
    if faults:
        raise SettingsError(faults)
    return read


def _read(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """The settings that can be read, and what is wrong with the others."""
    tried = {key: _tried(_value, key, value) for key, value in settings.items()}
    good = {key: read for key, (read, faults) in tried.items() if not faults}
    return good, [fault for _, faults in tried.values() for fault in faults]


def _tried(read: Callable[..., Any], *given: Any) -> tuple[Any, tuple[Fault, ...]]:
    """What reading gives, and no faults; or nothing, and the faults."""
    try:
        return read(*given), ()
    except SettingsError as error:
        return None, error.faults


def _value(key: str, value: Any) -> Any:
    if key in _FRACTIONS and isinstance(value, str):
        return _fraction(key, value)
    if isinstance(value, Mapping):
        return _part((key,), value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        if key not in _PARTS:
            raise SettingsError([Fault((key,), "one table" if key in _RECORDS else "no list of tables", quoted(value))])
        read = [_tried(_part, (key, place), item) for place, item in enumerate(value)]
        faults = [fault for _, wrong in read for fault in wrong]
        if faults:
            raise SettingsError(faults)
        return _PARTS[key][1](*(part for part, _ in read))
    if key in _PARTS and isinstance(value, str | int | float | list):
        raise SettingsError([Fault((key,), _A_TABLE.format(next(iter(_PARTS[key][0]))), quoted(value))])
    return value


def _part(place: tuple[str | int, ...], table: Mapping[str, Any]) -> Any:
    key = str(place[0])
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    if key in _RECORDS:
        try:
            return _RECORDS[key]().with_(**given)
        except SettingsError as error:
            raise SettingsError([fault.within(*place) for fault in error.faults]) from error
    if key not in _PARTS:
        takers = ", ".join(_PARTS)
        only = f"no table: only {takers} and {' and '.join(_RECORDS)} take one"
        raise SettingsError([Fault(place, only, quoted(dict(table)))])
    registry = _PARTS[key][0]
    kind = given.pop("type", None)
    if not isinstance(kind, str):
        raise SettingsError([Fault(place, _A_TABLE.format(next(iter(registry))), quoted(dict(table)))])
    try:
        part = registry.find(kind)
        # A record says of each setting what is wrong with it.
        return part().with_(**given) if isinstance(part, type) and issubclass(part, Record) else part(**given)
    except SettingsError as error:
        raise SettingsError([fault.within(*place) for fault in error.faults]) from error
    except WhorlError as error:
        raise SettingsError([Fault(place, str(error).rstrip("."))]) from error
    except TypeError as error:
        raise SettingsError([Fault(place, f"{kind} does not take these settings: {error}")]) from error
