"""Addresses of models and data sets, ``SOURCE:PLACE?setting=value&...``: one line names a model completely."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast, get_args
from urllib.parse import parse_qsl, quote

import torch

from whorl.errors import WhorlError, some_of, unknown_name
from whorl.files import regular
from whorl.models.architectures import Input
from whorl.models.classifier import Resize

T = TypeVar("T")

# What stands for itself in the settings of an address.
_PLAIN = "/\\:, ~?=()[]{}'!@$*"
# A name is a part of addresses, of lists of names and of a+b.
_NOT_IN_NAMES = re.compile(r"[:+,?\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a model comes from, read from ``SOURCE:PLACE?setting=value&...``.

    Args:
        text: the whole address.
        source: the prefix; "" for a network of the zoo.
        place: what lies between the prefix and the settings.
        settings: ``name``, ``labels``, ``arch``, ``size``, ``mean``, ``std``, ``resize``, ``num_classes``,
            ``revision``, as far as given.
        is_file: whether the place is the path of a file or folder.
        device: where the model is going to run.
    """

    text: str
    source: str
    place: str
    settings: Mapping[str, str]
    is_file: bool
    device: torch.device

    @classmethod
    def parse(cls, text: str, kinds: Mapping[str, AddressForm], device: torch.device | None = None) -> Address:
        """Read an address, refusing a source or a setting that does not exist.

        Args:
            text: the address.
            kinds: of address, by prefix; that of a name without a prefix under "".
            device: where the model is going to run; the CPU if None.
        """
        plain = ":" not in text.partition("?")[0]
        source, place, settings = split_address(f":{text}" if plain else text, kinds, "model")
        is_file = kinds[source].files or (source == "hf" and Path(place).expanduser().is_dir())
        device = device or torch.device("cpu")
        return cls(text=text, source=source, place=place, settings=settings, is_file=is_file, device=device)

    def num_classes(self) -> int | None:
        """The number of classes, if given."""
        return self._read("num_classes", int, "a whole number, as in num_classes=10")

    def name(self) -> str:
        """What to call the model: as given, or the address without its settings; of a file, the file's name."""
        given = self._read("name", _checked_name, "1 to 80 characters, without : + , ?")
        if given is not None:
            return given
        if not self.is_file:
            return self.text.partition("?")[0]
        file = Path(self.place).expanduser()
        return _NOT_IN_NAMES.sub("_", file.name or file.resolve().name)[:80]

    def seen_from(self, folder: Path) -> str:
        """The same address, its file and its labels taken from ``folder`` where they are relative and lie there."""
        place, settings = self.place, dict(self.settings)
        beside = folder / place
        if (self.is_file or self.source == "hf") and beside.exists():
            place = str(beside)
        if "labels" in settings and (folder / settings["labels"]).is_file():
            settings["labels"] = str(folder / settings["labels"])
        return with_settings(f"{self.source}:{place}" if self.source else place, settings)

    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes in the order of the logits, a line each of the file that is given, if one is."""
        if "labels" not in self.settings:
            return None
        file = Path(self.settings["labels"]).expanduser()
        try:
            lines = regular(file).read_text(encoding="utf-8-sig").rstrip().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise WhorlError(f"labels in {self.text!r} must be a text file, a class a line ({error}).") from error
        if not lines or not all(line.strip() for line in lines):
            raise WhorlError(f"{file}: expected a class name in every line; got {some_of(lines)}.")
        return tuple(line.strip() for line in lines)

    def input(self, default: Input | None) -> Input:
        """What the network expects: the default, with the settings on top.

        Without a default the size must be given, and images go in as they are, in [0, 1].
        """
        size = self._read("size", _pair, "a height and a width, as in size=224 or size=224x320")
        if default is None:
            if size is None:
                raise WhorlError(f"{self.text!r} does not give the size of its input. Append ?size=224, or whichever.")
            default = Input(size=size, mean=(0.0,) * 3, std=(1.0,) * 3)
        mean = self._read("mean", _numbers, "one number per channel, as in mean=0.5,0.5,0.5")
        std = self._read("std", _numbers, "one number per channel, as in std=0.5,0.5,0.5")
        resize = self._read("resize", _resize, f"one of {', '.join(get_args(Resize))}")
        return replace(
            default,
            size=size or default.size,
            mean=mean or default.mean,
            std=std or default.std,
            resize=resize or default.resize,
        )

    def _read(self, key: str, convert: Callable[[str], T], expected: str) -> T | None:
        if key not in self.settings:
            return None
        try:
            return convert(self.settings[key])
        except ValueError as error:
            raise WhorlError(f"{key} in {self.text!r} must be {expected}; got {self.settings[key]!r}.") from error


@dataclass(frozen=True, kw_only=True)
class AddressForm:
    """How an address is written: which settings may follow its prefix, what it looks like, whether it holds a path."""

    settings: tuple[str, ...] = ()
    usage: str
    files: bool = False


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """Append settings to an address.

    >>> with_settings("onnx:net.onnx?size=224", {"name": "shop-v3", "labels": "a+b.txt"})
    'onnx:net.onnx?size=224&name=shop-v3&labels=a%2Bb.txt'
    """
    query = "&".join(f"{key}={quote(value, safe=_PLAIN)}" for key, value in settings.items())
    return f"{text}{'&' if '?' in text else '?'}{query}" if query else text


def split_address(text: str, kinds: Mapping[str, AddressForm], what: str) -> tuple[str, str, dict[str, str]]:
    """Take ``SOURCE:PLACE?setting=value&...`` apart: source, place, settings.

    Args:
        text: the address.
        kinds: by prefix.
        what: is found there, as in "model".

    Raises:
        WhorlError: no such source or setting, or no place.
    """
    source, _, rest = text.partition(":")
    if source not in kinds:
        raise unknown_name(f"{what} source", source, filter(None, kinds), hint="Write it as SOURCE:PLACE.")
    place, _, query = rest.partition("?")
    if not place:
        raise WhorlError(f"{text!r} does not say which {what}. Expected {kinds[source].usage}.")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    for key in settings:
        if key not in kinds[source].settings:
            hint = f"Expected {kinds[source].usage}."
            raise unknown_name(f"setting of {source or what}:", key, kinds[source].settings, hint=hint)
    return source, place, settings


def is_name(text: str) -> bool:
    """Whether a model may be called so: 1 to 80 characters, and none that means something in an address.

    >>> is_name("shop-v3"), is_name("a+b")
    (True, False)
    """
    return 1 <= len(text) <= 80 and not _NOT_IN_NAMES.search(text)


def _checked_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(text)
    return text


def _pair(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _resize(text: str) -> Resize:
    if text not in get_args(Resize):
        raise ValueError(text)
    return cast(Resize, text)
