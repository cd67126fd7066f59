"""What a visitor takes home: the images, the settings, and the commands that make the same images again."""

from __future__ import annotations

import csv
import io
import shlex
import zipfile
from typing import NamedTuple

import whorl
from whorl.evaluation import Pose
from whorl.files import json_text
from whorl.report.gallery import CLEAN, address, to_image
from whorl.runs.networks import device_of
from whorl.ui.pair import CraftedPair, predict

FOLDER = "whorl-example"
_IMAGES, _OUT = f"{FOLDER}/data", f"{FOLDER}/again"
_FIRST = zipfile.ZipInfo().date_time  # the same example gives the same bytes


class Download(NamedTuple):
    """A file inside an address."""

    title: str
    name: str
    address: str


def commands(pair: CraftedPair, network: str) -> list[str]:
    """The commands that repeat an example, one for each attack, beside the folder of its archive.

    Args:
        pair: the example.
        network: that was attacked, as ``whorl.load_model`` takes it.
    """
    settings, device = pair.settings, device_of(pair.model)
    shared = [
        "--model",
        network,
        "--data",
        _IMAGES,
        "--eps",
        f"{settings.eps * 255:g}/255",
        "--seed",
        str(settings.seed),
    ]
    # Step by step, as the page does it: a folded network may round otherwise.
    end = ["--device", str(device), "--set", "fast=false", "--out", _OUT]
    return [
        shlex.join(["whorl", "attack", name, *shared, "--steps", str(attack.steps), *end])
        for name, attack in settings.attacks().items()
    ]


def settings(pair: CraftedPair, network: str) -> dict[str, object]:
    """Everything that decides the images, as plain JSON."""
    return {
        "image": {"name": pair.image.name, "id": pair.image.id, "label": pair.label, "label_name": pair.label_name},
        "label_is": "true" if pair.known else "the network's own answer for the clean image",
        "network": network,
        "attacks": {name: repr(attack) for name, attack in pair.settings.attacks().items()},
        "eps": pair.settings.eps,
        "steps": pair.settings.steps,
        "seed": pair.settings.seed,
        "device": str(device_of(pair.model)),
        "whorl": whorl.__version__,
        "commands": commands(pair, network),
    }


def archive(pair: CraftedPair, network: str) -> bytes:
    """All of it in one ZIP file: a data set of one image, its adversarial versions, settings and commands."""
    pngs = {name: _png(pair, name) for name in pair.versions}
    listed = io.StringIO()
    csv.writer(listed, lineterminator="\n").writerows([("ImageId", "TrueLabel"), (pair.image.id, pair.label + 1)])
    files: dict[str, bytes | str] = {
        f"{_IMAGES}/images.csv": listed.getvalue(),
        f"{_IMAGES}/images/{pair.image.id}.png": pngs[CLEAN],
        **{f"{FOLDER}/{name}.png": pngs[name] for name in pair.attacks},
        f"{FOLDER}/settings.json": json_text(settings(pair, network)),
        f"{FOLDER}/repeat.sh": "# Run beside the folder whorl-example.\n" + "\n".join(commands(pair, network)) + "\n",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name, _FIRST), content)
    return file.getvalue()


def downloads(pair: CraftedPair, network: str) -> list[Download]:
    """Each adversarial image, and everything together. Nothing is written to disk for them."""
    images = [
        Download(f"{name.upper()}, PNG", f"{name}.png", address("image/png", _png(pair, name))) for name in pair.attacks
    ]
    whole = address("application/zip", archive(pair, network))
    return [*images, Download("Images, settings and commands, ZIP", f"{FOLDER}.zip", whole)]


def recognised(pair: CraftedPair) -> bool:
    """Whether the attacked network recognises the clean image; ``whorl attack`` refuses a data set without any such."""
    return predict(pair, Pose()).answers[CLEAN].right


def _png(pair: CraftedPair, version: str) -> bytes:
    file = io.BytesIO()
    to_image(pair.versions[version][0]).save(file, format="PNG")
    return file.getvalue()
