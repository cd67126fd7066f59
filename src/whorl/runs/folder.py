"""Where things lie in a run folder, and how settings, images and surroundings are written down in its manifest.

    DIR/manifest.json
    DIR/adv/<attack>/<source>/<id>.png

``whorl.runs.store`` writes there.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

import whorl
from whorl.data import load_image
from whorl.errors import WhorlError
from whorl.files import read_back

Json = dict[str, Any]
T = TypeVar("T")

FORMAT = 1
_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow")
_LONGEST_NAME = 100


class ForeignManifestError(WhorlError):
    """A ``manifest.json`` that another program wrote, or another version of whorl."""


class RunFolder:
    """Where a run's images and its manifest lie.

    Args:
        path: the folder; made when something is first written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        nearest = next((place for place in (self.path, *self.path.parents) if place.exists()), self.path)
        if nearest.exists() and not nearest.is_dir():
            raise WhorlError(f"expected a folder, or a path where one can be made; {nearest} is a file.")

    @property
    def manifest(self) -> Path:
        """The manifest's path."""
        return self.path / "manifest.json"

    def images(self, attack: str, source: str) -> Path:
        """The folder of one attack's images."""
        return self.path / "adv" / attack / folder_name(source)

    def image(self, attack: str, source: str, name: str) -> Path:
        """The path of one image, by its id."""
        # Not with_suffix: ids may hold dots.
        return self.images(attack, source) / f"{name}.png"

    def load(self, attack: str, source: str, ids: Sequence[str]) -> Tensor:
        """Read images back: (N, 3, H, W) float32 in [0, 1]."""
        return torch.stack([load_image(self.image(attack, source, name)) for name in ids])

    def read(self) -> Json:
        """Read the manifest; an empty one where there is none yet.

        Raises:
            ForeignManifestError: it is not ours.
            WhorlError: it is ours, and damaged.
        """
        content = read_back(self.manifest, _parsed, remedy=_RUN_AGAIN)
        if content is None:
            return {"format": FORMAT, "crafted": {}}
        if not content:
            raise ForeignManifestError(
                f"{self.manifest} is not a manifest of this version of whorl. Choose another folder, or delete it "
                f"{_RUN_AGAIN}."
            )
        return content


def _parsed(text: bytes) -> Json:
    """A manifest, or nothing if it is none of ours."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("format") != FORMAT or "crafted" not in content:
        return {}
    checked(_Manifest, content)
    return content


_RUN_AGAIN = "and run the same command again, which keeps what was finished; or choose another folder"


class _Written(BaseModel):
    """What is read again of a part of the manifest; what else it says stays."""

    model_config = ConfigDict(strict=True, extra="allow")


class _ImageFacts(_Written):
    sha256: str = ""
    clean_sha256: str = ""
    grad_evals: int = 0
    seconds: float = 0.0


class _Crafted(_Written):
    attack: str
    source: str
    settings: Json = {}
    images: dict[str, _ImageFacts] = {}
    data: Json = {}


class _QueryCell(_Written):
    attack: str
    start: str
    target: str
    cells: str


class _QuerySettings(_Written):
    attacks: dict[str, str]


class _QueryTable(_Written):
    cells: dict[str, _QueryCell]
    settings: _QuerySettings


class _Manifest(_Written):
    crafted: dict[str, _Crafted]
    experiment: Json = {}
    targets: Json = {}
    shard: str = ""
    table7: _QueryTable | None = None


def checked(kind: type[T], content: Any) -> T:
    """Make a record of what JSON holds.

    Raises:
        ValueError: something in it is not what such a record holds; the message says where.

    >>> checked(dict[str, int], {"a": 1})
    {'a': 1}
    """
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        at = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        raise ValueError(f"{at or 'the whole'} is not as it was written") from error


def folder_name(source: str) -> str:
    """Make a model's name fit for a path; two names never become one.

    >>> folder_name("resnet18+mobilenet_v2")
    'resnet18+mobilenet_v2'
    >>> folder_name("timm:resnet50.a1_in1k")
    'timm_resnet50.a1_in1k-d481db19'
    """
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", source).lstrip(".")
    if safe == source and len(safe) <= _LONGEST_NAME:
        return safe
    digest = hashlib.blake2b(source.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{safe[:_LONGEST_NAME]}-{digest}"


def attack_label(name: str) -> str:
    """What an attack is called in paths and tables, by default; not every file system takes a colon.

    >>> attack_label("torchattacks:VMIFGSM")
    'torchattacks-vmifgsm'
    """
    return name.lower().replace(":", "-")


def as_json(value: object) -> Any:
    """Write a setting so that it can be compared and read: records become objects that name their type.

    >>> as_json(whorl.attack("ai-fgsm"))["estimator"]["kernel_size"]
    15
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if is_dataclass(value):
        telling = [field for field in fields(value) if field.init and field.metadata.get("identity", True)]
        shown = {field.name: as_json(getattr(value, field.name)) for field in telling}
        return {"type": type(value).__name__, **shown}
    return repr(value)


def pixels_sha256(x: Tensor) -> str:
    """Hash one image, (3, H, W) in [0, 1], as the 8-bit pixels that it holds."""
    levels = (x * 255).round().to(torch.uint8).contiguous()
    return hashlib.sha256(f"{tuple(levels.shape)}".encode() + levels.numpy().tobytes()).hexdigest()


def environment(device: torch.device) -> Json:
    """What the result may depend on besides the settings: versions and the device."""
    versions = {"whorl": whorl.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"versions": versions, "device": f"{device.type} ({name})"}
