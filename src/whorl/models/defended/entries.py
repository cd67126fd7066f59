"""The hardened networks that come with the package, as the manifest lists them, and how their tensors are packed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.files import atomic_write, has_sha256, read_back
from whorl.models import networks
from whorl.models.classifier import Classifier
from whorl.models.weights import StateDict, read_state_dict, state_dict_sha256

HERE = Path(__file__).parent
MANIFEST = HERE / "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One hardened network.

    Attributes:
        name: such as ``mobilenet_v2.ens-at``.
        base: the network of the zoo that it was, such as ``mobilenet_v2``.
        file: weight file beside the manifest.
        sha256: of the file.
        weights_sha256: of all tensors of the network, the original's included.
        about: how it was trained and what it measured, as in the manifest.
    """

    name: str
    base: str
    file: str
    sha256: str
    weights_sha256: str
    about: dict[str, Any]


@cache
def shipped() -> dict[str, Shipped]:
    """Every hardened network by name, in the manifest's order."""
    listed = read_back(MANIFEST, lambda text: json.loads(text)["models"], remedy="and install whorl again") or {}
    own = ("base", "file", "sha256", "weights_sha256")
    return {
        name: Shipped(
            name=name,
            **{key: entry[key] for key in own},
            about={key: value for key, value in entry.items() if key not in own},
        )
        for name, entry in listed.items()
    }


def load(name: str) -> Classifier:
    """Load a hardened network on the CPU: the original's weights, and what training changed."""
    entry = shipped()[name]
    path = HERE / entry.file
    if not has_sha256(path, entry.sha256):
        raise WhorlError(f"{path} is missing or damaged: its SHA-256 is not {entry.sha256}. Install whorl again.")
    clf = networks.load(entry.base)
    overlay(clf.net, unpack(path), entry.file)
    digest = state_dict_sha256(clf.net)
    if digest != entry.weights_sha256:
        raise WhorlError(
            f"{name} does not come out as it was measured: expected tensors of SHA-256 {entry.weights_sha256}, got "
            f"{digest}. Its original, {entry.base}, is not the one that it was trained from."
        )
    clf.name, clf.weights_sha256 = name, digest
    return clf


def pack(path: Path, state: Mapping[str, Tensor], *, about: Mapping[str, str] | None = None) -> None:
    """Write tensors as fp16 safetensors (whole numbers as they are); the file appears whole or not at all.

    Args:
        path: ends in ``.safetensors``.
        state: name to tensor.
        about: text to keep in the file's header.
    """
    from safetensors.torch import save

    def small(tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu()
        return (tensor.half() if tensor.is_floating_point() else tensor).contiguous()

    packed = {name: small(tensor) for name, tensor in state.items()}
    for name, tensor in packed.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise WhorlError(f"{name} cannot be written in fp16: it holds values beyond its range, or NaN.")
    with atomic_write(path) as file:
        file.write(save(packed, metadata=dict(about or {})))


def unpack(path: Path) -> StateDict:
    """Read what :func:`pack` wrote, floating tensors as float32."""
    state = read_state_dict(path)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def overlay(net: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Overwrite some tensors of a network by name, whatever their dtype and device.

    Args:
        net: the network.
        state: name to tensor, each of which the network has, in the same shape.
        origin: where the tensors come from, for the error message.
    """
    own = net.state_dict()
    for name, tensor in state.items():
        if name not in own:
            raise WhorlError(f"{origin} does not fit {type(net).__name__}: it has the unknown {name}.")
        if own[name].shape != tensor.shape:
            raise WhorlError(
                f"{origin} does not fit {type(net).__name__}: {name} is {tuple(tensor.shape)}, "
                f"expected {tuple(own[name].shape)}."
            )
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)
