"""A profile of small networks, and images that they recognise."""

from __future__ import annotations

from pathlib import Path

from cli.toy_networks import small
from conftest import random_images
from whorl.data import save_image

SMALL, OTHER = "python:cli.toy_networks:small", "python:cli.toy_networks:other"


def toy_profile(folder: Path) -> Path:
    """Write a profile in which small plays Inc-v3 and other plays Inc-v4."""
    path = folder / "toys.toml"
    path.write_text(f'name = "toys"\nsize = 18\n[networks]\nwhite = ["{SMALL}"]\nblack = ["{OTHER}"]\n')
    return path


def toy_images(folder: Path, count: int = 6) -> Path:
    """Save images under the labels that small gives them."""
    x = random_images(count)
    for i, label in enumerate(small()(x).argmax(1).tolist()):
        save_image(folder / "data" / str(label) / f"{i}.png", x[i])
    return folder / "data"
