"""Networks of a declaration by name: an address becomes a short name, and a table gives it one, and labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whorl.errors import Fault, SettingsError, WhorlError, quoted
from whorl.models import model_names
from whorl.models.address import with_settings
from whorl.models.sources import parse
from whorl.runs.networks import is_address, split_target
from whorl.runs.toml import TomlTable, validated


class ModelSpec(TomlTable):
    """One network. In a declaration its address alone will do.

    Attributes:
        address: as ``whorl.load_model`` takes it.
        name: what to call it in tables and paths, and elsewhere in the declaration; "" leaves it to the address.
        labels: a text file with a class a line, in the order of the logits; "" leaves them to the network.
    """

    address: str
    name: str = ""
    labels: str = ""

    @property
    def text(self) -> str:
        """The whole address."""
        given = {"name": self.name, "labels": self.labels}
        return with_settings(self.address, {key: value for key, value in given.items() if value})


def checked_model(given: Any) -> Any:
    """A network's name, or whatever it is; if a table is still there, say what is wrong with it.

    Raises:
        WhorlError: it is a table that is no :class:`ModelSpec`, or whose address, name or labels are none.
    """
    if isinstance(given, Mapping):
        parse(validated(ModelSpec, given, "").text).name()
    return given


def named_models(content: Mapping[str, Any]) -> dict[str, Any]:
    """Put names in the place of addresses and tables, and the addresses under ``models``.

    Args:
        content: of a declaration, checked or not; what is wrong with it is left as it is, for others to say.

    Raises:
        WhorlError: two networks have one name, or one has that of the zoo's.

    >>> given = {"sources": [{"address": "onnx:net.onnx", "name": "shop"}], "targets": ["file:a/b.pt?arch=x+jpeg"]}
    >>> named = named_models(given)
    >>> named["sources"], named["targets"], named["models"]["shop"]
    (['shop'], ['b.pt+jpeg'], 'onnx:net.onnx?name=shop')
    """
    made, given = dict(content), content.get("models", {})
    sound = isinstance(given, Mapping) and all(isinstance(text, str) for text in given.values())
    models = {str(name): _called(str(name), text) for name, text in given.items()} if sound else {}
    for field in ("sources", "targets"):
        if field in content:
            made[field] = _named(content[field], (field,), models)
    attacks = content.get("attacks")
    if isinstance(attacks, list | tuple):
        made["attacks"] = [_attack(one, place, models) for place, one in enumerate(attacks)]
    return {**made, "models": models if sound else given}


def seen_from(folder: Path, address: str) -> str:
    """The same address, with its file and its labels taken from a folder, where they lie there."""
    return parse(address).seen_from(folder)


def _called(name: str, text: str) -> str:
    """An address whose network is called by a name."""
    try:
        return text if parse(text).name() == name else with_settings(text, {"name": name})
    except WhorlError:  # said when it is loaded
        return text


def _attack(given: Any, place: int, models: dict[str, str]) -> Any:
    where: tuple[str | int, ...] = ("attacks", place, "sources")
    if isinstance(given, Mapping) and given.get("sources"):
        return {**given, "sources": _named(given["sources"], where, models)}
    if getattr(given, "sources", None):  # a record already
        return given.model_copy(update={"sources": tuple(_named(given.sources, where, models))})
    return given


def _named(listed: Any, where: tuple[str | int, ...], models: dict[str, str]) -> Any:
    if not isinstance(listed, list | tuple):
        return listed
    return [_name(one, (*where, place), models) for place, one in enumerate(listed)]


def _name(given: Any, where: tuple[str | int, ...], models: dict[str, str]) -> Any:
    layers: tuple[str, ...] = ()
    try:
        if isinstance(given, Mapping):
            text = validated(ModelSpec, given, "").text
        elif not isinstance(given, str) or not is_address(given):
            return given
        else:
            text, layers = split_target(given)
        name = parse(text).name()
    except WhorlError:  # said where its place is known, or when it is loaded
        return given
    if name == text:
        return given
    if name in model_names():
        wanted = "another name, as name=mine gives it: a network of the zoo has this one"
        raise SettingsError([Fault(where, wanted, quoted(name))])
    if models.setdefault(name, text) != text:
        raise SettingsError([Fault(where, f"a name of its own, for {models[name]} is called so", quoted(name))])
    return "+".join((name, *layers))
