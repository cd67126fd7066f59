"""Settings given beside a file: overrides such as ``attacks.0.eps=8/255``, and sweeps over several values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeVar

from whorl.errors import Fault, SettingsError, quoted
from whorl.runs.folder import attack_label
from whorl.runs.settings import parse_fraction

MOST_SWEPT = 1000
"""Attacks that a declaration may have after its sweeps."""
EVERY = "*"
"""In a path: all attacks."""
SWEPT = "@"
"""In a label: what follows was swept."""
_QUOTING, _OPENING, _CLOSING = "\"'", "[{", "]}"
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_VALUE = 24
_SWEPT_FIELDS = ("settings", "seed")

Place = tuple[str | int, ...]
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Override:
    """What an option says.

    Attributes:
        option: "set" or "sweep".
        path: where, from the outside in.
        values: one, or those that are swept.
        texts: the same as they were typed.
    """

    option: Literal["set", "sweep"]
    path: tuple[str, ...]
    values: tuple[Any, ...]
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"--{self.option} {'.'.join(self.path)}"


def parse_value(text: str) -> Any:
    """Read a value as TOML writes it; besides, fractions are numbers, and a word without quotation marks is text.

    Raises:
        SettingsError: a list, a table or a text in quotation marks that is not TOML.

    >>> [parse_value(text) for text in ("8/255", "50", "true", "ce", "[0, 30]", '{type = "Gain"}')]
    [0.03137254901960784, 50, True, 'ce', [0, 30], {'type': 'Gain'}]
    """
    stripped = text.strip()
    if "/" in stripped and (number := parse_fraction(stripped)) is not None:
        return number
    try:
        read = tomllib.loads(f"value = {stripped}") if "\n" not in stripped and "\r" not in stripped else {}
    except (ValueError, RecursionError) as error:  # not TOML, a number of thousands of digits, or nested too deep
        if stripped[:1] in (*_QUOTING, *_OPENING):
            expected = "a value as TOML writes it, such as 8/255, 50, true, [0, 30] or {type = ...}"
            raise SettingsError([Fault((), expected, quoted(text))]) from error
        read = {}
    return read["value"] if set(read) == {"value"} else text


def parse_override(text: str, option: Literal["set", "sweep"] = "set") -> Override:
    """Read ``PATH=VALUE``, or of a sweep ``PATH=VALUE,VALUE,...``.

    Raises:
        SettingsError: it is not written so.

    >>> parse_override("attacks.0.eps=4/255,8/255", "sweep").texts
    ('4/255', '8/255')
    """
    path, equals, given = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts):
        example = "data.limit=50" if option == "set" else "attacks.0.eps=4/255,8/255"
        raise SettingsError([Fault((), f"--{option} takes PATH=VALUE, such as {example}; got {quoted(text)}")])
    texts = (given,) if option == "set" else tuple(part.strip() for part in _split(given))
    if option == "sweep" and (len(set(texts)) != len(texts) or not all(texts)):
        said = f"--sweep {'.'.join(parts)} takes values joined by commas, each once, such as 4/255,8/255"
        raise SettingsError([Fault((), f"{said}; got {quoted(given)}")])
    try:
        values = tuple(parse_value(one) for one in texts)
    except SettingsError as error:
        named = f"--{option} {'.'.join(parts)}: "
        raise SettingsError([Fault((), named + str(fault)) for fault in error.faults]) from error
    return Override(option=option, path=parts, values=values, texts=texts)


def _split(text: str) -> Iterator[str]:
    """Split at commas, but not inside lists, tables and quotation marks."""
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(text):
        if quote or letter in _QUOTING:
            quote = "" if letter == quote else quote or letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings of one attack, ``NAME=VALUE`` each, as ``whorl.runs.settings.build_attack`` takes them.

    Raises:
        SettingsError: whatever is wrong with them, all of it.

    >>> settings_of(["momentum=1/2", "estimator.type=AffineInvariant", "estimator.sigma=0.7"])
    {'momentum': 0.5, 'estimator': {'type': 'AffineInvariant', 'sigma': 0.7}}
    """
    made, faults = overridden({}, texts)
    if faults:
        raise SettingsError(faults)
    return made


def overridden(
    content: Mapping[str, Any],
    overrides: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    *,
    fields: Collection[str] = (),
) -> tuple[dict[str, Any], list[Fault]]:
    """Apply overrides, then sweeps, to what a file declares.

    A path leads through tables by name and through lists by number, from 0; ``attacks.*`` are all attacks, and an
    attack's label will do for its number. What an attack has no key for is one of its settings, so that
    ``attacks.0.eps`` is ``attacks.0.settings.eps``. A sweep makes an attack of each combination of the values that
    concern it: labels end in ``@eps-8-255``, and ``swept`` has the values.

    Args:
        content: of the file.
        overrides: ``PATH=VALUE`` each; of two for one place the later counts.
        sweeps: ``PATH=VALUE,VALUE,...`` each.
        fields: what an attack has keys for.

    Returns:
        What is declared then, not checked yet, and whatever is wrong with the paths.
    """
    faults: list[Fault] = []
    if not overrides and not sweeps:
        return dict(content), faults
    try:
        made = deepcopy(dict(content))
    except RecursionError:
        return dict(content), [Fault((), "lists or tables are nested too deep to change anything")]

    def tried(do: Callable[..., Made], *given: Any) -> Made | None:
        try:
            return do(*given)
        except SettingsError as error:
            faults.extend(error.faults)
            return None

    for text in overrides:
        tried(lambda text: _set(made, parse_override(text), fields), text)
    axes: dict[int, dict[Place, Override]] = {}
    for text in sweeps:
        tried(lambda text: _sweep(made, parse_override(text, "sweep"), fields, axes), text)
    tried(_expand, made, axes)
    return made, faults


