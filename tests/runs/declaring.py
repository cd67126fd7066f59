"""A small experiment on small networks and images, for the tests of runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from conftest import random_images, small_net
from whorl import runs
from whorl.data import save_image

SMALL, OTHER = "python:cli.toy_networks:small", "python:cli.toy_networks:other"
COUNT = 7


def save_toy_images(folder: Path, count: int = COUNT) -> Path:
    """Save images in class folders named by what the small network takes them for."""
    x = random_images(count)
    for i, label in enumerate(small_net()(x).argmax(1).tolist()):
        save_image(folder / str(label) / f"{i}.png", x[i])
    return folder


def declared(folder: Path, **settings: Any) -> runs.Declaration:
    """Two attacks on one network, asked of it, of another, and of the first behind a defence."""
    defaults: dict[str, Any] = {
        "name": "small",
        "data": {"folder": str(folder)},
        "sources": [SMALL],
        "attacks": [{"name": "mim", "settings": {"eps": "12/255"}}, {"name": "ai-mim", "settings": {"eps": "12/255"}}],
        "targets": [SMALL, OTHER, f"{SMALL}+resize-pad"],
        "poses": [{"angles": [-30, 0, 30], "scales": [0.7, 1]}],
        "batch_size": 2,
    }
    return runs.declare(**(defaults | settings))


def table(folder: Path, name: str = "results.csv") -> list[dict[str, str]]:
    """A run's table without the time that crafting took: the one column that no two runs share."""
    with (folder / name).open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def made(folder: Path) -> dict[str, bytes]:
    """Every adversarial image, byte for byte."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob("adv/**/*.png")}
