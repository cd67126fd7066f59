"""TOML files, and the records that they hold, with every fault of a file in one list."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from whorl.errors import Fault, SettingsError, WhorlError, quoted, unknown_name
from whorl.files import regular

Model = TypeVar("Model", bound=BaseModel)

# By pydantic's name of a fault: what was expected, with what pydantic knows of it.
_EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "mapping_type": "a table",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "path_type": "text",
    "is_instance_of": "text",
    "none_required": "nothing",
    "greater_than_equal": "a number >= {ge}",
    "less_than_equal": "a number <= {le}",
    "literal_error": "{expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "missing": "it to be there",
    "string_pattern_mismatch": "letters, digits and . _ -, at most 80, the first a letter or digit",
}


_PYTHONS = re.compile(r",? or (a function|a Tensor|a Module|None)\b")


class TomlTable(BaseModel):
    """A record that a TOML file holds: frozen, with no setting that is not known, and no value of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def read_toml(place: Traversable, what: str) -> dict[str, Any]:
    """Read a TOML file; a byte-order mark before it does no harm.

    Args:
        place: the file.
        what: it was expected to be, as in "with a profile".

    Raises:
        WhorlError: it cannot be read, or is not TOML.
    """
    try:
        text = (regular(place) if isinstance(place, Path) else place).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: bytes that are no text, or a NUL in the path
        raise WhorlError(f"{place} cannot be read ({error}). Expected a TOML file {what}.") from error
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise WhorlError(f"{place} is not TOML that can be read: its lists or tables are nested too deep.") from error
    except tomllib.TOMLDecodeError as error:
        raise WhorlError(f"{place} is not TOML: {str(error).splitlines()[0].rstrip('.')}.") from error
    except ValueError as error:  # Python does not read such a number
        raise WhorlError(f"{place} is not TOML that can be read: a number has thousands of digits.") from error


def validated(kind: type[Model], content: Mapping[str, Any], where: str, *, faults: Sequence[Fault] = ()) -> Model:
    """Make a record of what a file or a call says.

    Args:
        kind: of record.
        content: settings by name.
        where: they come from, for the message; nothing for a call.
        faults: what is known to be wrong already.

    Raises:
        SettingsError: unknown settings, missing ones, or bad values; all of them.
    """
    try:
        made = kind.model_validate(content)
    except ValidationError as error:
        raise SettingsError([*faults, *_faults(kind, content, error)], where=where) from error
    if faults:
        raise SettingsError(faults, where=where)
    return made


def _faults(kind: type[BaseModel], content: Mapping[str, Any], error: ValidationError) -> list[Fault]:
    """The faults that pydantic found, in our words, each at a place once."""
    found: dict[tuple[str | int, ...], list[Fault]] = {}
    for item in error.errors(include_url=False):
        place = _place(content, item["loc"], absent=item["type"] == "missing")
        for fault in _worded(kind, place, item):
            found.setdefault(fault.place, []).append(fault)
    faults = []
    for place, here in found.items():
        # Of a value that may be of two kinds, the kind that it nearly is has faults further in.
        if any(other[: len(place)] == place and other != place for other in found) and here[0].got is not None:
            continue
        sentences = [fault for fault in here if fault.got is None]
        expected = ", or ".join(dict.fromkeys(fault.expected for fault in here))
        faults.append(sentences[0] if sentences else Fault(place, expected, here[0].got))
    return faults


def _place(content: Any, loc: Sequence[str | int], *, absent: bool) -> tuple[str | int, ...]:
    """Where a fault is: its location, without the names that pydantic gives to kinds of values.

    Args:
        content: of the file.
        loc: as pydantic has it.
        absent: whether the last part is what is missing.
    """
    place: list[str | int] = []
    for index, part in enumerate(loc):
        inside = content if isinstance(content, Mapping) else _numbered(content)
        if part in inside:
            content = inside[part]
        elif index + 1 < len(loc) or not absent:
            continue
        place.append(part)
    return tuple(place)


def _numbered(content: Any) -> Mapping[Any, Any]:
    return dict(enumerate(content)) if isinstance(content, list | tuple) else {}


def _worded(record: type[BaseModel], place: tuple[str | int, ...], item: Any) -> list[Fault]:
    kind, context = item["type"], item.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, SettingsError):
        return [in_toml(fault.within(*place)) for fault in cause.faults]
    if kind in ("value_error", "assertion_error"):
        return [Fault(place, str(cause).rstrip("."))]
    if kind == "extra_forbidden":
        known = _names_at(record, place[:-1])
        return [Fault(place, str(unknown_name("setting", str(place[-1]), known, hint="Or remove it.")).rstrip("."))]
    if kind == "missing":
        return [Fault(place, f"missing, {quoted(place[-1])} must be there")]
    expected = _EXPECTED.get(kind, "another value").format(**context)
    return [in_toml(Fault(place, expected, quoted(item["input"])))]


def _names_at(record: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The names that a table may hold, found by the types that lead to it."""
    for part in place:
        field = record.model_fields.get(str(part))
        inner = None if field is None else _record_in(field.annotation)
        record = inner or record
    return list(record.model_fields)


def _record_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_record_in, get_args(annotation))), None)


def in_toml(fault: Fault) -> Fault:
    """A fault in the words of a file, which has small letters for truth, and can hold nothing that Python alone has.

    >>> print(in_toml(Fault(("fast",), "True or False, or None", "1")))
    fast: expected true or false, got 1
    """
    expected = _PYTHONS.sub("", fault.expected.replace("True or False", "true or false"))
    return Fault(fault.place, expected, {"True": "true", "False": "false"}.get(fault.got or "", fault.got))
