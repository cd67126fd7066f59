"""Models from outside the zoo, by prefix: timm, torchvision, Hugging Face, files of several kinds, your own Python.

Settings follow the address like a query string, so that one line names a model completely, on the command line and in a
manifest: ``file:weights.safetensors?arch=timm:resnet50&num_classes=10``.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whorl.errors import WhorlError, first_line, reason, unknown_name
from whorl.files import sha256_of
from whorl.models import _torchvision
from whorl.models.address import Address, AddressForm, is_name
from whorl.models.architectures import Input, build, check_torchvision_name, labels_for, timm_input, torchvision_input
from whorl.models.classifier import Classifier, count_classes
from whorl.models.code import code_of, external_data, settings_sha256, sha256_of_all
from whorl.models.networks import NETWORKS
from whorl.models.weights import load_strict, read_state_dict, state_dict_sha256


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
    except (Exception, SystemExit) as error:  # whatever a module of somebody's own does; to exit would be an answer
        raise WhorlError(f"{text!r} cannot be imported: {type(error).__name__}: {error}.") from error
    try:
        return factory, factory()
    except WhorlError:
        raise
    except (Exception, SystemExit) as error:  # likewise
        raise WhorlError(f"{attribute} of {text!r} raised {type(error).__name__}: {error}.") from error


def parse(text: str, device: torch.device | None = None) -> Address:
    """Read the address of a model, or the name of one of the zoo, which takes a name and labels too.

    >>> parse("file:runs/7/shop.pth?arch=resnet18").name()
    'shop.pth'
    >>> parse("onnx:net.onnx?size=224&name=shop-v3").name()
    'shop-v3'
    """
    return Address.parse(text, {**SOURCES, "": _ZOO}, device)


def own_name(text: str) -> str | None:
    """What the factory at a ``python:`` address calls its classifier; None of what has no name but its address.

    >>> own_name("resnet18"), own_name("python:nobody:knows")
    (None, None)
    """
    try:
        address = parse(text)
        if address.source != "python" or "name" in address.settings:
            return None
        made = made_by_factory(address.text, address.place)[1]
    except WhorlError:  # said when it is loaded
        return None
    return made.name if isinstance(made, Classifier) and is_name(made.name) else None


def load(address: Address, from_zoo: Callable[[Address], Classifier]) -> Classifier:
    """Load the model at an address; ``from_zoo`` loads those that have no prefix."""
    name, labels = address.name(), address.labels()  # what is wrong with them is found before anything is loaded
    classifier = SOURCES[address.source].load(address) if address.source else from_zoo(address)
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
        raise WhorlError(f"{address.text!r} does not name the architecture. Expected {SOURCES['file'].usage}.")
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


def _from_torchscript(address: Address) -> Classifier:
    path = Path(address.place).expanduser()
    if not path.is_file():
        raise WhorlError(f"there is no TorchScript file {path}.")
    try:
        net: nn.Module = torch.jit.load(str(path), map_location=address.device)
    except (RuntimeError, ValueError) as error:
        raise WhorlError(f"{path} is not a TorchScript file ({first_line(error)}). A state dict is a file:.") from error
    return _classifier(address, net, None, weights_sha256=sha256_of(path))


def _from_transformers(address: Address) -> Classifier:
    from whorl.models.transformers_net import load_transformers

    net, expected, labels = load_transformers(address.place, address.settings)
    return _classifier(address, net, expected, labels=labels)


def _from_python(address: Address) -> Classifier:
    factory, made = made_by_factory(address.text, address.place)
    attribute = address.place.partition(":")[2]
    if isinstance(made, Classifier):
        if address.settings.keys() - set(_NAMES):
            raise WhorlError(f"{attribute} returns a finished Classifier; remove the settings from {address.text!r}.")
        made.code_sha256 = _code_sha256(made.net, factory)
        return made
    if not isinstance(made, nn.Module):
        raise WhorlError(f"{attribute} must return a whorl.Classifier or an nn.Module; got {type(made).__name__}.")
    classifier = _classifier(address, made, None)
    classifier.code_sha256 = _code_sha256(made, factory)
    return classifier


def _code_sha256(net: nn.Module, factory: object) -> str:
    parts = (sha256_of_all(code_of(net, factory)), settings_sha256(net))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _from_hub(what: str, where: str, make: Callable[[], nn.Module]) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=[]):
            return make()
    except Exception as error:  # each library, and each version of it, has its own network errors
        raise WhorlError(f"the weights of {what} could not be loaded ({reason(error)}). {where}") from error


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
        **vars(given),
        num_classes=count,
        labels=labels or labels_for(count),
        name=address.name(),
        weights_sha256=weights_sha256 or state_dict_sha256(net),
    )


@dataclass(frozen=True, kw_only=True)
class Source(AddressForm):
    """A kind of address, and what loads it."""

    load: Callable[[Address], Classifier]


_NAMES = ("name", "labels")
_ZOO = AddressForm(settings=_NAMES, usage="NAME, as in resnet18?name=ours; `whorl models` lists all")
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
        files=True,
    ),
    "hf": Source(
        load=_from_transformers,
        settings=("revision", *_INPUT),
        usage="hf:FOLDER or hf:OWNER/NAME, as in hf:google/vit-base-patch16-224",
    ),
    "onnx": Source(
        load=_from_onnx,
        settings=_INPUT,
        usage="onnx:PATH, as in onnx:net.onnx?mean=0.5,0.5,0.5&std=0.5,0.5,0.5",
        files=True,
    ),
    "torchscript": Source(
        load=_from_torchscript,
        settings=("num_classes", *_INPUT),
        usage="torchscript:PATH?size=224, as in torchscript:net.pt?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5",
        files=True,
    ),
    "python": Source(load=_from_python, settings=("num_classes", *_INPUT), usage="python:PACKAGE.MODULE:FACTORY"),
}