def _set(content: dict[str, Any], one: Override, fields: Collection[str]) -> None:
    for place in _places(content, one, fields):
        _put(content, place, one.values[0], one)


def _sweep(
    content: dict[str, Any], one: Override, fields: Collection[str], axes: dict[int, dict[Place, Override]]
) -> None:
    """Note which attacks a sweep concerns."""
    every = Override(option="sweep", path=("attacks", EVERY, "seed"), values=one.values, texts=one.texts)
    for place in _places(content, every if one.path == ("seed",) else one, fields):
        if place[0] != "attacks" or len(place) < 3 or place[2] not in _SWEPT_FIELDS:
            reason = "settings of attacks and the seed can be swept: sources, targets and poses are lists already, and "
            raise SettingsError([Fault((), f"{one}: only {reason}a run is on one set of images")])
        axes.setdefault(int(place[1]), {})[place[2:]] = one


def _expand(content: dict[str, Any], axes: Mapping[int, Mapping[Place, Override]]) -> None:
    """Put an attack for each combination of its swept values in place of each that is swept."""
    if not axes:
        return
    expanded: list[Any] = []
    for number, entry in enumerate(content["attacks"]):
        own = axes.get(number, {})
        for chosen in product(*(range(len(one.values)) for one in own.values())):
            if len(expanded) >= MOST_SWEPT:
                raise SettingsError(
                    [Fault(("--sweep",), f"sweeps may make {MOST_SWEPT:,} attacks at most; take fewer")]
                )
            expanded.append(_version(entry, own, chosen))
    content["attacks"] = expanded


def _version(entry: Any, own: Mapping[Place, Override], chosen: Sequence[int]) -> Any:
    """An attack with one combination of its swept values."""
    if not own:
        return entry
    made: dict[str, Any] = {"attacks": [deepcopy(entry)]}
    label, swept = _title(entry), {}
    for (place, one), which in zip(own.items(), chosen, strict=True):
        value, text = one.values[which], _UNFIT.sub("-", one.texts[which])
        _put(made, ("attacks", 0, *place), value, one)
        name = ".".join(str(part) for part in (place[1:] if place[0] == "settings" else place))
        plain = isinstance(value, bool | int | float | str) and len(text) <= _LONGEST_VALUE
        swept[name] = value if isinstance(value, bool | int | float | str) else one.texts[which]
        label += f"{SWEPT}{_UNFIT.sub('-', name)}-{text if plain else which + 1}"
    [version] = made["attacks"]
    return {**version, "label": label, "swept": swept}


def _places(content: Mapping[str, Any], one: Override, fields: Collection[str]) -> list[Place]:
    """Where a path leads: one place, or one in each attack."""
    first, *rest = one.path
    if first != "attacks" or not rest:
        return [one.path]
    entries = content.get("attacks")
    if not isinstance(entries, list):
        raise SettingsError([Fault((), f"{one}: there is no list of attacks to change")])
    which, *inside = rest
    place: tuple[str, ...] = tuple(inside)
    if place and place[0] not in fields:
        place = ("settings", *place)
    return [("attacks", number, *place) for number in _numbers(entries, which, one)]


def _numbers(entries: Sequence[Any], which: str, one: Override) -> list[int]:
    """The attacks that a part of a path names: all, one by its number, or those of a label."""
    titles = [_title(entry) for entry in entries]
    if which == EVERY:
        return list(range(len(entries)))
    found = [int(which)] if _is_number(which) and int(which) < len(entries) else []
    found = found or [number for number, title in enumerate(titles) if title == which]
    if not found:
        listed = ", ".join(f"{number} ({title})" for number, title in enumerate(titles[:20]))
        raise SettingsError([Fault((), f"{one}: there is no attack {quoted(which)}; there are {listed}, and *")])
    return found


def _title(entry: Any) -> str:
    """What a declared attack is called, if it is one."""
    name = entry.get("label") or entry.get("name") if isinstance(entry, Mapping) else entry
    return attack_label(name) if isinstance(name, str) else "?"


def _put(content: dict[str, Any], place: Place, value: Any, one: Override) -> None:
    """Put a value into nested tables and lists; tables that are not there are made."""
    inside: Any = content
    for depth, part in enumerate(place):
        last = depth == len(place) - 1
        if isinstance(inside, list):
            if not _is_number(str(part)) or int(part) >= len(inside):
                said = f"there is no entry {quoted(part)}; there are {len(inside)}, from 0"
                raise SettingsError([Fault((), f"{one}: {said}")])
            key: Any = int(part)
            if not last and place[:depth] == ("attacks",) and isinstance(inside[key], str):
                inside[key] = {"name": inside[key]}  # a name alone will do for an attack without settings
        elif isinstance(inside, dict):
            key = part
        else:
            raise SettingsError([Fault((), f"{one}: {quoted(inside)} is no table, so it has no {quoted(part)}")])
        if last:
            inside[key] = deepcopy(value)
        else:
            inside = inside[key] if isinstance(inside, list) else inside.setdefault(key, {})


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,6}", text) is not None
