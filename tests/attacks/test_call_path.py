"""How far one call of an attack has to be followed: through how many files, and with how many changes between them."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import whorl
from conftest import CLASSES, random_images

ROOT = Path(whorl.__file__).parent
MOST_FILES, MOST_CHANGES = 12, 45


def test_an_attack_can_be_read_in_a_few_files() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    net = nn.Sequential(body, nn.Flatten(), nn.Linear(8, CLASSES))
    clf = whorl.Classifier.from_module(net, size=18, mean=(0.5,) * 3, std=(0.25,) * 3)
    x = random_images(1)  # of several, a CPU sees one after the other
    y = clf(x).argmax(1)
    attack = whorl.attack("dim", steps=2)
    attack(clf, x, y)  # what is imported or cached the first time is not the way
    visited: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(ROOT):
            visited.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        attack(clf, x, y)
    finally:
        sys.setprofile(None)
    changes = sum(before != after for before, after in pairwise(visited))
    names = sorted({Path(file).relative_to(ROOT).as_posix() for file in visited})
    assert len(names) <= MOST_FILES, str(names)
    assert changes <= MOST_CHANGES, changes
