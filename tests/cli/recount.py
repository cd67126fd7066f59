"""Recount a results.csv from nothing but images and labels; shares no code with whorl.

    python recount.py CLEAN_DIR ADV_DIR ADV_DIR2

CLEAN_DIR has a folder for each label; each ADV_DIR holds the same file names. Prints the CSV on stdout.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from conftest import small_net

ANGLES, SCALES, SHIFTS = (-30.0, 0.0, 30.0), (0.7, 1.0), (0.0, 20.0)


def warped(picture: NDArray[np.float64], angle: float, scale: float, shift: float) -> NDArray[np.float64]:
    """The definition, pixel by pixel: rotate and scale about the centre, then shift; bilinear, zeros outside."""
    height, width, _ = picture.shape
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    seen = np.zeros_like(picture)
    for row in range(height):
        for column in range(width):
            right = column - (width - 1) / 2 - shift * width / 299
            down = row - (height - 1) / 2 - shift * height / 299
            x = (cos * right + sin * down) / scale + (width - 1) / 2
            y = (cos * down - sin * right) / scale + (height - 1) / 2
            for i in (math.floor(y), math.floor(y) + 1):
                for j in (math.floor(x), math.floor(x) + 1):
                    if 0 <= i < height and 0 <= j < width:
                        seen[row, column] += picture[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return seen


def answer(net: torch.nn.Module, path: Path, pose: tuple[float, float, float]) -> int:
    picture = np.asarray(Image.open(path), dtype=np.float64) / 255
    x = torch.from_numpy(warped(picture, *pose)).permute(2, 0, 1)[None].float()
    return int(net((x - 0.5) / 0.5).argmax())


def main(clean: Path, *folders: Path) -> None:
    names = sorted(path.relative_to(clean) for path in clean.rglob("*.png"))
    net = small_net()
    sys.stdout.write("attack,source,target,defense,angle,scale,shift_x,shift_y,eps,")
    sys.stdout.write("n,n_clean_correct,n_success,asr,accuracy,grad_evals,seconds\n")
    out = csv.writer(sys.stdout, lineterminator="\n")
    for folder in folders:
        for pose in [(angle, scale, shift) for angle in ANGLES for scale in SCALES for shift in SHIFTS]:
            right = [answer(net, clean / name, pose) == int(name.parts[0]) for name in names]
            still = [answer(net, folder / name, pose) == int(name.parts[0]) for name in names]
            fooled = sum(before and not after for before, after in zip(right, still, strict=True))
            rate = round(fooled / sum(right), 6) if any(right) else ""
            counts = (len(names), sum(right), fooled, rate, round(sum(still) / len(names), 6))
            out.writerow((folder.name, "", "small", "none", *pose, pose[2], "", *counts, "", ""))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
