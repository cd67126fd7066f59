"""Start images of a folder: found by id, refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import random_images
from whorl.data import StartFolder, save_image
from whorl.errors import WhorlError

IDS = ["a", "b/c", "d.e"]


def fill(folder: Path, ids: list[str] = IDS, *, height: int = 18) -> Path:
    for name, image in zip(ids, random_images(len(ids), height=height), strict=True):
        save_image(folder / f"{name}.png", image)
    return folder


def test_the_images_of_the_ids_in_their_order(tmp_path: Path) -> None:
    x = random_images(3).double()
    read = StartFolder(fill(tmp_path)).load(x.flip(0), IDS[::-1])
    assert read.dtype == torch.float64
    torch.testing.assert_close(read, (x * 255).round().flip(0) / 255, rtol=0, atol=1e-6)


def test_other_formats_are_found_and_a_png_goes_before_them(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    assert StartFolder(tmp_path).path("a") == tmp_path / "a.jpg"
    (tmp_path / "a.png").touch()
    assert StartFolder(tmp_path).path("a") == tmp_path / "a.png"


@pytest.mark.parametrize(
    ("held", "height", "ids", "message"),
    [
        (IDS[:1], 18, IDS, r"a start image for each of the 3 images; there is none for b/c, d\.e\."),
        (IDS, 9, IDS, "must be 18x18 pixels, like the images under attack; that of a is 18x9"),
        (IDS, 18, None, "a folder as init needs ids="),
        ([], 18, IDS, "is no folder"),
        (IDS[:1], 18, [f"x{i}" for i in range(7)], r"none for x0, x1, x2, x3, x4 and 2 more\."),
    ],
)
def test_what_is_missing_is_named(
    held: list[str], height: int, ids: list[str] | None, message: str, tmp_path: Path
) -> None:
    start = StartFolder(fill(tmp_path / "starts", held, height=height))
    with pytest.raises(WhorlError, match=message):
        start.load(random_images(len(ids or IDS)), ids)


def test_an_id_without_an_image(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match=r"expected a start image .*none\.png; found none"):
        StartFolder(tmp_path).path("none")
