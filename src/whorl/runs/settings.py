"""Settings of attacks as text and tables can hold them: ``"16/255"``, ``{type = "AffineInvariant", sigma = 0.7}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import whorl
from whorl.attacks import Attack
from whorl.errors import WhorlError
from whorl.estimators import ESTIMATORS, Chain
from whorl.records import Registry
from whorl.transforms import TRANSFORMS, InputChain

# Checked before they are worked out: Fraction takes 1e999999999, underscores, and the digits of any script.
_NUMBER = re.compile(r"([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e-?[0-9]{1,2})?")
_FRACTIONS = ("eps", "alpha")
# By setting: where its parts are registered, and what applies several one after the other.
_PARTS: Mapping[str, tuple[Registry[Any], Callable[..., Any]]] = {
    "input": (TRANSFORMS, InputChain),
    "estimator": (ESTIMATORS, Chain),
}


def parse_eps(text: str, *, norm: str = "linf") -> float:
    """Read the bound of a perturbation.

    Args:
        text: a fraction or a decimal, in units of the [0, 1] range.
        norm: for "linf" it is at most 1; an L2 ball may well be larger.

    >>> parse_eps("16/255") == 16 / 255
    True
    """
    parts = [part.strip().lower() for part in text.split("/")]
    if len(parts) > 2 or not all(_NUMBER.fullmatch(part) for part in parts) or (parts[1:] and not Fraction(parts[1])):
        raise WhorlError(f"eps must be a fraction or a decimal, such as 16/255 or 0.06; got {text!r}.")
    value = Fraction(parts[0]) / Fraction(parts[-1] if parts[1:] else 1)
    if norm == "linf" and value > 1:
        levels = f"{parts[0]}/255" if value <= 255 and len(parts) == 1 else "16/255"
        raise WhorlError(f"eps must lie in [0, 1], the range of a pixel; got {text}. Did you mean {levels}?")
    return float(value)


def build_attack(name: str, settings: Mapping[str, Any]) -> Attack:
    """Make an attack of a name and a table of settings.

    Args:
        name: one of ``whorl.attack_names()``.
        settings: as ``whorl.attack`` takes them. ``eps`` and ``alpha`` may be fractions as text; an estimator or an
            input transform is a table that names its type, as ``ESTIMATORS`` and ``TRANSFORMS`` know it, or a list of
            such tables, one applied after the other.

    Raises:
        WhorlError: an unknown name, or a setting that the attack or its part does not take.

    >>> build_attack("dim", {"eps": "8/255", "estimator": {"type": "AffineInvariant", "sigma": 0.7}}).estimator
    AffineInvariant(sigma=0.7)
    """
    return whorl.attack(name, **read_settings(settings))


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a table of settings into what ``whorl.attack`` takes; see :func:`build_attack`.

    >>> read_settings({"steps": 3, "estimator": {"type": "AffineInvariant", "sigma": "reference"}})
    {'steps': 3, 'estimator': AffineInvariant(sigma='reference')}
    """
    return {key: _value(key, value, settings) for key, value in settings.items()}


def _value(key: str, value: Any, settings: Mapping[str, Any]) -> Any:
    if key in _FRACTIONS and isinstance(value, str):
        return parse_eps(value, norm=str(settings.get("norm", "linf")))
    if isinstance(value, Mapping):
        return _part(key, value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        parts = [_part(key, item) for item in value]
        return _PARTS[key][1](*parts)
    return value


def _part(key: str, table: Mapping[str, Any]) -> Any:
    if key not in _PARTS:
        raise WhorlError(f"{key} takes no table; expected one under {' or '.join(_PARTS)} alone. Got {dict(table)!r}.")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    kind = str(given.pop("type", None))
    part = _PARTS[key][0].find(kind)
    try:
        return part(**given)
    except TypeError as error:
        raise WhorlError(f"{key}: {kind} does not take these settings: {error}.") from error
