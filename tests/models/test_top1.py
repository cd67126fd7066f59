"""Top-1 accuracy of the offline networks on half of the NIPS17 images."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from whorl.models import load_model

FOLDER = Path(__file__).parents[3] / "shared" / "nips17"
AT_LEAST = {
    "resnet18": 83,
    "mobilenet_v2": 85,
    "efficientnet_lite0": 90,
    "efficientnet_lite1": 89,
    "efficientnet_lite2": 89,
}


def picture(name: str) -> Tensor:
    with Image.open(FOLDER / "images" / f"{name}.png") as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1) / 255


def correct(name: str, limit: int | None = None) -> tuple[int, int]:
    """How many images are recognised, and of how many."""
    with (FOLDER / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[:limit]
    clf, right = load_model(name), 0
    for start in range(0, len(rows), 25):
        batch = rows[start : start + 25]
        x = torch.stack([picture(row["ImageId"]) for row in batch])
        y = torch.tensor([int(row["TrueLabel"]) - 1 for row in batch])  # the file counts from 1
        with torch.inference_mode():
            right += int((clf(x).argmax(1) == y).sum())
    return right, len(rows)


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the NIPS17 images are not there")
@pytest.mark.parametrize("name", AT_LEAST)
def test_top_1(name: str) -> None:
    right, count = correct(name)
    assert count == 500
    assert right * 100 >= AT_LEAST[name] * count, f"{right} of {count}"


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the NIPS17 images are not there")
def test_top_1_of_inception_on_some() -> None:
    right, count = correct("inception_v3", 40)
    assert right >= 36, f"{right} of {count}"


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the NIPS17 images are not there")
def test_top_1_of_inception() -> None:
    right, count = correct("inception_v3")
    assert count == 500
    assert right * 100 >= 95 * count, f"{right} of {count}"
