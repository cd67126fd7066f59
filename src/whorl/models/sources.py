"""Models from outside the zoo, by prefix: timm, torchvision, a weight file, an ONNX file, your own Python.

Settings follow the address like a query string, so that one line names a model completely, on the command line and in a
manifest: ``file:weights.safetensors?arch=timm:resnet50&num_classes=10``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, get_args
from urllib.parse import parse_qsl

import torch
from torch import nn

from whorl.errors import WhorlError, some_of, unknown_name
from whorl.files import sha256_of
from whorl.models import _torchvision
from whorl.models.architectures import Input, build, check_torchvision_name, labels_for, timm_input, torchvision_input
from whorl.models.classifier import Classifier, Resize, count_classes
from whorl.models.code import code_of, external_data, sha256_of_all
from whorl.models.networks import NETWORKS
from whorl.models.weights import load_strict, read_state_dict, state_dict_sha256

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a model comes from, read from ``SOURCE:PLACE?setting=value&...``.

    Args:
        text: the whole address; it becomes the model's name, unless the settings name it.
        source: the prefix.
        place: what lies between the prefix and the settings.
        settings: ``name``, ``labels``, ``arch``, ``size``, ``mean``, ``std``, ``resize``, ``num_classes``, as far as
            given.
        device: where the model is going to run.
    """

    text: str
    source: str
    place: str
    settings: Mapping[str, str]
    device: torch.device

    @classmethod
    def parse(cls, text: str, device: torch.device) -> Address:
        """Read an address, refusing a source or a setting that does not exist.

        >>> Address.parse("onnx:net.onnx?size=224", torch.device("cpu")).settings
        {'size': '224'}
        """
        source, place, settings = split_address(text, SOURCES, "model")
        return cls(text=text, source=source, place=place, settings=settings, device=device)

    def num_classes(self) -> int | None:
        """The number of classes, if given."""
        return self._read("num_classes", int, "a whole number, as in num_classes=10")

    def name(self) -> str:
        """What to call the model: as given, or the whole address."""
        return self._read("name", _checked_name, "1 to 80 characters, without : + , ?") or self.text

    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes in the order of the logits, a line each of the file that is given, if one is."""
        if "labels" not in self.settings:
            return None
        file = Path(self.settings["labels"]).expanduser()
        try:
            lines = file.read_text(encoding="utf-8-sig").rstrip().splitlines()
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
                raise WhorlError(f"{self.text!r} does not tell the size of its input. Append ?size=224, or whichever.")
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


class AddressKind(Protocol):
    """What a prefix stands for: which settings may follow, and how to write it."""

    @property
    def settings(self) -> tuple[str, ...]: ...  # noqa: D102 - see above
    @property
    def usage(self) -> str: ...  # noqa: D102 - see above


def split_address(text: str, kinds: Mapping[str, AddressKind], what: str) -> tuple[str, str, dict[str, str]]:
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
        raise unknown_name(f"{what} source", source, kinds, hint="Write it as SOURCE:PLACE.")
    place, _, query = rest.partition("?")
    if not place:
        raise WhorlError(f"{text!r} does not say which {what}. Expected {kinds[source].usage}.")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    for key in settings:
        if key not in kinds[source].settings:
            hint = f"Expected {kinds[source].usage}."
            raise unknown_name(f"setting of {source}:", key, kinds[source].settings, hint=hint)
    return source, place, settings


def made_by_factory(text: str, place: str) -> tuple[Any, Any]:
    """Call what ``PACKAGE.MODULE:FACTORY`` names: the factory, and what it made.

    Args:
        text: the whole address, for errors.
        place: the part after ``python:``.

    Raises:
        WhorlError: it names no factory, none that can be imported, or one that fails.
    """
    module, _, attribute = place.partition(":")
    if not attribute:
        raise WhorlError(f"{text!r} does not name a factory. Expected {SOURCES['python'].usage}.")
    try:
        factory: Any = importlib.import_module(module)
        for part in attribute.split("."):
            factory = getattr(factory, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise WhorlError(
            f"{text!r} cannot be imported ({error}). Is it installed, in this folder, or on PYTHONPATH?"
        ) from error
    except Exception as error:  # whatever a module of somebody's own does as it is imported
        raise WhorlError(f"{text!r} cannot be imported: {type(error).__name__}: {error}.") from error
    try:
        return factory, factory()
    except WhorlError:
        raise
    except Exception as error:  # likewise
        raise WhorlError(f"{attribute} of {text!r} raised {type(error).__name__}: {error}.") from error


def load(address: Address) -> Classifier:
    """Load the model at an address."""
    name, labels = address.name(), address.labels()  # what is wrong with them is found before anything is loaded
    classifier = SOURCES[address.source].load(address)
    if "name" in address.settings:
        classifier.name = name
    if labels is not None:
        if len(labels) != classifier.num_classes:
            raise WhorlError(
                f"{address.settings['labels']}: expected a line for each of the {classifier.num_classes} classes of "
                f"{name}, in the order of its logits; got {len(labels)}."
            )
        classifier.labels = labels
    return classifier


def _from_timm(address: Address) -> Classifier:
    timm, name = _torchvision.timm(), address.place
    on_the_hub = name.startswith(("hf-hub:", "hf_hub:"))  # timm takes these too, but cannot list them
    if not on_the_hub and not timm.is_model_pretrained(name):
        known = {*timm.list_pretrained(), *timm.list_models(pretrained=True)}
        hint = "`timm.list_pretrained()` lists all that have weights."
        raise unknown_name("timm model", name, known, hint=hint)
    where = (
        "They come from the Hugging Face hub: check the connection (HF_ENDPOINT names a mirror), set HF_HOME to a "
        "cache that holds them, or download them elsewhere and load them with "
        f"file:PATH?arch=timm:{name.partition('.')[0]}."
    )
    net = _from_hub(f"timm:{name}", where, lambda: timm.create_model(name, pretrained=True))
    return _classifier(address, net, timm_input(net), labels=vars(net)["pretrained_cfg"].get("label_names"))


def _from_torchvision(address: Address) -> Classifier:
    models = _torchvision.torchvision().models
    name, _, tag = address.place.partition(".")
    check_torchvision_name(name)
    published = models.get_model_weights(name)
    if tag and tag not in published.__members__:
        hint = f"Leave it out for the default, {published.DEFAULT.name}."
        raise unknown_name(f"weights of {name}", tag, published.__members__, hint=hint)
    weights = published[tag] if tag else published.DEFAULT
    where = (
        f"They come from {weights.url}: check the connection, set TORCH_HOME to a cache that holds the file, or "
        f"download it elsewhere and load it with file:PATH?arch=torchvision:{name}."
    )
    show = sys.stderr.isatty()
    net = _from_hub(f"torchvision:{name}", where, lambda: models.get_model(name, weights=weights, progress=show))
    return _classifier(address, net, torchvision_input(weights), labels=weights.meta["categories"])


def _from_file(address: Address) -> Classifier:
    path, arch = Path(address.place).expanduser(), address.settings.get("arch")
    if not arch:
        raise WhorlError(f"{address.text!r} does not tell the architecture. Expected {SOURCES['file'].usage}.")
    state = read_state_dict(path)
    listed = NETWORKS.get(arch)
    net, expected = build(listed.architecture if listed else arch, address.num_classes())
    load_strict(net, state, str(path))
    return _classifier(address, net, listed.input if listed else expected, weights_sha256=sha256_of(path))


def _from_onnx(address: Address) -> Classifier:
    from whorl.models.onnx_net import OnnxNet

    path = Path(address.place).expanduser()
    net = OnnxNet(path, address.device)
    expected = None
    if net.size:
        channels = net.channels or 3
        expected = Input(size=net.size, mean=(0.0,) * channels, std=(1.0,) * channels)
    return _classifier(address, net, expected, weights_sha256=sha256_of_all([path, *external_data(path)]))


def _from_python(address: Address) -> Classifier:
    factory, made = made_by_factory(address.text, address.place)
    attribute = address.place.partition(":")[2]
    if isinstance(made, Classifier):
        if address.settings.keys() - set(_NAMES):
            raise WhorlError(f"{attribute} returns a finished Classifier; remove the settings from {address.text!r}.")
        made.code_sha256 = sha256_of_all(code_of(made, factory))
        return made
    if not isinstance(made, nn.Module):
        raise WhorlError(f"{attribute} must return a whorl.Classifier or an nn.Module; got {type(made).__name__}.")
    classifier = _classifier(address, made, None)
    classifier.code_sha256 = sha256_of_all(code_of(made, factory))
    return classifier


def _from_hub(what: str, where: str, make: Callable[[], nn.Module]) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=[]):
            return make()
    except Exception as error:  # each library, and each version of it, has its own network errors
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise WhorlError(f"the weights of {what} could not be loaded ({reason}). {where}") from error


def _classifier(
    address: Address,
    net: nn.Module,
    expected: Input | None,
    *,
    labels: Sequence[str] | None = None,
    weights_sha256: str | None = None,
) -> Classifier:
    given = address.input(expected)
    count = len(labels) if labels else address.num_classes() or count_classes(net, given.size, len(given.mean))
    return Classifier(
        net,
        size=given.size,
        mean=given.mean,
        std=given.std,
        resize=given.resize,
        num_classes=count,
        labels=labels or labels_for(count),
        name=address.text,
        weights_sha256=weights_sha256 or state_dict_sha256(net),
    )


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of address: what loads it, which settings it takes, and how to write it."""

    load: Callable[[Address], Classifier]
    settings: tuple[str, ...]
    usage: str


_NAMES = ("name", "labels")
_INPUT = (*_NAMES, "size", "mean", "std", "resize")

SOURCES = {
    "timm": Source(load=_from_timm, settings=_INPUT, usage="timm:NAME, as in timm:inception_v3.tf_in1k"),
    "torchvision": Source(
        load=_from_torchvision, settings=_INPUT, usage="torchvision:NAME or torchvision:NAME.WEIGHTS"
    ),
    "file": Source(
        load=_from_file,
        settings=("arch", "num_classes", *_INPUT),
        usage="file:PATH?arch=NAME, where NAME is timm:NAME, torchvision:NAME or a model of the zoo",
    ),
    "onnx": Source(
        load=_from_onnx, settings=_INPUT, usage="onnx:PATH, as in onnx:net.onnx?mean=0.5,0.5,0.5&std=0.5,0.5,0.5"
    ),
    "python": Source(load=_from_python, settings=("num_classes", *_INPUT), usage="python:PACKAGE.MODULE:FACTORY"),
}


def _checked_name(text: str) -> str:
    if not re.fullmatch(r"[^:+,?\x00-\x1f\x7f]{1,80}", text):
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
