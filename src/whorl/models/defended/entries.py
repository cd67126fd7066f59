"""The hardened networks that come with the package, as the manifest lists them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.files import has_sha256
from whorl.models import networks
from whorl.models.classifier import Classifier
from whorl.models.defended.tensors import overlay, unpack
from whorl.models.weights import state_dict_sha256

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
    listed = json.loads(MANIFEST.read_text(encoding="utf-8"))["models"]
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
